"""calc.lookup: fill columns of one sheet with the values that another sheet has for each row's item."""

from __future__ import annotations

import random

from osgym_tasks.calc import (
    APPS,
    GOODS,
    PEOPLE,
    SAVE,
    Check,
    Grid,
    cells,
    filled,
    formulas,
    go,
    letter,
    listed,
    opened,
    pause,
    rest_kept,
    typed,
    workbook,
    xml_parts,
)
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, HOME, every, key

_ROWS = {1: 6, 2: 12, 3: 25, 4: 45, 5: 80}
_ITEMS = {1: 5, 2: 8, 3: 12, 4: 19, 5: 19}
_COLUMNS = {1: 1, 2: 1, 3: 1, 4: 2, 5: 2}
_FACTS = ("Price", "Weight", "Shelf", "Stock")
_FILES = ("orders", "requests", "deliveries", "sales")
_WORDINGS = (
    "In the workbook that is open in Calc, fill {jobs} of the sheet {first}: each row gets what the sheet "
    "{second} says of its item, {how}. Leave the rest and save {path} in its own format.",
    "Please look up the items of the sheet {first} on the sheet {second} and fill {jobs} for every row, "
    "{how}. Nothing else changes; save {path} as xlsx.",
    "{path} is open in Calc. For every row of the sheet {first}, fill {jobs} from the row of the same item "
    "on the sheet {second}, {how}. Keep all else, and save the file in its format.",
    "The sheet {first} of {path} lacks values. Take them by item from the sheet {second} and fill {jobs} in "
    "every row, {how}. Save under the same name and format, with other cells unchanged.",
    "On the sheet {first} of the open spreadsheet, fill {jobs}, {how}: the values stand beside the same item "
    "on the sheet {second}. Do not change other cells. Save {path} as the xlsx file that it is.",
    "I need what the sheet {second} says of each item on the sheet {first} too: fill {jobs} down to the last "
    "row, {how}. Save the open workbook {path}, keeping its format and its other cells.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    first, second = dice.choice((("Orders", "Goods"), ("List", "Catalogue"), ("Sales", "Items")))
    path = f"{HOME}/Documents/{dice.choice(_FILES)}.xlsx"
    goods = dice.sample(GOODS, _ITEMS[level])
    facts = dice.sample(_FACTS, 3)
    amounts = [dice.sample(range(low, high), len(goods)) for low, high in ((3, 99), (100, 999), (1000, 9999))]
    dice.shuffle(amounts)
    catalogue: Grid = [["Item", *facts], *map(list, zip(goods, *amounts, strict=True))]
    wanted = dice.sample(facts, _COLUMNS[level])
    by_item = {row[0]: dict(zip(facts, row[1:], strict=True)) for row in catalogue[1:]}
    people = dice.sample(PEOPLE, _ROWS[level])
    rows: Grid = [[person, dice.choice(goods), dice.randint(1, 20)] for person in people]
    before = [["Person", "Item", "Units", *wanted], *rows]
    after = [before[0], *([*row, *(by_item[row[1]][fact] for fact in wanted)] for row in rows)]
    last, columns = len(before), {fact: letter(3 + place) for place, fact in enumerate(wanted)}

    def formula(fact: str, sheet: str, first_item: str = "B2") -> str:
        return f"=VLOOKUP({first_item},{sheet}$A$2:$D${len(catalogue)},{facts.index(fact) + 2},0)"

    def fill(fact: str, *, source: str = "", until: int = last) -> Steps:
        text = {"op": "type", "text": formula(source or fact, f"${second}.")}
        enter = [text, pause(), key("alt", "enter"), pause()]
        return [go(f"{columns[fact]}2:{columns[fact]}{until}"), enter]

    *others, final = wanted
    begin = [step for fact in others for step in fill(fact)]
    beside = next(fact for fact in facts if fact != final)
    near = {
        "another column": [*begin, *fill(final, source=beside), *SAVE, DONE],
        "the last row forgotten": [*begin, *fill(final, until=last - 1), *SAVE, DONE],
    }
    if level < 3:
        near["not saved"] = [*begin, *fill(final), DONE]
    areas = {f"{first}!{columns[fact]}2:{columns[fact]}{last}": fact for fact in wanted}
    checks: list[Check] = [rest_kept(path, may_change=list(areas))]
    parts = [filled(1, len(after) * len(after[0])), filled(2, len(catalogue) * 4)]
    right: dict[str, Steps] = {}
    if level > 2:
        checks.append(formulas(path, {area: formula(fact, f"{second}!") for area, fact in areas.items()}))
        text = formula(final, f"${second}.", f"B2:B{last}")
        over = [{"op": "type", "text": text}, pause(), key("ctrl", "shift", "enter"), pause()]
        right["one array formula"] = [
            *begin,
            go(f"{columns[final]}2:{columns[final]}{last}"),
            over,
            *SAVE,
            DONE,
        ]
        number = [go(f"{columns[final]}{last}"), [typed(f"={after[-1][-1]}"), pause()]]
        near["a number as a formula"] = [*begin, *fill(final), *number, *SAVE, DONE]
    jobs = listed([f"column {columns[fact]} ({fact})" for fact in wanted])
    how = "with a formula in every cell" if level > 2 else "as numbers or as formulas"
    sheets = {first: before, second: catalogue}
    return Draft(
        _WORDINGS,
        {"jobs": jobs, "first": first, "second": second, "how": how, "path": path},
        opened(path, workbook(sheets)),
        every(cells(path, {first: after, second: catalogue}), xml_parts(path, *parts), *checks),
        Ways([*begin, *fill(final), *SAVE, DONE], near, right),
        changes=[path],
    )


FAMILY = Family("calc.lookup", 3, _draft, APPS, "full")
