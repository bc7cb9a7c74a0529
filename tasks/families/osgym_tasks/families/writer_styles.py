"""writer.styles: give paragraphs of a text the styles of headings; bold letters do not count."""

from __future__ import annotations

import random

from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key
from osgym_tasks.writer import (
    SAVE,
    at_paragraph,
    docx_bytes,
    opened,
    path_of,
    rest_kept,
    sentences,
    wanted_parts,
    wanted_text,
)

_SECTIONS = {1: 2, 2: 3, 3: 5, 4: 7, 5: 10}
_HEADINGS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6}
_RANKS = {1: 1, 2: 1, 3: 2, 4: 2, 5: 3}
_TOPICS = (
    *("Opening hours", "Tools and keys", "Insurance", "First aid", "Deliveries", "Spring cleaning"),
    *("Lost property", "Parking", "Summer fair", "Guests and visitors", "Waste and recycling", "Heating"),
    *("Kitchen rota", "Fire drill", "Membership fees", "Noise at night", "Garden work", "Repairs"),
)
_WORDINGS = (
    "{path} is open in Writer. Give its lines the paragraph styles that they lack: {styles}. All other "
    "paragraphs keep their style and the text stays as it is. Save the file as docx.",
    "Please mark headings in the open document {path} by paragraph styles: {styles}. Nothing else "
    "changes; save it in the format that it has.",
    "The headings of {path} are plain text so far. Apply paragraph styles, {styles}. Change no other "
    "paragraph and no word, and save the docx file.",
    "In the document {path}, use the paragraph styles of headings: {styles}. Leave every other paragraph "
    "alone, and save under the same name and format.",
    "I need proper headings in {path}, which you see in Writer: {styles}. The rest, text and styles, must"
    " stay. Save it as docx.",
    "Set paragraph styles in {path} as follows: {styles}. Do not change other paragraphs or any text. The"
    " document is open; save it without changing the format.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    topics = dice.sample(_TOPICS, _SECTIONS[level])
    texts = sentences(dice, 2 * len(topics))
    rows = [row for n, topic in enumerate(topics) for row in (topic, *texts[2 * n : 2 * n + 2])]
    chosen = sorted(dice.sample(range(0, len(rows), 3), _HEADINGS[level]))
    ranks = [1 + n % _RANKS[level] for n in range(len(chosen))]
    dice.shuffle(ranks)
    path = path_of(dice)
    styles = dict(zip(chosen, ranks, strict=True))
    by_rank = {n: [rows[at] for at in chosen if styles[at] == n] for n in (1, 2, 3, 4)}
    rest = [row for at, row in enumerate(rows) if at not in styles]
    first, rank = chosen[0], ranks[0]
    near = {
        "another rank": [*_apply({**styles, first: rank % 3 + 1}), *SAVE, DONE],
        "bold letters": [*_bold(list(styles)), *SAVE, DONE],
    }
    if len(chosen) > 1:
        near["one forgotten"] = [*_apply(dict(list(styles.items())[:-1])), *SAVE, DONE]
    else:
        near["the line below"] = [*_apply({first + 1: rank}), *SAVE, DONE]
    return Draft(
        _WORDINGS,
        {
            "path": path,
            "styles": ", ".join(f'"{rows[at]}" becomes Heading {n}' for at, n in styles.items()),
        },
        opened(path, docx_bytes(rows)),
        every(
            wanted_text(path, rows),
            rest_kept(path, restyled=[rows[at] for at in styles]),
            wanted_parts(
                path,
                *({"path": _IN_STYLE.format(f"Heading{n}"), "values": found} for n, found in by_rank.items()),
                {"path": _IN_STYLE.format("Normal"), "include": rest},
            ),
        ),
        Ways([*_apply(styles), *SAVE, DONE], near),
        changes=[path],
    )


_IN_STYLE = ".//w:pStyle[@w:val='{}']/../.."


def _apply(styles: dict[int, int]) -> Steps:
    return [[*at_paragraph(at), key("ctrl", str(rank))] for at, rank in styles.items()]


def _bold(rows: list[int]) -> Steps:
    return [[*at_paragraph(at), key("shift", "end"), key("ctrl", "b")] for at in rows]


FAMILY = Family("writer.styles", 2, _draft, ("libreoffice_writer",), "full")
