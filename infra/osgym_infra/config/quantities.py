"""Numbers of hosts in configurations: a count, or a percentage. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from osgym_infra.config.readers import full_key, short
from osgym_infra.errors import BadInput

MOST_HOSTS = 10_000


@dataclass(frozen=True, slots=True)
class CountOrPercent:
    """Number of hosts, or a percentage of all of them.

    Attributes:
        count: Number of hosts; 0 where a percentage is given.
        percent: Percentage of all hosts, 1 to 100; 0 where a count is given.
    """

    count: int = 0
    percent: int = 0

    def of(self, hosts: int) -> int:
        """Return the number for `hosts` hosts: at least 1, at most all, rounded down.

        Down, because it bounds what is away at a time (as Kubernetes' `maxUnavailable` does).
        """
        wanted = self.count or hosts * self.percent // 100
        return max(1, min(wanted, hosts))

    def __str__(self) -> str:
        return str(self.count) if self.count else f"{self.percent}%"


def count_or_percent(name: str, value: object) -> CountOrPercent:
    """Read a count (`3`) or a percentage (`25%`)."""
    found = re.fullmatch(r"(\d{1,5})(%?)", str(value).strip(), re.ASCII)
    number = int(found[1]) if found and not isinstance(value, bool) else 0
    is_percent = bool(found and found[2])
    if not 1 <= number <= (100 if is_percent else MOST_HOSTS):
        raise BadInput(
            full_key(name), f"{short(value)} does not fit", f"1 to {MOST_HOSTS} hosts, or 1% to 100%"
        )
    return CountOrPercent(percent=number) if is_percent else CountOrPercent(count=number)


class TrajectoryDetail(StrEnum):
    """Detail in which a host records episodes (the host agent's setting `trajectory`)."""

    OFF = "off"
    STEPS = "steps"
    FRAMES = "frames"
