"""The family of one-screen tasks, and what of examples/sft.py needs no PyTorch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from examples import sft
from examples.one_screen import BOARD, SQUARE, Layout, make_task, oracle
from PIL import Image, ImageDraw
from tests.support.data_episodes import play

from osgym_host.tasks.parse import parse_task
from osgym_sdk.data import Dataset, DatasetWriter


def test_places_change_and_do_not_overlap() -> None:
    """The same for a seed, others for another; the task says them to its program only."""
    layouts = [Layout.draw(seed) for seed in range(300)]
    assert (
        layouts == [Layout.draw(seed) for seed in range(300)] and len({one.target for one in layouts}) > 290
    )
    for layout in layouts:
        for place, (x, y) in enumerate(layout.squares):
            assert 0 <= x <= BOARD[2] - SQUARE and 0 <= y <= BOARD[3] - SQUARE
            assert all(abs(x - a) >= SQUARE or abs(y - b) >= SQUARE for a, b in layout.squares[:place])
    task = make_task(5)
    assert parse_task(json.loads(json.dumps(task))) is not None
    x, y = Layout.draw(5).target
    assert oracle(task) == {"op": "click", "x": x, "y": y}


def test_a_cell_is_where_its_click_goes() -> None:
    """There and back, for all cells; every point of a square lies in a cell whose middle is close by."""
    for cell in range(sft.COLUMNS * sft.ROWS):
        click = sft.point_of(cell, (1920, 1080))
        assert sft.cell_of(click["x"], click["y"], (1920, 1080)) == cell
        assert 0 <= click["x"] < 1920 and 0 <= click["y"] < 1080


def test_samples_are_what_was_seen_and_where_the_oracle_clicked(tmp_path: Path) -> None:
    """Of solved episodes only."""
    with DatasetWriter(tmp_path) as writer:
        play(writer, {"id": "solved"}, 1, reward=1.0)
        play(writer, {"id": "missed"}, 1, reward=0.0)
    found = sft.samples(Dataset.open(tmp_path))
    assert len(found) == 1 and len(found[0].pixels) == 3 * sft.SHOWN[0] * sft.SHOWN[1]
    assert found[0].cell == sft.cell_of(1, 2, (64, 48))
    screen = Image.new("RGB", (1920, 1080))
    ImageDraw.Draw(screen).rectangle((960, 540, 1920, 1080), fill="white")
    pixels = sft.seen(screen)
    assert pixels[:3] == b"\0\0\0" and pixels[-3:] == b"\xff\xff\xff"


def test_scores_and_the_picture() -> None:
    """Wilson's interval (20 of 40: 35 to 65 %), nothing scored, and a picture that is drawn."""
    assert str(sft.Score(20, 40, 1)) == "20 of 40 (35% to 65%; 1 lost)"
    assert sft.Score(0, 0, 3).interval() == (0.0, 1.0)
    drawn = sft.picture([3.0, 1.0, 0.1], sft.Score(1, 40, 0), sft.Score(39, 40, 0), 150)
    colours = drawn.getcolors(1 << 20)
    assert colours is not None and len(colours) > 3


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is recorded."""
    modules: dict[str, Any] = {"torch": None}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(SystemExit, match="pip install torch"):
        sft.main(["--train", "1"])
