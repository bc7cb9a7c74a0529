"""Rate limit of wrong tokens by address. Pure: callers pass the time; bounded in memory.

Guesses are counted by address. After too many, tokens that are new from the address are refused unchecked.
Tokens that it has used before stay valid, so that nobody who shares the address loses a running client. A
wrong token that is repeated is no new guess: it has a limit of its own and uses nothing of the address's.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field

from osgym_host.core.rate_limit import RateLimit

MOST = 4096
"""Number of addresses, of wrong tokens and of right ones that are kept."""


@dataclass(slots=True)
class WrongTokens:
    """Guesses by address.

    Attributes:
        per_min: Wrong tokens that an address may try per minute, and at once after a rest; 0 sets no bound.
    """

    per_min: int = 30
    most: int = MOST
    _guesses: RateLimit = field(init=False)
    _again: RateLimit = field(init=False)
    _right: OrderedDict[str, None] = field(init=False, default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self._guesses = RateLimit(self.per_min / 60, max(1, self.per_min), self.most)
        self._again = RateLimit(self.per_min / 60, max(1, self.per_min), self.most)

    def wait_s(self, address: str, shown: bytes, now_s: float) -> float:
        """Return 0 if a token may be checked, else the seconds until one may."""
        mark = _mark(address, shown)
        if self.per_min <= 0 or mark in self._right:
            return 0.0
        if mark in self._again:
            return self._again.left_s(mark, now_s)
        return self._guesses.left_s(address, now_s)

    def right(self, address: str, shown: bytes) -> None:
        """Note a token that was checked and is right."""
        if self.per_min <= 0:
            return
        key = _mark(address, shown)
        self._right[key] = None
        self._right.move_to_end(key)
        if len(self._right) > self.most:
            self._right.popitem(last=False)

    def wrong(self, address: str, shown: bytes, now_s: float) -> bool:
        """Note a token that was checked and is wrong; return whether the address must wait now."""
        if self.per_min <= 0:
            return False
        mark = _mark(address, shown)
        if mark not in self._again:
            self._guesses.wait_s(address, now_s)
        self._again.wait_s(mark, now_s)
        return self._guesses.left_s(address, now_s) > 0

    def known(self) -> int:
        return len(self._guesses) + len(self._again) + len(self._right)


def _mark(address: str, shown: bytes) -> str:
    """Return the hash that stands for a token of an address, since wrong tokens may be nearly right."""
    return hashlib.sha256(address.encode() + b"\n" + shown).hexdigest()[:32]
