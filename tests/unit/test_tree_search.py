"""The example of tree search, over a model of its desktop: what it promises to beat, and by what."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from examples import best_of_n, tree_search
from examples.tree_search import GIVEN, MOVES, PAIRS, WANTED, Move, Outcome, Policy, plain, search

SEEDS = range(60)
LEVELS, WIDTH = 8, 4


class Model:
    """A list in memory that does what the editor does."""

    open = 0
    steps = 0

    def __init__(self, lines: Sequence[str] = GIVEN) -> None:
        self.lines = list(lines)
        self.over = False
        Model.open += 1

    async def step(self, move: Move) -> None:
        assert not self.over
        Model.steps += 1
        if move.line < len(self.lines):
            line = self.lines.pop(move.line)
            self.lines[move.line - 1 : move.line - 1] = [line] * (2 if move.twice else 1)

    async def fork(self, count: int) -> list[Model]:
        assert not self.over
        return [Model(self.lines) for _ in range(count)]

    async def score(self) -> float:
        self.over = True
        return in_order(self.lines)

    async def close(self) -> None:
        self.over = True
        Model.open -= 1


def in_order(lines: Sequence[str]) -> float:
    """What the task's evaluator says."""
    once = [item for item in WANTED if lines.count(item) == 1]
    return sum(lines.index(a) < lines.index(b) for a, b in itertools.combinations(once, 2)) / PAIRS


async def begin() -> Model:
    return Model()


@pytest.fixture(autouse=True)
def counted() -> None:
    Model.open = Model.steps = 0


async def test_it_beats_as_many_steps_without_forks() -> None:
    """Over many seeds, with the same policy; no step is taken that is not counted, no desktop left open."""
    flat, deep = [], []
    for seed in SEEDS:
        Model.steps = 0
        without = await plain(begin, Policy(seed), LEVELS, WIDTH)
        assert without.steps == Model.steps == LEVELS * WIDTH
        Model.steps = 0
        with_forks = await search(await begin(), Policy(seed), LEVELS, WIDTH)
        assert with_forks.steps == Model.steps <= LEVELS * WIDTH
        assert Model.open == 0
        flat.append(without.reward)
        deep.append(with_forks.reward)
    assert sum(deep) / len(deep) > 0.95
    assert sum(flat) / len(flat) < 0.6
    assert sum(reward >= 1 for reward in deep) > len(deep) / 2


async def test_forks_in_mid_episode_beat_whole_episodes_at_equal_steps() -> None:
    """Best of n, over many seeds, with as many steps for every single one."""
    whole, forked = [], []
    for seed in SEEDS:
        without = await plain(begin, Policy(seed), LEVELS, WIDTH)
        Model.steps = 0
        with_forks = await best_of_n.forks(await begin(), Policy(seed), LEVELS, WIDTH)
        assert without.steps == with_forks.steps == Model.steps == LEVELS * WIDTH
        assert Model.open == 0 and len(with_forks.path) == LEVELS
        whole.append(without.reward)
        forked.append(with_forks.reward)
    assert sum(forked) / len(SEEDS) > sum(whole) / len(SEEDS) + 0.05
    rows = [(0, Outcome(0.5, 8, ()), Outcome(1.0, 8, ()))]
    assert "| forks |" in tree_search.table(rows, "forks")[0]
    assert json.loads(best_of_n.report(4, 2, rows))["rows"][0]["forks"] == 1.0


@pytest.mark.parametrize("arm", [search, best_of_n.forks])
async def test_a_path_leads_to_its_reward(arm: tree_search.Arm) -> None:
    """Taken alone from the beginning, the moves that are reported earn what is reported."""
    found = await arm(await begin(), Policy(3), LEVELS, WIDTH)
    assert found.path
    desktop = Model()
    for move in found.path:
        await desktop.step(move)
    assert await desktop.score() == found.reward


async def test_it_stays_where_nothing_is_better() -> None:
    """Children that are worse are given up, and the node keeps its reward."""
    found = await search(Model([WANTED[1], WANTED[0], *WANTED[2:]]), Policy(1), 1, 1)
    assert found.reward >= 1 - 1 / PAIRS
    solved = await search(Model(WANTED), Policy(1), LEVELS, WIDTH)
    assert solved == Outcome(1.0, 0, ())


@pytest.mark.skipif(shutil.which("awk") is None, reason="missing: awk")
def test_the_evaluators_command_counts_pairs_in_order(tmp_path: Path) -> None:
    """As the guest runs it: one digit for each pair; an item that is there twice is in no order."""
    file = tmp_path / "packing.txt"
    command = tree_search.ORDER.replace(tree_search.PATH, str(file))
    for lines in (WANTED, GIVEN, WANTED[::-1], (*WANTED, WANTED[0]), WANTED[1:], ()):
        file.write_text(tree_search.text_of(lines))
        told = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout
        assert len(told) == PAIRS
        assert told.count("1") / PAIRS == in_order(lines)


def test_moves_are_a_handful_and_told_as_keys() -> None:
    """Each ends with saving, since only what is saved is scored."""
    assert len(MOVES) == len(set(map(str, MOVES))) == 6
    for move in MOVES:
        keys = [action["keys"] for action in move.actions()]
        assert keys[-1] == ["ctrl", "s"]
        assert keys.count(["ctrl", "v"]) == (2 if move.twice else 1)
