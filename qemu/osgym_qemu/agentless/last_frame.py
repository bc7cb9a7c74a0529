"""Frame of a step's answer, kept to tell later whether the screen still shows it."""

from __future__ import annotations

from dataclasses import dataclass

from osgym_protocol.observation import PreviousFrame
from osgym_qemu.agentless.frames import Frame, PackedFrame, is_caret
from osgym_qemu.agentless.settle import SettledScreen


@dataclass(slots=True)
class LastFrame:
    """Compressed frame of the last step's answer. Times are monotonic.

    Attributes:
        rested_s: Time since which the screen shows it: its last change, or else the end of the input.
        changed_s: Time at which the screen was first seen to differ; None while it does not.
    """

    seq: int
    frame: PackedFrame
    taken_s: float
    rested_s: float
    changed_s: float | None = None

    @classmethod
    def of(cls, seq: int, settled: SettledScreen) -> LastFrame:
        """Compress the frame at which a wait ended."""
        rested_ms = settled.wait_ms - (settled.last_change_ms or 0.0)
        packed = PackedFrame.of(settled.frame)
        return cls(seq, packed, settled.taken_s, settled.taken_s - rested_ms / 1000)

    def differs(self, now: Frame) -> bool:
        """Return whether the screen differs now; carets do not count."""
        box = self.frame.difference(now)
        return box is not None and not is_caret(box)

    def as_previous(self) -> PreviousFrame:
        """Return the next answer's part about this frame."""
        after = None if self.changed_s is None else round((self.changed_s - self.taken_s) * 1000, 3)
        return PreviousFrame(self.seq, after is None, after)
