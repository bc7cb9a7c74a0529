"""The local runtime as the registry knows it."""

from __future__ import annotations

from pathlib import Path

from osgym_host.core.egress import parse_allowlist
from osgym_host.images.store import ImageStore
from osgym_host.runtimes.base import Egress, Runtime
from osgym_host.runtimes.cgroups import instance_group_name
from osgym_host.runtimes.egress.gate import LinkOptions
from osgym_host.runtimes.kind import ImageRef, RuntimeKind
from osgym_host.runtimes.local.instance import ZYGOTE_RECORD, egress_record
from osgym_host.runtimes.local.network import ReplicaNetwork
from osgym_host.runtimes.local.runtime import LocalRuntime
from osgym_host.settings import Settings


class LocalKind(RuntimeKind):
    """Replicas as namespaces of this machine's kernel."""

    def find_image(self, settings: Settings) -> ImageRef:
        """Look up the flavor, or the digest."""
        image = ImageStore(settings.data_dir).resolve(settings.image)
        return ImageRef(image, image.flavor)

    def make(self, settings: Settings, image: ImageRef | None) -> Runtime:
        """Make the runtime, with links where replicas may go out."""
        egress = Egress(settings.egress)
        if egress is Egress.NONE:
            return LocalRuntime(settings.data_dir, settings.instance)
        run_folder = settings.data_dir / "run" / settings.instance
        links = ReplicaNetwork(
            instance_group_name(run_folder),
            LinkOptions(parse_allowlist(settings.egress_allow), settings.network_links),
            needed=egress,
            record=egress_record(run_folder),
        )
        return LocalRuntime(settings.data_dir, settings.instance, links)

    def has_leftovers(self, run_folder: Path) -> bool:
        """Say whether there are replicas, or a zygote."""
        return any((run_folder / "replicas").glob("*")) or any(
            path.exists() for path in (run_folder / ZYGOTE_RECORD, egress_record(run_folder))
        )


KIND = LocalKind()
