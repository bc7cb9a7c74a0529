"""Ask the zygote what a replica uses of the disk: it alone may look into a replica's folder."""

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
    """Return MiB of its overlay, and what its processes hold of files that are gone.

    Args:
        replicas_fd: The folder that holds its folder.

    Returns:
        Nothing of both where the zygote does not say: the next look will.
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
