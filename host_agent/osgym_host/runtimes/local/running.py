"""Resources of the local runtime between `start` and `stop`: zygote, control groups, ids, egress."""

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
from osgym_host.runtimes.local.egress_provider import EgressProvider
from osgym_host.runtimes.local.instance import ZYGOTE_RECORD, InstanceDir, record_process
from osgym_host.runtimes.local.isolation import Isolation
from osgym_host.runtimes.local.supervisor import ExitCallback, Supervisor

REMOVE_TIMEOUT_S = 120.0
"""Deadline of a `remove` request: a replica may have written a million files."""


@dataclass(frozen=True, slots=True)
class SupervisorCallbacks:
    """Callbacks for the ends of replicas and of the process that supervises them.

    Attributes:
        on_exit: Called with key and wait status when a replica's first process has ended.
        on_lost: Called with the zygote when it has ended.
    """

    on_exit: ExitCallback
    on_lost: Callable[[Supervisor], None]


@dataclass(slots=True)
class Running:
    """Everything that a started runtime holds. `close` also releases the lock that `open` took."""

    instance: InstanceDir
    callbacks: SupervisorCallbacks
    egress: EgressProvider
    idmap: IdMap
    isolation: Isolation
    supervisor: Supervisor
    tree: cgroups.CgroupTree
    replicas_fd: int

    @classmethod
    async def open(
        cls, instance: InstanceDir, idmap: IdMap, egress: EgressProvider, callbacks: SupervisorCallbacks
    ) -> tuple[Running, StartReport]:
        """Start a zygote and clear what a killed predecessor left.

        Raises:
            RuntimeUnsupported: The host lacks something; the message says what to do.
            RuntimeFault: Leftovers could not be removed. In both cases nothing stays open.
        """
        mark = cgroups.instance_group_name(instance.path)
        async with contextlib.AsyncExitStack() as undo:
            isolation = Isolation.open(instance.path)
            undo.callback(isolation.close)
            supervisor = await _start_zygote(instance, idmap, isolation, callbacks)
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
            await egress.start(mark, instance.egress_record)
            undo.pop_all()
        running = cls(instance, callbacks, egress, idmap, isolation, supervisor, tree, replicas_fd)
        return running, StartReport(reaped_replicas=len(names), reaped_processes=killed)

    async def renew_supervisor(self) -> Supervisor:
        """Return the zygote, a new one when the old one died. One caller at a time.

        Raises:
            RuntimeUnsupported, RuntimeFault: None can be started.
        """
        if self.supervisor.lost.done():
            await self.supervisor.close()
            self.supervisor = await _start_zygote(self.instance, self.idmap, self.isolation, self.callbacks)
        return self.supervisor

    async def close(self) -> list[BaseException]:
        """Release everything after the last replica, and return the errors that occurred."""
        errors: list[BaseException] = []
        await self.supervisor.close()
        os.close(self.replicas_fd)
        self.isolation.close()
        try:
            await self.egress.stop()
        except NetworkFailed as exc:
            errors.append(
                ReplicaDestroyFailed(f"the network links of this host agent could not be removed: {exc}")
            )
        try:
            await asyncio.to_thread(self.tree.remove)
            self.instance.forget()
        except OSError as exc:
            errors.append(ReplicaDestroyFailed(f"the control group of this host agent is busy: {exc}"))
        self.instance.release()
        return errors


async def _start_zygote(
    instance: InstanceDir, idmap: IdMap, isolation: Isolation, callbacks: SupervisorCallbacks
) -> Supervisor:
    lock_fd = await instance.zygote_lock()
    try:
        lock_fds = [fd for fd in (lock_fd, isolation.lock_fd) if fd >= 0]
        supervisor = await Supervisor.start(idmap, lock_fds, callbacks.on_exit)
    finally:
        os.close(lock_fd)
    record_process(instance.path / ZYGOTE_RECORD, supervisor.pid)
    supervisor.lost.add_done_callback(lambda _: callbacks.on_lost(supervisor))
    return supervisor
