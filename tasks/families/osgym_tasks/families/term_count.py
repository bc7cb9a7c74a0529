"""term.count: count lines of logs by words in them, and write the number into a file."""

from __future__ import annotations

import random

from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, HOME, every, launch, line, text_check, upload

_LINES = {1: 20, 2: 40, 3: 60, 4: 90, 5: 120}
_FILES = {1: 1, 2: 1, 3: 1, 4: 2, 5: 3}
_WORDS = ("ERROR", "WARN", "FATAL", "RETRY")
_PARTS = ("disk", "network", "printer", "login", "backup")
_SERVICES = ("web", "mail", "shop")
_WORDINGS = (
    "Count the lines of {logs} that have {what}, and write the number, alone, "
    "into {answer}. Leave the logs as they are.",
    "How many lines of {logs} have {what}? Leave the number, and nothing else, in "
    "{answer}. The logs stay unchanged.",
    "Write into {answer} only the number of lines in {logs} that contain {what}. Do not change the logs.",
    "Please find out how many lines in {logs} have {what}, and save just that number as {answer}, without "
    "changing the logs.",
    "{answer} should hold a number: of the lines in {logs} with {what}. The logs must not change.",
    "Over {logs}, count the lines that contain {what}. The count goes into {answer} as a plain number; the "
    "logs are to stay as they are.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    word, part = dice.choice(_WORDS), dice.choice(_PARTS)
    names = [f"{name}.log" for name in dice.sample(_SERVICES, _FILES[level])]
    logs = {name: _log(dice, _LINES[level], word, part) for name in names}
    rows = [row.split() for text in logs.values() for row in text.splitlines()]
    both = level >= 3
    count = sum(word in row and (not both or part in row) for row in rows)
    answer = f"{dice.choice(('count', 'number', 'answer', 'total'))}.txt"
    what = f'the word "{word}" in capitals as a whole word'
    wide, exact = f"grep -h {word} {' '.join(names)}", f"grep -hw {word} {' '.join(names)}"
    narrow = ""
    if both:
        what += f' and the word "{part}" as a whole word'
        narrow = f" | grep -w {part}"
    near = {"parts of words counted": _ways(f"{wide}{narrow}", answer)}
    if both:
        near["one condition forgotten"] = _ways(exact, answer)
    if len(names) > 1:
        near["one log forgotten"] = _ways(f"grep -hw {word} {names[0]}{narrow}", answer)
    said = " and ".join(f"{HOME}/{name}" for name in names)
    return Draft(
        _WORDINGS,
        {"logs": said, "what": what, "answer": f"{HOME}/{answer}"},
        [
            upload({f"{HOME}/{name}": text for name, text in logs.items()}),
            *launch("Terminal", "xfce4-terminal", "--geometry=100x30+200+120"),
        ],
        every(text_check(f"{HOME}/{answer}", f"{count}\n")),
        Ways(
            _ways(f"{exact}{narrow}", answer),
            near,
            right={"no last line end": [line(f"printf %s $({exact}{narrow} | wc -l) > {answer}"), DONE]},
        ),
        changes=(f"{HOME}/{answer}",),
    )


def _log(dice: random.Random, lines: int, word: str, part: str) -> str:
    """Draw a log in which each line that could be mistaken is there at least twice."""
    others = [other for other in _WORDS if other != word]
    elsewhere = [other for other in _PARTS if other != part]
    kinds = [(word, part), (word, part), (f"{word}S", part), (f"{word}S", part)]
    kinds += [(word, dice.choice(elsewhere)), (word, dice.choice(elsewhere)), (word.lower(), part)]
    while len(kinds) < lines:
        kinds.append((dice.choice((word, f"{word}S", word.lower(), *others)), dice.choice(_PARTS)))
    dice.shuffle(kinds)
    return "".join(f"09:{at // 60:02}:{at % 60:02} {kind} {of} {at}\n" for at, (kind, of) in enumerate(kinds))


def _ways(command: str, answer: str) -> Steps:
    return [line(f"{command} | wc -l > {answer}"), line(f"cat {answer}"), DONE]


FAMILY = Family("term.count", 3, _draft, ("xfce4-terminal",))
