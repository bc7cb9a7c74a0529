"""Families of tasks: same bytes for a seed, instructions that name what is checked, splits, records."""

from __future__ import annotations

import io
import itertools
import json
import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import openpyxl
import pytest
from click.testing import CliRunner
from tests.support.doc_examples import blocks
from tests.support.host_process import wait_until

from osgym_cli.evals.jobs import find_task_files, make_jobs
from osgym_cli.evals.scripted import reached, script_of
from osgym_host.tasks.parse import parse_task
from osgym_protocol.a11y import A11yTree
from osgym_protocol.a11y_node import A11yNode
from osgym_protocol.actions import parse_actions
from osgym_tasks import (
    FAMILIES,
    LEVELS,
    Curriculum,
    Family,
    Split,
    UnknownFamily,
    kept,
    levels_of,
    proved_instances,
    sample,
    split_of,
)
from osgym_tasks.cli import commands
from osgym_tasks.family import MIN_WORDINGS, Instance
from osgym_tasks.office import document_bytes
from osgym_tasks.pieces import DONE, FAIL, HOME, key
from osgym_tasks.record import Outcome, line_of, read_record, summary
from osgym_tasks.targets import TargetMissing, click, has_targets, place_in, placed, placed_on, reaching
from osgym_tasks.verify import trials_of

SEEDS = range(12)
SCREEN = (1920, 1080)
FEW = ["edit.lines", "files.move_rule", "term.count", "term.csv_report", "term.find_replace", "term.modes"]
"""For what is not about families: quickly made, and no more of them whatever is added."""
DIGESTS = """
import hashlib, json
from osgym_tasks import FAMILIES, LEVELS
def digest(one):
    ways = one.ways
    text = json.dumps([one.task, ways.oracle, ways.right, ways.near, ways.spoilt])
    return hashlib.sha256(text.encode()).hexdigest()
made = ([family.make(seed, level) for seed in range(3)] for family in FAMILIES.values() for level in LEVELS)
print(json.dumps({f"{some[0].family} {some[0].level}": [*map(digest, some)] for some in made}))
"""
"""Program that prints digests of instances."""
every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


@cache
def made(name: str, seed: int, level: int) -> Instance:
    """An instance, made once for all tests; they change nothing of it."""
    return FAMILIES[name].make(seed, level)


@every_family
def test_a_seed_gives_the_same_bytes(family: Family) -> None:
    """Twice the same; another seed or level, another task."""
    texts = [json.dumps(made(family.name, seed, level).task) for seed in SEEDS for level in LEVELS]
    again = [json.dumps(family.make(seed, level).task) for seed in SEEDS[:3] for level in LEVELS]
    assert texts[: len(again)] == again
    assert len(set(texts)) == len(texts)


@every_family
def test_instances_are_textsthat_a_host_takes(family: Family) -> None:
    """With ways to act that can be sent, all different, each to its end."""
    for level, seed in itertools.product(LEVELS, SEEDS):
        instance = made(family.name, seed, level)
        parse_task(instance.task)
        right = [instance.ways.oracle, *instance.ways.right.values()]
        ways = [*right, *instance.ways.near.values()]
        assert len({json.dumps(way) for way in ways}) == len(ways) > 1
        given_up = "infeasible" in instance.task["evaluator"]["func"]
        assert instance.ways.oracle[-1] == (FAIL if given_up else DONE)
        for way in ways:
            assert way[-1] == DONE or way in right or (given_up and way[-1] == FAIL)
            for step in way[:-1]:
                parse_actions(placed(step, lambda target: (1, 1)), SCREEN)


def test_the_hash_seed_of_python_changes_nothing() -> None:
    """No family draws in the order of a set, which is another one in each process."""
    digests = []
    for hash_seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        argv = [sys.executable, "-c", DIGESTS]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
        digests.append(json.loads(done.stdout))
    one, other = digests
    assert [name for name in one if one[name] != other[name]] == []
    assert len(one) == len(FAMILIES) * len(LEVELS)


def test_mistakes_of_a_program_to_mend_show_on_hidden_numbers() -> None:
    """Each of them on its own, so that a program with one mistake left earns nothing."""
    for seed, level in itertools.product(range(60), LEVELS):
        task = FAMILIES["term.fix_script"].make(seed, level).task
        evaluator, program = task["evaluator"], task["config"][0]["parameters"]["files"][0]
        figures = [
            (result["command"][2].split("printf -- '")[1].split("'")[0].split("\\n")[:-1], expected["rules"])
            for result, expected in zip(evaluator["result"], evaluator["expected"], strict=True)
            if "printf -- " in str(result.get("command"))
        ]
        lines = [line for line in program["text"].splitlines() if line.startswith("print(")]
        wrong = {
            at
            for numbers, rules in figures[1:]
            for at, line in enumerate(lines)
            if str(int(eval(line[6:-1], {"numbers": [*map(int, numbers)]}))) != rules["expected"].split()[at]
        }
        assert len(wrong) == {1: 1, 2: 2, 3: 3, 4: 5, 5: 7}[level], (seed, level)


def test_the_rest_of_the_home_is_recorded_and_compared() -> None:
    """As the last step of the set-up and the last check, apart from what the task changes."""
    instance = made("term.count", 0, 1)
    task = instance.task
    assert task["config"][-1]["type"] == "record_folder"
    assert [part[-1] for part in (task["evaluator"][key] for key in ("func", "result", "expected"))] == [
        "check_folder_kept",
        {"type": "folder_record", "folder": "/home/user"},
        {"type": "cache_file", "path": task["config"][-1]["parameters"]["dest"]},
    ]
    answer = instance.named["jobs"].rpartition(" into ")[2]
    assert task["evaluator"]["options"][-1] == {"may_change": [f"{HOME}/{answer}"]}
    (lost,) = (trial for trial in trials_of(instance) if trial.way == f"spoilt: {kept.LOST}")
    assert (lost.steps, lost.spoil, lost.wanted) == (instance.ways.oracle, kept.LOSE, 0.0)
    with pytest.raises(ValueError, match="made by every"):
        kept.recorded({**task, "evaluator": {"func": "infeasible"}}, ())


def test_targets_are_found_on_the_screen() -> None:
    """By role and name, of those that show; what is not there is named."""
    nodes = [
        A11yNode("push-button", "OK"),
        A11yNode("push-button", "OK", box=(10, 20, 0, 0)),
        A11yNode("push-button", "OK", box=(10, 20, 40, 10)),
        A11yNode("push-button", "OK   ", box=(100, 20, 41, 11)),
        A11yNode("label", "OK", box=(1, 1, 2, 2)),
    ]
    step = [{"op": "wait", "duration_ms": 1}, click("push-button", "OK", nth=1, count=2)]
    assert has_targets([step]) and not has_targets([[key("a")]])
    assert placed(step, place_in(nodes)) == [step[0], {"op": "click", "x": 120, "y": 25, "count": 2}]
    nodes = [A11yNode("application", "galculator"), *nodes, A11yNode("application", "mousepad"), *nodes]
    places = placed([click("label", "OK", app="mousepad"), click("label", "OK", nth=1)], place_in(nodes))
    assert places[0] == places[1] == {"op": "click", "x": 2, "y": 2}
    with pytest.raises(TargetMissing, match="'OK' of pcmanfm"):
        placed([click("label", "OK", app="pcmanfm")], place_in(nodes))
    for wrong in (click("push-button", "OK", nth=4), click("label", "Ok")):
        with pytest.raises(TargetMissing, match=r"no .* is on the screen"):
            placed([wrong], place_in(nodes))


async def test_an_element_may_take_its_time_to_show() -> None:
    """It is looked for again and again, and missed after a while."""
    trees = [A11yNode("desktop"), A11yNode("desktop", children=[A11yNode("label", "OK", box=(0, 0, 4, 2))])]

    class Episode:
        looked = 0

        async def a11y(self) -> A11yTree:
            self.looked += 1
            return A11yTree(trees[self.looked - 1 if self.looked < 3 else 0])

    assert await placed_on(Episode(), [click("label", "OK")]) == [{"op": "click", "x": 2, "y": 1}]
    with pytest.raises(TargetMissing):
        await placed_on(Episode(), [click("label", "Cancel")], timeout_s=0.3)


def test_whoever_plays_a_script_that_points_may_read_the_tree(tmp_path: Path) -> None:
    """And no one else: what the task permits besides stays."""
    osgym: dict[str, Any] = {"reach": False}
    for name, oracle in (("points", [[click("label", "OK")], DONE]), ("keys", [[key("a")], DONE])):
        task = {"id": name, "instruction": name, "osgym": osgym}
        (tmp_path / f"{name}.json").write_text(json.dumps(task))
        (tmp_path / f"{name}.oracle.json").write_text(json.dumps({"oracle": oracle, "near": [DONE]}))
    jobs = make_jobs(find_task_files([str(tmp_path)]), 1)
    for policy, allowed in (("oracle", [False, ["a11y"]]), ("near", [False, False]), ("random", [False] * 2)):
        played = reached(jobs, [script_of(policy, job, 0) for job in jobs])
        assert [job.task["osgym"]["reach"] for job in played] == allowed
    assert [reaching({"osgym": {"reach": given}})["osgym"].get("reach") for given in (True, ["windows"])] == [
        True,
        ["a11y", "windows"],
    ]


def sheet(rows: list[list[Any]]) -> bytes:
    """A workbook of one sheet."""
    book = openpyxl.Workbook()
    for row in rows:
        book["Sheet"].append(row)
    return document_bytes(book)


def test_documents_are_the_same_bytes_always() -> None:
    """Whatever the time is when they are made."""
    made = [sheet([["a", 1], ["b", 2.5]])]
    second = int(time.time())  # the clock that the writer reads has whole seconds
    wait_until(lambda: int(time.time()) > second, 5, "the next second")
    made.append(sheet([["a", 1], ["b", 2.5]]))
    assert made[0] == made[1] != sheet([["a", 2]])
    assert [cell.value for cell in openpyxl.load_workbook(io.BytesIO(made[0]))["Sheet"][1]] == ["a", 1]


def test_a_customer_may_have_a_paper_of_every_month() -> None:
    """The near miss with another month is then of another customer that the task names."""
    instance = FAMILIES["files.find"].make(106, 5)
    ways = instance.ways
    assert json.dumps(ways.near["another month"]) != json.dumps(ways.oracle)
    parse_task(instance.task)


def test_an_oracle_is_wrong_elsewhere() -> None:
    """What one instance wants, no other of its family does: answers are not to be had by heart."""
    for family in (FAMILIES["edit.lines"], FAMILIES["term.modes"]):
        wanted = [json.dumps(family.make(seed, 3).task["evaluator"]) for seed in SEEDS]
        assert len(set(wanted)) == len(wanted)


@pytest.mark.parametrize(
    ("seed", "level", "wording"), [(-1, 1, None), (0, 0, None), (0, 6, None), (0, 1, 99)]
)
def test_what_is_out_of_range_is_named(seed: int, level: int, wording: int | None) -> None:
    """Seeds, levels, wordings."""
    with pytest.raises(ValueError, match=r"seed must|level must|wording must"):
        FAMILIES["edit.lines"].make(seed, level, wording=wording)


def test_splits_take_their_parts() -> None:
    """80, 10 and 10 of a hundred tasks, where there are many different ones."""
    parts = [split_of(FAMILIES["edit.lines"].make(seed, 3)) for seed in range(3000)]
    assert parts.count(Split.TRAIN) == pytest.approx(2400, rel=0.05)
    assert parts.count(Split.TEST) == pytest.approx(300, rel=0.2)


def test_samples_stay_in_their_split_and_shards_are_the_whole() -> None:
    """In the order of one iterator."""
    count = 20 * len(FEW)  # enough that chance leaves out none
    drawn = {}
    for split in Split:
        names = [name for name in FEW if levels_of(FAMILIES[name], split)]
        drawn[split] = list(itertools.islice(sample(split=split, families=names, seed=4), count))
        assert {split_of(one) for one in drawn[split]} == {split}
        assert {one.family for one in drawn[split]} == set(names)
        assert {one.level for one in drawn[split]} == set(LEVELS)
    shards = [itertools.islice(sample(families=FEW, seed=4, shard=n, shards=3), count // 3) for n in range(3)]
    together = [one.name for three in zip(*shards, strict=True) for one in three]
    assert together == [one.name for one in drawn[Split.TRAIN]]
    assert len({one.family for one in itertools.islice(sample(), 60)}) > 20, "all families, if none is named"
    (only,) = itertools.islice(sample(families=["term.modes"], level=5), 1)
    assert (only.family, only.level) == ("term.modes", 5)


def test_wrong_samples_are_refused_at_the_call() -> None:
    """Before the first instance."""
    for wrong in ({"split": "all"}, {"level": 9}, {"shard": 2, "shards": 2}, {"families": []}):
        with pytest.raises(ValueError, match=r"Split|level|shard|families"):
            sample(**wrong)  # type: ignore[arg-type]
    with pytest.raises(UnknownFamily, match=r"unknown family 'no.such'; valid families: .*edit.lines"):
        sample(families=["no.such"])


def test_written_files_are_what_task_run_plays(tmp_path: Path) -> None:
    """The task, and its oracle beside it."""
    said = ["write", "term.count", "--seeds", "2", "--levels", "1,5", "--out", str(tmp_path)]
    assert CliRunner().invoke(commands, said).exit_code == 0
    jobs = make_jobs(find_task_files([str(tmp_path)]), 1)
    assert len(jobs) == 4
    for job in jobs:
        oracle = script_of("oracle", job, 0)(SCREEN)
        assert oracle != script_of("near", job, 0)(SCREEN)
        assert all(step.certain for step in oracle), "as it is proved: each step on the final screen"


def test_a_record_is_gone_on_with(tmp_path: Path) -> None:
    """What has a reward on this image; a torn line, another image and a lost episode are run again."""
    path = tmp_path / "record.jsonl"
    assert read_record(path, "a") == []
    instance = FAMILIES["edit.lines"].make(0, 2)
    rewards = {trial.way: trial.wanted for trial in trials_of(instance)}
    assert list(rewards.values()).count(1.0) == 2 + len(instance.ways.right)
    rows = [
        Outcome("a", "edit.lines", 0, 2, instance.name, way, wanted, wanted, "", 3, 1.5)
        for way, wanted in rewards.items()
    ]
    lost = Outcome("a", "edit.lines", 1, 2, "other", "nothing", 0.0, None, "host_lost: gone", 0, 0.1)
    elsewhere = Outcome("b", "edit.lines", 1, 2, "other", "nothing", 0.0, 0.0, "", 1, 0.1)
    path.write_text("".join(map(line_of, [*rows, lost, elsewhere])) + line_of(rows[0])[:20])
    assert read_record(path, "a") == rows
    assert summary(rows)["edit.lines"]["proved"] == 1
    assert [one.name for one in proved_instances(path, "a")] == [instance.name]
    assert list(proved_instances(path, "b")) == []
    split = split_of(instance)
    assert [list(proved_instances(path, "a", one)) != [] for one in Split] == [one is split for one in Split]
    path.write_text("".join(map(line_of, rows[:-1])))
    assert list(proved_instances(path, "a")) == [], "a way was not tried"
    wrong = Outcome("a", "edit.lines", 0, 2, instance.name, "near: x", 0.0, 1.0, "", 3, 1.5)
    row = summary([*rows, wrong])["edit.lines"]
    assert (row["proved"], row["wrong"]) == (0, [[instance.name, "near: x", 1.0]])


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["verify"], "give --all"),
        (["verify", "--all", "edit.lines"], "give --all"),
        (["verify", "no.such"], "edit.lines"),
        (["write", "--all", "--levels", "0-9", "--out", "x"], "1 to 5"),
        (["write", "--all", "--levels", "one", "--out", "x"], "1-5 or 1,4"),
        (["verify", "--all", "--seeds", "0"], "--seeds"),
    ],
)
def test_wrong_commands_say_what_helps(argv: list[str], why: str) -> None:
    """Before anything is run."""
    done = CliRunner().invoke(commands, argv)
    assert (done.exit_code, why in done.output) == (2, True), done.output


def success(skill: float, level: int) -> float:
    """What a policy of that skill earns: nothing two levels above it, all two below."""
    return min(1.0, max(0.0, 0.5 + (skill - level) / 2))


@pytest.mark.parametrize("skill", [1.5, 3.0, 4.5])
def test_a_curriculum_keeps_success_near_its_target(skill: float) -> None:
    """It finds the level of a policy, and follows it when it learns."""
    course = Curriculum(seed=1, families=FEW)
    for grown in (0.0, min(1.0, 5 - skill)):
        earned = []
        for _ in range(600):
            instance = course.next()
            earned.append(success(skill + grown, instance.level))
            course.report(instance, earned[-1])
        assert mean(earned[-200:]) == pytest.approx(0.5, abs=0.12)
    levels = course.levels()
    assert set(levels) == set(FEW)
    assert all(abs(level - skill - grown) < 1 for level in levels.values())


def test_a_curriculum_is_the_same_for_the_same_rewards() -> None:
    """Also from a state in the middle, through JSON; every family is drawn as often as any other."""
    one, other = Curriculum(seed=3, families=FEW), Curriculum(seed=3, families=FEW)
    for number in range(60):
        made = one.next()
        assert made.name == other.next().name
        assert split_of(made) is Split.TRAIN
        for course in (one, other):
            course.report(made, None if number % 7 == 0 else float(number % 2))
    later = Curriculum(seed=3, families=FEW)
    later.load(json.loads(json.dumps(one.state())))
    assert [later.next().name for _ in range(12)] == [one.next().name for _ in range(12)]
    counts = [seen for _, seen in one.state()["standing"].values()]  # type: ignore[attr-defined]  # JSON
    assert max(counts) - min(counts) <= 1
    before = other.levels()
    other.report(other.next(), None)
    assert other.levels() == before
    for wrong in ({"target": 0.0}, {"families": []}, {"split": "all"}, {"families": ["no.such"]}):
        with pytest.raises(ValueError, match=r"target|families|Split|family"):
            Curriculum(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not the state"):
        later.load({"drawn": "x"})


def test_the_documents_family_is_one() -> None:
    """Its code is run, and what it makes is a task whose every wording says what is checked."""
    (code,) = [block for block in blocks("tasks/families/README.md") if "Family(" in block]
    made: dict[str, Any] = {"__name__": "of_the_document"}
    exec(compile(code, "README.md", "exec"), made)
    family = made["FAMILY"]
    for level, number in itertools.product(LEVELS, range(MIN_WORDINGS)):
        instance = family.make(3, level, wording=number)
        parse_task(instance.task)
        assert all(text in instance.task["instruction"] for text in instance.said.values())
        assert json.dumps(instance.ways.oracle) not in map(json.dumps, instance.ways.near.values())
