"""Doctor's checks of the local runtime: a replica is really made from this machine's own shell."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from pathlib import Path

from osgym_host.doctor.result import DoctorContext, Finding, Status
from osgym_host.images.errors import NamespaceUnavailable
from osgym_host.images.idmap import current_idmap
from osgym_host.runtimes.base import (
    Egress,
    ReplicaCreateFailed,
    ReplicaSpec,
    RuntimeFault,
    RuntimeUnsupported,
)
from osgym_host.runtimes.local.criu.installed import NEEDED, find_criu, what_is_lacking
from osgym_host.runtimes.local.isolation import unbounded_because
from osgym_host.runtimes.local.network import ReplicaNetwork
from osgym_host.runtimes.local.probe_image import ProbeImage, build_probe_image
from osgym_host.runtimes.local.runtime import LocalRuntime
from osgym_host.runtimes.web.client import ReplicaProxy
from osgym_host.runtimes.web.options import ProxyOptions

_SESSION = '#!/bin/sh\necho probe >/probe && read -r line </probe && [ "$line" = probe ] && exit 7\n'
_PROBE_EXIT_CODE = 7
_PROBE_TIMEOUT_S = 10.0


async def check_ids(context: DoctorContext) -> list[Finding]:
    """Check subordinate ids, and the tools that map them for ordinary users."""
    name = "subordinate ids"
    try:
        idmap = current_idmap()
    except NamespaceUnavailable as exc:
        remedy = (
            "Install uidmap, then as root: "
            "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER"
        )
        return [Finding(name, Status.MISSING, f"{exc}.", remedy, needed=True)]
    how = "root maps them directly" if os.geteuid() == 0 else "newuidmap and newgidmap map them"
    facts = {"uid_base": idmap.uid_base, "count": idmap.count}
    return [
        Finding(name, Status.OK, f"{idmap.count:,} from {idmap.uid_base}; {how}.", needed=True, facts=facts)
    ]


async def check_replica(context: DoctorContext) -> list[Finding]:
    """Make one replica: namespaces, overlay, mounts, filter, control groups."""
    made_data_dir = not context.data_dir.exists()
    try:
        context.data_dir.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="doctor-", dir=context.data_dir))
    except OSError as exc:
        remedy = "Choose another folder with OSGYM_DATA_DIR."
        return [
            Finding(
                "local runtime",
                Status.MISSING,
                f"{context.data_dir} cannot be written: {exc}.",
                remedy,
                needed=True,
            )
        ]
    try:
        return await _try_replica(folder)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, True)
        if made_data_dir and not any(context.data_dir.iterdir()):
            context.data_dir.rmdir()


async def _try_replica(folder: Path) -> list[Finding]:
    runtime = LocalRuntime(folder, "doctor")
    try:
        image = await asyncio.to_thread(build_probe_image, folder / "image", _SESSION)
        await runtime.start()
    except (RuntimeUnsupported, NamespaceUnavailable) as exc:
        return [_failed("user namespaces", str(exc))]
    except (RuntimeFault, OSError) as exc:
        return [_failed("local runtime", str(exc))]
    namespaces = Finding(
        "user namespaces", Status.OK, "A user namespace was entered, with all its ids mapped.", needed=True
    )
    try:
        capabilities = runtime.capabilities()
        caps = (
            ("memory", capabilities.caps_memory),
            ("cpu", capabilities.caps_cpu),
            ("pids", capabilities.caps_pids),
        )
        groups = _control_groups([name for name, there in caps if there], capabilities.notes)
        tried = await _try_create(runtime, image)
        made = all(finding.status is Status.OK for finding in tried)
        return [
            namespaces,
            groups,
            *tried,
            *([_isolation(runtime.ids_shared_because, runtime.devices_shared)] if made else []),
        ]
    finally:
        await runtime.stop()


async def _try_create(runtime: LocalRuntime, image: ProbeImage) -> list[Finding]:
    began = time.monotonic()
    try:
        replica = await runtime.create(ReplicaSpec("probe", 1, image, pids=32))
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            info = await replica.wait_dead()
    except ReplicaCreateFailed as exc:
        if "overlay" in str(exc):
            found = f"An overlay with userxattr cannot be mounted: {exc}."
            return [
                Finding(
                    "overlay",
                    Status.MISSING,
                    found,
                    "Linux 5.11 or newer is needed, and a data directory that is not itself an overlay, "
                    "NFS or the like: set OSGYM_DATA_DIR to a folder on ext4, XFS or btrfs.",
                    needed=True,
                )
            ]
        return [_failed("local runtime", str(exc))]
    except (RuntimeFault, TimeoutError) as exc:
        return [_failed("local runtime", f"the probe did not end: {exc}")]
    took_ms = (time.monotonic() - began) * 1000
    if info.exit_code != _PROBE_EXIT_CODE:
        return [_failed("local runtime", f"{info.detail}: {info.log_tail}")]
    return [
        Finding(
            "overlay",
            Status.OK,
            "An overlay was mounted with userxattr inside a user namespace, and written to.",
            needed=True,
        ),
        Finding(
            "local runtime",
            Status.OK,
            f"A replica was made from this machine's shell, ran and was removed, in {took_ms:.0f} ms.",
            needed=True,
            facts={"ms": round(took_ms, 1)},
        ),
    ]


def _isolation(shared_because: str, devices_shared: bool) -> Finding:
    name = "isolation"
    unbounded = unbounded_because()
    bounds = "Namespaces, inotify instances, queued signals and message queues are bounded for each replica"
    if unbounded:
        bounds = (
            "Queued signals and message queues are bounded for each replica, namespaces and inotify "
            "instances are not, since /proc/sys is mounted read-only here"
        )
    if devices_shared:
        bounds += "; device nodes are the host's, so that locks on /dev/null reach other replicas"
    facts = {"own_ids": not shared_because, "own_devices": not devices_shared}
    if not shared_because:
        found = f"{bounds}, and each replica has its own range of ids over an id-mapped image."
        return Finding(name, Status.WARN if unbounded else Status.OK, found, facts=facts)
    if os.geteuid() != 0:
        return Finding(
            name, Status.WARN, f"{bounds}. {shared_because}", "Run the host agent as root.", facts=facts
        )
    found = f"{bounds}. All replicas share one range of ids, since the kernel refused: {shared_because}."
    remedy = (
        "Linux 5.19 or newer is needed, and a data directory on ext4, XFS or btrfs; until then descriptors "
        "in flight, pipe buffers and epoll watches are counted for all replicas together."
    )
    return Finding(name, Status.WARN, found, remedy, facts=facts)


def _control_groups(enforced: list[str], notes: tuple[str, ...]) -> Finding:
    facts = {"enforced": enforced}
    if len(enforced) == 3:
        return Finding(
            "control groups",
            Status.OK,
            "A replica's memory, CPU and number of processes are capped.",
            facts=facts,
        )
    found = f"Only these are capped for each replica: {', '.join(enforced) or 'nothing'}."
    return Finding("control groups", Status.WARN, found, " ".join(notes), facts=facts)


def _failed(name: str, text: str) -> Finding:
    return Finding(name, Status.MISSING, text.strip(), _namespace_remedy(), needed=True)


def _namespace_remedy() -> str:
    for path, bad, remedy in (
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces=15000"),
    ):
        try:
            value = (Path("/proc/sys") / path).read_text().strip()
        except OSError:
            continue
        if value == bad and (os.geteuid() != 0 or path.startswith("user/")):
            return f"As root: sysctl -w {remedy} (and a file in /etc/sysctl.d to keep it)."
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return "In a container, run it with --privileged, or on the host itself."
    return "Run as root, or allow user namespaces to ordinary users."


async def check_egress(context: DoctorContext) -> list[Finding]:
    """Try both kinds of egress: links with rules on this host, and its proxy."""
    proxy, link = await _try_proxy(), await _try_links()
    facts = {"way": "link" if not link else "proxy" if not proxy else "none", "proxy": not proxy}
    if proxy:
        return [
            Finding(
                "egress",
                Status.WARN,
                f"The proxy of replicas does not work: {proxy.rstrip('.')}.",
                facts=facts,
            )
        ]
    if not link:
        found = (
            "Replicas can have egress allowlist or open: a link for each, with rules of nftables on this "
            "host; or with egress_by proxy no network and this host's proxy."
        )
        return [Finding("egress", Status.OK, found, facts=facts)]
    found = (
        "Replicas can have egress allowlist or open with egress_by proxy (for ordinary users the default): "
        f"no network, and a proxy of this host for programs that use one. No links: {link}"
    )
    return [Finding("egress", Status.OK, found, _NO_LINKS, facts=facts)]


async def _try_links() -> str:
    """Return the reason why replicas cannot have links; empty when they can."""
    links = ReplicaNetwork(f"osgym-doctor-{os.getpid()}", needed=Egress.OPEN)
    try:
        await links.start()
        await links.stop()
    except RuntimeFault as exc:
        return str(exc)
    return " ".join(links.notes)


async def _try_proxy() -> str:
    """Return the reason why there can be no proxy; empty when there can."""
    proxy = ReplicaProxy(ProxyOptions(Egress.OPEN))
    try:
        await proxy.start()
        await proxy.stop()
    except RuntimeFault as exc:
        return str(exc)
    return ""


_NO_LINKS = (
    "Links carry every program's traffic, also of those that use no proxy. They need root, iproute2, "
    "nftables and sysctl net.ipv4.ip_forward=1."
)


async def check_criu(context: DoctorContext) -> list[Finding]:
    """Check CRIU, which task templates, clones of warm replicas, forks and checkpoints need."""
    criu = await asyncio.to_thread(find_criu)
    version = None if criu.version is None else ".".join(map(str, criu.version))
    facts = {"version": version, "path": criu.path}
    if not criu.usable:
        found = f"The settings task_templates, warm_clones and branching cannot be used: {criu.lacking}."
        return [Finding("criu", Status.WARN, found, _NO_CRIU, facts=facts)]
    lacking = await asyncio.to_thread(what_is_lacking, criu)
    if lacking:
        found = f"criu {version} is installed, but {lacking}."
        return [Finding("criu", Status.WARN, found, _NO_CRIU, facts=facts)]
    found = (
        f"criu {version} can save desktops after a task's set-up (task_templates), before it (warm_clones) "
        "and in the middle of an episode (branching)."
    )
    return [Finding("criu", Status.OK, found, facts=facts)]


_NO_CRIU = (
    "Not needed while task_templates, warm_clones and branching are off. "
    f"Else install {NEEDED}, and run the host agent as root."
)

CHECKS = (("subordinate ids", check_ids), ("local runtime", check_replica))
EXTRA_CHECKS = (("egress", check_egress), ("criu", check_criu))
