"""calc.sort: sort tables by up to three columns; their headings and a note below each stay where they are."""

from __future__ import annotations

import random

from osgym_tasks.calc import (
    APPS,
    SAVE,
    Grid,
    Table,
    cells,
    draw_table,
    go,
    opened,
    pause,
    press,
    put,
    rest_kept,
    workbook,
)
from osgym_tasks.desk import sentence
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key

_ROWS = {1: 8, 2: 15, 3: 30, 4: 60, 5: 80}
_KEYS = {1: 1, 2: 1, 3: 2, 4: 3, 5: 3}
_SHEETS = {1: ("List",), 2: ("List",), 3: ("List",), 4: ("List",), 5: ("List", "Waiting")}
_NOTES = ("Checked twice", "Draft of Monday", "Ask before changing", "From the old list", "Counted by hand")
_WORDINGS = (
    "Sort the rows of the table in the workbook {path}, which is open in Calc, {keys}. The heading of a "
    "table stays on top and what stands in {notes} where it is; save the file in its own format.",
    "In the open workbook {path}, put the rows of the table in order: {keys}. Keep the heading in row 1 "
    "and the note in {notes}, and save the file as xlsx.",
    "{path} is open in Calc. Order its rows {keys}; a heading remains the first row, and what is in "
    "{notes} does not move. Save under the same name and in the same format.",
    "The list that you see is a mess, and I have to read it out to others. Could you sort it {keys}? The "
    "heading and the note below stay where they are. Then save it as the xlsx file that it is.",
    "I can never find anybody in this spreadsheet. Please sort the rows {keys}. Leave out the heading and "
    "the note below, which keep their places. Save when you are done, and keep the format.",
    "For the printout I need the open workbook sorted {keys}. Heading and note stay in their places, only "
    "the rows of the table change theirs. Save it under its name, in the format that it has.",
)
_TRANSLATIONS = {
    "de": (
        "Die Liste, die du siehst, ist durcheinander. Sortiere sie bitte {keys}. Die Überschrift bleibt "
        "oben, und die Notiz unter der Tabelle bleibt, wo sie ist. Speichere die Datei dann im "
        "xlsx-Format, das sie hat.",
    ),
    "es": (
        "La lista que ves está desordenada. Ordena sus filas {keys}. El encabezado se queda arriba y la "
        "nota debajo de la tabla no se mueve. Guarda después el archivo en el formato xlsx que ya tiene.",
    ),
    "zh": (
        "你看到的表很乱，请把各行排序：{keys}。标题行留在最上面，表格下面的备注保持在原处。然后按原来的 "
        "xlsx 格式保存。",
    ),
}
_SAID = {
    "en": ("by {0} in descending order", "by {0} in ascending order", "on the sheet {1} {0}", ", then "),
    "de": ("absteigend nach {0}", "aufsteigend nach {0}", "auf dem Blatt {1} {0}", ", dann "),
    "es": ("por {0} de mayor a menor", "por {0} de menor a mayor", "en la hoja {1} {0}", ", luego "),
    "zh": ("按 {0} 降序", "按 {0} 升序", "工作表 {1} {0}", "，再"),
}
"""Words for a falling and a rising key, for a part on a sheet, and between keys, by language."""
Key = tuple[str, bool]
"""Heading of a column, and whether the values fall."""


def _draft(dice: random.Random, level: int) -> Draft:
    sheets = _SHEETS[level]
    drawn = [_drawn(dice, level) for _ in sheets]
    path = drawn[0][0].path
    tables = dict(zip(sheets, drawn, strict=True))
    notes = {name: f"A{table.last + dice.randint(2, 5)}" for name, (table, _) in tables.items()}
    extra = {name: {cell: dice.choice(_NOTES)} for name, cell in notes.items()}
    *others, last = tables
    begin = [step for name in others for step in _ways(name, *tables[name])]
    table, keys = tables[last]
    heading, is_falling = keys[-1]
    turned = [*keys[:-1], (heading, not is_falling)]
    near = {"the other way round": [*begin, *_ways(last, table, turned), *SAVE, DONE]}
    if level < 3:
        near["not saved"] = [*_ways(last, table, keys), DONE]
    if len(keys) > 1:
        near["only by the last column"] = [*begin, *_ways(last, table, keys[-1:]), *SAVE, DONE]
    if begin:
        near["one sheet forgotten"] = [*begin, *SAVE, DONE]
    before = {name: put(one.grid, extra[name]) for name, (one, _) in tables.items()}
    after = {
        name: put([one.header, *_sorted(one, some)], extra[name]) for name, (one, some) in tables.items()
    }

    def named(language: str) -> dict[str, str]:
        falling, rising, on, then = _SAID[language]
        orders = {
            name: then.join((falling if falls else rising).format(title) for title, falls in some)
            for name, (_, some) in tables.items()
        }
        if not others:
            return {"keys": orders[last], "notes": notes[last]}
        return {
            "keys": sentence((on.format(one, name) for name, one in orders.items()), language),
            "notes": sentence((f"{name}.{cell}" for name, cell in notes.items()), language),
        }

    return Draft(
        _WORDINGS,
        {**named("en"), "path": path},
        opened(path, workbook(before)),
        every(
            cells(path, after, others_empty=True),
            rest_kept(path),
        ),
        Ways([*begin, *_ways(last, table, keys), *SAVE, DONE], near),
        changes=[path],
        shown=("path", "notes"),
        translations=_TRANSLATIONS,
        translated={language: named(language) for language in _TRANSLATIONS},
    )


def _drawn(dice: random.Random, level: int) -> tuple[Table, list[Key]]:
    """Draw a table and its keys, which leave no two rows equal; each key but the last leaves some."""
    while True:
        table = draw_table(dice, _ROWS[level])
        last = dice.choice([table.header[0], *table.numbers] if level > 1 else table.numbers)
        columns = [*dice.sample(table.header[1:3], _KEYS[level] - 1), last]
        keys = [(heading, dice.random() < 0.5) for heading in columns]
        places = [table.header.index(heading) for heading in columns]
        if len({tuple(row[place] for place in places) for row in table.rows}) == len(table.rows) and all(
            _sorted(table, wrong) != _sorted(table, keys) for wrong in (keys[-1:], keys[:0]) if wrong != keys
        ):
            return table, keys


def _sorted(table: Table, keys: list[Key]) -> Grid:
    rows = table.rows
    for heading, is_falling in reversed(keys):
        place = table.header.index(heading)
        rows = sorted(rows, key=lambda row: row[place], reverse=is_falling)
    return rows


def _ways(sheet: str, table: Table, keys: list[Key]) -> Steps:
    """Return steps that sort by one column at a time, the first key last: equal rows keep their order."""
    steps: Steps = []
    for heading, is_falling in reversed(keys):
        column, below = table.letter(heading), 2 if is_falling else 1
        start = go(f"${sheet}.{column}2")
        steps += [start, [key("alt", "d"), pause()], [press("down", below), key("enter"), pause()]]
    return steps


FAMILY = Family("calc.sort", 4, _draft, APPS, "full")
