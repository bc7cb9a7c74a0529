"""Kinds of hosts: shape, virtualisation, and how they are paid for. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from osgym_infra.errors import BadInput

GIB_PER_GB = 1e9 / 2**30
HOURS_PER_MONTH = 730.0
"""365·24/12; what the providers themselves divide monthly prices by."""


class Kvm(StrEnum):
    """Support of KVM guests on a host."""

    METAL = "metal"
    NESTED = "nested"
    NONE = "none"
    UNKNOWN = "unknown"


class Market(StrEnum):
    """Market in which a host is paid for."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"
    DEDICATED = "dedicated"


@dataclass(frozen=True, slots=True)
class HostShape:
    """Resources of a host; `None` is unlimited or unknown, and binds nothing.

    `vcpu` are hardware threads as the provider counts them, `threads_per_core` of them to a core.
    `disk_gib` is local storage; a host without takes a network volume of the size its replicas need.
    `swap_gib` is the size of its swap; None: a compressed one is set up as large as it may help. `pid_max` is
    the kernel's bound on threads.
    """

    name: str
    vcpu: float
    ram_gib: float
    kvm: Kvm = Kvm.UNKNOWN
    disk_gib: float | None = None
    threads_per_core: int = 1
    swap_gib: float | None = None
    pid_max: int | None = None

    def __post_init__(self) -> None:
        for field in ("vcpu", "ram_gib"):
            check_positive(f"{self.name}.{field}", getattr(self, field))


def check_positive(field: str, value: float) -> None:
    """Raise `BadInput` unless a value is above 0."""
    if not (value > 0 and math.isfinite(value)):
        raise BadInput(field, f"{value} is not a size", "a number above 0")
