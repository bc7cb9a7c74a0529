"""How much of a processor each of several callers may use: pure, with the time handed in.

A call reserves what calls of its kind cost lately, and is told when it may begin; when it is over, what it really
cost is put in the place of that. Several calls at once thus get one turn after the other.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

BURST_S = 0.2
"""Seconds of a processor that a caller may use at once after a rest: some ten heavy answers."""
_FIRST_S = 0.002
_LEARNT = 0.3
"""Weight of the latest call in what a kind of call is taken to cost."""
_MOST = 4096


@dataclass(slots=True)
class CpuBudget:
    """Credits by caller, each refilled at the same share of a processor."""

    most: int = _MOST
    _credits: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)
    """Caller → seconds left, which may be less than 0, and the time of that; who called last is last."""
    _costs: OrderedDict[str, float] = field(default_factory=OrderedDict)
    """Kind of call → seconds."""

    def reserve(self, caller: str, kind: str, share: float, now_s: float, max_wait_s: float) -> float:
        """Reserve a call; return the seconds until it may begin. Beyond `max_wait_s` nothing is reserved.

        Args:
            share: Processors that the caller may use in the long run, such as 0.1.
        """
        left, since_s = self._credits.get(caller, (BURST_S, now_s))
        left = min(BURST_S, left + max(0.0, now_s - since_s) * share)
        wait_s = max(0.0, -left / share)
        if wait_s <= max_wait_s:
            left -= self._costs.get(kind, _FIRST_S)
        self._credits[caller] = (left, now_s)
        self._credits.move_to_end(caller)
        if len(self._credits) > self.most:
            self._credits.popitem(last=False)
        return wait_s

    def settle(self, caller: str, kind: str, cost_s: float) -> None:
        """Put what a call cost in the place of what was reserved for it."""
        reserved_s = self._costs.get(kind, _FIRST_S)
        if caller in self._credits:
            left, since_s = self._credits[caller]
            self._credits[caller] = (left + reserved_s - cost_s, since_s)
        self._costs[kind] = reserved_s + (cost_s - reserved_s) * _LEARNT
        self._costs.move_to_end(kind)
        if len(self._costs) > self.most:
            self._costs.popitem(last=False)
