"""Trajectories over stand-ins: their tasks, and a policy that has each attempt broken as its case says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.chaos.synthetic.faults import NOTICED, OF_HOST, Case, Fault, Moment, Strike
from benchmarks.chaos.synthetic.stand_in import ANSWER, PREPARE
from osgym_sdk import Result

POLL_S = 0.02
ENDED_WITHIN_S = 90.0
SETUP_TRIES = 3
"""Replicas on which a host agent tries a set-up before the create fails."""
CLICK = [{"op": "click", "x": 1, "y": 2}]
_AT_STEP = {
    0: (Moment.UNTOUCHED, Moment.UNTOUCHED_CHECK),
    1: (Moment.BETWEEN, Moment.STEP, Moment.ANSWER, Moment.LOST),
    2: (Moment.CHECK,),
}
"""The steps before which attempts are met, or are made ready to be met."""
_KEY = "chaos"


class StandInError(RuntimeError):
    """A stand-in did not do what it was told to, so the class cannot be judged."""


@dataclass(frozen=True, slots=True)
class Control:
    """Orders to the stand-ins of a host agent."""

    path: Path

    async def send(self, fault: Fault, moment: Moment, **fields: Any) -> bool:
        """Send one order; return whether its replica was there.

        Raises:
            OSError: The host agent is away.
        """
        reader, writer = await asyncio.open_unix_connection(self.path)
        try:
            writer.write(json.dumps({"fault": fault, "moment": moment, **fields}).encode() + b"\n")
            return bool(json.loads(await reader.readline())["done"])
        finally:
            writer.close()


@dataclass(slots=True)
class HostRound:
    """Trajectories that a fault of the host meets together, each at its own moment.

    Attributes:
        waiting_for: Number of trajectories that have not come to their moment yet.
        struck: Set once the host has been hit.
    """

    waiting_for: int
    complete: asyncio.Event = field(default_factory=asyncio.Event)
    struck: asyncio.Event = field(default_factory=asyncio.Event)

    def arrive(self) -> None:
        """Note that one more trajectory is at its moment."""
        self.waiting_for -= 1
        if self.waiting_for == 0:
            self.complete.set()


@dataclass(slots=True)
class SeenAttempt:
    """An attempt that came as far as its first frame."""

    strike: Strike
    episode_id: str = ""


@dataclass(slots=True)
class Trajectories:
    """All trajectories of a run, and the policy that the SDK calls for each attempt.

    Attributes:
        url: Address of the host agent.
        seen: Attempts with a desktop, by the number of their trajectory.
        round: The fault of the host that the trajectories being played wait for; None while there is none.
        pids: Processes of this machine that replicas with some faults are taken for.
        watching: Tasks that wait until replicas are held.
    """

    url: str
    control: Control
    http: httpx.AsyncClient
    cases: dict[int, Case] = field(default_factory=dict)
    seen: dict[int, list[SeenAttempt]] = field(default_factory=dict)
    round: HostRound | None = None
    pids: Mapping[Fault, int] = field(default_factory=dict)
    watching: set[asyncio.Task[None]] = field(default_factory=set)

    async def source(self, cases: Iterable[Case]) -> AsyncIterator[dict[str, Any]]:
        """Yield the task of each case, once the stand-ins know what meets its set-ups."""
        for case in cases:
            self.cases[case.number], self.seen[case.number] = case, []
            first = case.strikes[0] if case.strikes else Strike()
            number = str(case.number)
            if first.moment is Moment.EVERY_SETUP:
                await self.control.send(first.fault, first.moment, number=number, times=SETUP_TRIES)
            elif first.moment is Moment.SETUP:
                await self.control.send(first.fault, first.moment, number=number, times=1)
            elif first.fault is Fault.CHECK_BROKEN:
                await self.control.send(first.fault, first.moment, number=number)
            yield task_of(case)

    def reset(self, task: Mapping[str, Any]) -> _Pilot:
        """Return the policy of a new attempt."""
        case, seen = self.cases[task[_KEY]], self.seen[task[_KEY]]
        unseen = sum(strike.moment is Moment.EVERY_SETUP for strike in case.strikes)
        number = unseen + len(seen)
        attempt = SeenAttempt(case.strikes[number] if number < len(case.strikes) else Strike())
        seen.append(attempt)
        return _Pilot(self, attempt)

    def act(self, obs: Any, task: Any, step: int) -> None:
        """Raise: `reset` gives each attempt a policy of its own."""
        raise NotImplementedError

    async def state(self, episode_id: str) -> dict[str, Any]:
        """Return the host agent's state of an episode.

        Raises:
            httpx.HTTPError: It does not answer.
        """
        answer = await self.http.get(f"{self.url}/v1/episodes/{episode_id}")
        answer.raise_for_status()
        state: dict[str, Any] = answer.json()
        return state

    async def until_ended(self, episode_id: str) -> None:
        """Wait until the host agent knows that an episode is over.

        Raises:
            TimeoutError: It does not find that out.
        """
        async with asyncio.timeout(ENDED_WITHIN_S):
            while (await self.state(episode_id))["state"] != "ended":  # noqa: ASYNC110 (asked over HTTP)
                await asyncio.sleep(POLL_S)


def task_of(case: Case) -> dict[str, Any]:
    number = str(case.number)
    task: dict[str, Any] = {
        "id": f"synthetic-{number}",
        "instruction": "Say yes.",
        "config": [{"type": "execute", "parameters": {"command": [PREPARE, number]}}],
        "evaluator": {
            "func": "exact_match",
            "result": {"type": "vm_command_line", "command": [ANSWER, number]},
            "expected": {"type": "rule", "rules": {"expected": "yes\n"}},
        },
        _KEY: case.number,
    }
    match case.strikes[0].fault if case.strikes else Fault.NONE:
        case Fault.SETUP_FAILS:
            task["config"] = [{"type": "execute", "parameters": {"command": ["fail"]}}]
        case Fault.TASK_INVALID:
            task["evaluator"] = {"func": 1}
        case Fault.TASK_UNSUPPORTED:
            task["evaluator"] = {"func": "no_such_metric"}
    return task


def number_of(result: Result) -> int:
    return int(result.task[_KEY])


class _Pilot:
    """Acts in one attempt: two clicks, and what breaks it on the way."""

    def __init__(self, trajectories: Trajectories, attempt: SeenAttempt) -> None:
        self._all, self._attempt, self._strike = trajectories, attempt, attempt.strike
        self._replica_id = ""

    async def act(self, obs: Any, task: Any, step: int) -> list[dict[str, Any]] | None:
        """Break the desktop where it is time, and act."""
        self._attempt.episode_id, self._replica_id = obs.episode.episode_id, obs.episode.replica_id
        if self._strike.fault is not Fault.CHECK_BROKEN and self._strike.moment in _AT_STEP.get(step, ()):
            await self._break()
        if self._strike.moment is Moment.UNTOUCHED_CHECK:
            return None
        return CLICK if step < 2 else [{"op": "done"}]

    async def _break(self) -> None:
        fault, moment = self._strike.fault, self._strike.moment
        if fault in OF_HOST:
            await self._meet_host_fault()
            return
        if self._all.round is not None:
            self._all.round.arrive()
            await self._all.round.struck.wait()
        await self._order(fault, moment)
        if moment is Moment.UNTOUCHED and fault in NOTICED:
            await self._all.until_ended(self._attempt.episode_id)

    async def _order(self, fault: Fault, moment: Moment, **fields: Any) -> None:
        fields["pid"] = self._all.pids.get(fault, 0)
        if not await self._all.control.send(fault, moment, replica_id=self._replica_id, **fields):
            raise StandInError(f"replica {self._replica_id} was gone before {fault.value}")

    async def _meet_host_fault(self) -> None:
        """Come to the moment of this attempt, and wait there for the host to be hit."""
        current = self._all.round
        assert current is not None
        moment = self._strike.moment
        if moment in (Moment.STEP, Moment.CHECK):
            await self._order(Fault.HELD, moment)
            watching = asyncio.create_task(self._arrive_held(current))
            self._all.watching.add(watching)  # nothing else holds it
            watching.add_done_callback(self._all.watching.discard)
            return
        if moment is Moment.LOST:
            await self._order(Fault.SESSION_ENDED, Moment.BETWEEN)
            await self._all.until_ended(self._attempt.episode_id)
        current.arrive()
        await current.struck.wait()

    async def _arrive_held(self, current: HostRound) -> None:
        await self._order(Fault.NONE, Moment.NEVER, wait=True)
        current.arrive()
