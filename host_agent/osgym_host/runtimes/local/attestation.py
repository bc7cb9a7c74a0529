"""Attestation of a replica's guest agent by the zygote, which runs `agent_check`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from osgym_host.runtimes.base import GuestRestarted, GuestTampered, RuntimeFault
from osgym_host.runtimes.local import protocol, spawn
from osgym_host.runtimes.local.agent_check import RESTARTED
from osgym_host.runtimes.local.replica import LocalReplica
from osgym_host.runtimes.local.supervisor import RequestFailed, Supervisor
from osgym_host.runtimes.unix_peers import peer_inodes

_log = logging.getLogger(__name__)

_TIMEOUT_S = 30.0
_IMAGE_WAIT_S, _IMAGE_LOOK_S = 15.0, 0.25


Processes = Callable[[], set[int] | None]
"""Function that returns the processes of a replica; blocks."""


async def witness(supervisor: Supervisor, replica: LocalReplica, processes: Processes) -> None:
    """Record the identity of the agent before anybody uses the replica. A second call changes nothing.

    An image without an agent of ours is recorded as such: later checks have nothing to compare.
    """
    if replica.agent is not None:
        return
    try:
        answer, _ = await supervisor.request(
            "identify", {"pids": await _some(processes), "listening": replica.listening}, timeout_s=_TIMEOUT_S
        )
        replica.agent = json.loads(answer["result"])
    except RequestFailed as error:
        _log.warning("replica %s: its guest agent cannot be checked later: %s", replica.replica_id, error)
        replica.agent = {}


async def attest(
    supervisor: Supervisor, replica: LocalReplica, processes: Processes, sockets: Sequence[int]
) -> bool:
    """Compare the agent with its recorded identity; return True if no program of the desktop can reach it.

    Raises:
        GuestRestarted: The agent, which no program of the desktop can reach, crashed and was started again.
        GuestTampered: The agent was replaced or changed.
        RuntimeFault: The zygote cannot check it, or the image is missing for too long.
    """
    if not replica.agent:
        return False
    try:
        connections = sorted(peer_inodes(sockets))
    except OSError as error:
        _log.warning("who holds the guest agents' connections is not looked at: %s", error)
        connections = []
    rootfs = spawn.rootfs_image(replica.spec).rootfs.absolute()
    fields: dict[str, Any] = {
        "before": replica.agent,
        "pids": await _some(processes),
        "listening": replica.listening,
        "connections": connections,
        "rootfs": os.fspath(rootfs),
        "upper": os.fspath(replica.folder.absolute() / "upper"),
    }
    until = time.monotonic() + _IMAGE_WAIT_S
    while True:
        was_there = await asyncio.to_thread(rootfs.is_dir)
        answer, _ = await supervisor.request("check", fields, timeout_s=_TIMEOUT_S)
        if not (finding := answer["result"]):
            return not replica.one_pid_namespace
        if finding == RESTARTED and not replica.one_pid_namespace:
            raise GuestRestarted(finding, replica_id=replica.replica_id)
        if was_there and await asyncio.to_thread(rootfs.is_dir):
            raise GuestTampered(finding, replica_id=replica.replica_id)
        # Nothing can be compared with an image that is away, and the guest is not to blame.
        if time.monotonic() >= until:
            raise RuntimeFault(f"the image is missing: {rootfs}", replica_id=replica.replica_id)
        await asyncio.sleep(_IMAGE_LOOK_S)


async def _some(processes: Processes) -> list[int]:
    return sorted(await asyncio.to_thread(processes) or ())[: protocol.MAX_PIDS]
