"""Clock of a desktop that stands still while its policy thinks (`think="paused"`)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from osgym_host.guest_client import GuestClient, GuestProtocolError, GuestRefused
from osgym_host.runtimes import base

T = TypeVar("T")


class ThinkingClock:
    """Holds and resumes the clocks of one replica by its guest agent. The caller serializes the calls.

    Attributes:
        held: Whether the clocks stand still.
        holds: Number of times that they were held: the screen of a desktop stays the same during one.
        left_s: Charged time that no `resume` could let pass, since the thoughts took less. Whoever waits for
            it sets it to 0.
    """

    def __init__(self, clone: base.Replica, *, real_time: bool) -> None:
        """Args:
        real_time: Whether a thought is charged the time that it took; else nothing.
        """
        self.held = False
        self.holds = 0
        self.left_s = 0.0
        self._clone = clone
        self._usual_s = None if real_time else 0.0
        self._next_s = self._usual_s

    @property
    def charges(self) -> bool:
        """Whether the next `resume` lets time pass."""
        return self._next_s != 0.0

    def charge(self, think_s: float | None) -> None:
        """Set the time by which the clocks move at the next `resume`; None: the usual one."""
        self._next_s = self._usual_s if think_s is None else think_s

    def mark_held(self) -> None:
        """Record that the guest agent holds the clocks."""
        self.held = True
        self.holds += 1

    async def hold(self) -> None:
        """Let the clocks stand still. Idempotent.

        Raises:
            GuestError: The guest agent did not answer as it must.
        """
        if self.held:
            return
        async with self._client() as client:
            await _accepted(client.hold_clock())
        self.mark_held()

    async def resume(self) -> None:
        """Let the clocks go on, by the charge later. Idempotent: the next one is charged as usual.

        Raises:
            GuestError: The guest agent did not answer as it must.
        """
        charge_s, self._next_s = self._next_s, self._usual_s
        if self.held:
            async with self._client() as client:
                charge_s = await _accepted(client.resume_clock(charge_s))
        self.left_s += charge_s or 0.0
        self.held = False

    def _client(self) -> GuestClient:
        return GuestClient(self._clone.guest, token=self._clone.guest_token)


async def _accepted(call: Awaitable[T]) -> T:
    """Wait for a call that the guest agent has accepted before: a refusal is a fault of the agent."""
    try:
        return await call
    except GuestRefused as error:
        raise GuestProtocolError(f"the guest agent refused to hold or resume its clocks: {error}") from error
