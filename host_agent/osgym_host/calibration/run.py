"""Exploration of an image's applications, one after another, each in a fresh replica of the local runtime."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from osgym_host.calibration.applications import FoundApplication, choose
from osgym_host.calibration.decision import Sample
from osgym_host.calibration.driver import TRACE, ExplorationFailed, ExploredDesktop, Judged
from osgym_host.calibration.exploration import explore
from osgym_host.calibration.replay import Rule, Trace
from osgym_host.guest_client.client import GuestClient
from osgym_host.guest_client.errors import GuestError
from osgym_host.images.store import Image
from osgym_host.runtimes.base import ReplicaSpec, Runtime
from osgym_protocol.actions import parse_actions
from osgym_protocol.settle_table import ActionKind, kind_of

READY_S = 90.0
SCREEN_PX = (1920, 1080)
MAX_ROUNDS = 4
MAX_RELAUNCHES = 3
SERVICES = frozenset({"dbus-daemon", "at-spi2-registr", "at-spi-bus-laun", "dconf-service", "gvfsd"})
"""Programs that applications start and that draw nothing."""
Environment = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of an exploration.

    Attributes:
        wanted: Names of applications; empty for all.
        minutes: Total time, divided among the applications; each gets at least one round as far as it lasts.
        seed: Seed of words, places and menus.
        judged: Table under which `exact` is judged; None records instead.
    """

    wanted: tuple[str, ...] = ()
    minutes: float = 30.0
    seed: int = 1
    judged: Environment | None = None


@dataclass(slots=True)
class Exploration:
    """Results of an exploration.

    Attributes:
        rule: `exact` as the image has it.
        samples: Recordings, unless `exact` was judged.
        verdicts: Verdicts by application and kind, when it was.
        failures: Reason for which an application was left, by its name.
    """

    rule: Rule | None = None
    samples: list[Sample] = field(default_factory=list)
    verdicts: list[tuple[str, ActionKind, Judged]] = field(default_factory=list)
    explored: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


class Explorer:
    """Explores one image; the runtime has been started.

    Args:
        say: Called with one line whenever a part begins.
    """

    def __init__(self, runtime: Runtime, image: Image, plan: Plan, say: Callable[[str], None]) -> None:
        self._runtime = runtime
        self._image = image
        self._plan = plan
        self._say = say
        self._generation = 0
        self._found = Exploration()

    async def run(self) -> Exploration:
        """Explore.

        Raises:
            ValueError: A wanted application is not in the image.
            ImageError: The image's guest agent is too old.
            RuntimeFault: No replica can be made.
            GuestError: The first replica does not answer.
        """
        self._say("starting a replica")
        async with self._desktop() as desktop:
            self._found.rule = await desktop.rule()
            chosen = choose(await desktop.applications(), self._plan.wanted)
            nothing = await desktop.record({"op": "screenshot"}) if self._plan.judged is None else None
        began, whole_s = time.monotonic(), self._plan.minutes * 60
        for number, application in enumerate(chosen):
            left_s = began + whole_s - time.monotonic()
            if left_s <= 0:
                self._found.failures[application.name] = "the time limit was reached (--minutes)"
                continue
            self._say(f"{number + 1}/{len(chosen)} {application.name}")
            deadline = time.monotonic() + left_s / (len(chosen) - number)
            try:
                await self._explore(application, deadline, _names(nothing))
                self._found.explored.append(application.name)
            except (GuestError, ExplorationFailed) as exc:
                self._found.failures[application.name] = str(exc)
                self._say(f"  {application.name}: {exc}")
        return self._found

    async def _explore(self, application: FoundApplication, deadline: float, others: frozenset[str]) -> None:
        """Play rounds through one application, until the time is up."""
        async with self._desktop() as desktop:
            await desktop.open(application)
            relaunches = actions = 0
            for number in range(MAX_ROUNDS):
                area = await desktop.focus()
                if area is None:
                    break
                for group in explore(area, self._plan.seed, number):
                    if time.monotonic() >= deadline:
                        return
                    if await desktop.focus() is None:
                        if relaunches == MAX_RELAUNCHES:
                            raise ExplorationFailed(
                                f"the application ended {relaunches + 1} times; {actions} "
                                "actions were recorded"
                            )
                        relaunches += 1
                        await desktop.open(application)
                    for action in group.actions:
                        await self._act(desktop, application, action, others)
                        actions += 1
                    self._say(f"  {application.name}: {group.name}, {actions} actions")

    async def _act(
        self,
        desktop: ExploredDesktop,
        application: FoundApplication,
        action: dict[str, object],
        others: frozenset[str],
    ) -> None:
        kind = kind_of(parse_actions([action], SCREEN_PX))
        if self._plan.judged is not None:
            self._found.verdicts.append((application.name, kind, await desktop.judge(action)))
            return
        trace = await desktop.record(action)
        self._found.samples.append(Sample(kind, trace, _timed(trace) - others - SERVICES))

    @contextlib.asynccontextmanager
    async def _desktop(self) -> AsyncIterator[ExploredDesktop]:
        """Make a fresh replica for the time of the block."""
        self._generation += 1
        judged = self._plan.judged
        environment = (("OSGYM_SETTLE_TRACE", TRACE),) if judged is None else judged
        spec = ReplicaSpec("calibrate", self._generation, self._image, environment=environment)
        replica = await self._runtime.create(spec)
        try:
            async with GuestClient(replica.guest) as guest:
                await guest.ready(timeout_s=READY_S)
                yield ExploredDesktop(guest)
        finally:
            await self._runtime.destroy(replica)


def _names(trace: Trace | None) -> frozenset[str]:
    """Return the programs of a recording: those of the desktop itself, before anything was started."""
    return frozenset() if trace is None else frozenset(trace.names.values())


def _timed(trace: Trace) -> frozenset[str]:
    pids = {thread.pid for turn in trace.turns for thread in turn.threads if thread.remaining_ms >= 0}
    return frozenset(trace.names[pid] for pid in pids if pid in trace.names)


def tally(verdicts: Sequence[tuple[str, ActionKind, Judged]]) -> list[dict[str, object]]:
    """Count verdicts by application and kind: actions, those answered too early, mean wait."""
    rows: list[dict[str, object]] = []
    for name, kind in sorted({(name, kind) for name, kind, _ in verdicts}):
        mine = [judged for each, other, judged in verdicts if (each, other) == (name, kind)]
        rows.append(
            {
                "application": name,
                "kind": str(kind),
                "actions": len(mine),
                "premature": sum(judged.premature for judged in mine),
                "mean_wait_ms": round(sum(judged.wait_ms for judged in mine) / len(mine), 1),
            }
        )
    return rows
