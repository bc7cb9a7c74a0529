"""Doctor's checks of virtual machines and containers: a kernel is booted, a daemon is asked."""

from __future__ import annotations

import asyncio
import platform
import shutil
from pathlib import Path

from osgym_host.doctor.machine import existing_folder, isolation_findings
from osgym_host.doctor.result import DoctorContext, Finding, Status
from osgym_host.images.errors import ImageError
from osgym_host.programs import run_program
from osgym_qemu.disks.manifest import GuestKind
from osgym_qemu.disks.overlay import can_reflink, choose
from osgym_qemu.machine.host_checks import (
    BOOT_TIMEOUT_S,
    KernelBoot,
    boot_kernel,
    find_kernel,
    kvm_opens,
)
from osgym_qemu.snapshots import SnapshotStore

_ISOLATION = "snapshot isolation"
_TCG_TIMEOUT_S = 18.0
_DOCKER_TIMEOUT_S = 5.0
_QEMU = {"x86_64": "qemu-system-x86_64", "aarch64": "qemu-system-aarch64"}
_PACKAGE = {"x86_64": "qemu-system-x86", "aarch64": "qemu-system-arm"}


async def check_kvm(context: DoctorContext) -> list[Finding]:
    """Check KVM and TCG, each by booting a kernel."""
    machine = platform.machine()
    qemu = shutil.which(_QEMU.get(machine, "qemu-system-unknown"))
    kernel = context.kernel or find_kernel()
    opens = await asyncio.to_thread(kvm_opens)
    if qemu is None or kernel is None or not context.deep:
        return [_untried(opens, machine, qemu, kernel, context.deep)]
    kvm = asyncio.create_task(boot_kernel(qemu, kernel, "kvm", BOOT_TIMEOUT_S)) if opens == "" else None
    tcg = await boot_kernel(qemu, kernel, "tcg", _TCG_TIMEOUT_S)
    return [_kvm_result(opens, await kvm if kvm else None, tcg), _tcg_result(tcg)]


def _untried(opens: str, machine: str, qemu: str | None, kernel: Path | None, deep: bool) -> Finding:
    found = "/dev/kvm opens" if opens == "" else opens
    if not deep:
        return Finding("kvm", Status.WARN, f"{found}; whether it boots a guest was not tried (--quick).")
    lacking = [] if qemu else [_PACKAGE.get(machine, "qemu-system")]
    if kernel is None:
        lacking.append("a kernel in /boot (linux-image-cloud-amd64, or name one with --kernel)")
    remedy = f"Not needed by the local runtime. To find out, install {' and '.join(lacking)}."
    return Finding(
        "kvm",
        Status.WARN,
        f"{found}; whether it boots a guest is unknown.",
        remedy,
        facts={"opens": opens == ""},
    )


def _kvm_result(opens: str, kvm: KernelBoot | None, tcg: KernelBoot) -> Finding:
    if kvm is None:
        remedy = (
            "Not needed by the local runtime. Enable virtualisation, or nested virtualisation of the host."
        )
        return Finding("kvm", Status.WARN, opens, remedy, facts={"opens": False, "boots": False})
    facts = {"opens": True, "boots": kvm.reached, "seconds": round(kvm.seconds, 2)}
    if kvm.reached:
        return Finding("kvm", Status.OK, f"A kernel booted in {kvm.seconds:.1f} s.", facts=facts)
    how = f"came as far as {kvm.last_line!r}" if kvm.last_line else "printed nothing"
    found = f"/dev/kvm opens but does not boot a guest: the kernel {how} in {kvm.seconds:.0f} s."
    remedy = (
        "Not needed by the local runtime. Virtual machines can use TCG, at about a twentieth of the speed."
        if tcg.reached
        else "Not needed by the local runtime."
    )
    return Finding("kvm", Status.WARN, found, remedy, facts=facts)


def _tcg_result(tcg: KernelBoot) -> Finding:
    facts = {"boots": tcg.reached, "seconds": round(tcg.seconds, 2)}
    if tcg.reached:
        return Finding("tcg", Status.OK, f"A kernel booted in {tcg.seconds:.1f} s without KVM.", facts=facts)
    found = f"A kernel did not boot in {tcg.seconds:.0f} s; it came as far as {tcg.last_line!r}."
    return Finding(
        "tcg",
        Status.WARN,
        found,
        "Not needed by the local runtime. Check that the kernel is for this processor.",
        facts=facts,
    )


async def check_docker(context: DoctorContext) -> list[Finding]:
    remedy = "Not needed by the local runtime. Install docker.io and start its service."
    docker = shutil.which("docker")
    if docker is None:
        return [Finding("docker", Status.WARN, "Docker is not installed.", remedy)]
    argv = [docker, "version", "--format", "{{.Server.Version}}"]
    try:
        status, output = await run_program(argv, timeout_s=_DOCKER_TIMEOUT_S)
    except TimeoutError:
        status, output = None, ""
    except OSError as exc:
        return [Finding("docker", Status.WARN, f"{docker} cannot be run: {exc}.", remedy)]
    if status != 0:
        return [
            Finding("docker", Status.WARN, "The docker client is installed, but no daemon answers.", remedy)
        ]
    version = output.strip()
    return [Finding("docker", Status.OK, f"The Docker daemon {version} answers.", facts={"version": version})]


async def check_reflink(context: DoctorContext) -> list[Finding]:
    """Check how disks of virtual machines are shared here."""
    works = await asyncio.to_thread(_try_reflink, existing_folder(context.data_dir))
    choice = choose(reflink=works)
    found = f"Disks of virtual machines: {choice.way} ({choice.format} images); {choice.reason}."
    facts = {"reflink": works, "way": str(choice.way), "format": str(choice.format)}
    if works:
        return [Finding("reflink", Status.OK, found, facts=facts)]
    remedy = "Not needed; XFS or btrfs would let disk images be copied at no cost."
    return [Finding("reflink", Status.WARN, found, remedy, facts=facts)]


def _try_reflink(folder: Path) -> bool:
    try:
        return can_reflink(folder)
    except PermissionError:
        return False


async def check_snapshot_isolation(context: DoctorContext) -> list[Finding]:
    """Return a finding about snapshots whose programs can reach their guest agent."""
    return await asyncio.to_thread(_snapshot_findings, context.data_dir)


def _snapshot_findings(data_dir: Path) -> list[Finding]:
    store = SnapshotStore(data_dir)
    try:
        manifests = [store.resolve(name).manifest for name in store.tagged()]
    except ImageError as exc:
        return [Finding(_ISOLATION, Status.WARN, f"The snapshots cannot be read: {exc}.")]
    isolated = {one.reference: one.session_isolated for one in manifests if one.guest is GuestKind.OSGYM}
    remedy = "Make them anew: osgym image build --format disk, then osgym image snapshot."
    return isolation_findings(_ISOLATION, "snapshots", isolated, remedy)


CHECKS = (("docker", check_docker), ("kvm", check_kvm))
EXTRA_CHECKS = (("reflink", check_reflink), (_ISOLATION, check_snapshot_isolation))
