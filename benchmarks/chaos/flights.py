"""Work of a chaos run: tasks played by oracles, or by a policy that does nothing, and outcomes."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from benchmarks.chaos.marks import Mark, mark_of_png, set_up
from benchmarks.chaos.orders import TYPED, Order, scripts_set_up
from benchmarks.chaos.schedule import BY_POLICIES, Kind
from osgym_host.tasks.shipped import ShippedTask, next_actions
from osgym_sdk import EpisodeLost, OSGymError, Result

COVERED = ("ristretto/save-a-copy",)
"""Tasks whose window covers the whole screen, and with it every mark."""
IDLE_SHARE = 0.25
IDLE_STEPS = 4
TERMINAL_S, TERMINAL_LOOK_S = 30.0, 0.3
ACTS_MS = 3000
"""Time for which a policy waits for the effect of its typed line."""
_KEY = "chaos"


@dataclass
class Attempt:
    """One episode of a trajectory.

    Attributes:
        number: Number of its trajectory.
        replica_id: Id of its replica; empty before its first frame came.
        harmed_by: Faults that hit its replica, or the host agent, while it ran.
        order: Harm that its policy is to do to its own desktop; None for none.
    """

    number: int
    which: int
    began: float
    replica_id: str = ""
    episode_id: str = ""
    mark: Mark | None = None
    frames: int = 0
    harmed_by: list[Kind] = field(default_factory=list)
    order: Order | None = None


@dataclass
class Flights:
    """All trajectories of a run. Also the policy that the SDK calls.

    Attributes:
        open: Attempts that run now, by the number of their trajectory.
        tried: All attempts that saw a desktop, by the number of their trajectory.
        early: Faults of the host while a trajectory had no desktop: it waited, or was being set up.
        outages: Faults of the host that last; they hit every attempt that begins meanwhile.
    """

    tasks: list[ShippedTask]
    seed: int
    end: float
    open: dict[int, Attempt] = field(default_factory=dict)
    tried: dict[int, list[Attempt]] = field(default_factory=dict)
    early: dict[int, list[Kind]] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    crossed: list[str] = field(default_factory=list)
    outages: list[Kind] = field(default_factory=list)
    frames: int = 0
    _seen: dict[Mark, str] = field(default_factory=dict)
    _tasks: dict[int, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tasks = [task for task in self.tasks if task.name not in COVERED]
        self._by_id = {task.task["id"]: task for task in self.tasks}

    async def source(self) -> AsyncIterator[dict[str, Any]]:
        """Yield marked tasks, for the oracle or idle, until the time is over."""
        random = Random(f"tasks:{self.seed}")
        for number in itertools.count(1):
            if time.monotonic() >= self.end:
                return
            task = dict(random.choice(self.tasks).task)
            self.tried[number] = []
            if self.outages:
                self.early[number] = list(self.outages)
            way = "idle" if random.random() < IDLE_SHARE else "oracle"
            task["config"] = [scripts_set_up(), *set_up(number), *task["config"]]
            self._tasks[number] = task
            yield {**task, _KEY: {"number": number, "way": way}}

    def reset(self, task: Mapping[str, Any]) -> _Pilot:
        number = task[_KEY]["number"]
        attempts = self.tried[number]
        attempt = Attempt(number, len(attempts) + 1, time.monotonic())
        attempt.harmed_by += [kind for kind in self.outages if kind not in self.early.get(number, [])]
        attempts.append(attempt)
        before = self.open.get(number)
        if before is not None and before.order is not None:
            before.order.end()
        self.open[number] = attempt
        return _Pilot(self, attempt, self._by_id[task["id"]], task[_KEY]["way"])

    def act(self, obs: Any, task: Any, step: int) -> None:
        """Never called: `reset` gives each attempt a policy of its own."""
        raise NotImplementedError

    def task_of(self, number: int) -> dict[str, Any]:
        return self._tasks[number]

    async def land(self, result: Result) -> None:
        """Record the end of a trajectory, and check the frames that no policy saw."""
        self.results.append(result)
        self._tasks.pop(number_of(result), None)
        attempt = self.open.pop(result.task[_KEY]["number"], None)
        if attempt is not None and attempt.order is not None:
            attempt.order.end()
        if attempt is not None and result.steps:
            last = result.steps[-1]
            if last.data:
                await self.look(attempt, last.data, f"step {len(result.steps)}")
        for step in result.steps:
            step.data = None  # looked at: two hours of frames are gigabytes
        result.trajectory.first_data = None

    async def look(self, attempt: Attempt, data: bytes, where: str) -> None:
        """Check that a frame is of this attempt's desktop."""
        mark = await asyncio.to_thread(mark_of_png, data)
        self.frames += 1
        attempt.frames += 1
        name = f"trajectory {attempt.number} attempt {attempt.which} ({attempt.episode_id}) {where}"
        if mark is None and own_doing(attempt):
            return  # its policy ended what draws the background, or covers it
        if mark is None:
            self.crossed.append(f"{name}: no mark in the picture")
            return
        if attempt.mark is None:
            attempt.mark = mark
            other = self._seen.setdefault(mark, name)
            if other != name:
                self.crossed.append(f"{name}: shows the desktop of {other}")
        if mark.task != attempt.number or mark != attempt.mark:
            self.crossed.append(f"{name}: shows {mark}, {self._seen.get(mark, 'nobody')!r}")

    def flying(self) -> list[Attempt]:
        return [attempt for attempt in self.open.values() if attempt.replica_id]

    def harmed(self, kind: Kind, replica_id: str | None) -> int:
        """Record which attempts a fault hit, those of one replica or all, and return their number."""
        hit = [a for a in self.open.values() if replica_id is None or a.replica_id == replica_id]
        for attempt in hit:
            attempt.harmed_by.append(kind)
        if replica_id is None:
            ended = {number_of(result) for result in self.results}
            for number in self.tried.keys() - self.open.keys() - ended:
                self.early.setdefault(number, []).append(kind)
        return len(hit)

    def hits(self, number: int) -> list[Kind]:
        return [*self.early.get(number, []), *(k for a in self.tried.get(number, []) for k in a.harmed_by)]


class _Pilot:
    """Acts in one attempt: the oracle's steps, or nothing at all; and harms its desktop when ordered to."""

    def __init__(self, flights: Flights, attempt: Attempt, task: ShippedTask, way: str) -> None:
        self._flights, self._attempt, self._task, self._way = flights, attempt, task, way
        self._random = Random(f"think:{flights.seed}:{attempt.number}")
        self._at = 0
        self._windows: set[int] = set()

    async def act(self, obs: Any, task: Any, step: int) -> list[Any]:
        attempt = self._attempt
        attempt.replica_id, attempt.episode_id = obs.episode.replica_id, obs.episode.episode_id
        await self._flights.look(attempt, obs.png, f"frame {step}")
        await asyncio.sleep(self._random.uniform(0, 0.4))
        if (order := attempt.order) is not None and (harm := await self._harm(order, obs)) is not None:
            return harm
        at, self._at = self._at, self._at + 1
        if self._way == "oracle":
            return await next_actions(obs, self._task.oracle, at)
        return [{"op": "done"}] if at >= IDLE_STEPS else [{"op": "wait", "duration_ms": 300}]

    async def _harm(self, order: Order, obs: Any) -> list[Any] | None:
        """Return the policy's next actions for an order; None while it has its work to do, and afterwards."""
        if order.over or (self._way == "oracle" and self._at < len(self._task.oracle) - 1):
            return None
        if not order.begun:
            self._windows = {window.id for window in await obs.episode.windows()}
            order.begun = True
            return [{"op": "key", "keys": ["ctrl", "alt", "t"]}]
        if order.sent_at is None:
            if not await self._terminal_is_open(obs):
                order.settle(typed=False)
                return None
            order.sent_at = time.monotonic()
            return [{"op": "type", "text": order.line}, {"op": "wait", "duration_ms": ACTS_MS}]
        order.settle(typed=await _was_carried_out(obs))
        return None

    async def _terminal_is_open(self, obs: Any) -> bool:
        """Return whether a new window gets the keyboard within some seconds."""
        end = time.monotonic() + TERMINAL_S
        while time.monotonic() < end:
            windows = await obs.episode.windows()
            if any(window.focused and window.id not in self._windows for window in windows):
                return True
            await asyncio.sleep(TERMINAL_LOOK_S)
        return False


async def _was_carried_out(obs: Any) -> bool:
    """Return whether the desktop shows that it got a typed line; true for one that cannot tell.

    Raises:
        EpisodeLost: The desktop is lost.
    """
    try:
        said = await obs.episode.execute(["test", "-e", TYPED], timeout_s=10)
    except EpisodeLost:
        raise
    except OSGymError:
        return True
    return bool(said.returncode == 0)


def way_of(result: Result) -> str:
    """Return how the task of a result was played: `oracle` or `idle`."""
    return str(result.task[_KEY]["way"])


def number_of(result: Result) -> int:
    return int(result.task[_KEY]["number"])


def own_doing(attempt: Attempt) -> bool:
    """Return whether the policy of an attempt harms its own desktop."""
    return any(kind in BY_POLICIES for kind in attempt.harmed_by)
