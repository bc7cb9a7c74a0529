"""term.log_extract: from logs into files, each user once whose lines match conditions."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

from osgym_tasks.desk import sentence, terminal
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, HOME, every, line, text_check, upload

_LINES = {1: 15, 2: 30, 3: 50, 4: 80, 5: 120}
_JOBS = {1: 1, 2: 1, 3: 2, 4: 3, 5: 4}
_ANSWERS = ("users", "failed", "names", "who", "affected", "people")
_USERS = ("anna", "bilal", "chen", "dora", "emeka", "fatima", "goran", "hana", "ivo", "jana", "kofi", "lena")
_EVENTS = ("login", "upload", "payment", "backup")
_DAYS = ("2026-03-02", "2026-03-03", "2026-03-04", "2026-03-05")
_WORDINGS = (
    "Look through {logs} in {folder} for {jobs}. Write into each of these files, in the same folder, {form}"
    ". Do not change the logs.",
    "Go through {logs} of {folder} and find {jobs}. Each file, beside the logs, holds {form}, and nothing "
    "else. The logs must stay unchanged.",
    "Search {logs} in {folder} for {jobs}. Each file goes into that folder and is to hold {form}. Leave "
    "the logs as they are.",
    "Some people could not work, and I want to write to them. Please look in {logs}, which you find in my "
    "home folder, for {jobs}. What I need in each file, next to the logs, is {form}. Don't change the logs.",
    "Can you help me with {logs}? They are where the terminal is. I am after {jobs}; each of these files, "
    "in the same place, should hold {form}, and nothing else. The logs themselves must not change.",
    "Support asked who was affected. From {logs} in the terminal's folder, take {jobs}, and leave in each "
    "file there {form}. Nothing else belongs into it; the logs stay as they are.",
)
_NAMES = "the name of each user who has such a line, each once, one to a line, sorted from A to Z"
_COUNTS = (
    "a line NAME COUNT, with one blank between, for each user who has such lines, COUNT being their number, "
    "sorted by count with the largest first, and by name from A to Z where counts are the same"
)
_SORTED = "sort | uniq -c | sort -k1,1nr -k2 | awk '{print $2\" \"$1}'"


@dataclass(frozen=True, slots=True)
class _Job:
    """An answer: the event and the day of its lines, None for any, and its file."""

    event: str | None
    day: str | None
    answer: str

    @property
    def words(self) -> str:
        event = "" if self.event is None else f'the event "{self.event}" and '
        day = "" if self.day is None else f" on {self.day}"
        return f'lines with {event}the result "failed"{day} (into {self.answer})'

    def fits(self, row: list[str]) -> bool:
        return row[3] == "failed" and self.event in (None, row[2]) and self.day in (None, row[0])

    def command(self, logs: list[str], *, any_result: bool = False, any_day: bool = False) -> str:
        """Return the pipe that prints the user of each line."""
        event = "" if self.event is None else f" {self.event}"
        found = [f"grep -h '{event}{'' if any_result else ' failed'} ' {' '.join(logs)}"]
        if self.day is not None and not any_day:
            found.append(f"grep '^{self.day}'")
        return " | ".join([*found, "sed 's/.*user=//;s/ .*//'"])

    def text(self, rows: list[list[str]], *, counted: bool) -> str:
        users = Counter(row[4].removeprefix("user=") for row in rows if self.fits(row))
        if counted:
            most_first = sorted(users, key=lambda user: (-users[user], user))
            return "".join(f"{user} {users[user]}\n" for user in most_first)
        return "".join(f"{user}\n" for user in sorted(users))


def _draft(dice: random.Random, level: int) -> Draft:
    counted = level >= 4
    pairs = dice.sample([(event, day) for event in _EVENTS for day in _DAYS], _JOBS[level])
    answers = [f"{name}.txt" for name in dice.sample(_ANSWERS, len(pairs))]
    jobs = [
        _Job(event if level >= 2 else None, day if level >= 3 else None, answer)
        for (event, day), answer in zip(pairs, answers, strict=True)
    ]
    logs = [f"{name}.log" for name in dice.sample(("access", "server", "audit", "events"), 1 + (level == 5))]
    texts = {name: _log(dice, _LINES[level], pairs) for name in logs}
    rows = [row.split() for text in texts.values() for row in text.splitlines()]
    order = _SORTED if counted else "sort -u"
    *others, last = jobs
    begin = [step for job in others for step in _way(job, logs, order)]

    def near(order: str, **wrong: bool) -> Steps:
        return [*begin, *_way(last, logs, order, **wrong), DONE]

    ways = {"every result": near(order, any_result=True)}
    ways["not in order" if counted else "more than once"] = near(f"{order} | tac" if counted else "sort")
    if level >= 3:
        ways["every day"] = near(order, any_day=True)
    if len(logs) > 1:
        ways["one log forgotten"] = [*begin, *_way(last, logs[:1], order), DONE]
    if begin:
        ways["one forgotten"] = [*begin, DONE]
    bare = [*begin, *_way(last, logs, f"{order} | head -c -1"), DONE]
    return Draft(
        _WORDINGS,
        {
            "logs": sentence(logs),
            "folder": HOME,
            "jobs": sentence(job.words for job in jobs),
            "form": _COUNTS if counted else _NAMES,
        },
        [upload({f"{HOME}/{name}": text for name, text in texts.items()}), *terminal()],
        every(*(text_check(f"{HOME}/{job.answer}", job.text(rows, counted=counted)) for job in jobs)),
        Ways(near(order), ways, right={"no last line end": bare}),
        changes=[f"{HOME}/{answer}" for answer in answers],
        shown=("folder",),
    )


def _log(dice: random.Random, lines: int, pairs: list[tuple[str, str]]) -> str:
    """Draw lines of the form DAY TIME EVENT RESULT user=NAME note, with all that could be mistaken."""
    *users, alone, fine = dice.sample(_USERS, 8)
    rows: list[tuple[str, str, str, str]] = []
    for event, day in pairs:
        other = next(one for one in _EVENTS if one != event)
        rows += [(day, event, "failed", user) for user in (users[0], users[0], users[1])]
        rows.append((day, other, "failed", dice.choice(users)))
    event, day = pairs[-1]
    rows += [(day, event, "ok", fine), (next(one for one in _DAYS if one != day), event, "failed", alone)]
    while len(rows) < lines:
        result = dice.choice(("ok", "failed", "retried"))
        rows.append((dice.choice(_DAYS), dice.choice(_EVENTS), result, dice.choice(users)))
    rows.sort(key=lambda row: (row[0], dice.random()))
    return "".join(
        f"{row[0]} {8 + at % 10:02}:{dice.randrange(60):02} {row[1]} {row[2]} user={row[3]} "
        f"note={dice.choice(('failed-before', 'first', 'again'))}\n"
        for at, row in enumerate(rows)
    )


def _way(job: _Job, logs: list[str], order: str, **wrong: bool) -> Steps:
    pipe = job.command(logs, **wrong)
    return [line(f"{pipe} | {order} > {job.answer}"), line(f"cat {job.answer}")]


FAMILY = Family("term.log_extract", 4, _draft, ("xfce4-terminal",))
