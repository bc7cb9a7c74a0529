"""Disk usage of a replica, measured by the zygote: it alone may read a replica's folder."""

from __future__ import annotations

from collections.abc import Collection

from osgym_host.runtimes.base import RuntimeFault
from osgym_host.runtimes.held_files import HeldFiles
from osgym_host.runtimes.local import protocol
from osgym_host.runtimes.local.replica import LocalReplica
from osgym_host.runtimes.local.supervisor import Supervisor

_TIMEOUT_S = 30.0


async def of_disk(
    supervisor: Supervisor, replicas_fd: int, replica: LocalReplica, pids: Collection[int] | None
) -> tuple[float | None, HeldFiles | None]:
    """Return the overlay's size in MiB, and deleted files that processes hold open.

    Args:
        replicas_fd: Descriptor of the folder that holds the replica's folder.

    Returns:
        None for both where the zygote does not answer; the next measurement will.
    """
    fields = {
        "name": replica.folder.name,
        "pids": sorted(pids or ())[: protocol.MAX_PIDS],
        "devices": list(replica.disk_devices),
    }
    try:
        answer, _ = await supervisor.request("measure", fields, [replicas_fd], timeout_s=_TIMEOUT_S)
    except RuntimeFault:
        return None, None
    used, deleted, in_flight, written = map(int, answer["result"].split())
    return used / (1 << 20), HeldFiles(deleted, in_flight, written if written >= 0 else None)
