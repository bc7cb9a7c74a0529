"""term.log_extract: from logs into a file, each user once whose lines match conditions."""

from __future__ import annotations

import random
from collections import Counter

from osgym_tasks.desk import home, sentence, terminal
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, line, text_check, upload

_LINES = {1: 15, 2: 30, 3: 50, 4: 80, 5: 120}
_USERS = ("anna", "bilal", "chen", "dora", "emeka", "fatima", "goran", "hana", "ivo", "jana", "kofi", "lena")
_EVENTS = ("login", "upload", "payment", "backup")
_DAYS = ("2026-03-02", "2026-03-03", "2026-03-04", "2026-03-05")
_WORDINGS = (
    "Look through {logs} and write into {answer} {what}. Do not change {logs}.",
    "Go through {logs} and save in {answer} {what}. The logs must stay unchanged.",
    "Please make {answer} from {logs}. It is to hold {what}. Leave the logs as they are.",
    "{answer} should hold, from {logs}, {what}, and nothing else. The logs must not change.",
    "I need a list in {answer}, made from {logs}: {what}. Change nothing in the logs.",
    "Extract from {logs} into {answer} {what}. Nothing else belongs into that file; the logs stay as they "
    "are.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    event, day = dice.choice(_EVENTS), dice.choice(_DAYS)
    names = [f"{name}.log" for name in dice.sample(("access", "server", "audit", "events"), 1 + (level == 5))]
    logs = {home(name): _log(dice, _LINES[level], event, day) for name in names}
    answer = home(f"{dice.choice(('users', 'failed', 'names', 'who'))}.txt")
    counted = level >= 4
    steps = ["grep -h " + (f"' {event} failed '" if level >= 2 else "' failed '") + " " + " ".join(names)]
    said = "who has a line with "
    said += 'the result "failed"' if level == 1 else f'the event "{event}" and the result "failed"'
    if level >= 3:
        steps.append(f"grep '^{day}'")
        said += f" on {day}"
    steps.append("sed 's/.*user=//;s/ .*//'")
    order = "sort | uniq -c | sort -k1,1nr -k2 | awk '{print $2\" \"$1}'" if counted else "sort -u"
    rows = [row.split() for text in logs.values() for row in text.splitlines()]
    users = [
        row[4].removeprefix("user=")
        for row in rows
        if row[3] == "failed" and (level < 2 or row[2] == event) and (level < 3 or row[0] == day)
    ]
    if counted:
        text = "".join(f"{user} {count}\n" for user, count in sorted(Counter(users).items(), key=_most_first))
        form = (
            f"a line NAME COUNT, with one blank between, for each user {said}, COUNT being the number of "
            "such lines, sorted by count with the largest first, and by name from A to Z where counts are "
            "the same"
        )
    else:
        text = "".join(f"{user}\n" for user in sorted(set(users)))
        form = f"the name of each user {said}, each once, one to a line, sorted from A to Z"
    anywhere = steps[0].replace(" failed '", "'") if level >= 2 else f"cat {' '.join(names)}"
    unsorted = order.replace("nr", "n").replace(" -u", "")
    near = {
        "every result": _ways([anywhere, *steps[1:], order], answer),
        "not in order" if counted else "more than once": _ways([*steps, unsorted], answer),
    }
    if level >= 3:
        near["every day"] = _ways([steps[0], *steps[2:], order], answer)
    if len(names) > 1:
        near["one log forgotten"] = _ways([steps[0].replace(f" {names[1]}", ""), *steps[1:], order], answer)
    where = sentence(logs)
    return Draft(
        _WORDINGS,
        {"answer": answer, "logs": where, "what": form},
        [upload(logs), *terminal()],
        every(text_check(answer, text)),
        Ways(
            _ways([*steps, order], answer),
            near,
            right={"no last line end": _ways([*steps, order, "head -c -1"], answer)},
        ),
        changes=(answer,),
    )


def _most_first(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _log(dice: random.Random, lines: int, event: str, day: str) -> str:
    """Draw lines of the form DAY TIME EVENT RESULT user=NAME note, with all that could be mistaken."""
    *users, alone, fine = dice.sample(_USERS, 8)
    other = next(one for one in _EVENTS if one != event)
    rows = [
        (day, event, "failed", users[0]),
        (day, event, "failed", users[0]),
        (day, event, "failed", users[1]),
        (day, event, "ok", fine),
        (next(one for one in _DAYS if one != day), event, "failed", alone),
        (day, other, "failed", dice.choice(users)),
    ]
    while len(rows) < lines:
        result = dice.choice(("ok", "failed", "retried"))
        rows.append((dice.choice(_DAYS), dice.choice(_EVENTS), result, dice.choice(users)))
    rows.sort(key=lambda row: (row[0], dice.random()))
    return "".join(
        f"{row[0]} {8 + at % 10:02}:{dice.randrange(60):02} {row[1]} {row[2]} user={row[3]} "
        f"note={dice.choice(('failed-before', 'first', 'again'))}\n"
        for at, row in enumerate(rows)
    )


def _ways(pipe: list[str], answer: str) -> Steps:
    return [line(f"{' | '.join(pipe)} > {answer}"), line(f"cat {answer}"), DONE]


FAMILY = Family("term.log_extract", 3, _draft, ("xfce4-terminal",))
