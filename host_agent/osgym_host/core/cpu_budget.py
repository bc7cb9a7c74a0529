"""How much of a processor each of several callers may use: pure, with the time handed in.

A call reserves what calls of its kind cost lately, and is told when it may begin; when it is over, what it
really cost is put in the place of that. So calls that come at once get one turn after the other.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

BURST_S = 0.2
"""Seconds of a processor that a caller may use at once after a rest: twenty heavy answers."""
_FIRST_S = 0.002
_LEARNT = 0.3
"""Weight of the latest call in what calls of its kind are taken to cost."""
_MOST = 4096


@dataclass(frozen=True, slots=True)
class Reservation:
    """What was reserved for a call.

    Attributes:
        wait_s: Seconds until it may begin.
        cost_s: Seconds of a processor.
    """

    caller: str
    kind: str
    wait_s: float
    cost_s: float


@dataclass(slots=True)
class CpuBudget:
    """Credits by caller, each refilled at a share of a processor.

    Attributes:
        most: Number of callers, and of kinds of calls, that are known; the oldest is forgotten.
    """

    most: int = _MOST
    _credits: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)
    """Caller → seconds left, which may be less than 0, and the time of that; who called last is last."""
    _costs: OrderedDict[str, float] = field(default_factory=OrderedDict)

    def reserve(self, caller: str, kind: str, share: float, now_s: float) -> Reservation:
        """Reserve a call.

        Args:
            share: Processors that the caller may use in the long run, such as 0.1.
        """
        left, since_s = self._credits.get(caller, (BURST_S, now_s))
        left = min(BURST_S, left + max(0.0, now_s - since_s) * share)
        cost_s = self._costs.get(kind, _FIRST_S)
        _keep(self._credits, caller, (left - cost_s, now_s), self.most)
        return Reservation(caller, kind, max(0.0, -left / share), cost_s)

    def settle(self, reserved: Reservation, cost_s: float) -> None:
        """Put what a call cost in the place of what was reserved for it."""
        self._give_back(reserved, reserved.cost_s - cost_s)
        known_s = self._costs.get(reserved.kind, _FIRST_S)
        _keep(self._costs, reserved.kind, known_s + (cost_s - known_s) * _LEARNT, self.most)

    def cancel(self, reserved: Reservation) -> None:
        """Give back what was reserved for a call that is not made."""
        self._give_back(reserved, reserved.cost_s)

    def _give_back(self, reserved: Reservation, seconds: float) -> None:
        if reserved.caller in self._credits:
            left, since_s = self._credits[reserved.caller]
            self._credits[reserved.caller] = (left + seconds, since_s)


def _keep(into: OrderedDict[str, T], key: str, value: T, most: int) -> None:
    into[key] = value
    into.move_to_end(key)
    if len(into) > most:
        into.popitem(last=False)
