"""The frame of a step's answer, kept to tell later whether the screen is still what it shows."""

from __future__ import annotations

from dataclasses import dataclass

from osgym_host.runtimes.qemu.agentless.frames import Frame, PackedFrame, is_caret
from osgym_host.runtimes.qemu.agentless.settle import SettledScreen
from osgym_protocol.observation import PreviousFrame


@dataclass(slots=True)
class LastFrame:
    """The frame of the last step's answer; packed, for it may stay long. Times are monotonic.

    Attributes:
        taken_s: When it was taken.
        rested_s: Since when the screen shows it: its last change, or else the end of the input.
        changed_s: When the screen was first seen to differ from it; None while it does not.
    """

    seq: int
    frame: PackedFrame
    taken_s: float
    rested_s: float
    changed_s: float | None = None

    @classmethod
    def of(cls, seq: int, settled: SettledScreen) -> LastFrame:
        """Pack the frame at which a wait ended."""
        rested_ms = settled.wait_ms - (settled.last_change_ms or 0.0)
        packed = PackedFrame.of(settled.frame)
        return cls(seq, packed, settled.taken_s, settled.taken_s - rested_ms / 1000)

    def differs(self, now: Frame) -> bool:
        """Return whether the screen shows something else now; carets do not count."""
        box = self.frame.difference(now)
        return box is not None and not is_caret(box)

    def as_previous(self) -> PreviousFrame:
        """Return what the next answer says of this frame."""
        after = None if self.changed_s is None else round((self.changed_s - self.taken_s) * 1000, 3)
        return PreviousFrame(self.seq, after is None, after)
