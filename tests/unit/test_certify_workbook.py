"""Other contents of workbooks: mutations differ as their names say and no more, equivalents in spelling."""

from __future__ import annotations

import io
import random
from collections import Counter
from functools import cache
from typing import Any

import openpyxl
import pytest
from openpyxl.styles import Alignment, Font
from openpyxl.worksheet.formula import ArrayFormula
from tests.support.office_goldens import golden_workbook, score, task_of

from osgym_certify.ends import workbook
from osgym_certify.ends.base import Content, GoldenFile, Must
from osgym_certify.ends.ooxml import Package
from osgym_certify.ends.workbook_equivalents import EQUIVALENTS
from osgym_certify.ends.workbook_mutations import MUTATIONS_OF_CELLS
from osgym_certify.ends.workbook_sheets import MUTATIONS_OF_SHEETS
from osgym_certify.ends.xlsx_parts import Book, CellContent

ROWS = [("Anna", 4, 10), ("Bilal", 5, 20), ("Chen", 6, 30), ("Dora", 7, 40)]
FAMILIES_OF_CALC = ["aggregate", "clean", "fill", "freeze", "lookup", "number_format", "sheets", "sort"]


def sample(*, is_golden: bool) -> bytes:
    """A workbook of three sheets; the golden one has products, their sum, formats, and a frozen row."""
    made = openpyxl.Workbook()
    data = made.worksheets[0]
    data.title = "Data"
    data.append(["Name", "Units", "Price", "Product"])
    for row in ROWS:
        data.append(list(row))
    for name, state in (("Goods", "visible"), ("Old", "hidden")):
        sheet = made.create_sheet(name)
        sheet.sheet_state = state
        sheet["A1"], sheet["A2"] = name, 3
    if is_golden:
        data.freeze_panes = "A2"
        for row in range(2, 6):
            data.cell(row, 3).number_format = "0.00E+00"
        data["F1"] = "total"
        data["F2"] = "=SUM(D2:D5)"
        data["F3"] = "=Goods!A2*2"
    out = io.BytesIO()
    made.save(out)
    package = Package.read(out.getvalue())
    book = Book(package)
    book.add_shared_strings()
    sheets = book.sheets
    for sheet in sheets:
        for place, content in sheet.filled().items():
            sheet.put(place, content)
    if is_golden:
        for number, (_, units, price) in enumerate(ROWS, 2):
            product = CellContent("number", str(units * price), f"B{number}*C{number}")
            sheets[0].put((number, 4), product)
        sheets[0].put((2, 6), CellContent("number", "600", "SUM(D2:D5)"))
        sheets[0].put((3, 6), CellContent("number", "6", "Goods!A2*2"))
    return package.data()


GOLDEN = GoldenFile("/home/user/book.xlsx", sample(is_golden=True), sample(is_golden=False))


@cache
def made(function: Any, golden: GoldenFile = GOLDEN, seed: int = 0) -> tuple[Content, ...]:
    return tuple(function(golden, random.Random(seed)))


@cache
def facts(data: bytes) -> dict[tuple[str, ...], Any]:
    """What openpyxl reads of a workbook; the kind of a fact is the first part of its key."""
    found: dict[tuple[str, ...], Any] = {}
    books = (openpyxl.load_workbook(io.BytesIO(data), data_only=only) for only in (False, True))
    for kind, book in zip(("formula", "value"), books, strict=True):
        found["sheets",] = book.sheetnames
        for sheet in book:
            found["state", sheet.title] = sheet.sheet_state
            found["frozen", sheet.title] = sheet.freeze_panes
            found["merged", sheet.title] = [str(one) for one in sheet.merged_cells.ranges]
            found["hidden row", sheet.title] = [k for k, one in sheet.row_dimensions.items() if one.hidden]
            found["hidden column", sheet.title] = [
                k for k, one in sheet.column_dimensions.items() if one.hidden
            ]
            for cell in (cell for row in sheet.iter_rows() for cell in row if cell.value is not None):
                key = sheet.title, cell.coordinate
                text = cell.value.text if isinstance(cell.value, ArrayFormula) else cell.value
                found[kind, *key] = text, type(text)
                found["bold", *key] = bool(cell.font.b)
                found["italic", *key] = bool(cell.font.i)
                found["size", *key] = cell.font.sz
                found["colour", *key] = cell.font.color.rgb if cell.font.color else None
                found["alignment", *key] = cell.alignment.horizontal
                found["number format", *key] = cell.number_format
                found["comment", *key] = cell.comment.text if cell.comment else None
    return found


def differences(data: bytes, other: bytes) -> Counter[str]:
    """The number of facts of each kind that differ, of cells that both have a content or one has."""
    a, b = facts(data), facts(other)
    kept = {key[1:] for key in a if key[0] == "formula"} & {key[1:] for key in b if key[0] == "formula"}
    cells = {key for key in {*a, *b} if len(key) < 3 or key[0] in {"formula", "value"} or key[1:] in kept}
    return Counter(key[0] for key in cells if a.get(key) != b.get(key))


CELLS = 27
"""Number of filled cells of the sample."""
SHEET_ADDED = {"sheets": 1, "state": 1, "merged": 1, "hidden row": 1, "hidden column": 1}
DIFFERENCES: dict[str, dict[str, int] | None] = {
    "formula replaced by its value": {"formula": 1},
    "formula replaced by a sum of its result": {"formula": 1},
    "formula replaced by its result plus zero times a cell": {"formula": 1},
    "all formulas replaced by their values": {"formula": 6},
    "number stored as text": {"formula": 1, "value": 1},
    "another value in a changed cell": {"formula": 1, "value": 1},
    "another value in an unchanged cell": {"formula": 1, "value": 1},
    "one row removed": None,
    "one row doubled": None,
    "two rows swapped": None,
    "header emptied": {"formula": 5, "value": 5},
    "all cells emptied": {"formula": CELLS, "value": CELLS},
    "cell outside the table filled": {"formula": 1, "value": 1},
    "all cells bold": {"bold": CELLS},
    "all cells in white text": {"colour": CELLS},
    "all cells in 4 pt": {"size": CELLS},
    "all cells centred": {"alignment": CELLS},
    "one number format changed": {"number format": 1},
    "sheet added": SHEET_ADDED,
    "one sheet removed": None,
    "only the first sheet kept": None,
    "one sheet renamed": None,
    "one sheet hidden": {"state": 1},
    "hidden sheet shown": {"state": 1},
    "first sheet moved to the end": {"sheets": 1},
    "one column hidden": {"hidden column": 1},
    "one row hidden": {"hidden row": 1},
    "frozen rows released": {"frozen": 1},
    "last cell merged": {"merged": 1},
    "comment added": {"comment": 1},
}
"""Kinds of facts that differ, and how many; None for what a test of its own compares."""
NOT_HERE = {"first row frozen"}
"""Mutations that the sample does not allow, since it has frozen rows."""


def test_each_mutation_differs_in_what_it_says() -> None:
    """And in nothing else, for whatever is drawn; the workbook opens."""
    names = {*MUTATIONS_OF_CELLS, *MUTATIONS_OF_SHEETS}
    assert names == {*DIFFERENCES, *NOT_HERE}
    for seed in range(2):
        contents = made(workbook.mutations, seed=seed)
        assert names - {one.name for one in contents} == NOT_HERE
        for content in contents:
            assert content.must is Must.EARN_NOTHING
            wanted = DIFFERENCES.get(content.name)
            if wanted is not None:
                assert differences(content.data, GOLDEN.data) == wanted, content.name


def grid(data: bytes, sheet: str = "Data") -> list[list[Any]]:
    """The formulas and values of a sheet."""
    return [list(row) for row in openpyxl.load_workbook(io.BytesIO(data))[sheet].iter_rows(values_only=True)]


def by_name(name: str, golden: GoldenFile = GOLDEN, seed: int = 0) -> list[bytes]:
    return [one.data for one in made(workbook.mutations, golden, seed) if one.name == name]


def test_changed_cells_are_put_back() -> None:
    """One in each content; of seven changed cells six are drawn."""
    before, after = grid(GOLDEN.before or b""), grid(GOLDEN.data)
    contents = by_name("one changed cell put back")
    assert len({*contents}) == 6
    for content in contents:
        changed = [
            (row, column)
            for row, cells in enumerate(grid(content))
            for column, value in enumerate(cells)
            if value != after[row][column]
        ]
        ((row, column),) = changed
        was = before[row][column] if column < len(before[row]) else None
        assert grid(content)[row][column] == was


def test_rows_move_with_their_formulas() -> None:
    """Formulas over their own row are over the row that they come to."""
    table = [row[:4] for row in grid(GOLDEN.data)]
    body = [row[:3] for row in table[1:]]

    def rows(name: str, seed: int) -> list[list[Any]]:
        (content,) = by_name(name, seed=seed)
        found = [row[:4] for row in grid(content)]
        assert found[0] == table[0]
        for number, row in enumerate(found[1:], 2):
            assert row[3] in (None, f"=B{number}*C{number}")
        return [row[:3] for row in found[1:] if row[0] is not None]

    for seed in range(3):
        removed, doubled, swapped = (
            rows(name, seed) for name in ("one row removed", "one row doubled", "two rows swapped")
        )
        assert len(removed) == 3 and [row for row in body if row in removed] == removed
        assert len(doubled) == 5 and [row for row, after in zip(doubled, [*doubled[1:], []], strict=True)
                                      if row != after] == body  # fmt: skip
        assert swapped != body and sorted(swapped) == sorted(body)


def test_sheets_are_removed_and_renamed() -> None:
    """Formulas follow a new name."""
    assert facts(by_name("only the first sheet kept")[0])["sheets",] == ["Data"]
    gone = {tuple(facts(by_name("one sheet removed", seed=seed)[0])["sheets",]) for seed in range(6)}
    assert len(gone) > 1 and all(len(names) == 2 for names in gone)
    for seed in range(6):
        (renamed,) = by_name("one sheet renamed", seed=seed)
        names = openpyxl.load_workbook(io.BytesIO(renamed)).sheetnames
        assert len({*names} - {"Data", "Goods", "Old"}) == 1
        formula = grid(renamed, names[0])[2][5]
        assert formula == ("=Goods!A2*2" if "Goods" in names else "='Goods 2'!A2*2")


def test_a_format_of_the_oracle_is_put_back() -> None:
    """Before another one is chosen."""
    (content,) = by_name("one number format changed")
    book = openpyxl.load_workbook(io.BytesIO(content))
    assert [book["Data"].cell(row, 3).number_format for row in range(2, 6)].count("General") == 1


ONLY_OF_PLAIN = {"saved by openpyxl", "texts stored in the shared table", "other cell selected"}
"""Equivalents that the sample does not allow: it has formulas, shared strings and frozen rows."""
FORMULAS = {
    "areas of aggregates listed": "=SUM(D2,D3,D4,D5)",
    "sums as chains of additions": "=D2+D3+D4+D5",
    "formulas in lower case": "=sum(d2:d5)",
    "formulas with absolute references": "=SUM($D$2:$D$5)",
    "formulas in brackets": "=(SUM(D2:D5))",
}


def test_equivalents_have_the_same_values_and_formats() -> None:
    """Formulas may be spelled otherwise, and number formats as LibreOffice does."""
    contents = {one.name: one for one in made(workbook.equivalents)}
    assert {*EQUIVALENTS} - {*contents} == ONLY_OF_PLAIN
    assert all(one.must is Must.EARN_ALL for one in contents.values())
    for name, content in contents.items():
        found = differences(content.data, GOLDEN.data)
        may_differ = (
            "formula"
            if name in {*FORMULAS, "formulas with spaces", "column as one array formula"}
            else ("number format" if name == "number formats spelled otherwise" else "")
        )
        assert {*found} == {may_differ} - {""}, name
    for name, formula in FORMULAS.items():
        assert grid(contents[name].data)[1][5] == formula
    assert grid(contents["formulas with spaces"].data)[1][3] == "=B2 * C2"
    array = openpyxl.load_workbook(io.BytesIO(contents["column as one array formula"].data))["Data"][
        "D2"
    ].value
    assert (array.ref, array.text) == ("D2:D5", "=B2:B5*C2:C5")


def test_openpyxl_saves_what_it_keeps() -> None:
    """A workbook without formulas; none with a chart. Its texts are in its cells."""
    plain = openpyxl.Workbook()
    plain.worksheets[0].append(["a", 1])
    plain.worksheets[0]["A1"].font, plain.worksheets[0]["B1"].alignment = Font(b=True), Alignment("center")
    data = io.BytesIO()
    plain.save(data)

    def names(content: bytes) -> set[str]:
        return {one.name for one in made(workbook.equivalents, GoldenFile("/a.xlsx", content))}

    plain_contents = made(workbook.equivalents, GoldenFile("/a.xlsx", data.getvalue()))
    assert {one.name for one in plain_contents} >= ONLY_OF_PLAIN
    assert all(not differences(one.data, data.getvalue()) for one in plain_contents)
    with_chart = Package.read(data.getvalue())
    with_chart.put("xl/charts/chart1.xml", b"<chart/>")
    assert "saved by openpyxl" not in names(with_chart.data())


def test_draws_depend_on_the_seed_alone() -> None:
    """The same seed gives the same contents, another one others."""
    anew = made.__wrapped__  # past the cache
    first, again, other = (anew(workbook.mutations, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert 20 <= len(first) <= 40


def test_a_new_file_has_contents_too() -> None:
    """Without a file before, places are drawn from all."""
    contents = made(workbook.mutations, GoldenFile(GOLDEN.path, GOLDEN.data))
    assert len(contents) > 20
    assert "one changed cell put back" not in {one.name for one in contents}


@pytest.mark.parametrize("data", [b"", b"text", b"PK\x03\x04", Package({"a.txt": b"a"}).data()])
def test_what_is_no_workbook_has_no_contents(data: bytes) -> None:
    """Nor a workbook whose XML is damaged."""
    for function in (workbook.mutations, workbook.equivalents):
        assert made(function, GoldenFile("/a.xlsx", data)) == ()
    damaged = Package.read(GOLDEN.data)
    damaged.put("xl/workbook.xml", b"<workbook>")
    assert made(workbook.mutations, GoldenFile("/a.xlsx", damaged.data())) == ()


@pytest.mark.parametrize("family", FAMILIES_OF_CALC)
def test_the_families_checks_agree(family: str) -> None:
    """They pay nothing for any mutation of their golden workbooks, and all for equivalents."""
    task = task_of(f"calc.{family}")
    golden = golden_workbook(task)
    before = golden.before or b""
    assert set(score(task, golden.data, before).values()) == {1.0}
    for content in made(workbook.mutations, golden):
        assert min(score(task, content.data, before).values()) == 0.0, content.name
    for content in made(workbook.equivalents, golden):
        scores = score(task, content.data, before)
        assert set(scores.values()) == {1.0}, (content.name, scores)
