"""Capture of a machine's state while it stands still for milliseconds.

All that can be done before is done before: the new layer of its disk is open; its memory is copied, as far
as the kernel can tell what is written meanwhile (`ram_native`), or at least there is room to copy it to.
While it stands still, its device state is saved and its disk frozen by QEMU, and its pages are copied by
us, at the same time. All that can wait waits until it runs again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from array import array
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from osgym_host.errors import OsgymHostError
from osgym_qemu.branching.ram_delta import MappedRange, RamScanner
from osgym_qemu.branching.ram_pages import (
    Extents,
    PageBuffer,
    Pages,
    RamDelta,
    SharedPages,
    union,
)
from osgym_qemu.golden.ram_file import RamIdentity
from osgym_qemu.machine.qmp import Qmp, QmpError

VGA_DEVICE = "vga0"
_HOST_ADDRESS = re.compile(r"is 0x([0-9a-f]{1,16})\b")
_SCREEN_MAX_BYTES = 256 << 20
_QUERY_TIMEOUT_S = 5.0
_STOP_TIMEOUT_S = 10.0
_SPARE_PART = 8
_SPARE_BYTES = 8 << 20
_ROUNDS = 3
_FEW_BYTES = 2 << 20
"""Amount that is copied in a millisecond: no further round is made ahead."""


class PauseFailed(OsgymHostError):
    """Failure to pause, read or save the machine."""


@dataclass(frozen=True, slots=True)
class PausedState:
    """Captured state.

    Attributes:
        screen: Memory of the VGA screen, None where there is none.
        pause_ms: Time from the command to stop until the machine ran again.
    """

    ram: RamDelta
    screen: RamDelta | None
    pause_ms: float

    def forget(self) -> None:
        """Free its memory."""
        for delta in (self.ram, self.screen):
            if delta is not None:
                delta.close()


class MemoryReader:
    """Copier of a machine's memory. Blocking; used in threads, one at a time.

    Where the kernel notes which pages are written, all are copied while the machine runs, and only those
    that it wrote meanwhile are copied again while it stands still.
    """

    def __init__(
        self, pid: int, ram: RamIdentity, screen: MappedRange | None, helpers: Executor | None
    ) -> None:
        """Copy ahead while the machine runs.

        Raises:
            RamDeltaError: The process is gone or may not be looked into.
        """
        self._helpers = helpers
        self._parts: list[_Part] = []
        self._taken = False
        try:
            for memory in (ram, screen):
                if memory is not None:
                    self._parts.append(_Part(RamScanner(pid, memory)))
                    self._prepare(self._parts[-1])
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def copy(self) -> None:
        """Copy the remaining pages while the machine stands still."""
        for part in self._parts:
            part.late = part.scanner.scan() if part.ahead is None else part.scanner.scan_written()
        for part in self._parts:
            part.scanner.read(part.late, part.pages, helpers=self._helpers)

    def result(self) -> list[RamDelta]:
        """Return the RAM, and the screen's memory if there is one; the caller closes them."""
        deltas = []
        for part in self._parts:
            extents = part.late if part.ahead is None else union(part.ahead, part.late)
            part.pages.shrink(extents.size_bytes)
            deltas.append(RamDelta(extents, part.pages))
        self._taken = True
        return deltas

    def close(self) -> None:
        """Close the process and free memory that was not returned."""
        for part in self._parts:
            part.scanner.close()
            if not self._taken:
                part.pages.close()

    def _prepare(self, part: _Part) -> None:
        """Copy ahead, or at least fault in the memory for the copy."""
        size = sum(piece.end - piece.start for piece in part.scanner.pieces)
        part.ahead = part.scanner.scan_and_watch()
        if part.ahead is None:
            part.pages = buffer = PageBuffer(size)
            expected = part.scanner.scan().size_bytes
            buffer.prefault(expected + expected // _SPARE_PART + _SPARE_BYTES)
            return
        part.pages = SharedPages(size)
        part.scanner.read(part.ahead, part.pages, helpers=self._helpers)
        for _ in range(_ROUNDS):
            written = part.scanner.scan_written(watch_on=True)
            part.scanner.read(written, part.pages, helpers=self._helpers)
            part.ahead = union(part.ahead, written)
            if written.size_bytes < _FEW_BYTES:
                break


class _Part:
    """Range of memory being copied: `ahead` while the machine ran, `late` while it stood still."""

    def __init__(self, scanner: RamScanner) -> None:
        self.scanner = scanner
        self.pages: Pages = PageBuffer(0)
        self.ahead: Extents | None = None
        self.late = Extents(array("Q"), array("Q"))


async def pause_and_capture(
    qmp: Qmp, reader: MemoryReader, state: Path, freeze: Callable[[], Awaitable[None]], threads: Executor
) -> PausedState:
    """Pause the machine, capture its state, and resume it in every case. Must not be cancelled.

    Args:
        state: New file for the device state.
        freeze: Function that puts a new layer on the disk.

    Raises:
        PauseFailed: The machine does not run.
        QmpError, RamDeltaError, OSError: A part failed; the machine runs again if it can.
    """
    status = (await qmp.query("query-status", timeout_s=_QUERY_TIMEOUT_S)).get("status")
    if status != "running":
        raise PauseFailed(f"the virtual machine is not running: {status}")
    fd = os.open(state, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        name = await qmp.add_fd(fd)
    finally:
        os.close(fd)

    async def save_and_freeze() -> None:
        arguments = {"filename": name, "live": False}
        await qmp.execute("xen-save-devices-state", arguments, timeout_s=_STOP_TIMEOUT_S)
        await freeze()

    started = time.perf_counter()
    try:
        await qmp.execute("stop", timeout_s=_STOP_TIMEOUT_S)
        reading = asyncio.get_running_loop().run_in_executor(threads, reader.copy)
        # Both are waited for in any case: the machine may not run while either is at work.
        results = await asyncio.gather(reading, save_and_freeze(), return_exceptions=True)
    finally:
        await qmp.execute("cont", timeout_s=_STOP_TIMEOUT_S)
        pause_ms = 1000 * (time.perf_counter() - started)
        with contextlib.suppress(QmpError):
            number = int(name.rsplit("/", 1)[1])
            await qmp.execute("remove-fd", {"fdset-id": number}, timeout_s=_QUERY_TIMEOUT_S)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    ram, *screens = await asyncio.get_running_loop().run_in_executor(threads, reader.result)
    return PausedState(ram, screens[0] if screens else None, pause_ms)


async def screen_memory(qmp: Qmp) -> MappedRange | None:
    """Return the address of the VGA screen's memory in QEMU; None while the guest has it switched off.

    Raises:
        QmpError: QEMU does not answer.
    """
    for bus in await qmp.execute("query-pci", timeout_s=_QUERY_TIMEOUT_S):
        for device in bus.get("devices", ()):
            if device.get("qdev_id") != VGA_DEVICE:
                continue
            for region in device.get("regions", ()):
                if region.get("bar") == 0 and region.get("address", -1) > 0:
                    return await _host_memory(qmp, region["address"], region["size"])
    return None


async def _host_memory(qmp: Qmp, address: int, size_bytes: int) -> MappedRange | None:
    if not 0 < size_bytes <= _SCREEN_MAX_BYTES:
        raise QmpError("query-pci", "", f"the screen memory has an implausible size of {size_bytes} bytes")
    match = _HOST_ADDRESS.search(await qmp.hmp(f"gpa2hva 0x{address:x}", timeout_s=_QUERY_TIMEOUT_S))
    if match is None:
        return None
    start = int(match.group(1), 16)
    return MappedRange(start, start + size_bytes, 0)
