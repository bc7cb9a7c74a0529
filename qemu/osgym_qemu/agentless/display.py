"""Screen and input devices of a guest, by QMP or by a server inside."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, assert_never

from osgym_host.errors import OsgymHostError
from osgym_qemu.agentless.frames import BadFrame, Frame, parse_ppm
from osgym_qemu.agentless.plan import (
    ButtonEvent,
    DrainInput,
    Event,
    KeyEvent,
    Pause,
    PointerEvent,
    TimedOp,
    batches,
)
from osgym_qemu.machine.qmp import Qmp, QmpClosed, QmpError

MAX_DUMP_BYTES = 64 << 20
ABS_RANGE = 0x8000
"""Steps of an absolute pointer along each axis (QEMU's INPUT_EVENT_ABS_MAX + 1)."""
POINT_FRACTION = 0.4
"""Position of the pointer in a pixel: guests that cut and guests that round find the same pixel."""


Drained = Callable[[DrainInput], Awaitable[None]]


class DisplayFailed(OsgymHostError):
    """Failure to read the screen or to send input."""


class DisplayLost(DisplayFailed):
    """End of the machine during an operation."""


class GuestDisplay(Protocol):
    """Interface of a guest's screen and input, for one task at a time.

    Attributes:
        look_ms: Least time between captures while the guest is at work.
        disturbs: True if a capture makes the guest work.
    """

    look_ms: float
    disturbs: bool

    async def capture(self) -> Frame:
        """Return the present screen.

        Raises:
            DisplayFailed: The screen could not be read.
        """
        ...

    async def carry_out(self, ops: Sequence[TimedOp], screen: tuple[int, int], drained: Drained) -> None:
        """Carry out a plan of input on a screen of this size.

        Args:
            drained: Function that waits until the guest has processed the sent input.

        Raises:
            DisplayFailed: Some of it may not have arrived.
        """
        ...

    def release_buffers(self) -> None:
        """Free memory that only pays while frames are taken one after the other."""
        ...

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        ...


class QmpDisplay:
    """VGA screen, keyboard and tablet of a machine, by its second QMP server.

    A frame is written by QEMU (`screendump`) into memory of ours, by a descriptor that it was given:
    no file system is involved, and a machine in a container needs no shared folder.
    """

    look_ms = 50.0
    disturbs = False

    def __init__(self, qmp: Qmp, memory: int, written: int, name: str) -> None:
        self._qmp = qmp
        self._memory = memory
        self._reading = threading.Lock()
        self._written = written
        self._name = name

    @classmethod
    async def open(cls, path: Path, *, timeout_s: float = 15.0) -> QmpDisplay:
        """Connect to the QMP server at `path`.

        Raises:
            QmpError: No QEMU answers there.
        """
        qmp = await Qmp.connect(path, timeout_s)
        memory = os.memfd_create("osgym-screen", os.MFD_CLOEXEC)
        try:
            # QEMU opens what it may only write, and wants the descriptor to be just that.
            written = os.open(f"/proc/self/fd/{memory}", os.O_WRONLY | os.O_CLOEXEC)
            try:
                name = await qmp.add_fd(written, timeout_s=timeout_s)
            except BaseException:
                os.close(written)
                raise
        except BaseException:
            os.close(memory)
            await qmp.close()
            raise
        return cls(qmp, memory, written, name)

    @property
    def qmp(self) -> Qmp:
        """Connection to QEMU, for other commands."""
        return self._qmp

    async def capture(self) -> Frame:
        """Return the present screen (5 ms for 1280×800)."""
        try:
            os.lseek(self._written, 0, os.SEEK_SET)
            await self._qmp.execute("screendump", {"filename": self._name, "format": "ppm"})
            length = os.lseek(self._written, 0, os.SEEK_CUR)
            if length > MAX_DUMP_BYTES:
                raise BadFrame(f"{length} bytes")
            return await asyncio.to_thread(self._read, length)
        except QmpClosed as exc:
            raise DisplayLost(f"the virtual machine has ended: {exc}") from exc
        except (QmpError, BadFrame, OSError) as exc:
            raise DisplayFailed(f"the screen could not be read: {exc}") from exc

    def _read(self, length: int) -> Frame:
        with self._reading:
            if self._memory < 0:
                raise BadFrame("the display is closed")
            data = os.pread(self._memory, length, 0)
        return parse_ppm(data)

    async def carry_out(self, ops: Sequence[TimedOp], screen: tuple[int, int], drained: Drained) -> None:
        for events, then in batches(ops):
            await self._send(events, screen)
            match then:
                case DrainInput():
                    await drained(then)
                case Pause():
                    await asyncio.sleep(then.duration_ms / 1000)
                case None:
                    pass
                case _ as never:
                    assert_never(never)

    async def _send(self, events: Sequence[Event], screen: tuple[int, int]) -> None:
        try:
            for part in reports(events):
                said = [word for event in part for word in to_qmp(event, screen)]
                await self._qmp.execute("input-send-event", {"events": said})
        except QmpClosed as exc:
            raise DisplayLost(f"the virtual machine has ended: {exc}") from exc
        except QmpError as exc:
            raise DisplayFailed(f"the input could not be sent: {exc}") from exc

    def release_buffers(self) -> None:
        """Free the memory of the last frame."""
        if self._memory >= 0:
            os.ftruncate(self._memory, 0)

    async def close(self) -> None:
        await self._qmp.close()
        with self._reading:  # a call that was cancelled may still read, in its thread
            for fd in (self._written, self._memory):
                if fd >= 0:
                    os.close(fd)
            self._written = self._memory = -1


def reports(events: Sequence[Event]) -> list[list[Event]]:
    """Split events into commands: one command makes one report of the pointer, in which a button that goes
    down and up again would have no effect.
    """
    parts: list[list[Event]] = [[]]
    for event in events:
        if not isinstance(event, KeyEvent) and any(not isinstance(each, KeyEvent) for each in parts[-1]):
            parts.append([])
        parts[-1].append(event)
    return [part for part in parts if part]


def to_qmp(event: Event, screen: tuple[int, int]) -> list[Mapping[str, Any]]:
    match event:
        case KeyEvent():
            key = {"type": "qcode", "data": event.qcode}
            return [{"type": "key", "data": {"down": event.down, "key": key}}]
        case ButtonEvent():
            return [{"type": "btn", "data": {"down": event.down, "button": event.button}}]
        case PointerEvent():
            return [
                {"type": "abs", "data": {"axis": axis, "value": axis_value(at, size)}}
                for axis, at, size in (("x", event.x, screen[0]), ("y", event.y, screen[1]))
            ]


def axis_value(at_px: int, size_px: int) -> int:
    """Return the position of a pixel on an axis of `ABS_RANGE` steps."""
    return min(ABS_RANGE - 1, round((at_px + POINT_FRACTION) * ABS_RANGE / size_px))
