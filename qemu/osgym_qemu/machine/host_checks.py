"""Checks of this host's QEMU: which accelerator to use, and whether it can clone a snapshot."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import platform
import re
import shutil
import socket
import time
from dataclasses import dataclass, fields
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from osgym_host.images.content_store import replace_file
from osgym_host.programs import end_program, run_program, start_program
from osgym_host.runtimes.base import RuntimeUnsupported
from osgym_qemu.machine.argv import QEMU, Accel, Shape
from osgym_qemu.machine.qmp import Qmp, QmpError
from osgym_qemu.snapshots import SnapshotManifest, how_to_make

log = logging.getLogger(__name__)

KVM_CPU_MODELS = ("Haswell-noTSX", "Nehalem")
"""CPU models under KVM, in the order of trial: AVX2 where the processor has it, else the least that
applications
need. Both are named and old, so that snapshots fit most hosts, of either make."""
_ASK_TIMEOUT_S = 15.0
_VERDICT = "accelerator.json"
_VERSION = re.compile(r"version (\d+)\.(\d+)\.(\d+)")
_SHAPE = TypeAdapter(Shape)
BOOT_TIMEOUT_S = 10.0
"""Under KVM a kernel comes up within a second; ten allow for a busy machine."""
_LINE = b"Unable to mount root fs"
"""Last line of a kernel without a disk: everything but user space has run by then."""
_LIMIT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class KernelBoot:
    reached: bool
    seconds: float
    last_line: str


def find_kernel() -> Path | None:
    """Return the newest readable kernel of /boot."""
    found = [
        path
        for pattern in ("vmlinuz-*", "vmlinuz", "Image-*")
        for path in Path("/boot").glob(pattern)
        if path.is_file() and os.access(path, os.R_OK)
    ]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def kvm_opens() -> str:
    """Return the reason why /dev/kvm does not open, empty when it opens."""
    try:
        os.close(os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return "There is no /dev/kvm."
    except OSError as exc:
        return f"/dev/kvm does not open: {exc.strerror}."
    return ""


async def boot_kernel(qemu: str, kernel: Path, accelerator: str, timeout_s: float) -> KernelBoot:
    """Boot a kernel without a disk until it says `_LINE`, ends, or the time is up.

    `/dev/kvm` may open, and even run firmware, on machines where no guest kernel comes up.

    Raises:
        OSError: QEMU cannot be started.
    """
    argv = [qemu, "-accel", accelerator, "-m", "256", "-nodefaults", "-no-user-config", "-display", "none"]
    argv += ["-no-reboot", "-serial", "stdio", "-kernel", str(kernel)]
    argv += ["-append", "console=ttyS0 console=ttyAMA0 panic=-1 root=/dev/none rootfstype=ext4 nokaslr"]
    if platform.machine() == "aarch64":
        argv += ["-machine", "virt", "-cpu", "host" if accelerator == "kvm" else "max"]
    began = time.monotonic()
    process = await start_program(argv)
    assert process.stdout is not None
    seen = b""
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while _LINE not in seen and len(seen) < _LIMIT_BYTES:
                    data = await process.stdout.read(65536)
                    if not data:
                        break
                    seen += data
    finally:
        await end_program(process)
    lines = [line.strip() for line in seen.decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if line and ": warning: " not in line]
    return KernelBoot(_LINE in seen, time.monotonic() - began, lines[-1][:120] if lines else "")


@dataclass(frozen=True, slots=True)
class QemuFacts:
    """Version and machine types of a QEMU program.

    Attributes:
        version: major, minor, micro.
    """

    path: str
    version: tuple[int, int, int]
    machines: frozenset[str]

    @property
    def version_text(self) -> str:
        return ".".join(str(part) for part in self.version)


def shape_of(manifest: SnapshotManifest) -> Shape:
    """Return the shape of a snapshot.

    Raises:
        ValueError: The manifest's shape is unknown (a newer OSGym wrote it).
    """
    more = set(manifest.shape) - {field.name for field in fields(Shape)}
    if more:
        raise ValueError(f"the machine of {manifest.reference} is unknown here: {', '.join(sorted(more))}")
    try:
        return _SHAPE.validate_python(manifest.shape)
    except ValidationError as exc:
        raise ValueError(f"the machine of {manifest.reference} is unknown here: {exc}") from exc


def shape_fields(shape: Shape) -> dict[str, object]:
    found = _SHAPE.dump_python(shape, mode="json")
    assert isinstance(found, dict)
    return found


def reasons_against(manifest: SnapshotManifest, facts: QemuFacts, kvm: str, lacking: list[str]) -> list[str]:
    """Return the reasons why a host cannot clone a snapshot; empty when it can. Pure.

    Args:
        kvm: Reason why KVM cannot be used here, empty when it can.
        lacking: Features of the snapshot's CPU model that are missing here (KVM only).
    """
    try:
        shape = shape_of(manifest)
    except ValueError as exc:
        return [str(exc)]
    found = []
    wanted = tuple(int(part) for part in manifest.qemu_version.split("."))
    if facts.version < wanted:
        found.append(
            f"its state was written by QEMU {manifest.qemu_version}; "
            f"this host has the older {facts.version_text}"
        )
    if shape.machine not in facts.machines:
        found.append(f"this host's QEMU {facts.version_text} has no machine type {shape.machine}")
    if shape.accel is Accel.KVM and kvm:
        found.append(f"it was made under KVM: {kvm}")
    elif shape.accel is Accel.KVM and lacking:
        found.append(f"this host's processor lacks parts of {shape.cpu}: {', '.join(sorted(lacking))}")
    return found


async def check_host(manifest: SnapshotManifest, data_dir: Path, qemu: str = QEMU) -> list[str]:
    """Return the reasons why this host cannot clone a snapshot, and at last a remedy; empty when it can.

    Raises:
        RuntimeUnsupported: QEMU is not installed.
    """
    facts = await ask_qemu(qemu)
    kvm, lacking = "", list[str]()
    accel = manifest.shape.get("accel")
    if accel == Accel.KVM:
        chosen, why = await choose_accel("auto", data_dir, qemu=qemu)
        kvm = "" if chosen is Accel.KVM else why
        if not kvm:
            lacking = await lacking_features(str(manifest.shape.get("cpu")), Accel.KVM, qemu)
    found = reasons_against(manifest, facts, kvm, lacking)
    return [*found, f"rebuild it here: {how_to_make(manifest.reference)}"] if found else []


async def ask_qemu(qemu: str = QEMU) -> QemuFacts:
    """Ask a QEMU program for its version and machine types.

    Raises:
        RuntimeUnsupported: It is not installed, or does not answer.
    """
    path = shutil.which(qemu)
    if path is None:
        raise RuntimeUnsupported(f"{qemu} is not installed.", remedy="Install the package qemu-system-x86.")
    version = _VERSION.search(await _output([path, "--version"]))
    machines = await _output([path, "-machine", "help"])
    if version is None:
        raise RuntimeUnsupported(f"{path} does not print its version.")
    names = frozenset(line.split()[0] for line in machines.splitlines() if line.strip())
    return QemuFacts(path, (int(version[1]), int(version[2]), int(version[3])), names)


async def choose_accel(
    wanted: str, data_dir: Path, *, kernel: Path | None = None, qemu: str = QEMU
) -> tuple[Accel, str]:
    """Return the accelerator for new snapshots and the reason: `auto` is KVM where a kernel boots under it,
    else TCG.

    Whether it boots is tried once after each start of the host and kept in `<data_dir>/cache`.

    Args:
        wanted: `auto`, `kvm` or `tcg`.
        kernel: Kernel for the trial; None: one of /boot.

    Raises:
        RuntimeUnsupported: KVM was asked for and does not work.
        ValueError: `wanted` is not one of the three.
    """
    if wanted not in ("auto", *Accel):
        raise ValueError(f"unknown accelerator {wanted!r}")
    if wanted == Accel.TCG:
        return Accel.TCG, "asked for"
    problem = await asyncio.to_thread(kvm_opens) or await _kvm_problem(data_dir, kernel, qemu)
    if not problem:
        return Accel.KVM, "a kernel boots under it"
    if wanted == Accel.KVM:
        raise RuntimeUnsupported(problem, remedy="Use TCG, at about a twentieth of the speed.")
    return Accel.TCG, problem


async def choose_cpu(accel: Accel, qemu: str = QEMU) -> str:
    """Return the CPU model for new snapshots under an accelerator.

    Raises:
        RuntimeUnsupported: The processor lacks what applications need.
    """
    if accel is Accel.TCG:
        return Shape().cpu
    for model in KVM_CPU_MODELS:
        if not await lacking_features(model, accel, qemu):
            return model
    raise RuntimeUnsupported(f"the processor is older than the model {KVM_CPU_MODELS[-1]}")


async def lacking_features(model: str, accel: Accel, qemu: str = QEMU) -> list[str]:
    """Return the features of a CPU model that an accelerator lacks here; an unknown model lacks all.

    Raises:
        RuntimeUnsupported: QEMU does not start or answer.
    """
    # The other end of a socket pair; no guest exists in this QEMU.
    argv = [qemu, "-machine", "none", "-accel", accel, "-nodefaults", "-no-user-config", "-display", "none"]
    ours, theirs = _socket_pair()
    with theirs:
        argv += ["-chardev", f"socket,id=q,fd={theirs.fileno()}", "-mon", "chardev=q,mode=control"]
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except OSError as exc:
            ours.close()
            raise RuntimeUnsupported(f"{qemu} cannot be started: {exc}") from exc
    try:
        async with asyncio.timeout(_ASK_TIMEOUT_S):
            qmp = await Qmp.over(ours)
            try:
                models = await qmp.execute("query-cpu-definitions")
            finally:
                await qmp.close()
    except (QmpError, TimeoutError) as exc:
        raise RuntimeUnsupported(f"{qemu} does not report what {accel} offers: {exc}") from exc
    finally:
        await end_program(process)
    for found in models if isinstance(models, list) else []:
        if isinstance(found, dict) and found.get("name") == model:
            return [str(name) for name in found.get("unavailable-features", [])]
    return [model]


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return ours, theirs


async def _kvm_problem(data_dir: Path, kernel: Path | None, qemu: str) -> str:
    """Return the reason why no kernel boots under KVM, empty when one does; tried once per host start."""
    cache = data_dir / "cache" / _VERDICT
    boot_id = _boot_id()
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        known = json.loads(cache.read_text())
        if known.get("boot_id") == boot_id and isinstance(known.get("problem"), str):
            return str(known["problem"])
    chosen = kernel or find_kernel()
    if chosen is None:
        return "KVM was not tried, since no kernel is installed to boot."
    try:
        tried = await boot_kernel(qemu, chosen, Accel.KVM, BOOT_TIMEOUT_S)
    except OSError as exc:
        return f"{qemu} cannot be started: {exc}"
    how = f"came as far as {tried.last_line!r}" if tried.last_line else "printed nothing"
    problem = "" if tried.reached else f"/dev/kvm opens but does not boot a guest: the kernel {how}."
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        replace_file(cache, json.dumps({"boot_id": boot_id, "problem": problem}) + "\n")
    except OSError as exc:
        log.warning("the result of the KVM check cannot be written to %s: %s", cache, exc)
    return problem


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


async def _output(argv: list[str]) -> str:
    """Return the output of a short-lived program.

    Raises:
        RuntimeUnsupported: It cannot be started or does not end.
    """
    try:
        return (await run_program(argv, timeout_s=_ASK_TIMEOUT_S))[1]
    except TimeoutError as exc:
        raise RuntimeUnsupported(f"{' '.join(argv)} did not end in time") from exc
    except OSError as exc:
        raise RuntimeUnsupported(f"{argv[0]} cannot be started: {exc}") from exc
