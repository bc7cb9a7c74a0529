"""docs/data.md: its code runs in its order, and its table is the schema."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.doc_examples import blocks
from tests.support.fake_v1_host import FakeV1Host, serving

from osgym_sdk.data import COLUMNS, Dataset

PAGE = "docs/data.md"
ROOT = Path(__file__).parents[2]


def test_the_pages_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first block records the second one reads."""
    found = blocks(PAGE)
    assert len(found) == 2
    monkeypatch.chdir(tmp_path)
    with serving(FakeV1Host()) as running:
        monkeypatch.setenv("OSGYM_HOSTS", running.url)
        for block in found:
            exec(compile(block, PAGE, "exec"), {})
        assert running.host.live() == []
    dataset = Dataset.open("out/monday")
    assert (dataset.episode_count, len(dataset)) == (5, 9)
    assert (tmp_path / "out" / "saw.png").stat().st_size > 0


def test_the_table_is_the_schema() -> None:
    """Each column in its order, with its meaning, and which are the episode's."""
    text = (ROOT / PAGE).read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)`( \*)? \| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    assert [(name, bool(star), meaning) for name, star, _, meaning in rows] == [
        (column.name, column.per_episode, column.meaning) for column in COLUMNS
    ]
    assert [kind == "JSON" for _, _, kind, _ in rows] == [column.json for column in COLUMNS]
