"""Ledger of step numbers: each step is done once, and its answer can be asked for again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from osgym_protocol.codes import GuestErrorCode

S = TypeVar("S")


class StepRefused(Exception):
    """The number of a step is refused now (409).

    Attributes:
        code: `busy`, `bad_sequence` or `answer_lost`.
        message: One sentence for people.
        details: Further facts as JSON.
    """

    def __init__(self, code: GuestErrorCode, message: str, details: Mapping[str, Any]) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.details = details


class StepLedger(Generic[S]):
    """The last step and the running one. `S` is the type of a step: a task, in the guests.

    A step starts, takes its number when nothing can refuse it any more, and ends. A step that ends before it
    took its number changes nothing.

    Attributes:
        last_seq: Last number that was taken; 0 before the first.
    """

    def __init__(self, last_seq: int = 0) -> None:
        self.last_seq = last_seq
        self._running: tuple[int, S] | None = None
        self._done: S | None = None

    @property
    def running(self) -> S | None:
        """Step that was started and has not ended."""
        return None if self._running is None else self._running[1]

    def find(self, seq: int) -> S | None:
        """Return the step with this number, running or done; None: it is the next one, to be started.

        Raises:
            StepRefused: It is neither the last nor the next, another one runs, or the answer was lost.
        """
        if self._running is not None:
            current, step = self._running
            if seq == current:
                return step
            message = f"step {current} is still running"
            raise StepRefused(GuestErrorCode.BUSY, message, {"seq": current})
        if seq == self.last_seq + 1:
            return None
        if seq != self.last_seq or seq == 0:
            raise self._out_of_order(f"step {seq} does not follow step {self.last_seq}")
        if self._done is None:
            message = (
                f"step {seq} was begun, but its answer is lost, because the step failed or the guest "
                "agent was restarted"
            )
            raise StepRefused(GuestErrorCode.ANSWER_LOST, message, {"last_seq": seq})
        return self._done

    def start(self, seq: int, step: S) -> None:
        """Record that the next step runs."""
        assert self._running is None and seq == self.last_seq + 1, (
            "find() must be called first and return None"
        )
        self._running = seq, step

    def take(self, seq: int) -> None:
        """Use up the number of the running step, which counts as done from here on."""
        self.last_seq, self._done = seq, None

    def end(self, *, answered: bool) -> None:
        """Record that the running step has ended, with an answer or without."""
        assert self._running is not None, "nothing was started"
        seq, step = self._running
        self._running = None
        if answered and seq == self.last_seq:
            self._done = step

    def require_last(self, seq: int) -> None:
        """Check that a step is the last one, and over.

        Raises:
            StepRefused: Another step is the last one, or it still runs.
        """
        if seq != self.last_seq or self._running is not None:
            raise self._out_of_order(f"step {seq} is not the last one, which is {self.last_seq}")

    def _out_of_order(self, message: str) -> StepRefused:
        return StepRefused(GuestErrorCode.BAD_SEQUENCE, message, {"last_seq": self.last_seq})
