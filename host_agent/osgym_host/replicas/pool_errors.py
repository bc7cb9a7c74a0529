"""Errors of the pool for requests that get no replica."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from osgym_host.core.admission import Budget
from osgym_host.core.plan import Blocked, PoolSpec
from osgym_host.core.reasons import Reason
from osgym_host.errors import OsgymHostError
from osgym_protocol.host_api import Notice


@dataclass(frozen=True, slots=True)
class BlockingSetting:
    """Setting of the host agent, its value, and its effect."""

    name: str
    value: int | float
    meaning: str

    def __str__(self) -> str:
        """Return the setting as one clause."""
        return f"{self.name}={self.value}, {self.meaning}"


def blocking_setting(blocked: Blocked, spec: PoolSpec, budget: Budget) -> BlockingSetting | None:
    """Return the setting behind the cause that blocks the pool; None without one."""
    match blocked:
        case Blocked.MAX_REPLICAS:
            return BlockingSetting("max_replicas", budget.max_replicas, "as many replicas exist")
        case Blocked.CPU:
            meaning = "the part of a core that admission reserves for each replica"
            return BlockingSetting("cpu_per_replica", budget.cpu_per_replica, meaning)
        case Blocked.RAM:
            return BlockingSetting(
                "ram_reserve_mib",
                budget.ram_reserve_mib,
                f"which leaves no memory for another replica of up to replica_ram_mib={budget.ram_cap_mib}",
            )
        case Blocked.DISK:
            return BlockingSetting(
                "disk_reserve_mib", budget.disk_reserve_mib, "which leaves no disk space for another replica"
            )
        case Blocked.CONCURRENCY:
            return BlockingSetting("max_starting", spec.max_starting, "as many replicas start at the moment")
        case Blocked.NOTHING | Blocked.BACKOFF | Blocked.PROBING | Blocked.STOPPING:
            return None
        case _ as never:
            assert_never(never)


class PoolExhausted(OsgymHostError):
    """No replica was free in time.

    Attributes:
        blocked: Cause that keeps the pool from growing.
        last_failure: Why the last attempt to make one failed, empty when none did.
        setting: Setting behind `blocked`; None without one.
    """

    def __init__(
        self, waited_s: float, blocked: Blocked, last_failure: str, setting: BlockingSetting | None = None
    ) -> None:
        by = blocked.value if setting is None else f"{blocked.value}: {setting}"
        why = f"; the last replica could not be made: {last_failure}" if last_failure else ""
        super().__init__(f"No replica was free within {waited_s:.1f} s (blocked by {by}){why}")
        self.waited_s = waited_s
        self.blocked = blocked
        self.setting = setting
        self.last_failure = last_failure


class PoolStopping(OsgymHostError):
    """No replica is handed out, since the host agent stops."""

    def __init__(self, text: str = "The host agent is stopping.") -> None:
        super().__init__(text)


class PoolDraining(PoolStopping):
    """No replica is handed out while the host drains."""

    def __init__(self, notice: Notice) -> None:
        super().__init__("This host is draining and accepts no new episodes.")
        self.notice = notice


class ReplicaNotMade(OsgymHostError):
    """A replica for one lease (a child or an adopted one) failed before it was handed over."""

    def __init__(self, replica_id: str, reason: Reason, detail: str) -> None:
        super().__init__(f"replica {replica_id} could not be made ({reason.value}): {detail}")
        self.replica_id = replica_id
        self.reason = reason
        self.detail = detail
