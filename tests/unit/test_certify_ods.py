"""Other contents of OpenDocument workbooks (ods): which values differ."""

from __future__ import annotations

import random
from typing import Any
from xml.etree.ElementTree import fromstring

from osgym_certify.ends import workbook
from osgym_certify.ends.base import Content, GoldenFile, Must
from osgym_certify.ends.ods_tables import MUTATIONS
from osgym_certify.ends.ooxml import PACKED_OTHERWISE, Package
from osgym_host.tasks.evaluator.inputs import InputFile
from osgym_osworld.metrics.tables import read_book

_SPACES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for name in ("office", "style", "text", "table")
)
_ROWS = [("Anna", 4, 10), ("Bilal", 5, 20), ("Chen", 6, 30)]
_PADDING = '<table:table-cell table:number-columns-repeated="99"/>'


def _cell(value: str | int, formula: str = "") -> str:
    said = f' table:formula="{formula}"' if formula else ""
    if isinstance(value, str):
        return (
            f'<table:table-cell office:value-type="string"{said}><text:p>{value}</text:p></table:table-cell>'
        )
    return (
        f'<table:table-cell office:value-type="float" office:value="{value}"{said}>'
        f"<text:p>{value}</text:p></table:table-cell>"
    )


def sample(*, is_golden: bool) -> bytes:
    """A workbook of two sheets; the golden one has products, and another name."""
    rows = ["".join(map(_cell, ("Name", "Units", "Price")))]
    for number, (name, units, price) in enumerate(_ROWS, 2):
        made = [_cell("Berta" if is_golden and name == "Bilal" else name), _cell(units), _cell(price)]
        if is_golden:
            made.append(_cell(units * price, f"of:=[.B{number}]*[.C{number}]"))
        rows.append("".join(made))
    data = "".join(f"<table:table-row>{row}{_PADDING}</table:table-row>" for row in rows)
    content = (
        f"<office:document-content {_SPACES}><office:body><office:spreadsheet>"
        f'<table:table table:name="Data">{data}<table:table-row table:number-rows-repeated="9">{_PADDING}'
        '</table:table-row></table:table><table:table table:name="More"><table:table-row>'
        f"{_cell('x')}</table:table-row></table:table>"
        "</office:spreadsheet></office:body></office:document-content>"
    )
    kind = b"application/vnd.oasis.opendocument.spreadsheet"
    return Package({"mimetype": kind, "content.xml": content.encode(), "settings.xml": b"<none/>"}).data()


GOLDEN = GoldenFile("/home/user/book.ods", sample(is_golden=True), sample(is_golden=False))


def made(function: Any, seed: int = 0) -> list[Content]:
    return list(function(GOLDEN, random.Random(seed)))


def by_name(name: str, seed: int = 0) -> list[bytes]:
    return [one.data for one in made(workbook.mutations, seed) if one.name == name]


def values(data: bytes) -> dict[str, dict[tuple[int, int], Any]]:
    return dict(read_book(InputFile(-1, "book.ods", "result", data)))


def formulas(data: bytes) -> int:
    name = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}formula"
    return sum(
        one.get(name) is not None for one in fromstring(Package.read(data).parts["content.xml"]).iter()
    )


def test_each_mutation_changes_values_sheets_or_formulas() -> None:
    """All of them can be made; a hidden sheet has its values."""
    contents = [one for seed in range(2) for one in made(workbook.mutations, seed)]
    assert {one.name for one in contents} == {*MUTATIONS, "one changed cell put back"}
    golden = values(GOLDEN.data)
    for content in contents:
        assert content.must is Must.EARN_NOTHING
        found = values(content.data)
        is_same = list(found.items()) == list(golden.items())
        assert is_same == (content.name in {"formula replaced by its value", "one sheet hidden"}), (
            content.name
        )
    assert formulas(by_name("formula replaced by its value")[0]) == 2
    assert b'display="false"' in Package.read(by_name("one sheet hidden")[0]).parts["content.xml"]


def test_changed_cells_are_put_back() -> None:
    """A name and three products, one in each content."""
    golden = values(GOLDEN.data)["Data"]
    changed = []
    for content in by_name("one changed cell put back"):
        found = values(content)["Data"]
        ((place, value),) = [(at, found.get(at)) for at in golden if found.get(at) != golden[at]]
        changed.append((place, value))
    assert sorted(changed, key=str) == [((2, 4), None), ((3, 1), "Bilal"), ((3, 4), None), ((4, 4), None)]


def test_rows_are_moved_whole() -> None:
    """Removed, doubled, swapped; the header stays."""

    def names(data: bytes) -> list[Any]:
        return [value for (_, column), value in sorted(values(data)["Data"].items()) if column == 1]

    golden = names(GOLDEN.data)
    removed, doubled, swapped = (
        names(by_name(name)[0]) for name in ("one row removed", "one row doubled", "two rows swapped")
    )
    assert len(removed) == 3 and [name for name in golden if name in removed] == removed
    assert len(doubled) == 5 and list(dict.fromkeys(doubled)) == golden
    assert swapped != golden and sorted(swapped) == sorted(golden) and swapped[0] == "Name"


def test_equivalents_have_the_same_values() -> None:
    """Another packing, and a style that no cell has; there is no picture or setting to change."""
    contents = {one.name: one.data for one in made(workbook.equivalents)}
    assert {*contents} == {"unused style added", *PACKED_OTHERWISE} - {"author changed in the properties"}
    assert all(values(data) == values(GOLDEN.data) for data in contents.values())
