"""Decisions from notices that this host will be taken away. Pure; `episodes.draining` carries them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from osgym_protocol.host_api import Notice

OPERATOR = "operator"
"""Source and kind of a drain that was requested over the API."""


@dataclass(frozen=True, slots=True)
class DrainNotices:
    """Current notices by source. Without any the host serves."""

    notices: Mapping[str, Notice] = field(default_factory=dict)

    def updated(self, source: str, notice: Notice | None) -> DrainNotices:
        """Return the state after a source set its notice, or took it back with None."""
        others = {name: held for name, held in self.notices.items() if name != source}
        return DrainNotices(others if notice is None else {**others, source: notice})

    @property
    def notice(self) -> Notice | None:
        """Notice with the earliest deadline; None without notices."""
        return min(self.notices.values(), key=_when, default=None)

    @property
    def is_final(self) -> bool:
        """True if another source than the operator takes the host away."""
        return any(source != OPERATOR for source in self.notices)

    def ends_at(self, margin_s: float) -> float | None:
        """Return the Unix time at which open episodes end; None if only their clients end them."""
        notice = self.notice
        return None if notice is None or notice.deadline is None else notice.deadline - margin_s


def _when(notice: Notice) -> float:
    return float("inf") if notice.deadline is None else notice.deadline
