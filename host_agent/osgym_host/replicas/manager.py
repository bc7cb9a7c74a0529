"""Manager of one replica: one task with one mailbox.

It feeds events to the pure transition function of `core.states` and carries out the effects. Work
that takes time runs in child tasks that report back by events.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, assert_never

from osgym_host import log_subject
from osgym_host.core import states
from osgym_host.core.reasons import Reason
from osgym_host.core.rest import RestStage
from osgym_host.core.slowness import is_of_the_host
from osgym_host.core.states import ReplicaState
from osgym_host.core.warm_apps import WarmApp
from osgym_host.guest_client import GuestClient, GuestError, GuestRefused, GuestTimeout, GuestUnreachable
from osgym_host.logs import escape_controls, quote_lines
from osgym_host.replicas.exit_reasons import CONSOLE_CHARS, ENDED_BY_SIGTERM, reason_of_exit
from osgym_host.replicas.rest import ReplicaRest
from osgym_host.replicas.stall_watch import StallWatch
from osgym_host.replicas.warming import Warming
from osgym_host.runtimes import base
from osgym_host.runtimes.frozen_disk import FrozenDisk
from osgym_host.runtimes.processes import process_state
from osgym_protocol.codes import GuestErrorCode

log = logging.getLogger(__name__)

_DETAIL_CHARS = 2000

STOP_NOTICE_S = 1.0
"""Time after a session's end in which a stop of the host agent counts as its cause: one signal for both."""
DEATH_NOTICE_S = STOP_NOTICE_S + 1.0
"""Time for which a broken connection waits for the report and cause of the replica's death."""

OnLeaseAnswer = Callable[[bool], None]
OnRevoked = Callable[[Reason, str], None]


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Deadlines of the phases of a replica's life, in seconds."""

    create_s: float = 30.0
    boot_s: float = 60.0
    destroy_s: float = 30.0
    destroy_attempts: int = 3


class ManagerListener(Protocol):
    """Receiver of a manager's decisions, which is the pool. Called on the event loop; must not block."""

    def on_ready(self, manager: ReplicaManager) -> None:
        """The replica is ready and not leased."""

    def on_unavailable(self, manager: ReplicaManager) -> None:
        """The replica was ready and cannot be leased."""

    def on_change(self, manager: ReplicaManager, before: ReplicaState) -> None:
        """The replica changed its state."""

    def on_gone(self, manager: ReplicaManager, reason: Reason) -> None:
        """Nothing of the replica is left."""

    async def wait_stop(self, timeout_s: float) -> bool:
        """Return whether the host agent stops, now or within this time."""


class ReplicaManager:
    """Manages one replica from its creation to its end.

    Attributes:
        detail: Why it failed, for people; empty while all is well.
        clone: Replica of the runtime; None before it was made.
        holder: For whose episode it is used, or was at its end; None before.
        creation_over: Set once the runtime was asked to make it and has answered, or was stopped.
        stall: Counters of its present stall, collected by the pool; None while no answer is late.
        cpu_lowered: True while it has a lower CPU weight, since it has used up its CPU credit.
        rest: Its rest between calls; None before it runs, and where replicas never rest.
        points_under_way: Branch points that are being taken of it; it stands still for them.
        clean: True if nobody has used the replica: it is neither adopted nor a child of a used one.
        warm_apps: Programs that run in it, without a window, until it is handed to somebody.
    """

    def __init__(
        self,
        spec: base.ReplicaSpec,
        runtime: base.Runtime,
        listener: ManagerListener,
        deadlines: Deadlines,
        warming: Warming,
        record: base.ReplicaRecord | None = None,
        make_rest: Callable[[base.Replica], ReplicaRest] | None = None,
    ) -> None:
        """Prepare. With a `record` the replica is adopted instead of created; without `make_rest` it never
        rests."""
        self._replica = states.ReplicaStatus()
        self._spec = spec
        self._runtime = runtime
        self._listener = listener
        self._deadlines = deadlines
        self._record = record
        self.clean = record is None and spec.origin in (None, warming.origin)
        self._warming = warming
        self._make_rest = make_rest
        self.rest: ReplicaRest | None = None
        self._mailbox: asyncio.Queue[states.Event] = asyncio.Queue()
        self._work: dict[str, asyncio.Task[None]] = {}
        self._asked: dict[str, tuple[OnLeaseAnswer, OnRevoked]] = {}
        self._on_revoked: OnRevoked | None = None
        self._guest: GuestClient | None = None
        self.clone: base.Replica | None = None
        self.holder: log_subject.LogSubject | None = None
        self.detail = ""
        self.creation_over = asyncio.Event()
        self.points_under_way = 0
        self.stall: StallWatch | None = None
        self.cpu_lowered = False
        self.warm_apps: tuple[WarmApp, ...] = ()
        self.created_at = time.monotonic()
        self.ready_at: float | None = None
        self.measured_at: float | None = None
        self.pss_mib: float | None = None
        self.peak_mib: float = 0.0
        self.cpu_s: float | None = None
        self.overlay_mib: float | None = None
        self.written_mib: float | None = None
        self.fds_in_flight: int = 0

    @property
    def replica_id(self) -> str:
        return self._spec.replica_id

    @property
    def generation(self) -> int:
        return self._spec.generation

    @property
    def spec(self) -> base.ReplicaSpec:
        return self._spec

    @property
    def state(self) -> ReplicaState:
        return self._replica.state

    @property
    def reason(self) -> Reason | None:
        """Reason of the retirement; None before."""
        return self._replica.reason

    @property
    def awake(self) -> bool:
        """Whether its processes run."""
        return self.rest is None or self.rest.stage is RestStage.AWAKE

    @property
    def hold(self) -> int | None:
        """Number of the present hold of the desktop's clock (`think="paused"`); None while it goes on."""
        clock = None if self.rest is None else self.rest.thinking
        return clock.holds if clock is not None and clock.held else None

    @property
    def guest(self) -> GuestClient:
        """Client of the guest agent; only once the replica was ready."""
        assert self._guest is not None, "the replica was never ready"
        return self._guest

    async def witness(self) -> None:
        """Record the identity of the guest agent, before anybody uses a replica of this host agent.

        Raises:
            RuntimeFault: It is gone.
        """
        if self._record is None and self.clone is not None:
            await self._runtime.witness(self.clone)

    async def attest(self, *, afresh: bool) -> bool:
        """Check that the guest agent is unchanged, and alone holds its connections; see `Runtime.attest`.

        Args:
            afresh: Close the connections that there are, so that what follows goes over a new one; else look
                at those that were used.

        Raises:
            GuestTampered: It is not.
            RuntimeFault: It cannot be looked at.
            GuestError: It does not answer.
        """
        if self.clone is None or self._guest is None:
            return False
        if afresh:
            self._guest.drop_idle()
        try:
            await self._guest.health()
        except GuestError:  # one that was replaced need not answer well: that is the better reason
            await self._runtime.attest(self.clone, [])
            raise
        return await self._runtime.attest(self.clone, self._guest.socket_inodes())

    async def why_silent(self, *, could_answer: bool = False) -> Reason:
        """Return why a guest agent is silent: it hangs, was stopped, or is slowed by the host's load.

        A stopped first process is the host's doing, since no signal from its own namespace can stop it.

        Args:
            could_answer: True if the agent is known to have had enough CPU time.
        """
        if self.clone is not None and process_state(self.clone.pid) == "T":
            return Reason.STOPPED
        if could_answer or self.stall is None:
            return Reason.GUEST_HUNG
        stall = await asyncio.to_thread(self.stall.measure, self.cpu_lowered)
        return Reason.GUEST_SLOW if is_of_the_host(stall) else Reason.GUEST_HUNG

    async def freeze_disk(self) -> FrozenDisk | None:
        """Return the disk as it is now, to be read from outside; None if the runtime has no such disk.

        Raises:
            RuntimeFault: It could not be done.
        """
        return None if self.clone is None else await self._runtime.freeze_disk(self.clone)

    def send(self, event: states.Event) -> None:
        self._mailbox.put_nowait(event)

    def retire(self, reason: Reason, detail: str = "") -> None:
        """Retire the replica. Allowed in any state, any number of times."""
        if detail and not self.detail:
            # Guests have a hand in it: errors quote what they answered.
            self.detail = escape_controls(detail[:_DETAIL_CHARS])
        self.send(states.Retire(reason))

    def request_lease(self, lease_id: str, granted: OnLeaseAnswer, on_revoked: OnRevoked) -> None:
        """Request a lease; `granted` is called once, `on_revoked` if the replica ends under the lease."""
        info = self.clone.exit_info if self.clone is not None else None
        if info is not None:  # it died, and the watch has not reported yet
            self.retire(*reason_of_exit(info))
        self._asked[lease_id] = (granted, on_revoked)
        self.send(states.LeaseRequested(lease_id))

    def return_unused(self, lease_id: str) -> None:
        """Return a replica that was not used and is still clean."""
        self.send(states.ReturnedUnused(lease_id))

    async def run(self) -> None:
        """Handle events until nothing of the replica is left. Must not be cancelled: use `retire`."""
        with log_subject.about(self):
            self._spawn("create", self._create())
            while self._replica.state is not ReplicaState.GONE:
                self._handle(await self._mailbox.get())
            await asyncio.gather(*self._work.values(), return_exceptions=True)
            while not self._mailbox.empty():
                self._handle(self._mailbox.get_nowait())

    def log_fields(self) -> Mapping[str, str | int | None]:
        """Return the fields that name the replica and its last holder in log lines."""
        whose = {} if self.holder is None else self.holder.log_fields()
        return {**whose, "replica": self.replica_id, "generation": self.generation}

    def _handle(self, event: states.Event) -> None:
        before = self._replica.state
        self._replica, effects = states.transition(self._replica, event)
        for effect in effects:
            self._perform(effect)
        if self._replica.state is not before:
            self._listener.on_change(self, before)

    def _perform(self, effect: states.Effect) -> None:
        match effect:
            case states.AwaitBoot():
                self._spawn("boot", self._boot())
            case states.Offer():
                self._on_revoked = self.holder = None
                if self.ready_at is None:
                    self.ready_at = time.monotonic()
                    self._spawn("watch", self._watch())
                self._listener.on_ready(self)
            case states.GrantLease(lease_id):
                granted, self._on_revoked = self._asked.pop(lease_id)
                granted(True)
            case states.RefuseLease(lease_id):
                granted, _ = self._asked.pop(lease_id)
                granted(False)
            case states.Withdraw():
                self._listener.on_unavailable(self)
            case states.Revoke(_, reason):
                if self._on_revoked is not None:
                    self._on_revoked(reason, self.detail)
                    self._on_revoked = None
            case states.Destroy():
                self._spawn("destroy", self._destroy())
            case states.Forget(reason):
                self._listener.on_gone(self, reason)
            case _ as never:
                assert_never(never)

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._work[name] = asyncio.create_task(self._guarded(work), name=f"{self.replica_id}:{name}")

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # the top of a task
            log.exception("replica %s: internal error", self.replica_id)
            self.retire(Reason.INTERNAL, repr(error))

    async def _create(self) -> None:
        try:
            async with asyncio.timeout(self._deadlines.create_s):
                if self._record is None:
                    self.clone = await self._runtime.create(self._spec)
                else:
                    self.clone = await self._runtime.adopt(self._record)
        except TimeoutError:
            self.retire(
                Reason.CREATE_FAILED, f"the replica was not created within {self._deadlines.create_s:g} s"
            )
        except (base.RuntimeFault, OSError, ValueError) as error:
            tail = error.log_tail if isinstance(error, base.RuntimeFault) else ""
            self.retire(Reason.CREATE_FAILED, f"{error} {quote_lines(tail, CONSOLE_CHARS)}".strip())
        else:
            self.send(states.CloneCreated())
        finally:
            self.creation_over.set()

    async def _boot(self) -> None:
        assert self.clone is not None
        if self._make_rest is not None:
            self.rest = self._make_rest(self.clone)
        self._guest = GuestClient(self.clone.guest, token=self.clone.guest_token, wake_lock=self.rest)
        if self.rest is not None:
            self.rest.before_pause = self._guest.drop_idle
        ready = asyncio.create_task(self._wait_usable(self._guest))
        dead = asyncio.create_task(self.clone.wait_dead())
        try:
            await asyncio.wait((ready, dead), return_when=asyncio.FIRST_COMPLETED)
            if not dead.done() and isinstance(ready.exception(), GuestUnreachable):
                await asyncio.wait((dead,), timeout=DEATH_NOTICE_S)
            if dead.done():
                reason, detail = reason_of_exit(dead.result())
                by_itself = reason in (Reason.GUEST_DEAD, Reason.KILLED, Reason.RUNTIME_LOST)
                self.retire(Reason.BOOT_FAILED if by_itself else reason, detail)
                return
            ready.result()
            self.send(states.Booted())
        except TimeoutError:
            self.retire(Reason.BOOT_TIMEOUT, "the programs of warm_apps did not start in time")
        except GuestTimeout as error:
            self.retire(Reason.BOOT_TIMEOUT, str(error))
        except GuestRefused as error:
            late = error.code == GuestErrorCode.NOT_READY
            self.retire(Reason.BOOT_TIMEOUT if late else Reason.BOOT_FAILED, str(error))
        except GuestError as error:
            self.retire(Reason.BOOT_FAILED, str(error))
        finally:
            await _cancel(ready, dead)

    async def _wait_usable(self, guest: GuestClient) -> None:
        """Wait until the desktop can be used. A used one may be drawing, so that an answer is enough."""
        assert self.clone is not None
        if not self.clone.reported_ready:
            if self.clean:
                await guest.ready(timeout_s=self._deadlines.boot_s)
            else:
                await guest.health(timeout_s=self._deadlines.boot_s)
        if self.clean:
            self.warm_apps = await self._warming.prepare(self.clone, guest)

    async def _watch(self) -> None:
        assert self.clone is not None
        info = await self.clone.wait_dead()
        reason, detail = reason_of_exit(info)
        # A machine that shuts down ends its processes in any order, a desktop's before the host agent.
        if info.reason in ENDED_BY_SIGTERM and await self._listener.wait_stop(STOP_NOTICE_S):
            reason = Reason.SHUTDOWN
        self.retire(reason, detail)

    async def _destroy(self) -> None:
        for name in ("create", "boot", "watch"):
            task = self._work.get(name)
            if task is not None:
                await _cancel(task)
        self.creation_over.set()
        if self._guest is not None:
            self._guest.close()
        if self.clone is not None or self._record is not None:
            await self._remove()
        self.send(states.Destroyed())

    async def _remove(self) -> None:
        for attempt in range(self._deadlines.destroy_attempts):
            try:
                async with asyncio.timeout(self._deadlines.destroy_s):
                    if self.clone is not None:
                        await self._runtime.destroy(self.clone)
                    elif self._record is not None:
                        await self._runtime.reap(self._record)
                return
            except (base.RuntimeFault, OSError, TimeoutError) as error:
                log.warning("replica %s: destroy attempt %d failed: %s", self.replica_id, attempt + 1, error)
        log.error("replica %s could not be removed completely", self.replica_id)


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
