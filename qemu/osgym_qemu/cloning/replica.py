"""Replica of the qemu runtime: a machine with an identity, monitored until it is dead."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import zlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from osgym_host.addresses import GuestAddress
from osgym_host.runtimes.base import ExitInfo, ExitReason, Replica, ReplicaSpec, RuntimeFault
from osgym_host.runtimes.replica_cgroup import CgroupGroup
from osgym_qemu.agentless.guest import AgentlessGuest
from osgym_qemu.branching import BranchSource
from osgym_qemu.cloning.managed_vm import ManagedVm
from osgym_qemu.golden.snapshot import GoldenSnapshot
from osgym_qemu.health import rules
from osgym_qemu.health.rules import DeathCause, Liveness
from osgym_qemu.machine.launcher import ProcessEnd
from osgym_qemu.machine.qmp import EventStream, QmpError

log = logging.getLogger(__name__)

CONSOLE_KEPT_BYTES = 64 * 1024
_EVENTS = ("SHUTDOWN", "GUEST_PANICKED", "BLOCK_IO_ERROR", "STOP")
_CONSOLE_TIMEOUT_S = 0.3
_STATUS_TIMEOUT_S = 2.0
_KILL_TIMEOUT_S = 10.0
_LAST_WORDS_S = 0.5
"""Time to read pending QMP messages after the process has ended."""
_DEATH_NOTICE_S = 1.0
"""Time to wait for the end of the process after the QMP connection broke."""


class QemuReplica(Replica):
    """Replica made by `QemuRuntime`; only the runtime and the health monitor change it."""

    def __init__(self, spec: ReplicaSpec, vm: ManagedVm, token: str | None) -> None:
        """Take over a machine and begin to monitor it; its guest may not run yet."""
        super().__init__(spec)
        self._token = token
        self.vm = vm
        self.agentless: AgentlessGuest | None = None
        self.desktop_ready = False
        spread = zlib.crc32(spec.replica_id.encode()) / 0xFFFFFFFF
        self.liveness = Liveness(spread, time.monotonic())
        self._expected_pauses = 0
        self._is_frozen = False
        self._console = b""
        self._cause: DeathCause | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening = self._spawn(self._listen())
        self._spawn(self._await_end())

    @property
    def guest(self) -> GuestAddress:
        """Port of the loopback interface that QEMU forwards to the guest agent, or the address of its
        stand-in.
        """
        return self.vm.address if self.agentless is None else self.agentless.address

    @property
    def guest_token(self) -> str | None:
        """Token of the guest agent, different for each clone; None for a stand-in."""
        return self._token if self.agentless is None else None

    @property
    def reported_ready(self) -> bool:
        """Whether the guest agent reported a drawn desktop when it acknowledged its identity."""
        return self.desktop_ready

    @property
    def pid(self) -> int:
        return self.vm.pid

    def console_tail(self, max_bytes: int = 8192) -> str:
        return self._console[-max_bytes:].decode("utf-8", "replace")

    async def read_console(self, timeout_s: float = _CONSOLE_TIMEOUT_S) -> str:
        """Read new console output from QEMU, which buffers it, and return the last bytes."""
        with contextlib.suppress(QmpError):
            fresh = await self.vm.machine.read_console(timeout_s=timeout_s)
            self._console = (self._console + fresh)[-CONSOLE_KEPT_BYTES:]
        return self.console_tail()

    # For runtime and health monitor ------------------------------------------------------------------

    @property
    def exempt(self) -> bool:
        """Whether it is dead, being destroyed, or paused by the host."""
        paused = self._is_frozen or self._expected_pauses > 0
        return self._dead.done() or self.destroying or self._cause is not None or paused

    def set_frozen(self, group: CgroupGroup, frozen: bool) -> None:
        """Stop QEMU's threads as they stand, or let them run on. Idempotent.

        Raises:
            OSError: The kernel refused.
        """
        group.set_frozen(frozen)
        self._is_frozen = frozen
        if not frozen:
            self.liveness = self.liveness.answered(time.monotonic())

    @contextlib.asynccontextmanager
    async def expecting_pause(self) -> AsyncIterator[None]:
        """Context in which the host pauses and resumes it; at the end it runs, or is killed."""
        self._expected_pauses += 1
        try:
            yield
        finally:
            self._expected_pauses -= 1
            await self.check_status()

    def branch_source(self, golden: GoldenSnapshot) -> BranchSource:
        return BranchSource(
            replica_id=self.replica_id,
            generation=self.generation,
            token=self.guest_token,
            machine=self.vm.machine,
            ram=self.vm.ram,
            folder=self.vm.folder,
            overlay=self.vm.overlay,
            golden=golden,
            pausing=self.expecting_pause,
        )

    def kill_for(self, cause: DeathCause) -> None:
        """Kill it for this cause, unless another came first. Returns at once."""
        if self._cause is None and not self._dead.done() and not self.destroying:
            self._cause = cause
            self._spawn(self._kill(cause))

    async def check_status(self) -> None:
        """Ask QEMU whether the guest runs, and kill it when it does not."""
        try:
            status = await self.vm.machine.status(timeout_s=_STATUS_TIMEOUT_S)
        except QmpError:  # dead, or the health monitor finds out
            return
        if status == "paused" and self._expected_pauses == 0:
            self.kill_for(rules.PAUSED)
        elif (cause := rules.cause_of_status(status)) is not None:
            self.kill_for(cause)

    async def close(self) -> None:
        """Stop monitoring a replica that is dead or goes on without this host agent. Idempotent."""
        for task in tuple(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.agentless is not None:
            await self.agentless.close()

    async def _kill(self, cause: DeathCause) -> None:
        if cause is not rules.STOPPED:  # a stopped process answers nobody
            await self.read_console()
        try:
            await self.vm.machine.process.kill(timeout_s=_KILL_TIMEOUT_S)
        except (RuntimeFault, OSError):  # the destroy that follows tries again, and says so
            log.exception("replica %s cannot be killed", self.replica_id)

    async def _listen(self) -> None:
        qmp = self.vm.machine.qmp
        with qmp.subscribe(*_EVENTS) as events:
            await self._judge_events(events)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DEATH_NOTICE_S):
                await self.vm.wait_end()
        if self.vm.machine.end is None:
            self.kill_for(rules.MONITOR_LOST)

    async def _judge_events(self, events: EventStream) -> None:
        async for event in events:
            cause = rules.cause_of_event(event.name, event.data)
            if cause is not None:
                self.kill_for(cause)
            elif event.name == "STOP" and not self.exempt:
                await self.check_status()

    async def _await_end(self) -> None:
        end = await self.vm.wait_end()
        await asyncio.wait((self._listening,), timeout=_LAST_WORDS_S)
        if not self._dead.done():
            self._dead.set_result(self._explain(end))

    def _explain(self, end: ProcessEnd) -> ExitInfo:
        if self._cause is not None:
            cause = self._cause
        elif self.destroying:
            cause = DeathCause(ExitReason.DESTROYED, "the replica was destroyed")
        else:
            cause = rules.cause_of_end(end, self._spec.ram_mib)
        return ExitInfo(cause.reason, cause.detail, end.exit_code, end.signal, self.console_tail())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"{self._spec.replica_id}:qemu")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
