"""calc.clean: delete the rows of a table that repeat an earlier one, among rows that nearly do."""

from __future__ import annotations

import random

from osgym_tasks.calc import (
    APPS,
    SAVE,
    Grid,
    cells,
    draw_table,
    go,
    opened,
    pause,
    rest_kept,
    workbook,
)
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key

_ROWS = {1: 8, 2: 14, 3: 26, 4: 45, 5: 80}
_TWICE = {1: 1, 2: 2, 3: 4, 4: 7, 5: 12}
_WORDINGS = (
    "Some rows of the table that is open in Calc are there more than once. Delete every row that is equal "
    "in all columns to one above it, close the gaps, keep the order of the others, and save {path} in its "
    "own format.",
    "Please remove the duplicates from {path}: each row that repeats an earlier row in every column goes, "
    "without leaving empty rows. The first ones stay in their order. Save the file as xlsx.",
    "{path} is open in Calc. Keep only the first of rows that are the same in all columns; the remaining "
    "rows move up and keep their order. Save under the same name and format.",
    "Someone pasted part of this table a second time. Please take out every row that is in all columns the "
    "same as one above it, without leaving gaps, and keep the others in their order. Save the workbook as "
    "the xlsx that it is.",
    "We are about to send letters to these people, and nobody should get two. Delete each row of the open "
    "table that repeats an earlier row in every column; rows that differ anywhere stay, in the same order "
    "and without empty rows between. Then save it in its format.",
    "My list has grown over the years and holds some rows twice. Could you keep only the first of those "
    "that agree in every column, let the rest move up in their order, and save the open file? The format "
    "stays xlsx.",
)
_TRANSLATIONS = {
    "de": (
        "In der offenen Tabelle stehen manche Zeilen doppelt. Lösche jede Zeile, die in allen Spalten "
        "einer weiter oben gleicht, ohne Lücken zu lassen. Die übrigen behalten ihre Reihenfolge. "
        "Speichere die Datei in ihrem Format, xlsx.",
    ),
    "es": (
        "En la tabla abierta hay filas repetidas. Borra cada fila que coincida en todas las columnas con "
        "otra de más arriba, sin dejar huecos. Las demás conservan su orden. Guarda el archivo en su "
        "formato, xlsx.",
    ),
    "zh": (
        "打开的表格里有些行重复了。请删除每一行在所有列上都与上面某一行相同的行，不要留空行，其余各行保持原"
        "来的顺序。然后按原来的 xlsx 格式保存文件。",
    ),
}


def _draft(dice: random.Random, level: int) -> Draft:
    table = draw_table(dice, _ROWS[level])
    rows: Grid = [*table.rows]
    for row in dice.sample(table.rows[:-2], _TWICE[level]):
        rows.insert(rows.index(row) + dice.randint(2, 6), row)  # never right below
        almost = [*row[:5], row[5] + dice.choice((-1, 1))]
        rows.insert(dice.randrange(len(rows)), almost)
    kept = [row for place, row in enumerate(rows) if row not in rows[:place]]
    repeated = [place + 2 for place, row in enumerate(rows) if row in rows[:place]]
    alike = [place + 2 for place, row in enumerate(rows) if row[0] in [one[0] for one in rows[:place]]]
    firsts = [rows.index(rows[number - 2]) + 2 for number in repeated]
    before, after = [table.header, *rows], [table.header, *kept]
    near = {
        "rows that differ in one column too": [*_delete(alike), *SAVE, DONE],
        "the first ones instead": [*_delete(firsts), *SAVE, DONE],
    }
    if level < 3:
        near["not saved"] = [*_delete(repeated), DONE]
    if len(repeated) > 1:
        near["one forgotten"] = [*_delete(repeated[1:]), *SAVE, DONE]
    return Draft(
        _WORDINGS,
        {"path": table.path},
        opened(table.path, workbook({"Table": before})),
        every(
            cells(table.path, {"Table": after}, others_empty=True),
            rest_kept(table.path),
        ),
        Ways([*_delete(repeated), *SAVE, DONE], near),
        changes=[table.path],
        shown=("path",),
        translations=_TRANSLATIONS,
    )


def _delete(numbers: list[int]) -> Steps:
    """Return steps that delete rows by number, from below, so that the others keep theirs."""
    return [[*go(f"{row}:{row}"), key("ctrl", "minus"), pause()] for row in sorted(numbers, reverse=True)]


FAMILY = Family("calc.clean", 4, _draft, APPS, "full")
