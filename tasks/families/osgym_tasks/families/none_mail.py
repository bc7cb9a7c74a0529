"""none.mail: as mail.reply, but one of the messages is not there, so only failing is right.

Messages of the same subject and of the same sender are there, which must not be answered in its place.
"""

from __future__ import annotations

import random
from dataclasses import replace

from osgym_tasks.families.mail_reply import WORDINGS, drawn, named, served_mail, ways
from osgym_tasks.family import Draft, Family, Ways
from osgym_tasks.mail import INBOX, SUBJECTS
from osgym_tasks.pieces import DONE, FAIL, infeasible, key
from osgym_tasks.web import APPS, typed, visit


def _draft(dice: random.Random, level: int) -> Draft:
    persons, rows, replies, _ = drawn(dice, level)
    *others, last = replies
    sender, subject = rows[last.at]["sender"], rows[last.at]["subject"]
    used = {row["subject"] for row in rows if row["sender"] == sender}
    other = dice.choice([one for one in SUBJECTS if one not in used])
    is_gone = [(row["sender"], row["subject"], row["folder"]) == (sender, subject, INBOX) for row in rows]
    there = [{**row, "subject": other} if gone else row for row, gone in zip(rows, is_gone, strict=True)]
    like = next(at for at, row in enumerate(there) if (row["subject"], row["folder"]) == (subject, INBOX))
    served = served_mail(dice, persons, there)
    similar = ways(there, persons, [*others, replace(last, at=like)])
    looks = [
        step
        for one in replies
        for step in (
            *visit(f"/folders/{INBOX}", INBOX),
            [key("tab"), typed(rows[one.at]["subject"]), key("enter")],
        )
    ]
    near = {
        "another message": [*similar, DONE],
        "another message, then given up": [*similar, FAIL],
    }
    if others:
        near["the others only"] = [*ways(there, persons, others), DONE]
    else:
        near["done without a change"] = [*looks, DONE]
    return Draft(
        WORDINGS,
        named(persons, rows, replies, level),
        served.config(),
        infeasible(served.check({})),
        Ways([*looks, FAIL], near),
        changes=(),
    )


FAMILY = Family("none.mail", 1, _draft, APPS, "full")
