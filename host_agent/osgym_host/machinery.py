"""From settings to what replicas are cloned from and what runs them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from osgym_host.images.errors import ImageError
from osgym_host.images.snapshots import Snapshot, SnapshotStore, how_to_make
from osgym_host.images.store import ImageStore
from osgym_host.runtimes import base, cgroups
from osgym_host.runtimes.local.runtime import LocalRuntime
from osgym_host.runtimes.qemu.argv import Accel
from osgym_host.runtimes.qemu.host import check_host
from osgym_host.runtimes.qemu.launcher import Launcher, memory_cap_mib
from osgym_host.runtimes.qemu.network.base import Network
from osgym_host.runtimes.qemu.network.policy import parse_allowlist
from osgym_host.runtimes.qemu.network.tap import TapNetwork
from osgym_host.runtimes.qemu.network.user import UserNetwork
from osgym_host.runtimes.qemu.parked import StockOptions
from osgym_host.runtimes.qemu.runner.container import ContainerLauncher
from osgym_host.runtimes.qemu.runner.process import ProcessLauncher
from osgym_host.runtimes.qemu.runtime import QemuOptions, QemuRuntime, cores
from osgym_host.runtimes.qemu.vms import VmOptions
from osgym_host.settings import Settings


@dataclass(frozen=True, slots=True)
class ImageRef:
    """What the service says about its golden image.

    Attributes:
        flavor: Its name for people: a flavor, or `<disk>@<snapshot>`.
        screen: Size of its desktops, where that is fixed.
    """

    image: base.ImageLike
    flavor: str
    screen: base.Screen | None = None


def find_image(settings: Settings) -> ImageRef:
    """Look up what the settings say is to be cloned.

    Raises:
        ImageError: It is not in the store, or not what the settings want; the message says what to do.
    """
    if settings.runtime == "local":
        image = ImageStore(settings.data_dir).resolve(settings.image)
        return ImageRef(image, image.flavor)
    return _find_snapshot(settings)


def _find_snapshot(settings: Settings) -> ImageRef:
    name = settings.image
    store = SnapshotStore(settings.data_dir)
    reference = name if "@" in name else f"{name}@{settings.snapshot}"
    try:
        found = store.resolve(reference)
    except ImageError:
        if "@" in name or not _is_hexadecimal(name):
            raise
        found = store.resolve(name)
    accel = found.manifest.shape.get("accel")
    if settings.accel not in ("auto", accel):
        raise ImageError(
            f"the snapshot {found.reference} runs by {accel} only, not by {settings.accel}",
            f"{how_to_make(found.reference)} --accel {settings.accel}",
        )
    screen = base.Screen(*found.manifest.screen)
    wanted = base.Screen(*settings.screen)
    if "screen" in settings.model_fields_set and wanted != screen:
        raise ImageError(
            f"the desktop of {found.reference} was frozen at {screen}, not {wanted}",
            f"leave `screen` out, or {how_to_make(found.reference)} --screen {wanted}",
        )
    return ImageRef(found, found.reference, screen)


def _is_hexadecimal(name: str) -> bool:
    return all(character in "0123456789abcdef" for character in name)


def replica_ram_mib(settings: Settings, image: ImageRef) -> int:
    """The memory cap of one replica: for a machine at least what its RAM and QEMU need."""
    if isinstance(image.image, Snapshot):
        return max(settings.replica_ram_mib, memory_cap_mib(image.image.manifest.ram_mib, settings.tb_mib))
    return settings.replica_ram_mib


def make_runtime(settings: Settings, image: ImageRef | None = None) -> base.Runtime:
    """Make the runtime of the settings. Nothing is touched yet.

    Args:
        image: What will mostly be cloned; None where the runtime is only to clear leftovers.
    """
    if settings.runtime == "local":
        return LocalRuntime(settings.data_dir, settings.instance)
    snapshot = image.image if image is not None and isinstance(image.image, Snapshot) else None
    caps = cgroups.Caps(
        ram_mib=replica_ram_mib(settings, image) if image is not None else None,
        cpus=settings.replica_cpus or None,
        pids=settings.replica_pids,
    )
    options = QemuOptions(
        vms=VmOptions(
            tb_mib=settings.tb_mib,
            caps=caps,
            disk_mib=settings.replica_disk_mib or None,
            native=settings.data_dir / "cache" / "native" if settings.fork_native == "auto" else None,
        ),
        stock=StockOptions(target=settings.parked, at_once=cores()),
        waking_at_once=2 * cores(),
    )
    kvm = snapshot is not None and snapshot.manifest.shape.get("accel") == Accel.KVM
    return QemuRuntime(
        settings.data_dir,
        settings.instance,
        lambda tree: _launcher(settings, tree, kvm),
        _network(settings),
        options,
        snapshot,
    )


def _run_folder(settings: Settings) -> Path:
    return settings.data_dir / "run" / settings.instance


def _mark(settings: Settings) -> str:
    """What tells this instance's containers, groups and rules from any other's on the host."""
    return cgroups.instance_group_name(_run_folder(settings))


def _launcher(settings: Settings, tree: cgroups.CgroupTree, kvm: bool) -> Launcher:
    if settings.runner == "container":
        return ContainerLauncher(_mark(settings), kvm=kvm)
    return ProcessLauncher(_run_folder(settings), tree=tree, kvm=kvm)


def _network(settings: Settings) -> Network:
    if settings.network == "tap":
        allowed = parse_allowlist(settings.egress_allow)
        return TapNetwork(_mark(settings), allowlist=allowed, links=settings.network_links)
    return UserNetwork(forwards=settings.runner == "container", mark=_mark(settings))


async def check_image(settings: Settings, image: ImageRef) -> None:
    """Find out whether this host can run the image.

    Raises:
        RuntimeUnsupported: It cannot; the message says why and what to do.
    """
    if isinstance(image.image, Snapshot):
        found = await check_host(image.image.manifest, settings.data_dir)
        if found:
            *reasons, remedy = found
            raise base.RuntimeUnsupported(
                f"this host cannot clone {image.flavor}: {'; '.join(reasons)};", remedy=remedy
            )


async def clear_leftovers(settings: Settings) -> base.StartReport:
    """Remove what killed host agents of this instance left, whatever their runtime was.

    Raises:
        DataDirBusy: A live host agent holds the directory.
        RuntimeFault: Something cannot be removed.
    """
    reaped_replicas = reaped_processes = 0
    for kind in _kinds_left(settings):
        runtime = make_runtime(settings.model_copy(update={"runtime": kind}))
        report = await runtime.start()
        await runtime.stop()
        reaped_replicas += report.reaped_replicas + len(report.adoptable)
        reaped_processes += report.reaped_processes + len(report.adoptable)
    return base.StartReport(reaped_replicas=reaped_replicas, reaped_processes=reaped_processes)


async def clear_other_leftovers(settings: Settings) -> None:
    """Remove what a killed host agent of this instance left that had another runtime than this one.

    Raises:
        DataDirBusy: A live host agent holds the directory.
        RuntimeFault: Something cannot be removed.
    """
    if any(kind != settings.runtime for kind in _kinds_left(settings)):
        await clear_leftovers(settings)


def _kinds_left(settings: Settings) -> list[str]:
    """The runtimes that left something in the instance's folder."""
    folder = _run_folder(settings)
    kinds = {"qemu": (folder / "vms").is_dir(), "local": any((folder / "replicas").glob("*"))}
    kinds["local"] |= (folder / "cgroups.json").exists() and not kinds["qemu"]
    return [kind for kind, left in kinds.items() if left]
