"""Parts that faults share: the service, its replicas and the work on them; and the impact of a fault."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos.docker_faults import Daemon
from benchmarks.chaos.flights import Attempt, Flights
from benchmarks.chaos.reach import Reach
from benchmarks.chaos.schedule import Kind
from benchmarks.chaos.service import Events, Service

CLEAN_WAIT_S = 90.0
"""Time after which a slot that is not clean counts as lost."""


@dataclass
class Impact:
    """One fault and its consequences. Times are from the fault on.

    Attributes:
        noticed_s: Time until the host retired the replica; None when it did not.
        clean_s: Time until nothing of the replica was left and its slot was free, or until the broken part
            works again. Where an episode went on in spite of the fault, from its end on.
        touched: Attempts that the fault hit.
        wrong: Violations that the fault itself found.
    """

    kind: Kind
    at_s: float
    replica_id: str = ""
    noticed_s: float | None = None
    clean_s: float | None = None
    touched: int = 0
    reason: str = ""
    note: str = ""
    wrong: list[str] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """Return it as one line of the raw series."""
        told = {"fault": self.kind.name.lower(), "at_s": round(self.at_s, 1), "touched": self.touched}
        for name in ("noticed_s", "clean_s"):
            value = getattr(self, name)
            told[name] = None if value is None else round(value, 3)
        return {**told, "reason": self.reason, "note": self.note[:200], "wrong": self.wrong}


class NoVictim(Exception):
    """No running attempt can be hit, so the fault was not caused."""


@dataclass(frozen=True)
class Means:
    """Means for faults of the host.

    Attributes:
        clock_file: File with the offset of the host agent's wall clock; None where there can be none.
        docker: Daemon in whose containers the machines run; None where they are bare processes.
    """

    clock_file: Path | None
    docker: Daemon | None


@dataclass
class Stage:
    """A run."""

    service: Service
    reach: Reach
    events: Events
    flights: Flights
    began: float
    means: Means
    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Lock of a fault of the host: two of them at once prove nothing."""

    def victim(self, draw: float) -> Attempt:
        """Return an attempt that runs, on its first try and not yet hit: a second hit in one trajectory adds
        nothing.

        Raises:
            NoVictim: No attempt of this kind runs.
        """
        running = [
            attempt
            for attempt in self.flights.flying()
            if attempt.which == 1
            and not self.flights.hits(attempt.number)
            and self.events.when(attempt.replica_id, "retiring") is None
        ]
        if not running:
            raise NoVictim("nobody to hit")
        return sorted(running, key=lambda attempt: attempt.number)[int(draw * len(running))]

    async def until_gone(self, impact: Impact, fault_at: float) -> None:
        """Record when the host gave up the replica of an impact, and when its slot was clean."""
        replica_id = impact.replica_id
        gone = await self.events.until(
            lambda: self.events.when(replica_id, "gone") is not None or self._restarted(fault_at),
            CLEAN_WAIT_S,
        )
        retiring = self.events.when(replica_id, "retiring")
        event = self.events.event(replica_id, "retiring")
        impact.reason = str(event.get("reason", ""))
        gone_at = self.events.when(replica_id, "gone")
        if gone_at is None:
            if not gone:
                impact.wrong.append(f"{replica_id} was not gone after {CLEAN_WAIT_S:g} s")
            else:
                impact.note = "the host agent was killed in between"
            return
        in_order = impact.reason in ("closed", "lease_expired", "client_gone")
        if retiring is not None and not in_order:
            impact.noticed_s = max(0.0, retiring - fault_at)
        start = retiring if in_order and retiring is not None else fault_at
        impact.clean_s = max(0.0, gone_at - start)

    def _restarted(self, since: float) -> bool:
        return self.restarted_at > since

    restarted_at: float = 0.0
    """Time at which the host agent was last killed."""

    def now_s(self) -> float:
        return time.monotonic() - self.began
