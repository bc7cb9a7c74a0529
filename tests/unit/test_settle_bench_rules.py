"""Settle rules on recorded traces: when a rule would have answered, and whether it was right."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from osgym_host.calibration.replay import Rule, Trace, decide, oracle_ms, premature, read_traces

APP = 77


def trace(
    cpu: Callable[[float], float] = lambda _: 0.0,
    *,
    remaining: Callable[[float], float] = lambda _: -1.0,
    running: Callable[[float], bool] = lambda _: False,
    window: Callable[[float], float] = lambda _: -1.0,
    reply: Callable[[float], float] = lambda _: -1.0,
    changes: tuple[float, ...] = (),
    length_ms: int = 1000,
) -> Trace:
    """A trace as the guest agent writes it, one turn every 2 ms."""
    lines = [
        {"app": "calc", "label": "cell", "kind": "click"},
        {"begin": 1.0, "rule": {}, "procs": [[APP, 2, "soffice.bin"]], "masks": [], "active": APP},
    ]
    for at in range(0, length_ms, 2):
        threads = [[APP, APP, 7, remaining(at), reply(at)]]
        seen = {"t": float(at), "run": int(running(at)), "win": window(at)}
        lines.append({**seen, "cpu": [0.0, 0.0, cpu(at)], "thr": threads})
    lines += [{"d": at, "box": [0, 0, 9, 9], "n": 5, "in": [0, 0, 9, 9], "caret": 0} for at in changes]
    lines.append({"end": 3, "wait": float(length_ms), "change": 0, "turns": 1, "cpu_us": 1})
    (made,) = read_traces(json.dumps(line) for line in lines)
    return made


def test_an_idle_application_is_answered_after_the_idle_time() -> None:
    """Nothing happens: the rule waits its idle time and no longer."""
    assert decide(trace(), Rule(30)) == pytest.approx(30, abs=2)


def test_work_puts_the_answer_off() -> None:
    """While CPU time grows the rule waits, and then its idle time."""
    busy = trace(lambda at: min(at, 200.0))
    assert decide(busy, Rule(30)) == pytest.approx(230, abs=4)


def test_a_little_work_is_let_through() -> None:
    """Work below the share does not count."""
    assert decide(trace(lambda at: at * 0.01), Rule(30, cpu_share=0.02)) == pytest.approx(30, abs=2)


def test_a_running_thread_is_waited_for() -> None:
    """A thread that runs now puts the answer off, unless the rule does not look."""
    late = trace(running=lambda at: at < 100)
    assert decide(late, Rule(30)) == pytest.approx(100, abs=2)
    assert decide(late, Rule(30, check_threads=False)) == pytest.approx(30, abs=2)


def test_a_timer_within_the_horizon_is_waited_for() -> None:
    """A wait that ends at 120 ms counts with a horizon of 150 ms and not with one of 100 ms."""
    timed = trace(remaining=lambda at: 120.0 - at if at < 120 else -1.0)
    assert decide(timed, Rule(30, horizon_ms=150)) == pytest.approx(120, abs=2)
    assert decide(timed, Rule(30, horizon_ms=100)) == pytest.approx(30, abs=2)


def test_horizons_are_by_application() -> None:
    """An application's own horizon wins over the general one."""
    timed = trace(remaining=lambda at: 120.0 - at if at < 120 else -1.0)
    rule = Rule(30, horizon_ms=150, horizons={"soffice.bin": {"horizon_ms": 0.0}})
    assert decide(timed, rule) == pytest.approx(30, abs=2)


def test_a_window_that_came_is_a_sign_that_more_comes() -> None:
    """A timer soon after a window came or went counts; of one long ago it does not."""
    timed = trace(remaining=lambda at: 240.0 - at if at < 240 else -1.0, window=lambda at: at - 20.0)
    assert decide(timed, Rule(30)) == pytest.approx(30, abs=2)
    assert decide(timed, Rule(30, window_horizon_ms=250)) == pytest.approx(240, abs=2)
    assert decide(timed, Rule(30, window_horizon_ms=200)) == pytest.approx(30, abs=2)


def test_waiting_for_an_answer_is_work_for_a_while() -> None:
    """A main thread that waits for one descriptor puts the answer off, but not for ever."""
    asking = trace(reply=lambda at: at if at < 200 else -1.0)
    assert decide(asking, Rule(30)) == pytest.approx(30, abs=2)
    assert decide(asking, Rule(30, reply_ms=300)) == pytest.approx(200, abs=2)
    assert decide(asking, Rule(30, reply_ms=100)) == pytest.approx(100, abs=2)


def test_horizon_from_the_last_change() -> None:
    """A timer soon after a change counts although it is late after the action."""
    timed = trace(remaining=lambda at: 240.0 - at if at < 240 else -1.0, changes=(200.0,))
    rule = Rule(30, change_horizon_ms=100)
    assert decide(timed, rule) == pytest.approx(30, abs=2)
    busy = trace(
        lambda at: min(at, 205.0), remaining=lambda at: 290.0 - at if at < 290 else -1.0, changes=(200.0,)
    )
    assert decide(busy, rule) == pytest.approx(290, abs=2)


def test_changes_put_the_answer_off_where_asked() -> None:
    """With a quiet time of the screen the last change counts, without it does not."""
    changing = trace(changes=(10.0, 50.0))
    assert decide(changing, Rule(30, damage_quiet_ms=100)) == pytest.approx(150, abs=2)
    assert decide(changing, Rule(30)) == pytest.approx(30, abs=2)


def test_never_quiet_ends_at_the_maximum() -> None:
    """A rule that is never satisfied answers at its maximum."""
    assert decide(trace(lambda at: at), Rule(30, max_ms=500)) == 500


def test_premature_and_oracle() -> None:
    """A frame is premature when anything changed after it; who knows the future waits for that."""
    late = trace(changes=(10.0, 400.0))
    assert premature(late, 399)
    assert not premature(late, 400)
    assert not premature(trace(), 0)
    assert oracle_ms([late, trace()]) == 200


def test_carets_and_masked_changes_are_no_changes() -> None:
    """Damage without a changed pixel outside the masks, and carets, are not in the trace's changes."""
    lines = [
        {"begin": 1.0, "procs": []},
        {"d": 5.0, "n": 0, "caret": 0},
        {"d": 6.0, "n": 20, "caret": 1},
        {"end": 3},
    ]
    (made,) = read_traces(json.dumps(line) for line in lines)
    assert made.changes_ms == ()
