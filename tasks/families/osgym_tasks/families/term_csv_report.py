"""term.csv_report: sums by group of a CSV file's rows, written into another file in a given order."""

from __future__ import annotations

import random

from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, HOME, every, launch, line, text_check, upload

_ROWS = {1: 12, 2: 24, 3: 40, 4: 70, 5: 120}
_GROUPS = {1: 2, 2: 3, 3: 4, 4: 5, 5: 6}
_CITIES = ("Berlin", "Lima", "Madrid", "Oslo", "Paris", "Quito", "Rome", "Tokyo")
_GOODS = ("apples", "lamps", "paper", "shoes", "tea")
_STATES = ("paid", "open", "void")
_WORDINGS = (
    "Sum the amounts of {source} by city, {which}, and write into "
    "{answer} one line for each city, as city,sum in alphabetical order, without a heading. Leave "
    "{source} unchanged.",
    "Make {answer} from {source}: for each city one line of the form city,sum, where sum adds up its "
    "amounts, {which}. Sort the lines by city from A to Z, write no heading, and do not change "
    "{source}.",
    "For every city in {source}, add up the amount column, {which}. Save lines like city,sum, sorted by "
    "city alphabetically and without a heading, as {answer}; {source} stays as it is.",
    "Please write a report to {answer}: lines city,sum in the alphabetical order of cities, no heading, "
    "each with the sum of that city's amounts in {source}, {which}. {source} must not change.",
    "{answer} should list the sum of the amounts by city in {source}, {which}: a line city,sum for "
    "each, sorted by city from A to Z, no heading. {source} is to stay unchanged.",
    "Total the amounts by city from {source}, {which}. Each line of {answer} is "
    "city,sum; the lines are in alphabetical order of city and there is no heading. Do not alter "
    "{source}.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    cities = dice.sample(_CITIES, _GROUPS[level])
    goods = dice.choice(_GOODS)
    rows = _table(dice, _ROWS[level], cities, goods)
    source = f"{HOME}/{dice.choice(('sales', 'orders', 'bookings'))}.csv"
    answer = f"{HOME}/{dice.choice(('report', 'sums', 'cities'))}.csv"
    conditions, which = [], "over all rows"
    if level >= 2:
        conditions, which = ['$3=="paid"'], "counting only rows whose status is paid"
    if level >= 4:
        conditions.append(f'$2=="{goods}"')
        which += f" and whose item is {goods}"
    sums = dict.fromkeys(cities, 0)
    for city, item, state, amount in rows:
        if (level < 2 or state == "paid") and (level < 4 or item == goods):
            sums[city] += amount
    text = "city,item,status,amount,fee\n"
    text += "".join(f"{city},{item},{state},{n},{n % 7 + 1}\n" for city, item, state, n in rows)
    near = {
        "the fee column": _ways(source, answer, conditions, column=5),
        "rows counted": _ways(source, answer, conditions, add="1"),
        "in reverse": _ways(source, answer, conditions, sort="sort -r"),
    }
    if conditions:
        near["a condition forgotten"] = _ways(source, answer, conditions[1:])
    return Draft(
        _WORDINGS,
        {"source": source, "answer": answer, "which": which},
        [
            upload({source: text}),
            *launch("Terminal", "xfce4-terminal", "--geometry=100x30+200+120"),
        ],
        every(text_check(answer, "".join(f"{city},{sums[city]}\n" for city in sorted(cities)))),
        Ways(_ways(source, answer, conditions), near),
        changes=(answer,),
    )


def _table(dice: random.Random, count: int, cities: list[str], goods: str) -> list[tuple[str, str, str, int]]:
    """Draw rows; each city has one that all conditions match, and one that each condition excludes."""
    other = dice.choice([item for item in _GOODS if item != goods])
    kinds = [(city, goods, state) for city in cities for state in ("paid", "open")]
    kinds += [(city, other, "paid") for city in cities]
    while len(kinds) < count:
        kinds.append((dice.choice(cities), dice.choice(_GOODS), dice.choice(_STATES)))
    dice.shuffle(kinds)
    return [(*kind, dice.randrange(10, 1000)) for kind in kinds]


def _ways(
    source: str, answer: str, conditions: list[str], *, column: int = 4, add: str = "", sort: str = "sort"
) -> Steps:
    taken = " && ".join(["NR>1", *conditions])
    program = f'{taken} {{s[$1]+={add or f"${column}"}}} END {{for (c in s) print c","s[c]}}'
    return [line(f"awk -F, '{program}' {source} | {sort} > {answer}"), line(f"cat {answer}"), DONE]


FAMILY = Family("term.csv_report", 3, _draft, ("xfce4-terminal",))
