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
TOPICS = (
    *("Opening hours", "Tools and keys", "Insurance", "First aid", "Deliveries", "Spring cleaning"),
    *("Lost property", "Parking", "Summer fair", "Guests and visitors", "Waste and recycling", "Heating"),
    *("Kitchen rota", "Fire drill", "Membership fees", "Noise at night", "Garden work", "Repairs"),
)
WORDINGS = (
    "{path} is open in Writer. Give its lines the paragraph styles that they lack: {styles}. All other "
    "paragraphs keep their style and the text stays as it is. Save the file as docx.",
    "Please mark headings in the open document {path} by paragraph styles: {styles}. Nothing else changes; "
    "save it in the format that it has.",
    "The headings of {path} are plain text so far. Apply paragraph styles, {styles}. Change no other "
    "paragraph and no word, and save the docx file.",
    "I want a table of contents later, and for that the headings need proper styles. In the open document, "
    "please see to this: {styles}. The rest, text and styles, must stay. Save it as docx.",
    "Somebody typed the headings as plain text. Could you give them the paragraph styles of headings: "
    "{styles}? It's the document that you see. Change no other paragraph, and save it in its format.",
    "For people who use a screen reader, this text needs real headings: {styles}. Apply these paragraph "
    "styles and leave every other paragraph and all words alone. Save the open file as the docx that it is.",
)
TRANSLATIONS = {
    "de": (
        "Für ein Inhaltsverzeichnis brauchen die Überschriften im offenen Dokument richtige "
        "Absatzvorlagen: {styles}. Alle anderen Absätze und der Text bleiben, wie sie sind. Speichere die "
        "Datei als docx.",
    ),
    "es": (
        "Para hacer un índice, los títulos del documento abierto necesitan estilos de párrafo: {styles}. "
        "Los demás párrafos y el texto se quedan como están. Guarda el archivo como docx.",
    ),
    "zh": (
        "为了以后生成目录，打开的文档中的标题需要正确的段落样式：{styles}。其他段落和文字都保持不变。按 "
        "docx 格式保存文件。",
    ),
}
_SAID = {
    "en": '"{}" becomes Heading {}',
    "de": '"{}" bekommt Heading {}',
    "es": '"{}" con Heading {}',
    "zh": '"{}" 设为 Heading {}',
}


def drawn(dice: random.Random, level: int) -> tuple[list[str], dict[int, int], str]:
    """Draw the paragraphs, the ranks of headings by their places, in this order, and a path."""
    topics = dice.sample(TOPICS, _SECTIONS[level])
    texts = sentences(dice, 2 * len(topics))
    rows = [row for n, topic in enumerate(topics) for row in (topic, *texts[2 * n : 2 * n + 2])]
    chosen = sorted(dice.sample(range(0, len(rows), 3), _HEADINGS[level]))
    ranks = [1 + n % _RANKS[level] for n in range(len(chosen))]
    dice.shuffle(ranks)
    return rows, dict(zip(chosen, ranks, strict=True)), path_of(dice)


def named(rows: list[str], styles: dict[int, int], language: str = "en") -> dict[str, str]:
    """Return the values that the wordings need besides the path."""
    return {"styles": ", ".join(_SAID[language].format(rows[at], n) for at, n in styles.items())}


def _draft(dice: random.Random, level: int) -> Draft:
    rows, styles, path = drawn(dice, level)
    by_rank = {n: [rows[at] for at in styles if styles[at] == n] for n in (1, 2, 3, 4)}
    first, rank = next(iter(styles.items()))
    near = {
        "another rank": [*apply({**styles, first: rank % 3 + 1}), *SAVE, DONE],
        "bold letters": [*_bold(list(styles)), *SAVE, DONE],
    }
    if len(styles) > 1:
        near["one forgotten"] = [*apply(dict(list(styles.items())[:-1])), *SAVE, DONE]
    else:
        near["the line below"] = [*apply({first + 1: rank}), *SAVE, DONE]
    return Draft(
        WORDINGS,
        {"path": path, **named(rows, styles)},
        opened(path, docx_bytes(rows)),
        every(
            wanted_text(path, rows),
            rest_kept(path, restyled=[rows[at] for at in styles]),
            wanted_parts(
                path,
                *({"path": _IN_STYLE.format(f"Heading{n}"), "values": found} for n, found in by_rank.items()),
            ),
        ),
        Ways([*apply(styles), *SAVE, DONE], near),
        changes=[path],
        shown=("path",),
        translations=TRANSLATIONS,
        translated={language: named(rows, styles, language) for language in TRANSLATIONS},
    )


_IN_STYLE = ".//w:pStyle[@w:val='{}']/../.."


def apply(styles: dict[int, int]) -> Steps:
    """Return steps that give paragraphs the styles of headings of these ranks."""
    return [[*at_paragraph(at), key("ctrl", str(rank))] for at, rank in styles.items()]


def _bold(rows: list[int]) -> Steps:
    return [[*at_paragraph(at), key("shift", "end"), key("ctrl", "b")] for at in rows]


FAMILY = Family("writer.styles", 4, _draft, ("libreoffice_writer",), "full")
