"""long.server_logs: count errors in logs, write figures into a workbook and a note, hand tickets to teams.

A terminal may read the services by curl; a change that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from osgym_tasks import calc
from osgym_tasks.desk import quoted_list, sentence, terminal
from osgym_tasks.family import Draft, Family
from osgym_tasks.long import Plan
from osgym_tasks.long_parts import (
    Filled,
    Row,
    Tracker,
    cells_part,
    formulas_part,
    given_kept,
    name_of,
    note_opened,
    note_part,
    other_cell,
    tracker,
)
from osgym_tasks.pieces import HOME, line, upload
from osgym_tasks.web import browser, serving
from osgym_tasks.webapps.planner import clock
from osgym_tasks.webapps.tickets import TEAMS

_SERVICES = {1: 3, 2: 5, 3: 8, 4: 11, 5: 15}
_DAYS = {1: 2, 2: 2, 3: 3, 4: 4, 5: 5}
_NAMES = ("billing", "cache", "calendar", "catalogue", "chat", "delivery", "export", "login", "mail", "maps",
          "payments", "printing", "reports", "search", "stock", "video")  # fmt: skip
_TEXTS = ("connection lost", "disk is full", "no answer in time", "permission denied", "wrong checksum")
_QUIET = ("INFO the ERROR E{} of last week is gone", "WARN {} requests wait")
_LOGS = f"{HOME}/logs"
_BOOK = f"{HOME}/Documents/errors.xlsx"
_NOTE = f"{HOME}/Documents/errors.txt"
_TERMINAL = "Terminal"
_WORDINGS = (
    "Our servers had a bad week; please sum up their errors. {logs} {sheet} {sum} Save the workbook as xlsx. "
    "{tickets} Then {note}. Change nothing else.",
    "Can you find out which of our services fail? {logs} {sheet} {sum} Save it in the same format. {tickets} "
    "At the end, {note}. Everything else stays as it is.",
    "I have to report on the errors of our servers. {logs} {sheet} {sum} Keep the xlsx format when you save. "
    "{tickets} Finally {note}. Leave all other data alone.",
    "Would you go through the server logs for me? {logs} {sheet} {sum} Save the file as xlsx. {tickets} When "
    "you have done that, {note}. Nothing else is to change.",
    "Nobody has looked at the logs yet, so please do. {logs} {sheet} {sum} The workbook is to be saved as "
    "the xlsx file that it is. {tickets} After that, {note}. Do not touch anything else.",
    "The teams wait for tickets about the errors of their services. {logs} {sheet} {sum} Save it, still as "
    "xlsx. {tickets} Last, {note}. Other entries remain unchanged.",
)


@dataclass(frozen=True, slots=True)
class _Service:
    """A service, and the codes of its errors in the order of the logs."""

    name: str
    team: str
    codes: tuple[str, ...]

    @property
    def note(self) -> str:
        """Note in its ticket."""
        return f"{len(self.codes)} errors, the last one is {self.codes[-1]}"

    def work(self, high: int) -> tuple[Row, str]:
        """Return new values of its ticket, and the note.

        Args:
            high: Number of errors from which on the priority is high.
        """
        priority = "High" if len(self.codes) >= high else "Low"
        return {"priority": priority, "team": self.team}, self.note


def _counts(dice: random.Random, count: int, high: int) -> list[int]:
    """Draw numbers of errors: one is `high`, one is less, and one is the largest."""
    return [high, dice.randrange(10, 14), high - 1, *(dice.randrange(2, 10) for _ in range(count - 3))]


def _services(dice: random.Random, level: int, high: int) -> tuple[list[_Service], list[str]]:
    """Draw services, and lines of logs in their order; a name is the beginning of another one."""
    first, *others = dice.sample(_NAMES, _SERVICES[level] - 1)
    names = [first, f"{first}-test", *others]
    counts = _counts(dice, len(names), high)
    failed = [name for name, count in zip(names, counts, strict=True) for _ in range(count)]
    dice.shuffle(failed)
    codes = [f"E{number}" for number in dice.sample(range(1000, 10000), len(failed))]
    errors = [*zip(failed, codes, strict=True)]
    lines = [f"{name} ERROR {code} {dice.choice(_TEXTS)}" for name, code in errors]
    for name in names:
        for quiet in _QUIET:
            lines.insert(
                dice.randrange(len(lines) + 1), f"{name} {quiet.format(dice.randrange(1000, 10000))}"
            )
    services = [
        _Service(name, dice.choice(TEAMS[1:]), tuple(code for other, code in errors if other == name))
        for name in sorted(names)
    ]
    return services, lines


def _files(dice: random.Random, level: int, services: list[_Service], lines: list[str]) -> dict[str, str]:
    """Return the logs of days and the list of teams, by path."""
    days = _DAYS[level]
    cuts = [len(lines) * day // days for day in range(days + 1)]
    files = {f"{_LOGS}/teams.txt": "".join(f"{one.name}: {one.team}\n" for one in services)}
    for day in range(days):
        some = lines[cuts[day] : cuts[day + 1]]
        minutes = sorted(dice.sample(range(24 * 60), len(some)))
        rows = (f"{clock(minute)} {row}\n" for minute, row in zip(minutes, some, strict=True))
        files[f"{_LOGS}/day-{day + 1}.log"] = "".join(rows)
    return files


def _values(services: list[_Service]) -> dict[str, Any]:
    """Return the cells of the workbook to fill."""
    values: dict[str, Any] = {}
    for row, one in enumerate(services, 2):
        values |= {f"B{row}": len(one.codes), f"C{row}": one.codes[0], f"D{row}": one.codes[-1]}
    return values


def _draft(dice: random.Random, level: int) -> Draft:
    high = dice.randrange(4, 8)
    services, lines = _services(dice, level, high)
    titles: list[Row] = [
        {"title": f"{what} of {one.name}", "area": "Servers", "text": "Somebody has to look into it."}
        for one in services
        for what in ("Errors", "Backup")
    ]
    dice.shuffle(titles)
    desk = tracker(dice, titles)
    by_title = {f"Errors of {one.name}": one for one in services}
    by_place = {at: by_title[row["title"]] for at, row in enumerate(desk.rows) if row["title"] in by_title}
    grid = [["Service", "Errors", "First error", "Last error"], *([one.name] for one in services), ["Total"]]
    last, total = len(services) + 1, f"B{len(services) + 2}"
    values = _values(services)
    ends = {
        "Errors in all:": str(sum(len(one.codes) for one in services)),
        "Service with the most errors:": max(services, key=lambda one: len(one.codes)).name,
        "Tickets of high priority:": str(sum(len(one.codes) >= high for one in services)),
    }
    note = ["Errors of our servers", *ends, "Written by the night shift"]
    cells = cells_part(_BOOK, "Errors", values, 3)
    look = [line(f"grep -h ' {one.name} ERROR ' logs/day-*.log") for one in services]
    parts = [
        replace(cells, legs=[(_TERMINAL, [line("cat logs/teams.txt"), *look]), *cells.legs]),
        formulas_part(_BOOK, "Errors", {total: f"=SUM(B2:B{last})"}),
        desk.part({at: one.work(high) for at, one in by_place.items()}, 3),
        note_part(_NOTE, note, ends),
    ]
    row = next(at for at, one in enumerate(services) if services[at + 1].name == f"{one.name}-test")
    both = {**values, f"B{row + 2}": len(services[row].codes) + len(services[row + 1].codes)}
    above = {at: one.work(high + 1) for at, one in by_place.items()}
    wrong = {
        "errors of a longer name counted too": replace(parts[0], legs=cells_part(_BOOK, "Errors", both).legs),
        "high priority from one more error on": replace(parts[2], commits=[(desk.window, desk.steps(above))]),
    }
    plan = Plan(
        [_TERMINAL, desk.window, name_of(_BOOK), name_of(_NOTE)],
        parts,
        wrong,
        {"a service renamed": other_cell(_BOOK, "A2", "nothing")},
        given_kept(_BOOK, "Errors", grid, f"B2:D{last + 1}"),
    )
    return plan.draft(
        _WORDINGS,
        _named(services, desk, high, total, ends),
        [
            upload(_files(dice, level, services, lines)),
            *serving(desk.served),
            *browser(desk.served.url, desk.window),
            *note_opened(_NOTE, note),
            *calc.opened(_BOOK, calc.workbook({"Errors": grid})),
            *terminal(),
        ],
        (_BOOK, _NOTE),
    )


def _named(services: list[_Service], desk: Tracker, high: int, total: str, ends: Filled) -> dict[str, str]:
    """Return the values that the instruction names."""
    return {
        "logs": f"The files day-1.log and so on in {_LOGS} are in the order of time (look with the "
        "terminal); a line is an error of a service only if the word after the service's full name is ERROR.",
        "sheet": f"It is about {sentence(one.name for one in services)}: for each of these in {_BOOK}, "
        "fill in how many errors it had, and the codes of its first and its last one (such as E1234).",
        "sum": f"Put a formula into {total} that sums the errors.",
        "tickets": f'In the tracker at {desk.served.url}, give each ticket "Errors of SERVICE" the team that '
        f"{_LOGS}/teams.txt names, the priority High if there were {high} errors or more and else Low, and "
        'the note "N errors, the last one is CODE".',
        "note": f"complete the lines {quoted_list(ends)} of {_NOTE}, each after the colon and a space, and "
        "save it",
    }


FAMILY = Family(
    "long.server_logs", 1, _draft, ("chromium", "libreoffice_calc", "mousepad", "xfce4-terminal"), "full"
)
