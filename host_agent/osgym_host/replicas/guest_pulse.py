"""Health checks of guest agents: each is asked at intervals, and a frozen one ends.

So does one that answers what is no answer: somebody took the agent's place.

A call to a guest that does not come back is noticed by its own deadline, which is long, since a step may
take long; and nobody calls a guest that waits or whose client thinks. So there is a request beside, which
an agent answers from its event loop whatever else it does.

Frozen is not slow. On an overloaded host an answer takes long because the agent gets no processor. The kernel
counts how long its threads were ready to run and got none, and `Silence` subtracts that time. It also
subtracts, within bounds, time in which the agent waits for a disk or is started again, and time in which the
replica stands still for a branch point. When those bounds are used up, or a call's own deadline passes first,
`core.slowness` decides whether the host's load was the cause. A `StallWatch` collects its evidence from the
moment that an answer is late.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from osgym_host.core.reasons import Reason
from osgym_host.core.states import ReplicaState
from osgym_host.guest_client import GuestClient, GuestError, GuestProtocolError, GuestTimeout
from osgym_host.log_subject import about
from osgym_host.replicas.manager import ReplicaManager
from osgym_host.replicas.stall_watch import StallWatch
from osgym_host.runtimes.base import Replica
from osgym_host.runtimes.processes import cpu_waits_s, process_state

log = logging.getLogger(__name__)

_ASKED = (ReplicaState.READY, ReplicaState.LEASED)


@dataclass(frozen=True, slots=True)
class PulseOptions:
    """Intervals and bounds of health checks. With these a frozen guest is noticed within 5 s.

    Attributes:
        called_after_s, called_every_s: One whose answer a call has awaited for so long is asked, and again
            so long after it answered.
        idle_every_s: Between an answer of another and the next question to it.
        idle_share_s: Times the number of replicas, the least time between two questions to one of those
            others: each wakes an idle virtual machine (5 ms of a core where it is emulated), so many
            machines that nobody calls are asked more seldom. With 25 of them it makes no difference.
        patience_s: So long nothing is measured, as nearly all answers have come by then.
        silent_s: Silence beyond the deadline from which a guest that could have answered is frozen.
        excused_s: Longest time that waits for disks and restarts excuse.
        answer_s: Within which a question must be answered, counted or not.
    """

    called_after_s: float = 0.5
    called_every_s: float = 1.0
    idle_every_s: float = 1.25
    idle_share_s: float = 0.05
    patience_s: float = 0.5
    silent_s: float = 2.5
    excused_s: float = 10.0
    look_s: float = 0.25
    answer_s: float = 60.0

    def is_due(self, since_s: float, call_s: float, replicas: int) -> bool:
        """Return whether a guest must be asked.

        Args:
            call_s: How long a call to it has been waiting.
            replicas: How many there are.
        """
        if call_s >= self.called_after_s:
            return since_s >= self.called_every_s
        return since_s >= max(self.idle_every_s, self.idle_share_s * replicas)


@dataclass(slots=True)
class Silence:
    """Time for which a guest was silent although it could have answered. Pure.

    Attributes:
        counted_s: Time since the first look in which the agent could have answered.
        late_s: Time in which the agent waited for a disk or did not run, beyond what is excused.
        excused_s: Time in which the agent waited for a disk or did not run, and which is not counted.
    """

    options: PulseOptions
    at_s: float
    waits_s: Mapping[int, float]
    counted_s: float = 0.0
    late_s: float = 0.0
    excused_s: float = 0.0

    def look(self, at_s: float, waits_s: Mapping[int, float], state: str) -> bool:
        """Add a measurement; return whether the guest is frozen.

        Args:
            waits_s: For each thread of the agent's process, how long it has waited for a processor.
            state: Of the process as proc(5) names it, empty when there is none.
        """
        # We may have come late ourselves; then the answer may lie there already, unread.
        passed_s = min(at_s - self.at_s, 2 * self.options.look_s)
        starved_s = max((waits_s[tid] - self.waits_s.get(tid, 0.0) for tid in waits_s), default=0.0)
        self.at_s, self.waits_s = at_s, waits_s
        if state in ("", "D") and self.excused_s < self.options.excused_s:
            self.excused_s += passed_s
        elif state in ("", "D"):
            self.late_s += passed_s
        else:
            # The kernel tells of a wait once it is over, so that it may be one of earlier looks.
            self.counted_s = max(0.0, self.counted_s + passed_s - max(0.0, starved_s))
        return self.counted_s + self.late_s >= self.options.silent_s

    @property
    def could_answer(self) -> bool:
        """Return whether the agent was silent for `silent_s` with a processor and no wait for a disk."""
        return self.counted_s >= self.options.silent_s


@dataclass(slots=True)
class _Asked:
    """State of a replica between two questions."""

    client: GuestClient
    answered_s: float = field(default_factory=time.monotonic)
    asking: asyncio.Task[None] | None = None
    looking: asyncio.Task[None] | None = None


class GuestPulse:
    """Asks the guests of a pool's replicas for their health."""

    def __init__(
        self,
        managers: Callable[[], Sequence[ReplicaManager]],
        used_cpu_s: Callable[[Replica], float | None],
        options: PulseOptions | None = None,
    ) -> None:
        """Keep the arguments; `run` starts to ask.

        Args:
            used_cpu_s: Returns the CPU time that a replica has used so far.
        """
        self._managers = managers
        self._used_cpu_s = used_cpu_s
        self._options = options or PulseOptions()
        self._asked: dict[ReplicaManager, _Asked] = {}

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await asyncio.sleep(self._options.look_s)
                    self._ask_due(group)
        finally:
            for asked in self._asked.values():
                asked.client.close()
            self._asked.clear()

    def _ask_due(self, group: asyncio.TaskGroup) -> None:
        live = [m for m in self._managers() if m.state in _ASKED and m.clone is not None]
        self._forget(set(live))
        now_s = time.monotonic()
        for manager in live:
            assert manager.clone is not None
            asked = self._asked.get(manager)
            if asked is None:
                client = GuestClient(manager.clone.guest, token=manager.clone.guest_token)
                asked = self._asked[manager] = _Asked(client)
            since_s, call_s = now_s - asked.answered_s, manager.guest.waiting_s()
            # It stands still and cannot answer. Who takes the point, or wakes it, has a deadline.
            if manager.points_under_way or not manager.awake:
                asked.answered_s = now_s
                manager.stall = None
                continue
            if call_s < self._options.called_after_s and asked.asking is None:
                manager.stall = None
            elif asked.looking is None or asked.looking.done():
                asked.looking = group.create_task(self._look(manager, call_s))
            if asked.asking is None and self._options.is_due(since_s, call_s, len(live)):
                asked.asking = group.create_task(self._ask(manager, asked))

    def _forget(self, live: set[ReplicaManager]) -> None:
        for manager in [manager for manager in self._asked if manager not in live]:
            asked = self._asked.pop(manager)
            for task in (asked.asking, asked.looking):
                if task is not None:
                    task.cancel()
            asked.client.close()

    async def _look(self, manager: ReplicaManager, call_s: float) -> None:
        """Watch a replica whose answer is late; the first call for a stall begins its `StallWatch`."""
        stall, options = manager.stall, self._options
        try:
            if stall is not None:
                await asyncio.to_thread(stall.look)
            elif manager.clone is not None:
                unseen_s = call_s - options.called_after_s - 2 * options.look_s
                watch = partial(StallWatch, waited_s=unseen_s)
                manager.stall = await asyncio.to_thread(
                    watch, manager.clone, self._used_cpu_s, options.look_s
                )
        except Exception:  # the top of a task
            with about(manager):
                log.exception("replica %s: the watch for stalls failed", manager.replica_id)

    async def _ask(self, manager: ReplicaManager, asked: _Asked) -> None:
        answer = asyncio.ensure_future(self._answers(asked.client))
        try:
            await asyncio.wait((answer,), timeout=self._options.patience_s)
            if not answer.done() and (silence := await self._frozen(manager, answer)) is not None:
                counted_s = self._options.patience_s + self._options.silent_s
                if silence.could_answer:
                    detail = f"the guest agent did not answer for {counted_s:g} s during which it could run"
                else:
                    detail = f"the guest agent waited for a disk or did not run for over {counted_s:g} s"
                manager.retire(await manager.why_silent(could_answer=silence.could_answer), detail)
            elif answer.done() and (nonsense := answer.result()) is not None:
                manager.retire(Reason.GUEST_PROTOCOL, f"the answer to /health was malformed: {nonsense}")
        except Exception:  # the top of a task
            with about(manager):
                log.exception("replica %s: the request for its health failed", manager.replica_id)
        finally:
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)
            asked.client.drop_idle()  # nobody is connected between two questions: see `Runtime.branch`
            asked.answered_s, asked.asking = time.monotonic(), None

    async def _frozen(
        self, manager: ReplicaManager, answer: asyncio.Future[GuestProtocolError | None]
    ) -> Silence | None:
        """Watch an unanswered question; return None once it is answered, or how long the guest was silent."""
        clone = manager.clone
        assert clone is not None
        pid = await asyncio.to_thread(clone.agent_pid)
        silence = Silence(self._options, time.monotonic(), cpu_waits_s(pid))
        while True:
            await asyncio.wait((answer,), timeout=self._options.look_s)
            ended = clone.exit_info is not None or manager.state not in _ASKED
            if answer.done() or ended or manager.points_under_way or not manager.awake:
                return None
            if silence.look(time.monotonic(), cpu_waits_s(pid), process_state(pid)):
                return silence

    async def _answers(self, client: GuestClient) -> GuestProtocolError | None:
        """Wait until the guest answers or cannot be reached; return the error if the answer was malformed."""
        try:
            await client.health(timeout_s=self._options.answer_s)
        except GuestProtocolError as error:
            return error
        except GuestTimeout:
            log.debug("a guest agent has not answered for %g s", self._options.answer_s)
        except GuestError:
            return None  # refused, or gone: whoever calls it finds out, and so does its runtime
        return None
