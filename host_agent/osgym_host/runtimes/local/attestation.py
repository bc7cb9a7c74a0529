"""Attestation of a replica's guest agent by the zygote, which runs `agent_check`."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from osgym_host.runtimes.base import GuestRestarted, GuestTampered, RuntimeFault
from osgym_host.runtimes.local import protocol, spawn
from osgym_host.runtimes.local.agent_check import RESTARTED
from osgym_host.runtimes.local.replica import LocalReplica
from osgym_host.runtimes.local.supervisor import RequestFailed, Supervisor

_log = logging.getLogger(__name__)

_TIMEOUT_S = 30.0
_IMAGE_WAIT_S, _IMAGE_LOOK_S = 15.0, 0.25


Processes = Callable[[], set[int] | None]
"""Function that returns the processes of a replica; blocks."""
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_NLM_F_REQUEST, _NLMSG_ERROR = 1, 2
_ALL_STATES, _SHOW_PEER, _PEER = 0xFFFFFFFF, 4, 2
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBHIIIII")
_ANSWER_BYTES = 16
_ATTRIBUTE = struct.Struct("=HH")
_NO_COOKIE = 0xFFFFFFFF
_DIAG_TIMEOUT_S = 1.0


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
        _log.warning(
            "replica %s: the guest agent cannot be checked when the episode is scored: %s",
            replica.replica_id,
            error,
        )
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
        _log.warning("the holders of the guest agents' connections are not checked: %s", error)
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
            raise RuntimeFault(f"the image's folder is missing: {rootfs}", replica_id=replica.replica_id)
        await asyncio.sleep(_IMAGE_LOOK_S)


async def _some(processes: Processes) -> list[int]:
    return sorted(await asyncio.to_thread(processes) or ())[: protocol.MAX_PIDS]


def peer_inodes(inodes: Iterable[int]) -> set[int]:
    """Return the inodes of the peers of sockets; closed ones are left out.

    Raises:
        OSError: The kernel has no `unix_diag`.
    """
    found = set()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as diag:
        diag.settimeout(_DIAG_TIMEOUT_S)
        for number, inode in enumerate(inodes, 1):
            body = _REQUEST.pack(socket.AF_UNIX, 0, 0, _ALL_STATES, inode, _SHOW_PEER, _NO_COOKIE, _NO_COOKIE)
            head = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, number, 0)
            diag.send(head + body)
            peer = _peer(diag.recv(65536))
            if peer is not None:
                found.add(peer)
    return found


def _peer(answer: bytes) -> int | None:
    length, kind, _, _, _ = _HEADER.unpack_from(answer)
    if kind == _NLMSG_ERROR:
        code = -struct.unpack_from("=i", answer, _HEADER.size)[0]
        if code in (errno.ENOENT, errno.ESTALE):
            return None
        raise OSError(code, os.strerror(code))
    offset = _HEADER.size + _ANSWER_BYTES
    while offset + _ATTRIBUTE.size <= min(length, len(answer)):
        size, name = _ATTRIBUTE.unpack_from(answer, offset)
        if size < _ATTRIBUTE.size:
            break
        if name == _PEER:
            return int(struct.unpack_from("=I", answer, offset + _ATTRIBUTE.size)[0])
        offset += (size + 3) & ~3
    return None
