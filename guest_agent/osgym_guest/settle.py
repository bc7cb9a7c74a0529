"""Settle policies: parameters and horizons as data.

`data/settle.json` holds them; a file named by OSGYM_SETTLE, or /etc/osgym/settle.json of the image, is laid
over it, so an image can say what its applications need.

Parameters of a policy:
    idle_ms: time without work of any process (a group of processes may use `cpu_share` of it), with no
        process running or waiting for the disk at its end.
    horizon_ms: no application's main thread wakes by its own timeout before this, counted from the end of the
        action. `horizons` has other values by process name, at most 64 of them: a number, or an object with
        this one, `change_horizon_ms` and `window_horizon_ms`, the policy's own where not said.
    change_horizon_ms: the same, counted from the last change of the screen; 0 is off.
    window_horizon_ms: the same, counted from the last window (menus and dialogs too) that came, went or
        became the active one; 0 is off.
    timer_ms: nor does it wake by a timeout that was no longer than this when the thread began to wait,
        however long after the action that was; 0 is off.
    reply_ms: an X client whose main thread waits for one descriptor only waits for an answer (of the X
        server, of D-Bus, of a helper); for so long that is work; 0 is off.
    call_ms: a program that the agent started some seconds ago, and whose main thread waits for one descriptor
        or for a thread of its own, waits for an answer (of D-Bus, of a server that starts) before it shows
        its window. For so long that is work; 0 is off. Sockets that accept connections do not count, nor does
        a program that has a window: it waits for its user.
    panel_ms: time after the start of the wait for which the panel counts as applications do, and after the
        last window that came, went or became the active one; 0 is off. It shows a new window after the
        window.
    damage_quiet_ms: time without a change of the screen; 0 is off.
    burner_quiet_ms: the same, used while a process burns the processor without end.
    turn_ms: interval of the checks.
    check_threads: whether to look for running threads.

`ready` is no policy: it overrides `exact` as the rule for desktops at rest, as they are before a first frame
and before they are cloned. No step waits by it.

The host may give a table besides (OSGYM_SETTLE_TABLE, made by `osgym settle calibrate`): `exact` then counts
the timers of the programs in it by the kind of the action (`osgym_protocol.settle_table`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from osgym_guest._native import Display
from osgym_protocol.limits import DEFAULT_SETTLE_MAX_MS
from osgym_protocol.settle_table import ActionKind, Table, parse_table

SYSTEM_FILE = Path("/etc/osgym/settle.json")
HORIZONS = ("horizon_ms", "change_horizon_ms", "window_horizon_ms")
MAX_HORIZONS = 64
REASONS = ("quiet", "timeout", "unchanged", "fixed", "cancelled")


@dataclass(frozen=True)
class SettleRule:
    """Parameters of one policy; the module's docstring explains them."""

    idle_ms: float
    cpu_share: float
    horizon_ms: float
    change_horizon_ms: float
    window_horizon_ms: float
    reply_ms: float
    damage_quiet_ms: float
    burner_quiet_ms: float
    turn_ms: float
    check_threads: bool
    horizons: tuple[tuple[str, float, float, float], ...] = ()
    timer_ms: float = 0.0
    call_ms: float = 0.0
    panel_ms: float = 0.0
    max_ms: float = DEFAULT_SETTLE_MAX_MS
    pause_ms: float = -1.0

    def numbers(self) -> dict[str, float]:
        """Return all parameters but the horizons, as the native core takes them (`OG_RULE_NUMBERS`)."""
        return {name: getattr(self, name) for name in _NUMBERS}


_NUMBERS = tuple(each.name for each in fields(SettleRule) if each.name != "horizons")


@dataclass(frozen=True)
class SettleOutcome:
    """Outcome of a wait; `last_change_ms` counts from the end of the input."""

    reason: str
    wait_ms: float
    last_change_ms: float | None
    turns: int
    cpu_us: float


@dataclass(frozen=True)
class Policies:
    """All rules by name, and their shared values; a calibrated `exact` has one for each kind of action."""

    rules: Mapping[str, SettleRule]
    threads: tuple[str, ...]
    burner_s: float
    burner_share: float
    exact_by_kind: Mapping[ActionKind, SettleRule] = field(default_factory=dict)


def load_policies(overlay: Path | None) -> Policies:
    """Read the policies of the package, overridden by those of `overlay`.

    Raises:
        ValueError: A file has unknown or wrong parameters.
    """
    data = json.loads((Path(__file__).parent / "data" / "settle.json").read_text())
    if overlay is None and SYSTEM_FILE.exists():
        overlay = SYSTEM_FILE
    if overlay is not None:
        _lay_over(data, json.loads(overlay.read_text()))
    try:
        rules = {
            name: SettleRule(**values, horizons=_horizons(data["horizons"].get(name, {}), values))
            for name, values in data["policies"].items()
        }
        rules["ready"] = replace(rules["exact"], **data["ready"])
        return Policies(rules, tuple(data["threads"]), float(data["burner_s"]), float(data["burner_share"]))
    except (TypeError, KeyError, AttributeError) as exc:
        raise ValueError(f"the settle policies are malformed: {exc}") from exc


def with_table(policies: Policies, text: str) -> Policies:
    """Override `exact` by a calibrated table, given as JSON.

    Raises:
        ValueError: It is malformed, or has too many programs beside those that have horizons already.
    """
    table = parse_table(json.loads(text))
    exact = policies.rules["exact"]
    return replace(policies, exact_by_kind={kind: _of_kind(exact, table, kind) for kind in ActionKind})


def _of_kind(rule: SettleRule, table: Table, kind: ActionKind) -> SettleRule:
    """Return a rule with the table's horizons for one kind of action; those of windows stay."""
    horizons = {name: (first, second, third) for name, first, second, third in rule.horizons}
    for program, kinds in table.items():
        if found := kinds.get(kind):
            window_ms = horizons.get(program, (0, 0, rule.window_horizon_ms))[2]
            horizons[program] = (found.horizon_ms, found.change_horizon_ms, window_ms)
    if len(horizons) > MAX_HORIZONS:
        raise ValueError(
            f"{len(horizons)} programs have their own horizons; at most {MAX_HORIZONS} are allowed"
        )
    return replace(rule, horizons=tuple((name, *own) for name, own in horizons.items()))


def _horizons(raw: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[tuple[str, float, float, float], ...]:
    """Return process names, cut to what the kernel keeps of them, and their horizons in the order of
    `HORIZONS`.

    Raises:
        ValueError: There are too many, or one is unknown.
    """
    if len(raw) > MAX_HORIZONS:
        raise ValueError(f"{len(raw)} programs have their own horizons; at most {MAX_HORIZONS} are allowed")
    made = []
    for name, given in raw.items():
        by_name = given if isinstance(given, Mapping) else {HORIZONS[0]: given}
        if unknown := set(by_name) - set(HORIZONS):
            raise ValueError(f"the settle policies are malformed: {name} has {', '.join(sorted(unknown))}")
        first, second, third = (float(by_name.get(each, own[each])) for each in HORIZONS)
        made.append((name[:15], first, second, third))
    return tuple(made)


def _lay_over(base: dict[str, Any], over: Mapping[str, Any]) -> None:
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            _lay_over(base[key], value)
        else:
            base[key] = value


def settle(display: Display, rule: SettleRule, since_ns: int, trace: str | None = None) -> SettleOutcome:
    """Wait by a rule. `display.begin()` was called before the input, which ended at `since_ns`."""
    reason, wait_ms, last_change_ms, turns, cpu_us = display.settle(
        since_ns=since_ns,
        numbers=rule.numbers(),
        horizons=list(rule.horizons),
        trace_path=trace,
    )
    changed = None if last_change_ms < 0 else last_change_ms
    return SettleOutcome(REASONS[reason], wait_ms, changed, turns, cpu_us)


def with_options(
    rule: SettleRule, *, quiet_ms: float | None, max_ms: float, pause_ms: float | None
) -> SettleRule:
    """Return a rule that is overridden by the options of a request."""
    return replace(
        rule,
        idle_ms=rule.idle_ms if quiet_ms is None else quiet_ms,
        max_ms=max_ms,
        pause_ms=-1.0 if pause_ms is None else pause_ms,
    )
