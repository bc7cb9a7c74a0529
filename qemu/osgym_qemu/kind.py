"""Kind of the qemu runtime: its settings, its snapshots, its checks."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from osgym_host.core.egress import parse_allowlist
from osgym_host.doctor.result import Checks
from osgym_host.images.derived import DerivedImages
from osgym_host.images.errors import ImageError
from osgym_host.runtimes.base import Runtime, RuntimeUnsupported, Screen
from osgym_host.runtimes.cgroups import CgroupTree, instance_group_name
from osgym_host.runtimes.egress.gate import LinkOptions
from osgym_host.runtimes.kind import ImageRef, RuntimeKind
from osgym_host.runtimes.replica_cgroup import Caps
from osgym_host.settings import RuntimeSettings, Settings
from osgym_qemu.cloning.managed_vm import VmOptions
from osgym_qemu.cloning.parked_pool import ParkedPoolOptions
from osgym_qemu.doctor import CHECKS, EXTRA_CHECKS
from osgym_qemu.machine.argv import Accel
from osgym_qemu.machine.host_checks import check_host
from osgym_qemu.machine.launcher import Launcher, memory_cap_mib
from osgym_qemu.network.base import Network
from osgym_qemu.network.tap import TapNetwork
from osgym_qemu.network.user import UserNetwork
from osgym_qemu.runner.container import ContainerLauncher
from osgym_qemu.runner.process import ProcessLauncher
from osgym_qemu.runtime import QemuOptions, QemuRuntime, cores
from osgym_qemu.snapshots import Snapshot, SnapshotStore, how_to_make


class QemuSettings(RuntimeSettings):
    """Settings `qemu.*`."""

    snapshot: str = Field(
        default="desktop",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Snapshot of the image that is cloned (`osgym image snapshot --name`).",
    )
    accel: Literal["auto", "kvm", "tcg"] = Field(
        default="auto",
        description="Accelerator of guest code. auto: the one for which the snapshot was made.",
    )
    parked: int = Field(
        default=2,
        ge=0,
        le=256,
        description="Processes that wait to become clones, at 12 MB each. 0: start them on demand.",
    )
    tb_mib: int = Field(
        default=64,
        ge=8,
        le=1024,
        description="Under emulation: cache of translated code for each machine, used as far as its "
        "guest computes. 32 saves memory, 128 makes busy guests faster.",
    )
    fork_native: Literal["auto", "off"] = Field(
        default="auto",
        description="Compile a small library with the host's C compiler and load it into QEMU, so that "
        "forks take less time and children share memory. auto: where that works. off: copy.",
    )
    runner: Literal["process", "container"] = Field(
        default="process", description="Place of QEMU: a bare process or a container of its own."
    )
    network: Literal["user", "tap"] = Field(
        default="user",
        description="Network of the machines. user: to the host agent only; tap: a device of the host, "
        "for egress (root).",
    )


class QemuKind(RuntimeKind):
    """Replicas as virtual machines cloned from a golden snapshot."""

    settings_model = QemuSettings

    def find_image(self, settings: Settings) -> ImageRef:
        own = _own(settings)
        name = settings.image
        store = SnapshotStore(settings.data_dir)
        reference = name if "@" in name else f"{name}@{own.snapshot}"
        try:
            found = store.resolve(reference)
        except ImageError:
            if "@" in name or not all(character in "0123456789abcdef" for character in name):
                raise
            found = store.resolve(name)
        accel = found.manifest.shape.get("accel")
        if own.accel not in ("auto", accel):
            raise ImageError(
                f"the snapshot {found.reference} runs by {accel} only, not by {own.accel}",
                f"{how_to_make(found.reference)} --accel {own.accel}",
            )
        screen = Screen(*found.manifest.screen)
        wanted = Screen(*settings.screen)
        if "screen" in settings.model_fields_set and wanted != screen:
            raise ImageError(
                f"the desktop of {found.reference} was frozen at {screen}, not {wanted}",
                f"leave `screen` out, or {how_to_make(found.reference)} --screen {wanted}",
            )
        return ImageRef(found, found.reference, screen, found.manifest.warm_apps)

    def make(self, settings: Settings, image: ImageRef | None) -> Runtime:
        own = _own(settings)
        snapshot = image.image if image is not None and isinstance(image.image, Snapshot) else None
        kvm = snapshot is not None and snapshot.manifest.shape.get("accel") == Accel.KVM
        run_folder = settings.data_dir / "run" / settings.instance
        # Tells this instance's containers, groups and rules from any other's on the host.
        mark = instance_group_name(run_folder)
        containers = own.runner == "container"

        def make_launcher(tree: CgroupTree) -> Launcher:
            if containers:
                return ContainerLauncher(mark, kvm=kvm)
            return ProcessLauncher(run_folder, tree=tree, kvm=kvm)

        network: Network = UserNetwork(run_folder, forwards=containers, mark=mark)
        if own.network == "tap":
            allowed = parse_allowlist(settings.egress_allow)
            network = TapNetwork(mark, LinkOptions(allowed, settings.network_links))
        caps = Caps(
            ram_mib=self.replica_ram_mib(settings, image) if image is not None else None,
            cpus=settings.replica_cpus or None,
            pids=settings.replica_pids,
        )
        options = QemuOptions(
            vms=VmOptions(
                tb_mib=own.tb_mib,
                caps=caps,
                disk_mib=settings.replica_disk_mib or None,
                native=settings.data_dir / "cache" / "native" if own.fork_native == "auto" else None,
            ),
            parked=ParkedPoolOptions(target=own.parked, at_once=cores()),
            resumes_at_once=2 * cores(),
        )
        return QemuRuntime(settings.data_dir, settings.instance, make_launcher, network, options, snapshot)

    def checks(self) -> Checks:
        return CHECKS

    def extra_checks(self) -> Checks:
        return EXTRA_CHECKS

    def derived_images(self) -> DerivedImages:
        # A host that serves does not load what bakes disks.
        from osgym_qemu.derived import DisksAndSnapshots

        return DisksAndSnapshots()

    def has_leftovers(self, run_folder: Path) -> bool:
        return (run_folder / "vms").is_dir()

    def replica_ram_mib(self, settings: Settings, image: ImageRef) -> int:
        """Return a cap that holds at least the machine's RAM and QEMU itself."""
        if isinstance(image.image, Snapshot):
            needed = memory_cap_mib(image.image.manifest.ram_mib, _own(settings).tb_mib)
            return max(settings.replica_ram_mib, needed)
        return settings.replica_ram_mib

    async def check_image(self, settings: Settings, image: ImageRef) -> None:
        if isinstance(image.image, Snapshot):
            found = await check_host(image.image.manifest, settings.data_dir)
            if found:
                *reasons, remedy = found
                raise RuntimeUnsupported(
                    f"this host cannot clone {image.flavor}: {'; '.join(reasons)};", remedy=remedy
                )


def _own(settings: Settings) -> QemuSettings:
    return settings.of_runtime("qemu", QemuSettings)


KIND = QemuKind()
