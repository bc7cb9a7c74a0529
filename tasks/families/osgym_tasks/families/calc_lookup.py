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
    formulas,
    go,
    letter,
    listed,
    opened,
    pause,
    rest_kept,
    typed,
    workbook,
)
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, HOME, every, key

_ROWS = {1: 6, 2: 12, 3: 25, 4: 45, 5: 80}
_ITEMS = {1: 5, 2: 8, 3: 12, 4: 19, 5: 19}
_COLUMNS = {1: 1, 2: 1, 3: 2, 4: 3, 5: 5}
_FACTS_GIVEN = {1: 3, 2: 3, 3: 4, 4: 5, 5: 6}
_FACTS = ("Price", "Weight", "Shelf", "Stock", "Batch", "Deposit", "Length")
_FILES = ("orders", "requests", "deliveries", "sales")
_WORDINGS = (
    "In the workbook that is open in Calc, fill {jobs} of the sheet {first}: each row gets what the sheet "
    "{second} says of its item, {how}. Leave the rest and save {path} in its own format.",
    "Please look up the items of the sheet {first} on the sheet {second} and fill {jobs} for every row, "
    "{how}. Nothing else changes; save {path} as xlsx.",
    "{path} is open in Calc. For every row of the sheet {first}, fill {jobs} from the row of the same item "
    "on the sheet {second}, {how}. Keep all else, and save the file in its format.",
    "The sheet {first} lacks what we already have on the sheet {second}. Please fill {jobs} in every row "
    "by its item, {how}, and save the open workbook in its format. All other cells stay.",
    "I don't want to look up each item by hand. In the workbook that is open, could you fill {jobs} of the "
    "sheet {first}, {how}, from the sheet {second}? Do it down to the last row, change nothing else, and "
    "save it as xlsx.",
    "To write the bills, I need some columns more on the sheet {first}: {jobs}, {how}. The values stand "
    "beside the same item on the sheet {second}. Save the file as it is, with the other cells untouched.",
)

_AS_NUMBERS = dict.fromkeys(
    ("workbook: formula replaced by *", "workbook: all formulas replaced by their values"),
    "the task leaves open whether they are numbers or formulas",
)


def _draft(dice: random.Random, level: int) -> Draft:
    first, second = dice.choice((("Orders", "Goods"), ("List", "Catalogue"), ("Sales", "Items")))
    path = f"{HOME}/Documents/{dice.choice(_FILES)}.xlsx"
    goods = dice.sample(GOODS, _ITEMS[level])
    facts = dice.sample(_FACTS, _FACTS_GIVEN[level])
    bounds = [(3, 99), (100, 999), (1000, 9999), (10000, 19999), (20000, 29999), (30000, 39999)]
    amounts = [dice.sample(range(*pair), len(goods)) for pair in bounds[: len(facts)]]
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
        area = f"{sheet}$A$2:${letter(len(facts))}${len(catalogue)}"
        return f"=VLOOKUP({first_item},{area},{facts.index(fact) + 2},0)"

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
        every(cells(path, {first: after, second: catalogue}, others_empty=True), *checks),
        Ways([*begin, *fill(final), *SAVE, DONE], near, right),
        changes=[path],
        shown=("path",),
        allows={} if level > 2 else _AS_NUMBERS,
    )


FAMILY = Family("calc.lookup", 6, _draft, APPS, "full")
