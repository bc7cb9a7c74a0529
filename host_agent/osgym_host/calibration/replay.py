"""Replay of settle rules on recorded traces: the wait of each, and whether its answer was final.

The benchmark of settling and `osgym settle calibrate` both try rules this way.

The guest agent writes its signals turn by turn when it is started with OSGYM_SETTLE_TRACE. A trace under a
fixed pause of seconds shows all that came later too, so any rule that decides by these signals can be
evaluated on it, without driving the desktop again. This is the same rule as the guest agent's native one
(`guest_agent/native/settle.c`); a test keeps the two together. Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

RUNNING_MS = 0.0


@dataclass(frozen=True, slots=True)
class Thread:
    """A watched thread in one turn: its process, and the time in ms until it wakes by itself.

    `remaining_ms` is negative when it never does or when that is unknown, 0 when it runs. `reply_wait_ms` is
    the time for which it has waited for an answer; negative when it does not.
    """

    pid: int
    remaining_ms: float
    reply_wait_ms: float = -1.0


@dataclass(frozen=True, slots=True)
class Turn:
    at_ms: float
    running: bool
    cpu_ms: tuple[float, ...]
    threads: tuple[Thread, ...]
    since_window_ms: float = -1.0
    """Time since a window came, went or became the active one; negative: none did."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One action: its signals over the pause after it, and the times of screen changes."""

    app: str
    label: str
    kind: str
    names: Mapping[int, str]
    turns: tuple[Turn, ...]
    changes_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """Parameters of one policy; as in the guest agent's `settle.json`."""

    idle_ms: float
    cpu_share: float = 0.02
    horizon_ms: float = 0.0
    change_horizon_ms: float = 0.0
    window_horizon_ms: float = 0.0
    reply_ms: float = 0.0
    damage_quiet_ms: float = 0.0
    check_threads: bool = True
    max_ms: float = 3000.0
    horizons: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def horizons_of(self, name: str) -> tuple[float, float, float]:
        """Return a process's horizons from the action, from the last change and from the last window."""
        own = self.horizons.get(name, {})
        return (
            own.get("horizon_ms", self.horizon_ms),
            own.get("change_horizon_ms", self.change_horizon_ms),
            own.get("window_horizon_ms", self.window_horizon_ms),
        )


NOT_REPLAYED = ("turn_ms", "burner_quiet_ms")
"""Parameters of the loop itself, and of signals that no trace has."""


def read_rule(settings: Mapping[str, Any], policy: str) -> Rule:
    """Return a policy from the guest agent's `settle.json`.

    Raises:
        TypeError: It has a parameter that is not followed here.
    """
    values = settings["policies"][policy]
    given = {name: value for name, value in values.items() if name not in NOT_REPLAYED}
    horizons = {
        name[:15]: own if isinstance(own, Mapping) else {"horizon_ms": float(own)}
        for name, own in settings["horizons"].get(policy, {}).items()
    }
    return Rule(**given, horizons=horizons)


def lay_over(settings: dict[str, Any], over: Mapping[str, Any]) -> None:
    """Override the guest agent's settings by an image's `settle.json`, as the guest agent does."""
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(settings.get(key), dict):
            lay_over(settings[key], value)
        else:
            settings[key] = value


def read_traces(lines: Iterable[str]) -> Iterator[Trace]:
    """Read the guest agent's trace; lines with `label` and `kind` before an action name it."""
    app, label, kind = "", "", ""
    head: dict[str, Any] = {}
    turns: list[Turn] = []
    changes: list[float] = []
    for line in lines:
        entry = json.loads(line)
        if "label" in entry:
            app, label, kind = entry.get("app", app), entry["label"], entry["kind"]
        elif "begin" in entry:
            head, turns, changes = entry, [], []
        elif "t" in entry:
            threads = tuple(Thread(pid, *rest) for pid, _, _, *rest in entry["thr"])
            cpu_ms = tuple(entry["cpu"])
            turns.append(Turn(entry["t"], bool(entry["run"]), cpu_ms, threads, entry.get("win", -1.0)))
        elif "d" in entry and entry["n"] and not entry["caret"]:
            changes.append(entry["d"])
        elif "end" in entry:
            names = {pid: name for pid, _, name in head["procs"]}
            yield Trace(app, label, kind, names, tuple(turns), tuple(sorted(changes)))


def is_sound(trace: Trace) -> bool:
    """Return whether a stranger's trace has numbers and names where they belong.

    Raises:
        TypeError: Something is no number.
    """
    numbers = [*trace.changes_ms]
    for turn in trace.turns:
        numbers += [turn.at_ms, turn.since_window_ms, *turn.cpu_ms]
        numbers += [
            number for thread in turn.threads for number in (thread.remaining_ms, thread.reply_wait_ms)
        ]
    names = all(isinstance(name, str) for name in trace.names.values())
    return names and all(math.isfinite(number) for number in numbers)


def decide(trace: Trace, rule: Rule) -> float:
    """Return when the rule would have answered, in ms after the action; `max_ms` when never."""
    oldest = 0
    for index, turn in enumerate(trace.turns):
        while oldest + 1 < index and trace.turns[oldest + 1].at_ms + rule.idle_ms <= turn.at_ms:
            oldest += 1
        if turn.at_ms >= rule.max_ms:
            break
        if _is_quiet(trace, rule, turn, trace.turns[oldest]):
            return turn.at_ms
    return rule.max_ms


def _is_quiet(trace: Trace, rule: Rule, turn: Turn, before: Turn) -> bool:
    if turn.at_ms < rule.idle_ms or (rule.check_threads and turn.running):
        return False
    limit = rule.idle_ms * rule.cpu_share
    for group, cpu_ms in enumerate(turn.cpu_ms):
        earlier = before.cpu_ms[group] if group < len(before.cpu_ms) else 0.0
        if cpu_ms > earlier and cpu_ms - earlier >= limit:
            return False
    last_change = _last_change(trace, turn.at_ms)
    if rule.damage_quiet_ms and turn.at_ms - max(last_change or 0.0, 0.0) < rule.damage_quiet_ms:
        return False
    return not any(_pending(trace, rule, turn, thread, last_change) for thread in turn.threads)


def _last_change(trace: Trace, at_ms: float) -> float | None:
    past = [change for change in trace.changes_ms if change <= at_ms]
    return past[-1] if past else None


def _pending(trace: Trace, rule: Rule, turn: Turn, thread: Thread, last_change: float | None) -> bool:
    """Return whether a thread waits for an answer, or wakes by itself, soon enough to count."""
    if 0 <= thread.reply_wait_ms < rule.reply_ms:
        return True
    if thread.remaining_ms < RUNNING_MS:
        return False
    if thread.remaining_ms == RUNNING_MS:
        return True
    since_change_ms = -1.0 if last_change is None else turn.at_ms - last_change
    seen = (turn.at_ms, since_change_ms, turn.since_window_ms)
    return any(
        horizon_ms > 0 and since_ms >= 0 and since_ms + thread.remaining_ms <= horizon_ms
        for since_ms, horizon_ms in zip(seen, rule.horizons_of(trace.names.get(thread.pid, "")), strict=True)
    )


def premature(trace: Trace, waited_ms: float) -> bool:
    """Return whether the screen changed after the answer."""
    return bool(trace.changes_ms) and trace.changes_ms[-1] > waited_ms


def oracle_ms(traces: Sequence[Trace]) -> float:
    """Return the mean wait of a rule that knows the last change."""
    return sum(trace.changes_ms[-1] if trace.changes_ms else 0.0 for trace in traces) / len(traces)
