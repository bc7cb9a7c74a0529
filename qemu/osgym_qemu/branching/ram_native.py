"""Native library in QEMU that makes branching faster, where it can be compiled.

It is 200 lines of C (`native/ram_share.c`, which says what it does), compiled here once by the host's own
compiler. Without a compiler, or on a kernel that lacks what it needs, everything works as well, by copying.
"""

from __future__ import annotations

import array
import asyncio
import hashlib
import logging
import os
import platform
import shutil
import socket
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from osgym_host.errors import OsgymHostError
from osgym_qemu.branching.ram_pages import Extents

log = logging.getLogger(__name__)

SOURCE = Path(__file__).parent / "native" / "ram_share.c"
_FLAGS = ("-O2", "-Wall", "-Werror", "-fPIC", "-shared", "-pthread")
_COMPILERS = ("cc", "gcc", "clang")
_BUILD_TIMEOUT_S = 60.0
_MAP_TIMEOUT_S = 20.0
_MAGIC = 0x314D41524D59474F
_HEAD = struct.Struct("=QQ")
_STATUS = struct.Struct("=Q")


class NativeUnavailable(OsgymHostError):
    """Lack of a compiler for the library; branching copies instead."""


class NativeFailed(OsgymHostError):
    """Failure of the library in a QEMU, which must be killed."""


@dataclass(frozen=True, slots=True)
class RamLibrary:
    path: Path

    @classmethod
    def build(cls, folder: Path) -> Self:
        """Compile the library into a folder, unless it is there already. Blocking: half a second.

        Raises:
            NativeUnavailable: There is no compiler, or it failed.
        """
        digest = hashlib.sha256(SOURCE.read_bytes() + repr((_FLAGS, platform.machine())).encode())
        target = folder / f"ram-share-{digest.hexdigest()[:16]}.so"
        if target.is_file():
            return cls(target)
        compiler = next((found for name in _COMPILERS if (found := shutil.which(name))), None)
        if compiler is None:
            raise NativeUnavailable("there is no C compiler (install gcc and libc6-dev)")
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as scratch:
                made = Path(scratch) / target.name
                argv = [compiler, *_FLAGS, "-o", str(made), str(SOURCE)]
                done = subprocess.run(argv, capture_output=True, timeout=_BUILD_TIMEOUT_S, check=False)
                if done.returncode != 0:
                    said = done.stderr.decode("utf-8", "replace").strip()
                    raise NativeUnavailable(f"{compiler} failed: {said[-300:]}")
                made.chmod(0o755)
                made.rename(target)
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise NativeUnavailable(f"the library cannot be built: {exc}") from exc
        return cls(target)

    def environment(self, ram_fd: int, control_fd: int) -> dict[str, str]:
        """Return variables for QEMU, with the numbers that the descriptors have there."""
        return {
            "LD_PRELOAD": str(self.path),
            "OSGYM_RAM_FD": str(ram_fd),
            "OSGYM_RAM_CONTROL": str(control_fd),
        }


class RamLibraryLoader:
    """Loader that compiles the library on the first request; a failure is logged once."""

    def __init__(self, folder: Path | None) -> None:
        """Args:
        folder: Folder for the library; None: never load it.
        """
        self._folder = folder
        self._lock = asyncio.Lock()
        self._built: RamLibrary | None = None

    async def get(self) -> RamLibrary | None:
        """Return the library, None where there is none."""
        async with self._lock:
            if self._folder is not None and self._built is None:
                try:
                    self._built = await asyncio.to_thread(RamLibrary.build, self._folder)
                except NativeUnavailable as exc:
                    log.warning("fork_native is off: branching copies memory, which is slower: %s", exc)
                    self._folder = None
        return self._built


class RamControl:
    """Host's end of the socket to the library in one QEMU, for one request before the guest runs."""

    def __init__(self) -> None:
        """Make both ends. `theirs` is inherited by QEMU and closed then."""
        self._ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._ours.settimeout(_MAP_TIMEOUT_S)

    def map(self, fd: int, extents: Extents) -> None:
        """Map the pages of a memory file at their places in QEMU's RAM. Blocking.

        Raises:
            NativeFailed: QEMU refused; the process must be killed.
        """
        runs = array.array("Q", bytes(16 * len(extents)))
        runs[0::2], runs[1::2] = extents.offsets, extents.lengths
        try:
            socket.send_fds(self._ours, [_HEAD.pack(_MAGIC, len(extents))], [fd])
            self._ours.sendall(runs)
            answer = self._ours.recv(_STATUS.size, socket.MSG_WAITALL)
        except OSError as exc:
            raise NativeFailed(f"QEMU does not map the pages of a branch point: {exc}") from exc
        finally:
            self.close()
        if len(answer) != _STATUS.size:
            raise NativeFailed("QEMU does not map the pages of a branch point: it closed the connection")
        (status,) = _STATUS.unpack(answer)
        if status != 0:
            raise NativeFailed(f"QEMU cannot map the pages of a branch point: {os.strerror(int(status))}")

    def close(self) -> None:
        """Close it, which ends the library's thread. Must be done before the guest runs. Idempotent."""
        self._ours.close()
        self.theirs.close()
