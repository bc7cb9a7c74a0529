"""What exists between `start` and `stop` of the local runtime: zygote, control groups, ids, ways out."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass

from osgym_host.images.idmap import IdMap
from osgym_host.runtimes import cgroups
from osgym_host.runtimes.base import ReplicaDestroyFailed, StartReport
from osgym_host.runtimes.egress.tools import NetworkFailed
from osgym_host.runtimes.local.instance import ZYGOTE_RECORD, InstanceDir, record_process
from osgym_host.runtimes.local.isolation import Isolation
from osgym_host.runtimes.local.supervisor import ExitCallback, Supervisor
from osgym_host.runtimes.local.ways_out import WaysOut

REMOVE_TIMEOUT_S = 120.0
"""Of a `remove` request: a replica may have written a million files."""


@dataclass(frozen=True, slots=True)
class Hearers:
    """Who hears of ends.

    Attributes:
        on_exit: Called with key and wait status when a replica's first process has ended.
        on_lost: Called with a zygote that is gone.
    """

    on_exit: ExitCallback
    on_lost: Callable[[Supervisor], None]


@dataclass(slots=True)
class Running:
    """Use `open`; the caller has the instance's folder, which `close` gives back.

    Attributes:
        replicas_fd: The folder that holds all replicas' folders.
    """

    instance: InstanceDir
    hearers: Hearers
    ways: WaysOut
    idmap: IdMap
    isolation: Isolation
    supervisor: Supervisor
    tree: cgroups.CgroupTree
    replicas_fd: int

    @classmethod
    async def open(
        cls, instance: InstanceDir, idmap: IdMap, ways: WaysOut, hearers: Hearers
    ) -> tuple[Running, StartReport]:
        """Start a zygote and clear what a killed predecessor left.

        Raises:
            RuntimeUnsupported: The host lacks something; the message says what to do.
            RuntimeFault: Leftovers could not be removed. In both cases nothing of ours is left.
        """
        mark = cgroups.instance_group_name(instance.path)
        async with contextlib.AsyncExitStack() as undo:
            isolation = Isolation.open(instance.path)
            undo.callback(isolation.close)
            supervisor = await _start_zygote(instance, idmap, isolation, hearers)
            undo.push_async_callback(supervisor.close)
            tree = await asyncio.to_thread(cgroups.open_tree, mark)
            killed = await asyncio.to_thread(instance.kill_leftovers, tree)
            names = instance.leftover_names()
            replicas_fd = os.open(instance.replicas, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            undo.callback(os.close, replicas_fd)
            if names:
                await supervisor.request(
                    "remove", {"names": names}, [replicas_fd], timeout_s=REMOVE_TIMEOUT_S
                )
            await ways.start(mark, instance.egress_record)
            undo.pop_all()
        running = cls(instance, hearers, ways, idmap, isolation, supervisor, tree, replicas_fd)
        return running, StartReport(reaped_replicas=len(names), reaped_processes=killed)

    async def renew_supervisor(self) -> Supervisor:
        """Return the zygote, a new one when the old one died. One caller at a time.

        Raises:
            RuntimeUnsupported, RuntimeFault: None can be started.
        """
        if self.supervisor.lost.done():
            await self.supervisor.close()
            self.supervisor = await _start_zygote(self.instance, self.idmap, self.isolation, self.hearers)
        return self.supervisor

    async def close(self) -> list[BaseException]:
        """Let go of the host, when there is no replica any more; return what went wrong."""
        errors: list[BaseException] = []
        await self.supervisor.close()
        os.close(self.replicas_fd)
        self.isolation.close()
        try:
            await self.ways.stop()
        except NetworkFailed as exc:
            errors.append(ReplicaDestroyFailed(f"the instance's links are left: {exc}"))
        try:
            await asyncio.to_thread(self.tree.remove)
            self.instance.forget()
        except OSError as exc:
            errors.append(ReplicaDestroyFailed(f"the instance's control group is busy: {exc}"))
        self.instance.release()
        return errors


async def _start_zygote(
    instance: InstanceDir, idmap: IdMap, isolation: Isolation, hearers: Hearers
) -> Supervisor:
    lock_fd = await instance.zygote_lock()
    try:
        lock_fds = [fd for fd in (lock_fd, isolation.lock_fd) if fd >= 0]
        supervisor = await Supervisor.start(idmap, lock_fds, hearers.on_exit)
    finally:
        os.close(lock_fd)
    record_process(instance.path / ZYGOTE_RECORD, supervisor.pid)
    supervisor.lost.add_done_callback(lambda _: hearers.on_lost(supervisor))
    return supervisor
