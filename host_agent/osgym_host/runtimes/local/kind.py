"""Kind of the local runtime: its image, its settings' meaning, its checks."""

from __future__ import annotations

import os
from pathlib import Path

from osgym_host.core.egress import parse_allowlist
from osgym_host.doctor.result import Checks
from osgym_host.images.store import ImageStore
from osgym_host.runtimes.base import Egress, Runtime, RuntimeUnsupported
from osgym_host.runtimes.cgroups import instance_group_name
from osgym_host.runtimes.egress.gate import LinkOptions
from osgym_host.runtimes.kind import ImageRef, RuntimeKind
from osgym_host.runtimes.local.doctor import CHECKS, EXTRA_CHECKS
from osgym_host.runtimes.local.instance import ZYGOTE_RECORD, egress_record
from osgym_host.runtimes.local.network import ReplicaNetwork
from osgym_host.runtimes.local.runtime import LocalRuntime
from osgym_host.runtimes.web.client import ReplicaProxy
from osgym_host.runtimes.web.options import Authority, ProxyOptions, WebMode
from osgym_host.settings import Settings


class LocalKind(RuntimeKind):
    """Replicas as namespaces of this machine's kernel."""

    has_proxy = True
    serves_many = True
    rests_by_default = True

    def find_image(self, settings: Settings) -> ImageRef:
        image = ImageStore(settings.data_dir).resolve(settings.image)
        return ImageRef(image, image.flavor)

    def make(self, settings: Settings, image: ImageRef | None) -> Runtime:
        egress = Egress(settings.egress)
        links = proxy = None
        if uses_proxy(settings):
            proxy = None if image is None else ReplicaProxy(_proxy_options(settings, egress))
        elif egress is not Egress.NONE:
            run_folder = settings.data_dir / "run" / settings.instance
            links = ReplicaNetwork(
                instance_group_name(run_folder),
                LinkOptions(parse_allowlist(settings.egress_allow), settings.network_links),
                needed=egress,
                record=egress_record(run_folder),
            )
        branching = settings.branching == "on"
        templates = branching or "on" in (settings.task_templates, settings.warm_clones)
        return LocalRuntime(
            settings.data_dir,
            settings.instance,
            links,
            proxy,
            templates=templates,
            branching=branching,
            kept=settings.checkpoints_dir,
        )

    def checks(self) -> Checks:
        return CHECKS

    def extra_checks(self) -> Checks:
        return EXTRA_CHECKS

    def has_leftovers(self, run_folder: Path) -> bool:
        return any((run_folder / "replicas").glob("*")) or any(
            path.exists() for path in (run_folder / ZYGOTE_RECORD, egress_record(run_folder))
        )


def uses_proxy(settings: Settings) -> bool:
    """Return whether the settings give replicas the host's proxy."""
    if settings.web != "off":
        return True
    wanted = settings.egress_by == "proxy" or (settings.egress_by == "auto" and os.geteuid() != 0)
    return wanted and settings.egress != "none"


def _proxy_options(settings: Settings, egress: Egress) -> ProxyOptions:
    mode = WebMode(settings.web)
    return ProxyOptions(
        egress,
        parse_allowlist(settings.egress_allow),
        mode,
        settings.web_archive,
        None if mode is WebMode.OFF else _authority(),
    )


def _authority() -> Authority:
    try:
        from osgym_host.runtimes.web.certificates import make_authority  # what `osgym-host[web]` brings
    except ImportError as exc:
        raise RuntimeUnsupported(
            f"sites cannot be recorded or replayed: {exc}.", remedy="pip install 'osgym-host[web]'"
        ) from exc
    return make_authority()


KIND = LocalKind()
