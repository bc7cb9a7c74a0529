"""examples/grpo.py: what of it needs no PyTorch, and that its policy learns where PyTorch is."""

from __future__ import annotations

import ast
import json
import math
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from examples import grpo, sft
from examples.one_screen import BOARD, SQUARE

GLUE_LINES = 15


def test_advantages_are_of_the_group() -> None:
    """They sum to 0, the better ones are positive, and where all earn the same there are none."""
    found = grpo.advantages([1.0, 0.0, 0.0, 0.0])
    assert math.isclose(sum(found), 0, abs_tol=1e-9) and found[0] > 0 > found[1] == found[2] == found[3]
    assert found[0] == pytest.approx(math.sqrt(3), rel=1e-3)
    for same in ([0.0] * 8, [1.0] * 8, [0.5], []):
        assert grpo.advantages(same) == [0.0] * len(same)


def test_the_policy_clicks_on_the_board_only() -> None:
    """Chance on its cells is what the script's help says: the square's part of the board."""
    cells = grpo.on_board()
    left, top, width, height = BOARD
    for cell in cells:
        click = sft.point_of(cell, grpo.SCREEN)
        assert left <= click["x"] < left + width and top <= click["y"] < top + height
    assert len(set(cells)) == len(cells) == pytest.approx(width * height / 32**2, rel=0.05)
    assert round(width * height / SQUARE**2) == 23 and "once in 23" in " ".join(str(grpo.__doc__).split())


def test_no_task_is_drawn_twice_nor_tested_on() -> None:
    """Within a run, by runs of other seeds, by the oracle, by the test."""
    drawn: list[int] = []
    for seed in (0, 1, 18):
        runs = grpo.batches(seed, 3)
        for _ in range(4):
            drawn += [task["osgym"]["seed"] for task in next(runs)]
    assert len(set(drawn)) == len(drawn) == 36
    assert min(drawn) >= grpo.FIRST_TASK_SEED and max(drawn) < sft.FIRST_TEST_SEED
    assert grpo.FIRST_TASK_SEED + 19 * grpo.TASKS_PER_RUN <= sft.FIRST_TEST_SEED


@pytest.mark.parametrize(
    "argv", [["--seed", "19"], ["--minutes", "0"], ["--oracle", "-1"], ["--tasks", "0"], ["--epochs", "x"]]
)
def test_bad_arguments_are_named(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Before any desktop or PyTorch is asked for."""
    with pytest.raises(SystemExit):
        grpo.main(argv)
    assert argv[0] in capsys.readouterr().err


def test_the_glue_is_short() -> None:
    """What talks to OSGym, between the two rulers: its statements and signatures, not its docstrings."""
    source = Path(grpo.__file__).read_text()
    begin = source.index("# The whole glue")
    part = source[begin : source.index("\n# The half that needs PyTorch", begin)]
    docstrings = {
        line
        for node in ast.walk(ast.parse(part))
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node)
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    lines = [
        line
        for number, line in enumerate(part.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#") and number not in docstrings
    ]
    assert 0 < len(lines) <= GLUE_LINES
    assert f"{len(lines)} lines" in part.splitlines()[0]


def update(minute: float, reward: float) -> dict[str, Any]:
    return {"minute": minute, "reward": reward, "episodes": 64}


def test_the_picture_shows_every_run(tmp_path: Path) -> None:
    """Each in a colour of its own; the numbers are saved beside it, and without addresses."""
    given = grpo.arguments(["--out", str(tmp_path), "--hosts", "http://secret:1", "--seed", "1"])
    zero = {"seed": 0, "updates": [update(minute, minute / 4) for minute in range(5)]}
    (tmp_path / "grpo-0.json").write_text(json.dumps(zero))
    updates = [grpo.Update(at, 0.1 * at, 64, 0, 8, 4, 8, 0, 3.0, 1.0, 2.0) for at in range(6)]
    grpo.save(given, sft.Score(1, 40, 0), updates, sft.Score(39, 40, 0))
    kept = json.loads((tmp_path / "grpo-1.json").read_text())
    assert kept["seed"] == 1 and len(kept["updates"]) == 6 and kept["updates"][3]["mixed"] == 4
    assert "secret" not in json.dumps(kept)
    drawn = grpo.picture([zero, kept])
    colours = {colour for _, colour in drawn.getcolors(1 << 20) or ()}
    assert {(0x1F, 0x6F, 0xEB), (0xF0, 0x88, 0x3E)} <= colours
    assert grpo.picture([]).size == drawn.size and (tmp_path / "grpo.png").stat().st_size > 0


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before anything is played."""
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SystemExit, match="pip install torch"):
        grpo.main(["--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_what_is_rewarded_gets_likelier() -> None:
    """And what is not, less likely; nothing to learn from changes nothing."""
    pytest.importorskip("torch", reason="missing: torch")
    agent = grpo.Agent(sft.make_network(0), 0, 1e-3)
    pixels = random.Random(0).randbytes(3 * sft.SHOWN[0] * sft.SHOWN[1])
    agent.learn([], 4)
    choices = [agent.choose(pixels) for _ in range(4)]
    assert agent.logprob(choices[0]) == pytest.approx(choices[0].logprob, abs=1e-5)
    gained = grpo.advantages([1.0, 0.0, 0.0, 0.0])
    agent.learn([grpo.Lesson(choice, gain) for choice, gain in zip(choices, gained, strict=True)], 4)
    assert agent.logprob(choices[0]) > choices[0].logprob
    assert agent.cell(pixels) in agent.cells
