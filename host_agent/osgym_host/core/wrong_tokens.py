"""How often an address may show tokens that are wrong: pure, with the time handed in, bounded in memory.

Guesses are counted by address: when it has made too many, tokens that it has not called with before are not
even looked at. Those that it has called with work on, so nobody who shares its address loses a running
client. A wrong token that is shown again guesses nothing: it has a bound of its own, and uses
up none of the address's.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field

from osgym_host.core.rate_limit import RateLimit

MOST = 4096
"""Of addresses, of wrong tokens, of right ones, each."""


@dataclass(slots=True)
class WrongTokens:
    """What addresses have shown.

    Attributes:
        per_min: Wrong tokens a minute that an address may show, and at once after a rest; 0: no bound.
    """

    per_min: int = 30
    most: int = MOST
    _guesses: RateLimit = field(init=False)
    _again: RateLimit = field(init=False)
    _right: OrderedDict[str, None] = field(init=False, default_factory=OrderedDict)

    def __post_init__(self) -> None:
        """Begin with nothing seen."""
        self._guesses = RateLimit(self.per_min / 60, max(1, self.per_min), self.most)
        self._again = RateLimit(self.per_min / 60, max(1, self.per_min), self.most)

    def wait_s(self, address: str, shown: bytes, now_s: float) -> float:
        """Return 0 where a token may be looked at, else the seconds until one may."""
        mark = _mark(address, shown)
        if self.per_min <= 0 or mark in self._right:
            return 0.0
        if mark in self._again:
            return self._again.left_s(mark, now_s)
        return self._guesses.left_s(address, now_s)

    def right(self, address: str, shown: bytes) -> None:
        """It was looked at, and is one."""
        if self.per_min <= 0:
            return
        key = _mark(address, shown)
        self._right[key] = None
        self._right.move_to_end(key)
        if len(self._right) > self.most:
            self._right.popitem(last=False)

    def wrong(self, address: str, shown: bytes, now_s: float) -> bool:
        """It was looked at, and is none; return whether that was the last one for now."""
        if self.per_min <= 0:
            return False
        mark = _mark(address, shown)
        if mark not in self._again:
            self._guesses.wait_s(address, now_s)
        self._again.wait_s(mark, now_s)
        return self._guesses.left_s(address, now_s) > 0

    def known(self) -> int:
        """Return how much is remembered."""
        return len(self._guesses) + len(self._again) + len(self._right)


def _mark(address: str, shown: bytes) -> str:
    """Return what stands for a token that an address has shown: those that are wrong may be nearly right."""
    return hashlib.sha256(address.encode() + b"\n" + shown).hexdigest()[:32]
