"""x.web_into_sheet: find figures on the pages of a local shop and put them into empty cells of a workbook.

The check reads the workbook that Calc saved, so the shop may be read by curl in a terminal as well.
"""

from __future__ import annotations

import random
from typing import Any

from osgym_tasks.calc import SAVE, cells, go, letter, opened, rest_kept, typed, workbook
from osgym_tasks.desk import sentence
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.goods import goods
from osgym_tasks.pieces import DONE, HOME, every, switch
from osgym_tasks.web import Served, visit

_GOODS = {1: 4, 2: 10, 3: 20, 4: 34, 5: 60}
_ROWS = {1: 3, 2: 6, 3: 10, 4: 16, 5: 24}
_EMPTY = {1: 1, 2: 2, 3: 3, 4: 3, 5: 5}
_COLUMNS = {1: 1, 2: 1, 3: 1, 4: 2, 5: 2}
_FACTS = ("Price", "Stock")
_SHELVES = ("A", "B", "C", "D")
_SHOPS = ("Market Hall", "Corner Store", "Trading Post", "Old Depot")
_FILES = ("counting", "shelves", "goods", "inventory")
_PAGE = "For the keeper"
_WORDINGS = (
    "The workbook {path} is open in Calc, and a shop in the browser behind it. Fill the empty cells of "
    '{columns} with what the shop\'s page "{page}" says of each item. Change no other cell, and save the '
    "workbook in its own format.",
    'Please complete {path}: the page "{page}" of the shop in the browser has the figures for the empty '
    "cells of {columns}. Other cells stay as they are, also where they differ from the shop. Save the file "
    "as xlsx.",
    '{path} lacks figures in {columns}. Look them up by item on the page "{page}" of the shop that is open '
    "in the browser, write them into the empty cells, and save in the same format. Leave all other cells.",
    "We are counting our goods, and the open workbook has gaps. Please fill the empty cells of {columns} "
    'with what the shop in the browser says of each item, on its page "{page}". Figures that are there '
    "already stay. Save it as the xlsx that it is.",
    'My list of goods is incomplete. Could you look up what is missing in {columns}, on the page "{page}" '
    "of the shop in the browser, and write it into the empty cells of the open table? Change no other "
    "cell, and save it in its format.",
    'For the order on Monday, I need {columns} complete. The open table has empty cells there; the page "'
    '{page}" of the shop in the browser has the figures by item. Fill them, leave the other cells alone '
    "even where they differ, and save the workbook as xlsx.",
)
_TRANSLATIONS = {
    "de": (
        "Wir zählen unsere Waren, und die offene Tabelle hat Lücken. Fülle die leeren Zellen in {columns} "
        'mit dem, was der Laden im Browser auf seiner Seite "{page}" zu jedem Artikel sagt. Alle anderen '
        "Zellen bleiben. Speichere die Datei im xlsx-Format.",
    ),
    "es": (
        "Estamos contando el género y la tabla abierta tiene huecos. Rellena las celdas vacías de "
        '{columns} con lo que dice de cada artículo la tienda del navegador en su página "{page}". Las '
        "demás celdas no cambian. Guarda el archivo en formato xlsx.",
    ),
    "zh": (
        '我们在盘点货物，打开的表格里有空缺。请用浏览器中商店的 "{page}" 页面上每种商品的数据填写{columns}'
        "中的空单元格。其他单元格保持不变。按 xlsx 格式保存文件。",
    ),
}
_COLUMN = {
    "en": ("the column {}", "the columns {}"),
    "de": ("der Spalte {}", "den Spalten {}"),
    "es": ("la columna {}", "las columnas {}"),
    "zh": (" {} 列", " {} 列"),
}
"""Words for one column and for several, by language."""


def _draft(dice: random.Random, level: int) -> Draft:
    rows = goods(dice, _GOODS[level])
    path = f"{HOME}/Documents/{dice.choice(_FILES)}.xlsx"
    facts = sorted(dice.sample(_FACTS, _COLUMNS[level]))
    on_it = dice.sample(rows, _ROWS[level])
    empty = sorted(dice.sample(range(len(on_it)), _EMPTY[level]))
    header = ["Item", "Shelf", *facts]
    grid: list[list[Any]] = [header]
    for row in on_it:
        old = [round(_figure(row, fact) + dice.choice((0, 1, 3)), 2) for fact in facts]
        grid.append([row["name"], f"{dice.choice(_SHELVES)}{dice.randrange(1, 40)}", *old])
    before = [row[:2] + [None] * len(facts) if at - 1 in empty else row for at, row in enumerate(grid)]
    wanted = [(at, [_figure(on_it[at], fact) for fact in facts]) for at in empty]
    after = [list(row) for row in before]
    for at, figures in wanted:
        after[at + 1][2:] = figures
    served = Served(dice, "shop", dice.choice(_SHOPS), {"products": rows})
    *most, last = wanted
    other = [_figure(on_it[last[0]], next(one for one in _FACTS if one != facts[0])), *last[1][1:]]
    elsewhere = ([_figure(row, fact) for fact in facts] for row in rows)
    twin = next(some for some in elsewhere if some != other and not set(some) & set(last[1]))
    near = {
        "another item's": [
            *_ways(on_it, [*most, (last[0], twin)]),
            *SAVE,
            DONE,
        ],
        "not saved": [*_ways(on_it, wanted), DONE],
        "another figure of the item": [*_ways(on_it, [*most, (last[0], other)]), *SAVE, DONE],
    }
    if most:
        del near["not saved"]
        near["one forgotten"] = [*_ways(on_it, most), *SAVE, DONE]
    columns = {
        language: words[len(facts) > 1].format(sentence(facts, language))
        for language, words in _COLUMN.items()
    }
    return Draft(
        _WORDINGS,
        {"path": path, "columns": columns["en"], "page": _PAGE},
        [*served.config(), *opened(path, workbook({"Goods": before}))],
        every(
            cells(path, {"Goods": after}, others_empty=True),
            rest_kept(path, may_change=[f"Goods!C{at + 2}:{letter(1 + len(facts))}{at + 2}" for at in empty]),
            served.check({}),
        ),
        Ways([*_ways(on_it, wanted), *SAVE, DONE], near),
        changes=(path,),
        shown=("path",),
        translations=_TRANSLATIONS,
        translated={language: {"columns": columns[language]} for language in _TRANSLATIONS},
    )


def _figure(row: dict[str, Any], fact: str) -> float:
    return float(row["cents"] / 100) if fact == "Price" else float(row["stock"])


def _ways(rows: list[dict[str, Any]], wanted: list[tuple[int, list[float]]]) -> Steps:
    """Return steps for each row: its item's page in the browser, then its cells in Calc."""
    steps: Steps = []
    for at, figures in wanted:
        number = rows[at]["id"]
        steps += [switch(), *visit(f"/keeper/{number}", f"Edit {number}"), switch()]
        for place, figure in enumerate(figures):
            steps += [go(f"{letter(2 + place)}{at + 2}"), [typed(f"{figure:g}")]]
    return steps


FAMILY = Family("x.web_into_sheet", 4, _draft, ("chromium", "libreoffice_calc"), "full")
