"""One replica of the qemu runtime: a machine with an identity, listened to until it is dead."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import zlib
from collections.abc import Coroutine, Iterator
from typing import Any

from osgym_host.runtimes.base import ExitInfo, ExitReason, GuestAddress, Replica, ReplicaSpec, RuntimeFault
from osgym_host.runtimes.qemu import watch
from osgym_host.runtimes.qemu.agentless import AgentlessGuest
from osgym_host.runtimes.qemu.launcher import ProcessEnd
from osgym_host.runtimes.qemu.qmp import EventStream, QmpError
from osgym_host.runtimes.qemu.vms import Vm
from osgym_host.runtimes.qemu.watch import Verdict, Vitals

log = logging.getLogger(__name__)

CONSOLE_KEPT_BYTES = 64 * 1024
_EVENTS = ("SHUTDOWN", "GUEST_PANICKED", "BLOCK_IO_ERROR", "STOP")
_CONSOLE_TIMEOUT_S = 0.3
_STATUS_TIMEOUT_S = 2.0
_KILL_TIMEOUT_S = 10.0
_LAST_WORDS_S = 0.5
"""After the process has ended, what QEMU still had said over QMP is read for so long."""
_DEATH_NOTICE_S = 1.0
"""After the QMP connection broke, the end of the process is awaited for so long."""


class QemuReplica(Replica):
    """Made by `QemuRuntime`; everything that changes, the runtime and the sentry change."""

    def __init__(self, spec: ReplicaSpec, vm: Vm, token: str | None) -> None:
        """Take over a machine and begin to listen to it; it may still be asleep."""
        self._spec = spec
        self._token = token
        self.vm = vm
        self.agentless: AgentlessGuest | None = None
        self.destroying = False
        self.desktop_ready = False
        self.removed = False
        spread = zlib.crc32(spec.replica_id.encode()) / 0xFFFFFFFF
        self.vitals = Vitals(spread, time.monotonic())
        self._standing = 0
        self._console = b""
        self._verdict: Verdict | None = None
        self._dead: asyncio.Future[ExitInfo] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening = self._spawn(self._listen())
        self._spawn(self._await_end())

    @property
    def replica_id(self) -> str:
        """Id given in the spec."""
        return self._spec.replica_id

    @property
    def generation(self) -> int:
        """Generation given in the spec."""
        return self._spec.generation

    @property
    def spec(self) -> ReplicaSpec:
        """What it was created from."""
        return self._spec

    @property
    def guest(self) -> GuestAddress:
        """A port of the loopback interface that QEMU forwards to the guest agent, or who stands for it."""
        return self.vm.address if self.agentless is None else self.agentless.address

    @property
    def guest_token(self) -> str | None:
        """What the guest agent demands: its own for each clone. Who stands for it demands nothing."""
        return self._token if self.agentless is None else None

    @property
    def awake(self) -> bool:
        """Whether its guest agent, when it acknowledged its identity, said that the desktop is drawn."""
        return self.desktop_ready

    @property
    def pid(self) -> int:
        """Host PID of QEMU."""
        return self.vm.pid

    @property
    def exit_info(self) -> ExitInfo | None:
        """How it ended, None while it lives."""
        return self._dead.result() if self._dead.done() else None

    async def wait_dead(self) -> ExitInfo:
        """Wait until its process is gone."""
        return await asyncio.shield(self._dead)

    def console_tail(self, max_bytes: int = 8192) -> str:
        """Return the last bytes of the serial console, as far as they were read (`read_console`)."""
        return self._console[-max_bytes:].decode("utf-8", "replace")

    async def read_console(self, timeout_s: float = _CONSOLE_TIMEOUT_S) -> str:
        """Fetch what the guest has written since, and return the tail. QEMU keeps it until then."""
        with contextlib.suppress(QmpError):
            fresh = await self.vm.machine.read_console(timeout_s=timeout_s)
            self._console = (self._console + fresh)[-CONSOLE_KEPT_BYTES:]
        return self.console_tail()

    # For runtime and sentry --------------------------------------------------------------------------

    @property
    def excused(self) -> bool:
        """It is dead or dying, or stands still because we said so."""
        return self._dead.done() or self.destroying or self._verdict is not None or self._standing > 0

    @contextlib.contextmanager
    def standing(self) -> Iterator[None]:
        """While the context lasts, we stop and continue it ourselves."""
        self._standing += 1
        try:
            yield
        finally:
            self._standing -= 1

    def condemn(self, verdict: Verdict) -> None:
        """It must die, for this reason, if there was none before. Returns at once."""
        if self._verdict is None and not self._dead.done() and not self.destroying:
            self._verdict = verdict
            self._spawn(self._execute(verdict))

    async def check_status(self) -> None:
        """Ask QEMU whether the guest runs, and condemn it when it does not."""
        try:
            status = await self.vm.machine.status(timeout_s=_STATUS_TIMEOUT_S)
        except QmpError:  # dead, or the sentry finds out
            return
        if status == "paused" and self._standing == 0:
            self.condemn(watch.PAUSED)
        elif (verdict := watch.judge_status(status)) is not None:
            self.condemn(verdict)

    async def close(self) -> None:
        """Stop listening. Idempotent; for a replica whose process is gone, or that lives on without us."""
        for task in tuple(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.agentless is not None:
            await self.agentless.close()

    async def _execute(self, verdict: Verdict) -> None:
        if verdict is not watch.STOPPED:  # a stopped process answers nobody
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
            self.condemn(watch.MONITOR_LOST)

    async def _judge_events(self, events: EventStream) -> None:
        async for event in events:
            verdict = watch.judge_event(event.name, event.data)
            if verdict is not None:
                self.condemn(verdict)
            elif event.name == "STOP" and not self.excused:
                await self.check_status()

    async def _await_end(self) -> None:
        end = await self.vm.wait_end()
        await asyncio.wait((self._listening,), timeout=_LAST_WORDS_S)
        if not self._dead.done():
            self._dead.set_result(self._explain(end))

    def _explain(self, end: ProcessEnd) -> ExitInfo:
        if self._verdict is not None:
            verdict = self._verdict
        elif self.destroying:
            verdict = Verdict(ExitReason.DESTROYED, "it was destroyed")
        else:
            verdict = watch.judge_end(end, self._spec.ram_mib)
        return ExitInfo(verdict.reason, verdict.detail, end.exit_code, end.signal, self.console_tail())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"{self._spec.replica_id}:qemu")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
