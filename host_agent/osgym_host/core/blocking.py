"""Setting that keeps the pool from growing, with its value, for people and error details. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from osgym_host.core.admission import Budget
from osgym_host.core.plan import Blocked, PoolSpec


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
            return BlockingSetting("max_replicas", budget.max_replicas, "all of them exist")
        case Blocked.CPU:
            meaning = "the share of a core that each replica is counted with"
            return BlockingSetting("cpu_per_replica", budget.cpu_per_replica, meaning)
        case Blocked.RAM:
            return BlockingSetting(
                "ram_reserve_mib",
                budget.ram_reserve_mib,
                f"and no room beside it for another replica of up to replica_ram_mib={budget.ram_cap_mib}",
            )
        case Blocked.DISK:
            return BlockingSetting("disk_reserve_mib", budget.disk_reserve_mib, "and no room beside it")
        case Blocked.CONCURRENCY:
            return BlockingSetting("max_starting", spec.max_starting, "so many start at the same time")
        case Blocked.NOTHING | Blocked.BACKOFF | Blocked.PROBING | Blocked.STOPPING:
            return None
        case _ as never:
            assert_never(never)
