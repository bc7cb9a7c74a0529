"""Empty overlays, written in a millisecond from one that `qemu-img` made for each size."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from osgym_host.errors import OsgymHostError
from osgym_host.programs import end_program, start_program

_IMG_TIMEOUT_S = 60.0
_BLOCK_BYTES = 4096
_MAX_EMPTY_BYTES = 16 << 20


class OverlayError(OsgymHostError):
    """Failure to make an overlay."""


class Overlays:
    """Maker of empty qcow2 files whose backing file is named when they are opened (`blockdev`)."""

    def __init__(self, folder: Path) -> None:
        """Args:
        folder: Folder for the file that is copied; it is removed at once.
        """
        self._folder = folder
        self._parts: dict[int, tuple[int, list[tuple[int, bytes]]]] = {}
        self._lock = asyncio.Lock()

    async def make(self, path: Path, virtual_bytes: int) -> None:
        """Write an empty overlay for a disk of this size to a new file.

        Raises:
            OverlayError: `qemu-img` failed.
            OSError: The file is there, or cannot be written.
        """
        async with self._lock:
            if virtual_bytes not in self._parts:
                self._parts[virtual_bytes] = await self._learn(virtual_bytes)
        size, parts = self._parts[virtual_bytes]
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, size)
            for offset, data in parts:
                os.pwrite(fd, data, offset)
        finally:
            os.close(fd)

    async def _learn(self, virtual_bytes: int) -> tuple[int, list[tuple[int, bytes]]]:
        """Make an overlay by `qemu-img`; keep its size and its non-zero blocks (some 12 KB of 200)."""
        path = self._folder / f".empty-{virtual_bytes}.qcow2"
        try:
            await create_qcow2(path, str(virtual_bytes))
            content = path.read_bytes()
        finally:
            path.unlink(missing_ok=True)
        if len(content) > _MAX_EMPTY_BYTES:
            raise OverlayError(f"an empty overlay has {len(content)} bytes")
        blocks = range(0, len(content), _BLOCK_BYTES)
        parts = [(at, content[at : at + _BLOCK_BYTES]) for at in blocks]
        return len(content), [(at, data) for at, data in parts if data.strip(b"\0")]


async def create_qcow2(path: Path, *arguments: str) -> None:
    """Make an empty qcow2 file; the arguments are those of `qemu-img create`, such as its size.

    Raises:
        OverlayError: `qemu-img` is not there, fails or does not end.
    """
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", str(path), *arguments]
    try:
        process = await start_program(argv)
    except OSError as exc:
        raise OverlayError(f"qemu-img cannot be started (package qemu-utils): {exc}") from exc
    try:
        async with asyncio.timeout(_IMG_TIMEOUT_S):
            said, _ = await process.communicate()
    except TimeoutError as exc:
        raise OverlayError(f"qemu-img took more than {_IMG_TIMEOUT_S:.0f} s") from exc
    finally:
        await end_program(process)
    if process.returncode:
        raise OverlayError(f"qemu-img: {said.decode('utf-8', 'replace').strip()[-300:]}")
