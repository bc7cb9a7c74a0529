"""Drive the scenarios through the SDK and judge every delivered frame by the screen 3 s later."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from benchmarks.settle.actions import Action, Application
from benchmarks.settle.documents import FOLDER, SCRIPT
from benchmarks.settle.rest import require_awake, wait_for_stage
from benchmarks.settle.truth import Box, difference
from osgym_sdk import Client, Episode, Observation, SettleOptions, SettlePolicy

TRUTH_AFTER_S = 3.0
FIXED_PAUSES_MS = (0.0, 100.0, 500.0, 1000.0, 2000.0)
PANEL_HEIGHT_PX = 40
STEADY_FOR_S = 1.5
STEADY_TIMEOUT_S = 45.0
LOOK_EVERY_S = 0.1
HOGS_PER_CORE = 3
CARRIED = "carried-through"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One action under one policy.

    `wait_ms` is what the policy waited after the input. `marked` is whether the next answer said that
    this frame was not final; None for fixed pauses, whose frames are looked at without a step of their
    own. `rest` is the stage of rest from which the step woke the replica; empty where it does not matter.
    `last_change_ms` is when the screen last changed before the answer, as the guest recorded it; None:
    it did not change, or that is not known of a fixed pause. `round` counts repetitions of a seed.
    """

    policy: str
    app: str
    index: int
    label: str
    kind: str
    wait_ms: float
    reason: str
    premature: bool
    differing_pixels: int
    box: tuple[int, int, int, int] | None
    marked: bool | None
    changed_after_ms: float | None
    last_change_ms: float | None = None
    seed: int = 1
    round: int = 1
    rest: str = ""

    @property
    def regret_ms(self) -> float | None:
        """Time from the final screen to the end of the wait; None for a frame that was not final."""
        return None if self.premature else self.wait_ms - (self.last_change_ms or 0.0)


@dataclass(frozen=True, slots=True)
class Played:
    """One application from start to end: its verdicts, and whether all its files were saved."""

    verdicts: list[Verdict]
    carried: bool | None


@contextmanager
def load(per_core: int) -> Iterator[None]:
    """Keep every core busy with `per_core` processes that never rest, beside the replicas."""
    hogs = [
        subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"])
        for _ in range(per_core * (os.cpu_count() or 1))
    ]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def task_for(app: Application) -> dict[str, Any]:
    """Return the task that opens one application on its documents, maximized."""
    wait_for_window = (
        f'for i in $(seq 300); do wmctrl -l | grep -qF "{app.window}" && break; sleep 0.1; done; '
        f'wmctrl -a "{app.window}"; wmctrl -r "{app.window}" -b add,maximized_vert,maximized_horz'
        if app.window
        else "true"
    )
    return {
        "id": f"settle-{app.name}",
        "snapshot": app.name,
        "instruction": f"Settle benchmark: {app.name}",
        "source": "benchmark",
        "config": [
            {"type": "execute", "parameters": {"command": ["python3", "-c", SCRIPT, FOLDER]}},
            {"type": "launch", "parameters": {"command": app.command, "shell": True}},
            {"type": "execute", "parameters": {"command": ["sh", "-c", wait_for_window]}},
        ],
        "related_apps": [app.name],
        "evaluator": _evaluator(app),
    }


def _evaluator(app: Application) -> dict[str, Any]:
    if not app.saves:
        return {"func": "infeasible"}
    look = " && ".join(f"test -s '{path}'" for path in app.saves)
    return {
        "func": "check_include_exclude",
        "result": {"type": "vm_command_line", "command": ["sh", "-c", f"{look} && echo {CARRIED}"]},
        "expected": {"type": "rule", "rules": {"include": [CARRIED], "exclude": []}},
    }


def wait_steady(episode: Episode) -> None:
    """Wait until the screen has been the same for a while; then the scenario may begin.

    Raises:
        TimeoutError: It never was.
    """
    deadline = time.monotonic() + STEADY_TIMEOUT_S
    shown, since = "", time.monotonic()
    while time.monotonic() < deadline:
        seen = episode.observe("none").hash
        if seen != shown:
            shown, since = seen, time.monotonic()
        elif time.monotonic() - since >= STEADY_FOR_S:
            return
        time.sleep(LOOK_EVERY_S)
    raise TimeoutError(f"the screen was never the same for {STEADY_FOR_S} s")


@dataclass(slots=True)
class _Shown:
    """A delivered frame, to be judged when the truth is known."""

    policy: str
    wait_ms: float
    reason: str
    frame: Observation
    last_change_ms: float | None = None


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def _by_policy(episode: Episode, action: Action, policy: SettlePolicy) -> list[_Shown]:
    shown = episode.step(action.send, settle=SettleOptions(policy))
    settle = shown.settle
    if settle is None:
        raise RuntimeError("a step without a settle report")
    return [_Shown(policy.value, settle.wait_ms, settle.reason.value, shown, settle.last_change_ms)]


def _by_pauses(episode: Episode, action: Action) -> list[_Shown]:
    """Act once and take the frame after each fixed pause."""
    frame: Observation = episode.step(action.send, settle=SettleOptions(SettlePolicy.FIXED, pause_ms=0))
    acted = time.monotonic()
    shown = [_Shown("0 ms", 0.0, "fixed", frame)]
    for pause_ms in FIXED_PAUSES_MS[1:]:
        _sleep_until(acted + pause_ms / 1000)
        shown.append(_Shown(f"{pause_ms:g} ms", pause_ms, "fixed", episode.observe()))
    return shown


def _judge(
    shown: Sequence[_Shown], truth: Observation, app: Application, index: int, action: Action
) -> list[Verdict]:
    width, height = truth.screen
    masks = [Box(0, height - PANEL_HEIGHT_PX, width, height)]
    verdicts = []
    for one in shown:
        found = None
        if one.frame.hash != truth.hash:
            found = difference(one.frame.image, truth.image, masks)
        box = found and (found.box.left, found.box.top, found.box.right, found.box.bottom)
        verdicts.append(
            Verdict(
                policy=one.policy,
                app=app.name,
                index=index,
                label=action.label,
                kind=action.kind.value,
                wait_ms=round(one.wait_ms, 3),
                reason=one.reason,
                premature=found is not None,
                differing_pixels=found.pixels if found else 0,
                box=box or None,
                marked=None,
                changed_after_ms=None,
                last_change_ms=one.last_change_ms,
            )
        )
    return verdicts


def _with_mark(verdict: Verdict, after: Observation) -> Verdict:
    """Return the verdict with the watch's report on that frame in the next answer."""
    previous = after.previous
    marked = previous is not None and not previous.final
    return replace(verdict, marked=marked, changed_after_ms=previous.changed_after_ms if previous else None)


def run_application(
    client: Client,
    app: Application,
    policy: SettlePolicy,
    seed: int,
    *,
    truth_after_s: float = TRUTH_AFTER_S,
    at_most: int | None = None,
    rest: str = "",
    host: str = "",
) -> Played:
    """Run one application from start to end under one policy, on a fresh replica.

    Args:
        truth_after_s: Time after an action at which the screen counts as final.
        at_most: Number of its actions; with a bound, whether they were carried through is not checked.
        rest: Stage of rest that the replica must reach before each action; empty: none.
        host: URL of the host agent; needed with `rest`.

    Returns:
        One verdict for each action, or for `fixed` one for each action and pause.
    """
    with client.episode(task_for(app), max_steps=10_000) as episode:
        wait_steady(episode)
        verdicts: list[Verdict] = []
        unmarked: Verdict | None = None
        for index, action in enumerate(app.actions(Random(seed))[:at_most]):
            if rest:
                wait_for_stage(host, episode.episode_id, rest)
            started = time.monotonic()
            fixed = policy is SettlePolicy.FIXED
            shown = _by_pauses(episode, action) if fixed else _by_policy(episode, action, policy)
            if unmarked:
                verdicts.append(_with_mark(unmarked, shown[0].frame))
            _sleep_until(started + truth_after_s)
            if rest:
                require_awake(host, episode.episode_id)
            judged = _judge(shown, episode.observe(), app, index, action)
            if fixed:
                verdicts.extend(judged)
            else:
                unmarked = judged[0]
        if unmarked:
            verdicts.append(_with_mark(unmarked, episode.step({"op": "screenshot"})))
        asked = app.saves and at_most is None
        verdicts = [replace(verdict, rest=rest) for verdict in verdicts]
        return Played(verdicts, episode.evaluate().reward == 1.0 if asked else None)
