"""Parts that tasks of LibreOffice Calc share: initial tables, keys, and checks of the saved workbook."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from osgym_tasks.family import Steps
from osgym_tasks.office import UNTIL_IDLE, document_bytes
from osgym_tasks.pieces import HOME, Kept, execute, keep_file, key, launch, upload, vm_file

Grid = list[list[Any]]
Check = tuple[str, dict[str, Any], dict[str, Any] | Kept]
APPS = ("libreoffice_calc",)

_FIRST = (
    "Anna", "Bilal", "Chen", "Dora", "Emeka", "Fatima", "Goran", "Hana", "Ivan", "Jane", "Kofi", "Lena",
    "Marta", "Nils", "Olga", "Pedro", "Quinn", "Rosa", "Sami", "Tara", "Uma", "Vera", "Wanda", "Yusuf",
)  # fmt: skip
_LAST = ("Berg", "Costa", "Diaz", "Engel", "Fuchs", "Garcia", "Hansen", "Ito", "Khan", "Lopez", "Moreau",
         "Novak", "Okoro", "Petrov", "Rossi", "Silva", "Tanaka", "Weber")  # fmt: skip
PEOPLE = tuple(f"{first} {last}" for first in _FIRST for last in _LAST)
CITIES = ("Athens", "Berlin", "Cairo", "Dublin", "Geneva", "Havana", "Lima", "Madrid", "Nairobi", "Oslo",
          "Paris", "Quito", "Rome", "Seoul", "Tokyo", "Vienna", "Warsaw")  # fmt: skip
GOODS = ("apples", "bread", "candles", "desks", "envelopes", "flour", "glue", "hammers", "ink", "jackets",
         "kettles", "lamps", "mirrors", "nails", "olives", "paper", "rice", "shoes", "tea")  # fmt: skip
_MEANS = ("bus", "car", "ferry", "plane", "tram", "train")
_TEAMS = ("Design", "Finance", "Kitchen", "Legal", "Repairs", "Sales", "Transport")
_SUBJECTS = ("art", "biology", "chemistry", "drama", "history", "music", "physics")
_THEMES: dict[str, tuple[tuple[tuple[str, tuple[str, ...]], ...], tuple[str, ...]]] = {
    "orders": ((("Customer", PEOPLE), ("City", CITIES), ("Item", GOODS)), ("Units", "Price", "Postage")),
    "trips": ((("Traveller", PEOPLE), ("City", CITIES), ("Means", _MEANS)), ("Nights", "Fare", "Budget")),
    "staff": ((("Person", PEOPLE), ("Team", _TEAMS), ("Site", CITIES)), ("Hours", "Bonus", "Salary")),
    "lessons": ((("Pupil", PEOPLE), ("Subject", _SUBJECTS), ("Town", CITIES)), ("Points", "Pages", "Words")),
    "repairs": ((("Owner", PEOPLE), ("Item", GOODS), ("Town", CITIES)), ("Parts", "Cost", "Value")),
}
"""Columns of text and of numbers, by the name of the file."""
_BEFORE = "workbook"
"""Name of the kept workbook."""
_RANGES = ((2, 99), (100, 999), (1000, 9999))
"""Ranges of the columns of numbers; no two columns have a value in common."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below a heading: a column of persons, all different, two of words, three of numbers.

    Attributes:
        name: Subject of the table, valid as a file name.
    """

    name: str
    header: list[str]
    rows: Grid

    @property
    def path(self) -> str:
        """Path of its workbook."""
        return f"{HOME}/Documents/{self.name}.xlsx"

    @property
    def grid(self) -> Grid:
        """Heading and rows."""
        return [self.header, *self.rows]

    @property
    def last(self) -> int:
        """Number of the last row on its sheet."""
        return len(self.rows) + 1

    @property
    def numbers(self) -> list[str]:
        """Headings of the columns of numbers."""
        return self.header[3:]

    def letter(self, heading: str) -> str:
        """Return the letter of a heading's column."""
        return letter(self.header.index(heading))

    def area(self, heading: str) -> str:
        """Return the cells below a heading, as a reference."""
        return f"{self.letter(heading)}2:{self.letter(heading)}{self.last}"

    def column(self, heading: str) -> list[Any]:
        place = self.header.index(heading)
        return [row[place] for row in self.rows]

    def without(self, heading: str) -> Table:
        """Return the table without a column."""
        place = self.header.index(heading)
        header, *rows = ([*row[:place], *row[place + 1 :]] for row in self.grid)
        return Table(self.name, header, rows)


def letter(place: int) -> str:
    """Return the letter of one of the first 26 columns, counted from 0."""
    return chr(ord("A") + place)


def draw_table(dice: random.Random, count: int, *, theme: str = "", words: int = 4) -> Table:
    """Draw a table.

    Args:
        count: Number of rows.
        theme: Theme of the table; empty: drawn.
        words: Largest number of different values in a column of words.
    """
    name = theme or dice.choice(sorted(_THEMES))
    texts, numbers = _THEMES[name]
    people = dice.sample(texts[0][1], count)
    choices = [dice.sample(values, min(words, len(values))) for _, values in texts[1:]]
    # Each word is there from the beginning on, whatever is drawn.
    cells = [[*some, *(dice.choice(some) for _ in range(count))][:count] for some in choices]
    for column in cells:
        dice.shuffle(column)
    amounts = [[dice.randint(low, high) for _ in range(count)] for low, high in _RANGES]
    rows = [list(row) for row in zip(people, *cells, *amounts, strict=True)]
    return Table(name, [*(title for title, _ in texts), *numbers], rows)


def workbook(sheets: Mapping[str, Sequence[Sequence[Any]]]) -> bytes:
    """Return a workbook of sheets with these rows, as xlsx."""
    import openpyxl

    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(list(row))
    return document_bytes(book)


def opened(path: str, data: bytes) -> list[dict[str, Any]]:
    """Return the set-up of a document that is kept for `rest_kept`, open in Calc, and ready."""
    begun, shown = launch(path.rpartition("/")[2], "libreoffice", "--calc", path)
    shown["parameters"]["max_wait_time"] = 120  # seconds; a busy machine takes more than the usual 30
    kept = keep_file(path, _BEFORE)
    return [upload({path: data}), kept, begun, shown, execute("bash", "-c", UNTIL_IDLE)]


def typed(text: str) -> dict[str, Any]:
    return {"op": "type", "text": text, "press_enter": True}


def pause(duration_ms: int = 400) -> dict[str, Any]:
    """Wait for Calc: keys that come while a window opens or the focus moves are lost on a busy machine."""
    return {"op": "wait", "duration_ms": duration_ms}


def press(name: str, times: int) -> dict[str, Any]:
    return {"op": "key", "keys": [name], "repeat": times}


def go(reference: str) -> list[dict[str, Any]]:
    """Select cells by the Name Box."""
    return [key("ctrl", "shift", "t"), pause(), typed(reference), pause()]


SAVE: Steps = [[key("ctrl", "s"), pause(800)], [key("enter"), pause()]]
"""Save, and keep the format of Excel when it is asked for."""


def cells(path: str, sheets: Mapping[str, Sequence[Sequence[Any]]], *, others_empty: bool = False) -> Check:
    """Check the values of all cells of these sheets' rows; and that all other cells are empty."""
    wanted = {
        f"{name}!{letter(across)}{down}": value
        for name, rows in sheets.items()
        for down, row in enumerate(rows, 1)
        for across, value in enumerate(row)
    }
    rules = {"cells": wanted, **({"others_empty": True} if others_empty else {})}
    return "check_xlsx_cells", vm_file(path), rules


def styled(evaluator: dict[str, Any], path: str, rules: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add rules for the style of single cells to an evaluator with `compare_table`."""
    return {
        "func": [*evaluator["func"], "compare_table"],
        "conj": "and",
        "result": [*evaluator["result"], vm_file(path)],
        "expected": [*evaluator["expected"], None],
        "options": [*evaluator.get("options", [{} for _ in evaluator["func"]]), {"rules": list(rules)}],
    }


def xml_parts(path: str, *parts: dict[str, Any]) -> Check:
    """Check elements in the XML parts of a workbook."""
    return "check_xml_parts", vm_file(path), {"parts": list(parts)}


def sheet_part(number: int, path: str, **wanted: Any) -> dict[str, Any]:
    """Return the rule for `xml_parts` about what a path finds on a sheet, counted from 1."""
    return {"part": f"xl/worksheets/sheet{number}.xml", "path": path, **wanted}


def formulas(path: str, cells: Mapping[str, str]) -> Check:
    """Check that cells or areas (``Data!H2:H9``) have formulas that compute the same for any numbers.

    The formula of an area is that of its first cell.
    """
    return "check_formulas", vm_file(path), {"cells": dict(cells)}


def rest_kept(path: str, **options: Any) -> Check:
    """Check that the workbook looks as `opened` kept it; options are those of `check_workbook_kept`."""
    return "check_workbook_kept", vm_file(path), Kept(_BEFORE, options)


def put(grid: Sequence[Sequence[Any]], values: Mapping[str, Any]) -> Grid:
    """Return the rows with the values of these references (``H2``), as far as the rows reach."""
    places = {(int(ref[1:]) - 1, ord(ref[0]) - ord("A")): value for ref, value in values.items()}
    height = max(len(grid), *(down + 1 for down, _ in places))
    made = [list(row) for row in grid] + [[] for _ in range(height - len(grid))]
    for (down, across), value in places.items():
        made[down] += [None] * (across + 1 - len(made[down]))
        made[down][across] = value
    return made


def listed(items: Sequence[str]) -> str:
    """Return a list as a part of a sentence."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
