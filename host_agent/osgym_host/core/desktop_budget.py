"""Budget of the saved desktops of one purpose, and which of them stay within it. Pure."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol, TypeVar


class Sized(Protocol):
    @property
    def mib(self) -> float: ...


T = TypeVar("T", bound=Sized)


@dataclass(frozen=True, slots=True)
class DesktopBudget:
    """Bounds on the desktops of one purpose together.

    Attributes:
        displaces: True if a new desktop displaces the least recently used ones; else it is refused.
    """

    max_mib: float = math.inf
    max_count: float = math.inf
    displaces: bool = False


class OverBudget(Exception):
    """A desktop of `mib` does not fit beside the `used_mib` that may not be displaced."""

    def __init__(self, mib: float, used_mib: float, max_mib: float) -> None:
        super().__init__(
            f"a saved desktop of {mib:.0f} MiB does not fit, since {used_mib:.0f} of {max_mib} MiB are in use"
        )
        self.mib, self.used_mib, self.max_mib = mib, used_mib, max_mib


class BudgetedDesktops(OrderedDict[str, T]):
    """Desktops by name, least recently used first. The caller frees those that it gets back."""

    def __init__(self, budget: DesktopBudget) -> None:
        super().__init__()
        self.budget = budget

    def used_mib(self) -> float:
        """Return the size of all desktops."""
        return sum(desktop.mib for desktop in self.values())

    def use(self, name: str) -> T | None:
        """Return the desktop of a name, or None, and mark it as the latest used."""
        if name in self:
            self.move_to_end(name)
        return self.get(name)

    def check(self, mib: float = 0.0) -> None:
        """Check that one more desktop of this size fits: alone, if it may displace all others.

        Raises:
            OverBudget: It does not.
        """
        count, used_mib = (0, 0.0) if self.budget.displaces else (len(self), self.used_mib())
        if count >= self.budget.max_count or used_mib + mib > self.budget.max_mib:
            raise OverBudget(mib, used_mib, self.budget.max_mib)

    def put(self, name: str, value: T) -> list[T]:
        """Hold a desktop; return those that it displaces, including an older one of its name.

        Only `check` refuses: what was found on disk stays.
        """
        displaced = [older] if (older := self.pop(name, None)) is not None else []
        budget = self.budget
        while budget.displaces and self:
            if len(self) < budget.max_count and self.used_mib() + value.mib <= budget.max_mib:
                break
            displaced.append(self.popitem(last=False)[1])
        self[name] = value
        return displaced

    def drop(self, name: str, value: T) -> bool:
        """Remove this very desktop; return whether it was held."""
        if self.get(name) is not value:
            return False
        del self[name]
        return True
