"""The fast subset of the matrix of input, with programs that every image has: each receives what was said."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.common import ROOT
from benchmarks.input_fidelity import kept, tables
from benchmarks.input_fidelity.matrix import CELLS, Player, Row, Run
from benchmarks.input_fidelity.stage import Cell, Stage
from benchmarks.input_fidelity.text_cells import typed
from benchmarks.input_fidelity.toolkits import TOOLKITS, chosen
from tests.support.host_process import HostProcess

from osgym_sdk import Client

EVERYWHERE = [name for name, toolkit in TOOLKITS.items() if toolkit.everywhere]
QUICK = [cell for cell in CELLS.values() if cell.quick]

pytestmark = pytest.mark.desktop


@pytest.fixture(scope="module")
def client(host: HostProcess) -> Iterator[Client]:
    """A client for all."""
    with Client(host.url) as opened:
        yield opened


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", EVERYWHERE)
def test_programs_receive_what_the_actions_said(client: Client, name: str) -> None:
    """Texts, Enter, chords, held keys, clicks, strokes and the wheel arrive exactly, in each program."""
    rows = Player(client, 1, 0, lambda _: None).play(TOOLKITS[name], QUICK)
    assert sum(row.count("right") for row in rows) >= 2, "hardly anything was run"
    assert not tables.differences(rows)


def test_what_does_not_arrive_is_told(client: Client) -> None:
    """A cell whose expectation is not met is wrong, and says what came instead."""

    def play(stage: Stage) -> None:
        stage.step(stage.click("entry"))
        stage.step(typed("one"))
        stage.expect_text("entry", "two")

    (row,) = Player(client, 1, 0, lambda _: None).play(TOOLKITS["tk"], [Cell("x", "", ("entry",), play)])
    assert (row.shown, row.runs[0].result) == ("0/1", "wrong")
    assert row.runs[0].told == {"what": "text of entry", "expected": "two", "received": "one"}


def test_what_is_refused_is_told(client: Client) -> None:
    """An action that the desktop does not do is neither right nor wrong."""

    def play(stage: Stage) -> None:
        stage.step({"op": "click", "x": 100_000, "y": 5})

    (row,) = Player(client, 1, 0, lambda _: None).play(TOOLKITS["tk"], [Cell("x", "", ("entry",), play)])
    assert row.shown == "refused"


def test_what_comes_besides_is_wrong(client: Client) -> None:
    """Twice what was said is not what was said."""

    def play(stage: Stage) -> None:
        stage.step(stage.click("area"), stage.click("area", button="right"))
        stage.expect("buttons", [1], lambda events: [e["button"] for e in events if e["event"] == "click"])

    (row,) = Player(client, 1, 0, lambda _: None).play(TOOLKITS["tk"], [Cell("x", "", ("area",), play)])
    assert row.runs[0].told["received"] == [1, 3]


def test_tables_are_written_between_the_marks_of_a_document(tmp_path: Path) -> None:
    """Each toolkit is a column and each cell a row; what a toolkit lacks is a dash; the rest stays."""
    rows = [
        Row("gtk3", "plain", 0, [Run("right"), Run("wrong", {"why": "x"})]),
        Row("tk", "plain", 0),
        Row("tk", "click", 0, [Run("refused", {"why": "no"})]),
    ]
    document = tmp_path / "input.md"
    document.write_text(f"before\n<!-- matrix: {tables.CALL} -->\nold\n<!-- end -->\nafter\n")
    tables.write(document, tables.markdown(rows))
    text = document.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "| idle | gtk3 | tk |" in text
    assert "| one line of ASCII (`plain`) | 1/2 | – |" in text
    assert "| a click (`click`) | – | refused |" in text
    with pytest.raises(ValueError, match="no marks"):
        tables.write(Path(__file__), "")


def test_names_that_are_none_are_answered_with_those_that_are() -> None:
    """The command line says which toolkits and cells there are."""
    with pytest.raises(ValueError, match="unknown toolkit 'gtk9'; valid toolkits: gtk2, gtk3"):
        chosen("gtk3,gtk9")
    argv = [sys.executable, "-m", "benchmarks.input_fidelity", "--cells", "nosuch"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "unknown cell 'nosuch'; valid cells: plain, lines" in done.stderr


def test_the_document_has_the_marks_and_every_cell_a_name_of_its_own() -> None:
    """`--write-doc` finds where to write, and no cell hides another."""
    assert tables.MARKED.search((ROOT / "benchmarks" / "input_fidelity" / "README.md").read_text())
    assert all(cell.name == name and cell.about and cell.needs for name, cell in CELLS.items())


def test_the_tables_of_the_document_are_those_of_the_kept_files() -> None:
    """`--no-run --write-doc` would change nothing."""
    found = tables.MARKED.search((ROOT / "benchmarks" / "input_fidelity" / "README.md").read_text())
    assert found and found[0].partition("-->\n")[2] == f"{kept.document()}\n<!-- end -->"


def test_rows_of_a_file_stay_unless_they_are_run_again() -> None:
    """`--keep` adds a toolkit, a cell or a load to what was found before."""
    old = [Row("tk", "plain", load, [Run("wrong", {"why": "x"})]).as_json() for load in (0, 20)]
    new = [Row("tk", "plain", 20, [Run("right")]).as_json(), Row("tk", "click", 20).as_json()]
    rows = [Row.from_json(row) for row in kept.joined(old, new)]
    assert [(row.cell, row.load, row.shown) for row in rows] == [
        ("plain", 0, "0/1"),
        ("plain", 20, "1/1"),
        ("click", 20, "–"),
    ]
