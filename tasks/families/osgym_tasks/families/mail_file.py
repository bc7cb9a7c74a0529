"""mail.file: move the messages that a rule names into folders of a local web mail, and mark them.

A terminal may read the mail by curl; a change that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.mail import FOLDERS, INBOX, SUBJECTS, TITLES, Row, dated, letter, people
from osgym_tasks.pieces import DONE, key
from osgym_tasks.web import APPS, Served, pick, replaced, visit
from osgym_tasks.webapps.mail import MARKS, PER_PAGE, STAYS, page_heading

_LETTERS = {1: 4, 2: 10, 3: 22, 4: 38, 5: 64}
_MEANT = {1: [1], 2: [2], 3: [3], 4: [4], 5: [4, 3]}
"""Number of messages that each rule names, by level."""
_PEOPLE = {1: 4, 2: 6, 3: 8, 4: 12, 5: 16}
_WORDINGS = (
    "In the web mail that is open in the browser, {moves}. All other messages stay where and as they are.",
    "Please tidy the open web mail: {moves}. Move or mark no other message.",
    "The mail in the browser needs sorting. I want you to {moves}, and to leave every other message alone.",
    "My mailbox is overflowing. In the open mail, please {moves}. All other messages stay where and as "
    "they are.",
    "I want to find things again when I am back from holiday. Could you {moves}, in the mail program in "
    "the browser? Touch no other message.",
    "Somebody else will look after my mail while I am away. To prepare that, {moves}. Leave the rest of "
    "the open mailbox alone.",
)


@dataclass(frozen=True, slots=True)
class _Move:
    """Messages of a rule, and their folder.

    Attributes:
        places: Places of the messages.
        mark: Mark that they get, or nothing.
    """

    places: list[int]
    folder: str
    mark: str = ""

    @property
    def change(self) -> Row:
        return {"folder": self.folder, **({"mark": self.mark} if self.mark else {})}


def _draft(dice: random.Random, level: int) -> Draft:
    persons = people(dice, _PEOPLE[level])
    senders = dice.sample(persons[1:], len(_MEANT[level]))
    subjects = dice.sample(SUBJECTS, len(SUBJECTS))
    rows, kinds, day = _rows(dice, level, persons, senders, subjects)
    to = dice.sample(FOLDERS[1:], len(senders))
    moves = [
        _Move(
            [at for at, kind in enumerate(kinds) if kind == number],
            to[number],
            dice.choice(MARKS[1:]) if level >= 4 and number == 0 else "",
        )
        for number in range(len(senders))
    ]
    *most, last = moves
    decoy = kinds.index(_DECOY)
    other = next(name for name in FOLDERS[1:] if name not in to)
    near = {
        "another folder": [*_ways(rows, [*most, _Move(last.places, other, last.mark)], level), DONE],
        "one more": [
            *_ways(rows, [_Move([*moves[0].places, decoy], to[0], moves[0].mark), *moves[1:]], level),
            DONE,
        ],
    }
    if len(last.places) > 1:
        del near["another folder"]
        near["one forgotten"] = [
            *_ways(rows, [*most, _Move(last.places[:-1], last.folder, last.mark)], level),
            DONE,
        ]
    if level >= 4:
        near["not marked"] = [*_ways(rows, [_Move(moves[0].places, to[0]), *moves[1:]], level), DONE]
    said = []
    for number, move in enumerate(moves):
        which = f"from {senders[number]['name']}"
        which += f' with the subject "{subjects[number]}"' if level != 2 else ""
        which += f" sent before {day}" if day and number == 0 else ""
        what = f"the message {which}" if level == 1 else f"all messages {which}"
        mark = f' and give {"it" if level == 1 else "each"} the mark "{move.mark}"' if move.mark else ""
        said.append(f"move {what} from the folder {INBOX} to the folder {move.folder}{mark}")
    served = Served(
        dice,
        "mail",
        dice.choice(TITLES),
        {"people": persons, "folders": [{"name": name} for name in FOLDERS], "messages": rows, "sent": []},
    )
    changes = {at: move.change for move in moves for at in move.places}
    return Draft(
        _WORDINGS,
        {"moves": ", and ".join(said)},
        served.config(),
        served.evaluator({"messages": replaced(rows, changes)}),
        Ways([*_ways(rows, moves, level), DONE], near),
        changes=(),
    )


_DECOY, _OTHER = -1, -2


def _rows(
    dice: random.Random, level: int, persons: list[Row], senders: list[Row], subjects: list[str]
) -> tuple[list[Row], list[int], str]:
    """Draw the messages, the rule that each matches or misses in one respect, and a day.

    At level 5 the first rule names messages that were sent before the day.
    """
    owner, *everyone = persons
    free = subjects[len(senders) :]
    early: list[tuple[Row, int]] = []
    late: list[tuple[Row, int]] = []

    def put(
        sender: Row, subject: str, kind: int = _OTHER, folder: str = INBOX, new: bool | None = None
    ) -> None:
        row = letter(dice, owner, sender, subject, folder=folder)
        if kind == _OTHER and level >= 4:
            row["mark"] = dice.choice(MARKS)
        is_new = new if new is not None else level == 5 and dice.random() < 0.4
        (late if is_new else early).append((row, kind))

    for number, (sender, count) in enumerate(zip(senders, _MEANT[level], strict=True)):
        subject = subjects[number]
        for at in range(count):
            # At level 2 the sender alone is named, whatever it is about.
            put(sender, free[at] if level == 2 else subject, number, new=False if number == 0 else None)
        someone = dice.choice([one for one in everyone if one not in senders])
        put(someone, free[0] if level == 2 else subject, _DECOY if number == 0 and level < 5 else _OTHER)
        if level != 2:
            put(sender, dice.choice(free))
        if level >= 4:
            put(sender, subject, folder=dice.choice(FOLDERS[1:]), new=False)
    if level == 5:
        put(senders[0], subjects[0], _DECOY, new=True)
        put(senders[0], subjects[0], new=True)
    others = [one for one in everyone if level != 2 or one not in senders]
    while len(early) + len(late) < _LETTERS[level]:
        folder = INBOX if level < 4 or dice.random() < 0.6 else dice.choice(FOLDERS[1:])
        put(dice.choice(others), dice.choice(free), folder=folder)
    dice.shuffle(early)
    # A message that only its day tells from those that are meant is the first of the new day.
    late.sort(key=lambda one: (one[1] != _DECOY, dice.random()))
    made = [*early, *late]
    rows = dated(dice, [row for row, _ in made], len(early) if late else 0)
    day = rows[len(early)]["date"].partition(" ")[0] if late else ""
    return rows, [kind for _, kind in made], day


def _ways(rows: list[Row], moves: list[_Move], level: int) -> Steps:
    """Return steps: one message by its own page, several from the folder's pages, the last page first."""
    if level == 1:
        return [step for move in moves for at in move.places for step in _by_message(rows[at], move)]
    inbox = [at for at in reversed(range(len(rows))) if rows[at]["folder"] == INBOX]
    steps: Steps = []
    for move in moves:
        pages = sorted({inbox.index(at) // PER_PAGE for at in move.places}, reverse=True)
        for page in pages:
            shown = inbox[page * PER_PAGE : (page + 1) * PER_PAGE]
            path = f"/folders/{INBOX}?page={page + 1}"  # without it, the address of a later page is proposed
            picks = [[key("tab"), *([key("space")] * (at in move.places)), key("tab")] for at in shown]
            steps += [
                *visit(path, page_heading(INBOX, page + 1)),
                [key("tab"), key("tab"), *(action for picked in picks for action in picked)],
                _sorted(move),
            ]
        inbox = [at for at in inbox if at not in move.places]
    return steps


def _by_message(row: Row, move: _Move) -> Steps:
    return [*visit(f"/messages/{row['number']}", row["subject"]), [key("tab"), key("tab"), *_sorted(move)]]


def _sorted(move: _Move) -> list[dict[str, Any]]:
    """Return actions from the link before the lists to the button."""
    to = pick((STAYS, *FOLDERS), STAYS, move.folder)
    mark = pick((STAYS, *MARKS), STAYS, move.mark or STAYS)
    return [key("tab"), *to, key("tab"), *mark, key("tab"), key("enter")]


FAMILY = Family("mail.file", 2, _draft, APPS, "full")
