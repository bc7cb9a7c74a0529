"""Final states for `benchmarks.osworld_harness`, made by OSWorld's DesktopEnv and by the SDK.

Two states of each task: nothing was done, which earns 0, and it was solved, which earns 1: an infeasible task
by giving up, the others by what osworld_oracles.toml runs in the desktop.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from osgym_sdk import Client, OSGymError

INFEASIBLE = "infeasible"
ORACLE_S = 90.0
LOOKS_AT = "import pyautogui; pyautogui.moveTo({x}, 500)"


class State(StrEnum):
    NOTHING = "nothing done"
    ORACLE = "oracle"
    GAVE_UP = "given up"


@dataclass(frozen=True, slots=True)
class Case:
    """A task to play.

    Attributes:
        task: Task for the SDK; its files are in the host's folder of task files, if it fetches any.
        theirs: Task for DesktopEnv, which fetches its files from an address.
        oracle: Python that solves it, if it can be solved and there is one.
    """

    domain: str
    task: dict[str, Any]
    theirs: dict[str, Any]
    oracle: str | None
    fetches: bool

    @property
    def states(self) -> list[State]:
        """Return the states: nothing done, and solved where that is known."""
        if self.task["evaluator"]["func"] == INFEASIBLE:
            return [State.NOTHING, State.GAVE_UP]
        return [State.NOTHING, *([State.ORACLE] if self.oracle else [])]


@dataclass(slots=True)
class Ended:
    """One final state of a task, by each harness in a desktop of its own.

    Attributes:
        right: Reward that it must earn.
        theirs, ours: Rewards by OSWorld's getters and metrics, and by the host's; None where there was none.
        theirs_error, ours_error: Reasons for a missing reward.
        theirs_reset_s: Time of their `reset`, with the first screenshot: after the first state of a task with
            a fresh clone in it.
        theirs_evaluate_s: Time of their `evaluate`.
        reset_ms: Times of the SDK's create, to the first frame: `wait` for a desktop, `setup` of the task,
            `observe`, their `total`, and `client` with the way there and back.
        ours_note: The host's note on its checks.
    """

    task: str
    domain: str
    fetches: bool
    state: State
    right: float
    theirs: float | None = None
    ours: float | None = None
    theirs_error: str = ""
    ours_error: str = ""
    theirs_reset_s: float | None = None
    theirs_evaluate_s: float | None = None
    reset_ms: dict[str, float] = field(default_factory=dict)
    ours_note: str = ""


@dataclass(slots=True)
class Times:
    """Times of DesktopEnv's other calls.

    Attributes:
        start_s: Time until a desktop was leased and its ports were there; their Docker provider boots a
            machine.
        step_ms: Times of their `step` with a pause of 0: the action, then a screenshot.
    """

    task: str
    start_s: float | None = None
    step_ms: list[float] = field(default_factory=list)


def ended(case: Case) -> list[Ended]:
    """Return the states of a task before any was played."""
    return [
        Ended(case.task["id"], case.domain, case.fetches, state, float(state is not State.NOTHING))
        for state in case.states
    ]


@contextlib.contextmanager
def _told(into: Ended, name: str) -> Iterator[None]:
    """Record an error as the reason for a missing reward."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  # theirs raises any
        setattr(into, name, f"{type(error).__name__}: {error}"[:300])


def play_theirs(case: Case, states: list[Ended], steps: int, folder: Path) -> Times:
    """Run a task's states through one DesktopEnv, as their loops have it."""
    from desktop_env.desktop_env import DesktopEnv

    times = Times(case.task["id"])
    began = time.monotonic()  # it leases its desktop as it is made
    env = DesktopEnv(provider_name="docker", action_space="pyautogui", cache_dir=str(folder))
    times.start_s = round(time.monotonic() - began, 4)
    try:
        for number, state in enumerate(states):
            with _told(state, "theirs_error"):
                env.cache_dir_base = str(folder / str(number))  # nothing that it fetched for another state
                env.is_environment_used = number > 0  # a clean clone also where their set-up did nothing
                began = time.monotonic()
                env.reset(task_config=copy.deepcopy(case.theirs))
                state.theirs_reset_s = round(time.monotonic() - began, 4)
                if number == 0:
                    _look(env, steps, times)
                if state.state is State.ORACLE:
                    env.step(case.oracle, pause=0)
                env.step(_last_word(state.state), pause=0)
                began = time.monotonic()
                state.theirs = float(env.evaluate())
                state.theirs_evaluate_s = round(time.monotonic() - began, 4)
    finally:
        env.close()
    return times


def _look(env: Any, steps: int, times: Times) -> None:
    for number in range(steps):
        began = time.monotonic()
        env.step(LOOKS_AT.format(x=700 + number), pause=0)
        times.step_ms.append(round(1000 * (time.monotonic() - began), 1))


def play_ours(client: Client, case: Case, states: list[Ended], wait_s: float) -> None:
    """Run them as episodes of the SDK, scored by the host."""
    for state in states:
        with (
            _told(state, "ours_error"),
            client.episode(case.task, wait_s=wait_s, lease_ttl_s=3600) as episode,
        ):
            state.reset_ms = {name: round(each, 1) for name, each in episode.trajectory.reset_ms.items()}
            if state.state is State.ORACLE:
                assert case.oracle is not None
                done = episode.execute(["python3", "-c", case.oracle], timeout_s=ORACLE_S)
                if done.returncode != 0:
                    raise OSGymError(f"the oracle ended with {done.returncode}: {done.output[-300:]!r}")
            episode.step(_last_word(state.state))
            found = episode.evaluate()
            state.ours, state.ours_note = found.reward, str(found.details)[:300]


def _last_word(state: State) -> str:
    return "FAIL" if state is State.GAVE_UP else "DONE"
