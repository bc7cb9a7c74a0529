"""long.newsletter: collect articles from a wiki and mails into a document with headings and a plain text.

A terminal may read the services by curl; a change that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from osgym_tasks import writer
from osgym_tasks.desk import sentence
from osgym_tasks.family import Draft, Family
from osgym_tasks.long import Plan
from osgym_tasks.long_files import headings_part, paragraphs_part
from osgym_tasks.long_parts import (
    Mailbox,
    Wiki,
    document_opened,
    mailbox,
    name_of,
    note_opened,
    note_part,
    wiki,
)
from osgym_tasks.pieces import HOME, key
from osgym_tasks.web import browser, serving
from osgym_tasks.webapps.framework import PORT

_PAGES = {1: 2, 2: 3, 3: 4, 4: 6, 5: 10}
_MAILS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6}
_TOPICS = (
    "Allotments", "Bakery", "Choir", "Debating club", "Evening classes", "Football", "Gallery", "Harbour",
    "Ice rink", "Judo", "Kindergarten", "Library", "Museum", "Night buses", "Orchestra", "Pottery",
    "Quarry lake", "Recycling", "Swimming pool", "Theatre",
)  # fmt: skip
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
           "November", "December")  # fmt: skip
_TEXT = f"{HOME}/Documents/newsletter.txt"
_MARK = "Printed in {}."
_ANSWER = "The newsletter is ready."
_WORDINGS = (
    "Please put the newsletter of {month} together. {document} and {text} have its headings. {collect} "
    "{write} {style} {plain} {mark} Then {answer}. Change nothing else.",
    "The newsletter of {month} is due, but so far {document} and {text} have nothing but headings. {collect} "
    "{write} {style} {plain} {mark} At the end, {answer}. All else stays as it is.",
    "Could you finish our newsletter of {month}? You find its headings in {document} and in {text}. "
    "{collect} {write} {style} {plain} {mark} When all is done, {answer}. Leave other things alone.",
    "I promised the newsletter of {month} for today; the outline is in {document} and {text}. {collect} "
    "{write} {style} {plain} {mark} Finally {answer}. Nothing else is to change.",
    "For {month} we need a newsletter. Its outline is open: {document} in Writer, {text} in the editor. "
    "{collect} {write} {style} {plain} {mark} After that, {answer}. Please touch nothing else.",
    "Our readers wait for the newsletter of {month}, and only the headings in {document} and {text} exist. "
    "{collect} {write} {style} {plain} {mark} At last, {answer}. Other content remains.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    pages, mails = _PAGES[level], _MAILS[level]
    month = f"{dice.choice(_MONTHS)} {dice.randrange(2026, 2090)}"
    topics = dice.sample(_TOPICS, pages + mails)
    said = writer.sentences(dice, 2 * len(topics) + 1)
    news = dict(zip(topics, said, strict=False))
    old = said[len(topics) : -1]
    guide = wiki(
        dice,
        {
            topic: {"News": [news[topic], older], "Contact": ["Ask at the town hall."]}
            for topic, older in zip(topics[:pages], old, strict=False)
        },
        PORT,
        "",
    )
    texts = ["Please write to me when the newsletter is ready.", *(news[topic] for topic in topics[pages:])]
    post = mailbox(dice, texts, 1 + level, PORT + 1, guide.window, ["Newsletter", *topics[pages:]])
    path = writer.path_of(dice)
    order = dice.sample(topics, len(topics))
    rows = [f"Newsletter of {month}", *order, "Printed in the town hall"]
    ends = {f"{topic}:": news[topic] for topic in order}
    note = [f"Newsletter of {month}", *ends, "Printed in the town hall"]
    mark = _MARK.format(month)
    edits = {at: (2, mark) for at, row in enumerate(guide.rows) if row["heading"] == "News"}
    below = {topic: news[topic] for topic in order}
    paragraphs = paragraphs_part(path, rows, below)
    read = [*guide.read(topics[:pages]), *post.read(mails + 1)]
    parts = [
        headings_part(path, rows, order),
        replace(paragraphs, legs=[*read, *paragraphs.legs]),
        note_part(_TEXT, note, ends),
        guide.part(edits),
        post.part(_ANSWER, weight=1),
    ]
    first = topics[0]
    to_last_line = [key("ctrl", "end"), writer.CALM, key("shift", "home"), writer.CALM]
    bold = [*to_last_line, key("ctrl", "b"), writer.CALM]
    wrong = {
        "one heading forgotten": replace(parts[0], legs=headings_part(path, rows, order[:-1]).legs),
        "an older article": replace(
            parts[1], legs=paragraphs_part(path, rows, {**below, first: old[0]}).legs
        ),
    }
    plan = Plan(
        [guide.window, name_of(path), name_of(_TEXT)],
        parts,
        wrong,
        {"the last line bold": [(name_of(path), [bold, *writer.SAVE])]},
        [writer.rest_kept(path, restyled=order, may_add=True)],
    )
    return plan.draft(
        _WORDINGS,
        _named(month, path, topics, guide, post),
        [
            *serving(guide.served, post.served),
            *browser(guide.served.url, guide.window, post.served.url),
            *document_opened(path, rows),
            *note_opened(_TEXT, note),
        ],
        (path, _TEXT),
    )


def _named(month: str, path: str, topics: Sequence[str], guide: Wiki, post: Mailbox) -> dict[str, str]:
    """Return the values that the instruction names; the first topics are pages of the wiki."""
    pages = len(guide.rows) // 2
    return {
        "month": month,
        "document": path,
        "text": _TEXT,
        "collect": f"The article about {sentence(topics[:pages])} is the first line of the section News "
        f"on the wiki's page of that name ({guide.served.url}); about {sentence(topics[pages:])} it is "
        f"the line below the greeting in the mail with that subject ({post.served.url}).",
        "write": "In the document, add each article as a paragraph of its own below its heading.",
        "style": "Give each of these headings the paragraph style Heading 1, and save it as docx.",
        "plain": "In the text, write each article behind the colon of its heading, after a space, and "
        "save it.",
        "mark": f'On each of those pages of the wiki, add a last line "{_MARK.format(month)}" to the section '
        "News.",
        "answer": f'answer {post.which} with exactly "{_ANSWER}"',
    }


FAMILY = Family("long.newsletter", 1, _draft, ("chromium", "libreoffice_writer", "mousepad"), "full")
