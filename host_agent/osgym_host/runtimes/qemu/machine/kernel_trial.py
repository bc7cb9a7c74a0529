"""Trial boot of a kernel under KVM or TCG, against a deadline.

`/dev/kvm` may open, and even run firmware, on machines where no guest kernel comes up.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

from osgym_host.programs import end_program, start_program

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
