"""The milliseconds in which a machine stands still to be branched.

All that can be done before is done before: the new layer of its disk is open, the memory for its pages is
real, its page tables are open. While it stands still, its device state is saved and its disk frozen by
QEMU, and its pages are copied by us, at the same time. All that can wait waits until it runs again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from osgym_host.errors import OsgymHostError
from osgym_host.runtimes.qemu.qmp import Qmp, QmpError
from osgym_host.runtimes.qemu.ram_delta import PageBuffer, Piece, RamDelta, RamScanner
from osgym_host.runtimes.qemu.ram_file import RamIdentity

VGA_DEVICE = "vga0"
_HOST_ADDRESS = re.compile(r"is 0x([0-9a-f]{1,16})\b")
_SCREEN_MAX_BYTES = 256 << 20
_QUERY_TIMEOUT_S = 5.0
_STOP_TIMEOUT_S = 10.0
_SPARE_PART = 8
_SPARE_BYTES = 8 << 20


class PauseFailed(OsgymHostError):
    """The machine could not be stopped, read or saved."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What was taken.

    Attributes:
        screen: Memory of the VGA screen, None where there is none.
        pause_ms: From the command to stop until the machine ran again.
        stop_ms, scan_ms, read_ms, save_ms, freeze_ms, cont_ms: Where they went. Scanning and reading
            happen at the same time as saving and freezing.
    """

    ram: RamDelta
    screen: RamDelta | None
    pause_ms: float
    stop_ms: float
    scan_ms: float
    read_ms: float
    save_ms: float
    freeze_ms: float
    cont_ms: float


class MemoryReader:
    """Copies a machine's memory. Blocking; used in threads, one at a time."""

    def __init__(self, pid: int, ram: RamIdentity, screen: Piece | None, helpers: Executor | None) -> None:
        """Open what is needed and make the memory for the pages real.

        Raises:
            RamDeltaError: The process is gone or may not be looked into.
        """
        self._helpers = helpers
        self._parts: list[tuple[RamScanner, PageBuffer]] = []
        self.scan_ms = self.read_ms = 0.0
        try:
            for memory in (ram, screen):
                if memory is None:
                    continue
                scanner = RamScanner(pid, memory)
                buffer = PageBuffer(sum(piece.end - piece.start for piece in scanner.pieces))
                self._parts.append((scanner, buffer))
                expected = scanner.scan().size_bytes
                buffer.prefault(expected + expected // _SPARE_PART + _SPARE_BYTES)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        """Use it in a `with`."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Close it."""
        self.close()

    def copy(self) -> list[RamDelta]:
        """Copy the RAM, and the screen's memory if there is one."""
        started = time.perf_counter()
        found = [(scanner, scanner.scan(), buffer) for scanner, buffer in self._parts]
        scanned = time.perf_counter()
        for scanner, extents, buffer in found:
            scanner.read(extents, buffer, helpers=self._helpers)
        self.scan_ms = 1000 * (scanned - started)
        self.read_ms = 1000 * (time.perf_counter() - scanned)
        return [RamDelta(extents, buffer) for _, extents, buffer in found]

    def close(self) -> None:
        """Let go of the process; the memory goes with the last reference to it."""
        for scanner, _buffer in self._parts:
            scanner.close()


async def take_moment(
    qmp: Qmp, reader: MemoryReader, state: Path, freeze: Callable[[], Awaitable[None]], threads: Executor
) -> Moment:
    """Stop the machine, take all of it, and let it go on, whatever happens. Not to be cancelled.

    Args:
        state: Where the device state goes: a new file.
        freeze: Puts a new layer on the disk.

    Raises:
        PauseFailed: The machine does not run.
        QmpError, RamDeltaError, OSError: Something failed; the machine runs again if it can.
    """
    status = (await qmp.query("query-status", timeout_s=_QUERY_TIMEOUT_S)).get("status")
    if status != "running":
        raise PauseFailed(f"the machine does not run: {status}")
    fd = os.open(state, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        name = await qmp.add_fd(fd)
    finally:
        os.close(fd)
    clock = [time.perf_counter()]

    async def save_and_freeze() -> None:
        arguments = {"filename": name, "live": False}
        await qmp.execute("xen-save-devices-state", arguments, timeout_s=_STOP_TIMEOUT_S)
        clock.append(time.perf_counter())
        await freeze()
        clock.append(time.perf_counter())

    try:
        await qmp.execute("stop", timeout_s=_STOP_TIMEOUT_S)
        clock.append(time.perf_counter())
        reading = asyncio.get_running_loop().run_in_executor(threads, reader.copy)
        # Both are waited for in any case: the machine may not run while either is at work.
        results = await asyncio.gather(reading, save_and_freeze(), return_exceptions=True)
        taken = time.perf_counter()
    finally:
        await qmp.execute("cont", timeout_s=_STOP_TIMEOUT_S)
        resumed = time.perf_counter()
        with contextlib.suppress(QmpError):
            number = int(name.rsplit("/", 1)[1])
            await qmp.execute("remove-fd", {"fdset-id": number}, timeout_s=_QUERY_TIMEOUT_S)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    deltas: Any = results[0]
    started, stopped, saved, frozen = clock
    return Moment(
        ram=deltas[0],
        screen=deltas[1] if len(deltas) > 1 else None,
        pause_ms=1000 * (resumed - started),
        stop_ms=1000 * (stopped - started),
        scan_ms=reader.scan_ms,
        read_ms=reader.read_ms,
        save_ms=1000 * (saved - stopped),
        freeze_ms=1000 * (frozen - saved),
        cont_ms=1000 * (resumed - taken),
    )


async def screen_memory(qmp: Qmp) -> Piece | None:
    """Where in QEMU's process the memory of the VGA screen is; None while the guest has it switched off.

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


async def _host_memory(qmp: Qmp, address: int, size_bytes: int) -> Piece | None:
    if not 0 < size_bytes <= _SCREEN_MAX_BYTES:
        raise QmpError("query-pci", "", f"a screen memory of {size_bytes} bytes")
    match = _HOST_ADDRESS.search(await qmp.hmp(f"gpa2hva 0x{address:x}", timeout_s=_QUERY_TIMEOUT_S))
    if match is None:
        return None
    start = int(match.group(1), 16)
    return Piece(start, start + size_bytes, 0)
