"""mail.reply: answer messages of a local web mail that differ in sender, subject, folder or age.

A terminal may read the mail by curl; a message that does not come from a page in a browser is not sent.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.mail import FOLDERS, INBOX, SUBJECTS, TITLES, Row, dated, letter, number_in, people
from osgym_tasks.pieces import DONE, key
from osgym_tasks.web import APPS, Served, typed, visit
from osgym_tasks.webapps.mail import joined, reply_heading, split

_LETTERS = {1: 4, 2: 10, 3: 20, 4: 36, 5: 64}
_REPLIES = {1: 1, 2: 1, 3: 2, 4: 3, 5: 4}
_PEOPLE = {1: 4, 2: 6, 3: 8, 4: 12, 5: 16}
_TEXTS = (
    "Thank you, I will be there.", "Sorry, I cannot come.", "Please send me the plan.", "That suits me well.",
    "I have passed it on.", "We need one more week.", "Count me in.", "Please ask me again in March.",
)  # fmt: skip
_NUMBER = "The number is {}."
WORDINGS = (
    "In the web mail that is open in the browser, {replies}. Use the reply of each message, keep its "
    "subject, and send nothing else.",
    "Please answer mail in the open web mail: {replies}. Reply to the messages themselves, leave the "
    "subjects, and send no other message.",
    "I would like you to {replies}. The web mail is open in the browser; reply from the message, with the "
    "subject that it proposes, and send nothing more.",
    "I have no time for my mail. In the mailbox that is open, please {replies}. Use each message's own "
    "reply, leave the subject that it proposes, and send nothing else.",
    "People are waiting for answers. Could you {replies}, in the mail program in the browser? Reply from "
    "the message itself without touching the subject; there must be no other messages from me.",
    "Mind that some messages look alike: {replies}. The mail is open. Each must be a reply to just that "
    "message, with its subject unchanged, and nothing else may be sent.",
)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer.

    Attributes:
        at: Place of the message.
        told: Place of the message that has the number of the text, if there is one.
        copy: Name and address of an additional receiver.
    """

    at: int
    text: str
    told: int = -1
    to_all: bool = False
    copy: tuple[str, str] = ("", "")


def drawn(dice: random.Random, level: int) -> tuple[list[Row], list[Row], list[Reply], dict[int, int]]:
    """Draw people, messages, replies, and places of messages that may be mistaken for the answered ones."""
    persons = people(dice, _PEOPLE[level])
    rows, targets, twins = _rows(dice, level, persons)
    texts = dice.sample(_TEXTS, len(targets))
    replies = [Reply(at, text) for at, text in zip(targets, texts, strict=True)]
    if level >= 4:
        replies[-1] = replace(replies[-1], to_all=True)
    if level >= 5:
        replies[0] = _with_number(dice, rows, replies[0], targets)
        has = {rows[targets[1]]["sender"], persons[0]["address"]}
        third = dice.choice([one for one in persons if one["address"] not in has])
        replies[1] = replace(replies[1], copy=(third["name"], third["address"]))
    return persons, rows, replies, twins


def served_mail(dice: random.Random, persons: list[Row], rows: list[Row]) -> Served:
    """Return a mail with these people and messages."""
    folders = [{"name": name} for name in FOLDERS]
    tables = {"people": persons, "folders": folders, "messages": rows, "sent": []}
    return Served(dice, "mail", dice.choice(TITLES), tables)


def _draft(dice: random.Random, level: int) -> Draft:
    persons, rows, replies, twins = drawn(dice, level)
    served = served_mail(dice, persons, rows)
    first, *others = replies
    near = {
        "another message": [*ways(rows, persons, [replace(first, at=twins[first.at]), *others]), DONE],
    }
    if len(replies) == 1:
        near["not sent"] = [*ways(rows, persons, replies)[:-1], DONE]
    else:
        near["one forgotten"] = [*ways(rows, persons, replies[:-1]), DONE]
    if level >= 4:
        alone = [*replies[:-1], replace(replies[-1], to_all=False)]
        near["to the sender alone"] = [*ways(rows, persons, alone), DONE]
    if level >= 5:
        wrong = replace(first, text=_NUMBER.format(number_in(rows[first.at])))
        near["another number"] = [*ways(rows, persons, [wrong, *others]), DONE]
    return Draft(
        WORDINGS,
        named(persons, rows, replies, level),
        served.config(),
        served.evaluator({"sent": [_sent(rows, persons, reply) for reply in replies]}),
        Ways([*ways(rows, persons, replies), DONE], near),
        changes=(),
    )


def _rows(dice: random.Random, level: int, persons: list[Row]) -> tuple[list[Row], list[int], dict[int, int]]:
    """Draw the messages, the places of the targets, and for each target a message that it may be confused
    with.

    Each target has a message of the same subject from another sender, and one of another subject from the
    sender; from level 3 on an older one of both, from level 4 on a newer one in another folder.
    """
    owner, *senders = persons
    subjects = dice.sample(SUBJECTS, len(SUBJECTS))
    meant = list(zip(dice.sample(senders, _REPLIES[level]), subjects, strict=False))
    free = subjects[len(meant) :]
    drawn: list[tuple[float, int, Row]] = []

    def put(sender: Row, subject: str, when: float, mark: int = -1, folder: str = INBOX) -> None:
        kept = [one for one in senders if one is not sender]
        others = dice.sample(kept, 2) if level >= 4 and (mark >= 0 or dice.random() < 0.4) else []
        drawn.append((when, mark, letter(dice, owner, sender, subject, folder=folder, others=others)))

    for number, (sender, subject) in enumerate(meant):
        times = sorted(dice.random() for _ in range(3))
        put(sender, subject, times[1], 2 * number)
        someone = dice.choice([one for one in senders if one is not sender])
        put(someone, subject, dice.random(), 2 * number + 1 if level < 3 else -1)
        put(sender, dice.choice(free), dice.random())
        if level >= 3:
            put(sender, subject, times[0], 2 * number + 1)
        if level >= 4:
            put(sender, subject, times[2], folder=dice.choice(FOLDERS[1:]))
    while len(drawn) < _LETTERS[level]:
        folder = INBOX if level < 4 or dice.random() < 0.6 else dice.choice(FOLDERS[1:])
        put(dice.choice(senders), dice.choice(free), dice.random(), folder=folder)
    drawn.sort(key=lambda one: one[0])
    places = {mark: at for at, (_, mark, _) in enumerate(drawn) if mark >= 0}
    targets = [places[2 * number] for number in range(len(meant))]
    twins = {at: places[2 * number + 1] for number, at in enumerate(targets)}
    return dated(dice, [row for _, _, row in drawn]), targets, twins


def _with_number(dice: random.Random, rows: list[Row], reply: Reply, targets: list[int]) -> Reply:
    """Return the reply with a number as its text, which another message has."""
    pairs = [(row["sender"], row["subject"]) for row in rows]
    wrong = number_in(rows[reply.at])
    alone = [
        at for at, pair in enumerate(pairs)
        if pairs.count(pair) == 1 and at not in targets and number_in(rows[at]) != wrong
    ]  # fmt: skip
    told = dice.choice(alone)
    return replace(reply, text=_NUMBER.format(number_in(rows[told])), told=told)


def named(persons: list[Row], rows: list[Row], replies: list[Reply], level: int) -> dict[str, str]:
    """Return the values that the wordings name."""
    names = {row["address"]: row["name"] for row in persons}
    return {"replies": "; ".join(_said(rows, names, reply, level) for reply in replies)}


def _said(rows: list[Row], names: dict[str, str], reply: Reply, level: int) -> str:
    which = _which(rows[reply.at], names)
    if level >= 3:
        which = which.replace("the message", "the newest message", 1)
    if level >= 4:
        which += f" in the folder {rows[reply.at]['folder']}"
    text = f'exactly the text "{reply.text}"'
    if reply.told >= 0:
        told = _which(rows[reply.told], names)
        text = f'exactly the text "{_NUMBER.format("N")}", where N is the number in the text of {told}'
    copy = f", with a copy to {reply.copy[0]} (see the address book)" if reply.copy[0] else ""
    how = 'use "Reply to all" for' if reply.to_all else "reply to"
    return f"{how} {which} with {text}{copy}"


def _which(row: Row, names: dict[str, str]) -> str:
    return f'the message from {names[row["sender"]]} with the subject "{row["subject"]}"'


def _sent(rows: list[Row], persons: list[Row], reply: Reply) -> Row:
    """Return the row that the server keeps of the reply."""
    row = rows[reply.at]
    others = [one for one in split(row["copies"]) if reply.to_all and one != persons[0]["address"]]
    copies = [*others, reply.copy[1]] if reply.copy[1] else others
    return {"answers": row["number"], "receivers": row["sender"], "copies": joined(copies),
            "subject": f"Re: {row['subject']}", "text": reply.text}  # fmt: skip


def ways(rows: list[Row], persons: list[Row], replies: list[Reply]) -> Steps:
    """Return steps from each message to its answer's page, past addresses and subject into the text."""
    steps: Steps = []
    for reply in replies:
        row = rows[reply.at]
        path = f"/messages/{row['number']}"
        steps += visit(path, row["subject"])
        if reply.copy[0]:
            steps += visit("/people", "Address book")
        steps += visit(
            f"{path}/reply-all" if reply.to_all else f"{path}/reply",
            reply_heading(row["subject"], to_all=reply.to_all),
        )
        copy = [typed(_sent(rows, persons, reply)["copies"])] if reply.copy[0] else []
        steps += [
            [key("tab"), key("tab"), *copy, key("tab"), key("tab"), typed(reply.text)],
            [key("tab"), key("enter")],
        ]
    return steps


FAMILY = Family("mail.reply", 2, _draft, APPS, "full")
