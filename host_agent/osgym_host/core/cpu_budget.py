"""CPU budget for each of several callers: token buckets of CPU time. Pure: callers pass the time.

Before a call, the recent cost of calls of its kind is reserved, which says when the call may begin. After the
call, its measured cost replaces the reservation. Calls that arrive at once therefore begin one after another.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

BURST_S = 0.2
"""CPU seconds that a caller may use at once after a rest: twenty heavy answers."""
_FIRST_COST_S = 0.002
"""CPU seconds reserved for the first call of a kind."""
_LATEST_WEIGHT = 0.3
"""Weight of the latest call in the moving average of what calls of its kind cost."""
_MOST_KEYS = 4096


@dataclass(frozen=True, slots=True)
class Reservation:
    """The CPU time reserved for a call.

    Attributes:
        wait_s: Seconds until the call may begin.
    """

    caller: str
    kind: str
    wait_s: float
    cost_s: float


@dataclass(slots=True)
class CpuBudget:
    """CPU credits by caller, each refilled at a share of a processor.

    Attributes:
        most: Number of callers, and of kinds of calls, that are remembered; the least recent is forgotten.
    """

    most: int = _MOST_KEYS
    _credits: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)
    """Caller → CPU seconds left (negative if overdrawn) and the time of that balance; latest caller last."""
    _costs: OrderedDict[str, float] = field(default_factory=OrderedDict)

    def reserve(self, caller: str, kind: str, share: float, now_s: float) -> Reservation:
        """Reserve CPU time for a call.

        Args:
            share: Number of processors that the caller may use in the long run, such as 0.1.
        """
        left, since_s = self._credits.get(caller, (BURST_S, now_s))
        left = min(BURST_S, left + max(0.0, now_s - since_s) * share)
        cost_s = self._costs.get(kind, _FIRST_COST_S)
        _keep(self._credits, caller, (left - cost_s, now_s), self.most)
        return Reservation(caller, kind, max(0.0, -left / share), cost_s)

    def settle(self, reserved: Reservation, cost_s: float) -> None:
        """Replace the reservation of a call by its measured cost."""
        self._give_back(reserved, reserved.cost_s - cost_s)
        known_s = self._costs.get(reserved.kind, _FIRST_COST_S)
        _keep(self._costs, reserved.kind, known_s + (cost_s - known_s) * _LATEST_WEIGHT, self.most)

    def cancel(self, reserved: Reservation) -> None:
        """Give back the reservation of a call that is not made."""
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
