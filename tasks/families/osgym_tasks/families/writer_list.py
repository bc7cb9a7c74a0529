"""writer.list: make paragraphs the items of a bulleted or numbered list; typed signs do not count."""

from __future__ import annotations

import random

from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key
from osgym_tasks.writer import (
    CALM,
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

_PARAGRAPHS = {1: 3, 2: 5, 3: 8, 4: 12, 5: 18}
_GROUPS = {1: (2,), 2: (4,), 3: (3, 5), 4: (4, 6), 5: (3, 5, 8)}
_THINGS = (
    *("Candles", "Blankets", "Screws", "Envelopes", "Towels", "Plates", "Batteries", "Ribbons", "Markers"),
    *("Buckets", "Stamps", "Spoons", "Gloves", "Sponges", "Ropes", "Folders", "Labels", "Needles", "Bulbs"),
)
_KINDS = {"bulleted": ("bullet", ("shift", "F12")), "numbered": ("decimal", ("F12",))}
_WORDINGS = (
    "In {path}, which is open in Writer, turn these lines into a {kind} list: {items}. All other "
    "paragraphs stay plain and no text changes. Save it as docx.",
    "Please make a {kind} list of these paragraphs of the open document {path}: {items}. Nothing else "
    "becomes a list; save in the same format.",
    "The following lines of {path} should be items of a {kind} list: {items}. Use Writer's lists, type no "
    "signs, leave the other paragraphs alone and save the docx file.",
    "We go shopping with this text, and the things in it should be a {kind} list: {items}. Please format "
    "just these lines of the open document, by the list function, and change no words. Save it as docx.",
    "The handout would be easier to read if these lines were a {kind} list: {items}. Could you do that in "
    "the document that you see? All other paragraphs stay plain. Save it in its format.",
    "Somebody typed everything as plain paragraphs. In the open text, {items} belong in a {kind} list. "
    "Type no signs yourself, leave the rest alone, and save the docx file.",
)
_TRANSLATIONS = {
    "de": (
        "Das Blatt wäre leichter zu lesen, wenn diese Zeilen eine {kind} Liste wären: {items}. Mach das "
        "bitte mit der Listenfunktion im offenen Dokument. Alle anderen Absätze bleiben, und kein Wort "
        "ändert sich. Speichere die Datei als docx.",
    ),
    "es": (
        "La hoja se leería mejor si estas líneas fueran una lista {kind}: {items}. Hazlo con la función de "
        "listas en el documento abierto. Los demás párrafos se quedan como están y no cambia ninguna "
        "palabra. Guarda el archivo como docx.",
    ),
    "zh": (
        "把这几行做成{kind}列表会更好读：{items}。请在打开的文档中用列表功能设置。其他段落保持不变，文字也"
        "不要改。按 docx 格式保存文件。",
    ),
}
_KIND = {
    "de": {"bulleted": "mit Punkten versehene", "numbered": "nummerierte"},
    "es": {"bulleted": "con viñetas", "numbered": "numerada"},
    "zh": {"bulleted": "项目符号", "numbered": "编号"},
}


def _draft(dice: random.Random, level: int) -> Draft:
    texts = sentences(dice, _PARAGRAPHS[level])
    things = dice.sample(_THINGS, sum(_GROUPS[level]))
    rows, groups = list(texts), list[range]()
    places = sorted(dice.sample(range(1, len(texts)), len(_GROUPS[level])), reverse=True)
    for place, size in zip(places, _GROUPS[level], strict=True):
        rows[place:place] = [f"{things.pop()}, {dice.randrange(2, 60)} of them" for _ in range(size)]
    items = [row for row in rows if row not in texts]
    for at, row in enumerate(rows):
        if row in items and (at == 0 or rows[at - 1] not in items):
            end = next(n for n in range(at, len(rows) + 1) if n == len(rows) or rows[n] not in items)
            groups.append(range(at, end))
    kind, other = dice.sample(sorted(_KINDS), 2)
    path = path_of(dice)
    longer = [*groups[:-1], range(groups[-1].start - 1, groups[-1].stop)]
    near = {
        "the other kind": [*_apply(groups, other), *SAVE, DONE],
        "the line above too": [*_apply(longer, kind), *SAVE, DONE],
    }
    if len(groups) > 1:
        near["some forgotten"] = [*_apply(groups[:-1], kind), *SAVE, DONE]
    else:
        near["not saved"] = [*_apply(groups, kind), DONE]
    return Draft(
        _WORDINGS,
        {"path": path, "kind": kind, "items": ", ".join(f'"{item}"' for item in items)},
        opened(path, docx_bytes(rows)),
        every(
            wanted_text(path, rows),
            rest_kept(path),
            wanted_parts(
                path,
                {"path": ".//w:numPr/../..", "values": items},
                {
                    "part": "word/numbering.xml",
                    "path": ".//w:lvl[@w:ilvl='0']/w:numFmt",
                    "attribute": "w:val",
                    "include": [_KINDS[kind][0]],
                    "exclude": [_KINDS[other][0]],
                },
            ),
        ),
        Ways([*_apply(groups, kind), *SAVE, DONE], near),
        changes=[path],
        shown=("path",),
        translations=_TRANSLATIONS,
        translated={language: {"kind": kinds[kind]} for language, kinds in _KIND.items()},
    )


def _apply(groups: list[range], kind: str) -> Steps:
    """Return steps that select the lines of each group and press the shortcut of the list."""
    return [
        [
            *at_paragraph(group.start),
            *([key("shift", "down")] * (len(group) - 1)),
            key("shift", "end"),
            key(*_KINDS[kind][1]),
            CALM,
        ]
        for group in groups
    ]


FAMILY = Family("writer.list", 3, _draft, ("libreoffice_writer",), "full")
