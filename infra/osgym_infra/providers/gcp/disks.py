"""Disks of hosts at Google Cloud: kinds, sizes, speed. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from osgym_infra.config.keys import FleetConfig
from osgym_infra.config.readers import bad_key, check_offered
from osgym_infra.fleet.bounds import HostGroup

ROOT_GIB = 30
PROVISIONED = "hyperdisk-balanced"
"""The kind whose speed is chosen; that of the others comes with their size."""
LEAST_IOPS, MOST_IOPS, MOST_IOPS_PER_GIB = 3000, 160_000, 500
LEAST_MIB_PER_S, MOST_MIB_PER_S = 140, 2400
IOPS_PER_MIB_PER_S = (4, 256)
"""Compute Engine, "About Hyperdisk Balanced", size and performance limits (read 2026-11-22)."""


@dataclass(frozen=True, slots=True)
class DataDisk:
    """Disk for replicas' data; `iops` and `mib_per_s` are `None` where the cloud's default holds."""

    kind: str
    gib: int
    iops: int | None = None
    mib_per_s: int | None = None


def data_disk(group: HostGroup, config: FleetConfig) -> DataDisk:
    """Return the data disk of a group's hosts.

    Raises:
        BadInput: The kind of disk that the type takes has no chosen speed, or the cloud does not go so far.
    """
    assert group.machine is not None
    kind, gib = group.machine.disks[0], group.volume_gib
    iops, mib_per_s = config.data_disk_iops, config.data_disk_mib_per_s
    if iops is None and mib_per_s is None:
        return DataDisk(kind, gib)
    if PROVISIONED not in group.machine.disks:
        key = "data_disk_iops" if iops is not None else "data_disk_mib_per_s"
        raise bad_key(
            key,
            f"the speed of a {kind} disk comes with its size, and {group.type} takes no other",
            "Set a larger data_disk_gib, or a host_type of c3, n4 or c4",
        )
    low, high = IOPS_PER_MIB_PER_S
    # Both are asked for, or neither: the one that is not said is the least that goes with the other.
    iops = max(LEAST_IOPS, low * (mib_per_s or 0)) if iops is None else iops
    mib_per_s = max(LEAST_MIB_PER_S, math.ceil(iops / high)) if mib_per_s is None else mib_per_s
    most = min(MOST_IOPS, MOST_IOPS_PER_GIB * gib)
    check_offered("data_disk_iops", iops, LEAST_IOPS, most, f"IOPS on {gib} GiB")
    most = min(MOST_MIB_PER_S, max(LEAST_MIB_PER_S, iops // low))
    least = max(LEAST_MIB_PER_S, math.ceil(iops / high))
    check_offered("data_disk_mib_per_s", mib_per_s, least, most, f"MiB/s with {iops} IOPS")
    return DataDisk(PROVISIONED, gib, iops, mib_per_s)
