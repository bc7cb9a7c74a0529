"""Long families: their length, programs and services, and what a part of each is worth."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from statistics import mean

import pytest

from osgym_host.tasks.evaluate import combine
from osgym_host.tasks.parse import parse_task
from osgym_host.tasks.schema import Conjunction
from osgym_tasks import FAMILIES, LEVELS, kept
from osgym_tasks.families.long_rota import draw_duties
from osgym_tasks.long import played, to_window
from osgym_tasks.pieces import checkpoints, every, key, text_check
from osgym_tasks.verify import trials_of

LONG = [name for name in FAMILIES if name.startswith("long.")]
SEEDS = range(6)
every_long_family = pytest.mark.parametrize("name", LONG)


@every_long_family
def test_the_oracle_takes_forty_to_three_hundred_steps(name: str) -> None:
    """At every level; the last level takes at least three times the steps of the first one."""
    steps = {level: [len(FAMILIES[name].make(seed, level).ways.oracle) for seed in SEEDS] for level in LEVELS}
    assert all(40 <= count <= 300 for counts in steps.values() for count in counts), steps
    assert mean(steps[5]) >= 3 * mean(steps[1]), steps


@every_long_family
def test_three_programs_and_services_or_more_take_part(name: str) -> None:
    """Programs that are open, and sites that the browser shows."""
    task = FAMILIES[name].make(0, 1).task
    ports = set(re.findall(r"localhost:(\d+)", json.dumps(task["config"])))
    others = [app for app in FAMILIES[name].apps if app != "chromium"]
    assert len(ports) + len(others) >= 3


@every_long_family
def test_a_part_earns_the_weights_of_its_checkpoints(name: str) -> None:
    """Each such way earns what some set of checkpoints is worth, more than nothing and less than all."""
    for level in (1, 5):
        instance = FAMILIES[name].make(0, level)
        evaluator = parse_task(instance.task).evaluator
        assert evaluator.conj is Conjunction.PARTIAL
        assert evaluator.weights[-1] == 0 and evaluator.checks[-1].func == "check_folder_kept"
        rewards = {reward for _, reward in instance.ways.part.values()}
        worth = {
            combine(
                [float(at != missed) for at in range(len(evaluator.weights))],
                evaluator.conj,
                evaluator.weights,
            )
            for missed, weight in enumerate(evaluator.weights)
            if weight
        }
        assert len(instance.ways.part) >= 2
        assert rewards <= worth and all(0 < reward < 1 for reward in rewards)
        tried = {trial.way: trial.wanted for trial in trials_of(instance)}
        assert {tried[f"part: {way}"] for way in instance.ways.part} == rewards
        assert tried[f"spoilt: {kept.LOST}"] == tried["nothing"] == 0.0


def test_checkpoints_have_weights_and_conditions_none() -> None:
    """Conditions follow the parts; a record of the home is one more of them."""
    one, other = (text_check(f"/home/user/{name}", "a\n") for name in ("a", "b"))
    made = checkpoints([(2, one)], [other])
    assert made == {**every(one, other), "conj": "partial", "weights": [2, 0]}
    task = kept.recorded({"id": "x", "config": [], "evaluator": made}, ["/home/user/a"])
    assert task["evaluator"]["weights"] == [2, 0, 0]
    assert len(task["evaluator"]["func"]) == 3


def test_windows_are_found_by_the_order_of_their_use() -> None:
    """No step where the window is active already; otherwise as often Tab as windows were used since."""
    first, second, third = ([[key(name)]] for name in "abc")
    steps = played(["A", "B", "C"], [("A", first), ("C", third), ("A", first), ("B", second), ("B", second)])
    assert steps == [*first, to_window(2), *third, to_window(1), *first, to_window(2), *second, *second]
    assert [action["keys"] for action in to_window(2) if action["op"] == "key"] == [["tab"]] * 2


@every_long_family
def test_given_cells_of_a_workbook_are_conditions(name: str) -> None:
    """The metric that compares looks does not see another value in a cell."""
    evaluator = parse_task(FAMILIES[name].make(0, 1).task).evaluator
    checks = [(check.func, weight) for check, weight in zip(evaluator.checks, evaluator.weights, strict=True)]
    books = "libreoffice_calc" in FAMILIES[name].apps
    assert (("check_xlsx_cells", 0) in checks) == (("check_workbook_kept", 0) in checks) == books


@pytest.mark.parametrize("count", [3, 4, 6, 9, 13])
def test_one_rota_suits_everybody(count: int) -> None:
    """Exactly one assignment of duties to people respects all wishes."""
    for seed in SEEDS:
        week, suits = draw_duties(random.Random(seed), count)
        ways = {frozenset[str](): 1}
        for duty in week:
            able = [name for name, duties in suits.items() if duty in duties]
            more: Counter[frozenset[str]] = Counter()
            for used, number in ways.items():
                for name in able:
                    if name not in used:
                        more[used | {name}] += number
            ways = dict(more)
        assert list(ways.values()) == [1]
        assert all(duty in suits[duty.who] for duty in week)
