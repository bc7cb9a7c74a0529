"""What follows from notices that this host will be taken away. Pure; `episodes.draining` carries it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from osgym_protocol.host_api import Notice

OPERATOR = "operator"
"""The source of a drain that was asked for over the API, and its kind."""


@dataclass(frozen=True, slots=True)
class DrainNotices:
    """The notices that hold now, by source. Without any the host serves."""

    notices: Mapping[str, Notice] = field(default_factory=dict)

    def updated(self, source: str, notice: Notice | None) -> DrainNotices:
        """Return the state after a source said what it knows; None: it has no notice, or takes it back."""
        others = {name: held for name, held in self.notices.items() if name != source}
        return DrainNotices(others if notice is None else {**others, source: notice})

    @property
    def notice(self) -> Notice | None:
        """The notice with the earliest deadline; None without notices."""
        return min(self.notices.values(), key=_when, default=None)

    @property
    def is_final(self) -> bool:
        """Whether somebody else than the operator takes the host away."""
        return any(source != OPERATOR for source in self.notices)

    def ends_at(self, margin_s: float) -> float | None:
        """When open episodes have to end, in Unix time; None: whenever their clients end them."""
        notice = self.notice
        return None if notice is None or notice.deadline is None else notice.deadline - margin_s


def _when(notice: Notice) -> float:
    return float("inf") if notice.deadline is None else notice.deadline
