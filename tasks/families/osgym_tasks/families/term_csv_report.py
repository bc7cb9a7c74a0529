"""term.csv_report: sums by group of a CSV file's rows, written into other files in a given order."""

from __future__ import annotations

import random
from dataclasses import dataclass

from osgym_tasks.desk import sentence, terminal
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, HOME, every, line, text_check, upload

_ROWS = {1: 12, 2: 24, 3: 40, 4: 70, 5: 120}
_GROUPS = {1: 2, 2: 3, 3: 4, 4: 5, 5: 6}
_REPORTS = {1: 1, 2: 1, 3: 2, 4: 3, 5: 4}
_CITIES = ("Berlin", "Lima", "Madrid", "Oslo", "Paris", "Quito", "Rome", "Tokyo")
_GOODS = ("apples", "lamps", "paper", "shoes", "tea")
_STATES = ("paid", "open", "void")
_ANSWERS = ("report", "sums", "cities", "totals", "overview")
_WORDINGS = (
    "Sum the amounts of {source} in {folder} by city: {reports}. Each of these files, in the same folder, "
    "has one line for each city, as city,sum in alphabetical order, without a heading. Leave {source} "
    "unchanged.",
    "Make reports from {source}, all in {folder}: {reports}. A report has for each city one line of the "
    "form city,sum, where sum adds up its amounts. Sort the lines by city from A to Z, write no heading, "
    "and do not change {source}.",
    "For every city in {source} of {folder}, add up the amount column: {reports}. Save lines like "
    "city,sum, sorted by city alphabetically and without a heading, beside {source}, which stays as it is.",
    "The accountant needs what each city brought in, from {source} in my home folder: {reports}. Please "
    "write lines of the form city,sum with the summed amount column, cities from A to Z, no heading, and "
    "put the files next to {source}. Do not change that one.",
    "I would like to compare the cities in {source}, which is in the terminal's folder. Could you add up "
    "the amounts by city ({reports})? One line city,sum for each city, in alphabetical order, without a "
    "heading, saved in the same folder. {source} itself stays as it is.",
    "For our meeting I need the amounts from {source} by city: {reports}. It is in the folder where the "
    "terminal is, and the results belong there, too: city,sum on a line for each city, A to Z, no heading. "
    "Please leave {source} alone.",
)
_TRANSLATIONS = {
    "de": (
        "Die Buchhaltung braucht die Beträge (amount) aus {source} in meinem persönlichen Ordner, nach "
        "Städten (city) summiert: {reports}. Jede Datei, neben {source}, hat für jede Stadt eine Zeile der "
        "Form Stadt,Summe, alphabetisch geordnet und ohne Überschrift. Ändere {source} nicht.",
    ),
    "es": (
        "Contabilidad necesita los importes (amount) de {source}, en mi carpeta personal, sumados por "
        "ciudad (city): {reports}. Cada archivo, junto a {source}, lleva una línea ciudad,suma por cada "
        "ciudad, en orden alfabético y sin encabezado. No cambies {source}.",
    ),
    "zh": (
        "会计需要主目录中 {source} 按城市（city）汇总的金额（amount）：{reports}。结果文件放在 {source} 旁"
        "边，每个城市一行，格式为 城市,总和，按字母顺序排列，不要标题行。不要改动 {source}。",
    ),
}
_SAID = {
    "en": ("over all rows", "over the rows whose {}", "{} is {}", "{}, into {}"),
    "de": ("über alle Zeilen", "über die Zeilen, in denen {}", "{} gleich {} ist", "{}, in {}"),
    "es": ("de todas las filas", "de las filas en que {}", "{} es {}", "{}, en {}"),
    "zh": ("统计所有行", "只统计{}的行", " {} 为 {} ", "{}，写入 {}"),
}
"""Words for all rows, some rows, a condition, and a report, by language."""


@dataclass(frozen=True, slots=True)
class _Report:
    """Sums over the rows with these values in the columns status and item; None is any value."""

    state: str | None
    item: str | None
    answer: str

    def said(self, language: str) -> str:
        every_row, some, condition, whole = _SAID[language]
        named = [("status", self.state), ("item", self.item)]
        told = [condition.format(column, value) for column, value in named if value is not None]
        rows = some.format(sentence(told, language)) if told else every_row
        return whole.format(rows, self.answer)

    @property
    def tests(self) -> list[str]:
        """Conditions of awk."""
        return [f'${at}=="{value}"' for at, value in ((3, self.state), (2, self.item)) if value is not None]

    def text(self, rows: list[tuple[str, str, str, int]]) -> str:
        sums: dict[str, int] = {}
        for city, item, state, amount in rows:
            if self.state in (None, state) and self.item in (None, item):
                sums[city] = sums.get(city, 0) + amount
        return "".join(f"{city},{sums[city]}\n" for city in sorted(sums))


def _draft(dice: random.Random, level: int) -> Draft:
    cities = dice.sample(_CITIES, _GROUPS[level])
    source = f"{dice.choice(('sales', 'orders', 'bookings'))}.csv"
    answers = [f"{name}.csv" for name in dice.sample(_ANSWERS, _REPORTS[level])]
    kinds: list[tuple[str | None, str | None]] = [(None, None)]
    if level in (2, 3):
        kinds = [("paid", None), ("open", None)]
    elif level >= 4:
        kinds = dice.sample([(state, item) for state in _STATES[:2] for item in _GOODS], _REPORTS[level])
    reports = [_Report(*kind, answer) for kind, answer in zip(kinds, answers, strict=False)]
    rows = _table(dice, _ROWS[level], cities, reports)
    begin = [step for one in reports[:-1] for step in _report(source, one)]
    last = reports[-1]
    near = {
        "the fee column": [*begin, *_report(source, last, column=5), DONE],
        "rows counted": [*begin, *_report(source, last, add="1"), DONE],
        "in reverse": [*begin, *_report(source, last, sort="sort -r"), DONE],
    }
    if last.tests:
        near["a condition forgotten"] = [*begin, *_report(source, last, tests=last.tests[1:]), DONE]
    if begin:
        near["one forgotten"] = [*begin, DONE]
    text = "city,item,status,amount,fee\n"
    text += "".join(f"{city},{item},{state},{n},{n % 7 + 1}\n" for city, item, state, n in rows)
    return Draft(
        _WORDINGS,
        {"source": source, "folder": HOME, "reports": "; ".join(one.said("en") for one in reports)},
        [upload({f"{HOME}/{source}": text}), *terminal()],
        every(*(text_check(f"{HOME}/{one.answer}", one.text(rows)) for one in reports)),
        Ways([*begin, *_report(source, last), DONE], near),
        changes=[f"{HOME}/{one.answer}" for one in reports],
        shown=("folder",),
        translations=_TRANSLATIONS,
        translated={
            language: {"reports": "; ".join(one.said(language) for one in reports)}
            for language in _TRANSLATIONS
        },
    )


def _table(
    dice: random.Random, count: int, cities: list[str], reports: list[_Report]
) -> list[tuple[str, str, str, int]]:
    """Draw rows; for each report, each city has one that it counts, and one that each condition excludes."""
    kinds = []
    for city in cities:
        for one in reports:
            state, item = one.state or "paid", one.item or dice.choice(_GOODS)
            kinds += [
                (city, item, state),
                (city, item, "void"),
                (city, dice.choice([other for other in _GOODS if other != item]), state),
            ]
    while len(kinds) < count:
        kinds.append((dice.choice(cities), dice.choice(_GOODS), dice.choice(_STATES)))
    dice.shuffle(kinds)
    return [(*kind, dice.randrange(10, 1000)) for kind in kinds]


def _report(
    source: str,
    report: _Report,
    *,
    tests: list[str] | None = None,
    column: int = 4,
    add: str = "",
    sort: str = "sort",
) -> Steps:
    taken = " && ".join(["NR>1", *(report.tests if tests is None else tests)])
    program = f'{taken} {{s[$1]+={add or f"${column}"}}} END {{for (c in s) print c","s[c]}}'
    answer = report.answer
    return [line(f"awk -F, '{program}' {source} | {sort} > {answer}"), line(f"cat {answer}")]


FAMILY = Family("term.csv_report", 4, _draft, ("xfce4-terminal",))
