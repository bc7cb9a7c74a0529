"""Documents for tasks in LibreOffice Writer: how they are made, opened, saved and checked.

They are docx files, and the check reads the docx file that Writer saved.
"""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from osgym_tasks.family import Steps
from osgym_tasks.pieces import HOME, Kept, execute, keep_file, key, launch, upload, vm_file

Check = tuple[str, dict[str, Any], dict[str, Any] | Kept]
"""Check for `pieces.every`."""

CALM: dict[str, Any] = {"op": "wait", "duration_ms": 700}
"""Pause between shortcuts, which Writer executes when it is idle, and text, which it takes at once."""

START_S = 120
"""Deadline for the start of LibreOffice on a busy host."""

SAVE: Steps = [[CALM, key("ctrl", "s")], [CALM, key("enter"), CALM]]
"""Save the document; the question whether to keep the format is answered with yes."""

_BEFORE = "document"
"""Name of the kept document."""
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>'
_OOXML = "http://schemas.openxmlformats.org"
_PACKAGE, _RELATED = f"{_OOXML}/package/2006", f"{_OOXML}/officeDocument/2006/relationships"
_WORD = f'xmlns:w="{_OOXML}/wordprocessingml/2006/main" xmlns:r="{_RELATED}"'
_XML, _DOCX = "application/vnd.openxmlformats-", "officedocument.wordprocessingml"
_A4 = '<w:pgSz w:w="11906" w:h="16838"/><w:pgMar w:top="1134" w:right="1134" w:bottom="1134" w:left="1134"/>'
_HEADING = (
    '<w:style w:type="paragraph" w:styleId="Heading{n}"><w:name w:val="heading {n}"/>'
    '<w:basedOn w:val="Normal"/><w:next w:val="Normal"/><w:qFormat/><w:pPr><w:keepNext/>'
    '<w:spacing w:before="240" w:after="120"/><w:outlineLvl w:val="{level}"/></w:pPr>'
    '<w:rPr><w:b/><w:sz w:val="{size}"/></w:rPr></w:style>'
)
_PARTS = {
    "[Content_Types].xml": f'{_HEAD}<Types xmlns="{_PACKAGE}/content-types">'
    f'<Default Extension="rels" ContentType="{_XML}package.relationships+xml"/>'
    f'<Override PartName="/word/document.xml" ContentType="{_XML}{_DOCX}.document.main+xml"/>'
    f'<Override PartName="/word/styles.xml" ContentType="{_XML}{_DOCX}.styles+xml"/></Types>',
    "_rels/.rels": f'{_HEAD}<Relationships xmlns="{_PACKAGE}/relationships">'
    f'<Relationship Id="rId1" Type="{_RELATED}/officeDocument" Target="word/document.xml"/></Relationships>',
    "word/_rels/document.xml.rels": f'{_HEAD}<Relationships xmlns="{_PACKAGE}/relationships">'
    f'<Relationship Id="rId1" Type="{_RELATED}/styles" Target="styles.xml"/></Relationships>',
    "word/styles.xml": f"{_HEAD}<w:styles {_WORD}><w:docDefaults><w:rPrDefault><w:rPr>"
    '<w:rFonts w:ascii="Liberation Serif" w:hAnsi="Liberation Serif"/><w:sz w:val="24"/>'
    '<w:lang w:val="en-US"/></w:rPr></w:rPrDefault><w:pPrDefault><w:pPr><w:spacing w:after="120"/></w:pPr>'
    '</w:pPrDefault></w:docDefaults><w:style w:type="paragraph" w:default="1" w:styleId="Normal">'
    '<w:name w:val="Normal"/><w:qFormat/></w:style>'
    + "".join(_HEADING.format(n=n, level=n - 1, size=40 - 4 * n) for n in (1, 2, 3))
    + "</w:styles>",
}


def docx_bytes(rows: Sequence[str | tuple[str, str]], *, page: str = _A4) -> bytes:
    """Return a docx file with a paragraph for each row: a text, or a text and its style (``Heading1``).

    The same rows give the same bytes.

    Args:
        page: XML of the page properties of its only section.
    """
    body = "".join(_paragraph(*((row, "Normal") if isinstance(row, str) else row)) for row in rows)
    text = f"{_HEAD}<w:document {_WORD}><w:body>{body}<w:sectPr>{page}</w:sectPr></w:body></w:document>"
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, part in {**_PARTS, "word/document.xml": text}.items():
            archive.writestr(zipfile.ZipInfo(name, (2025, 1, 1, 0, 0, 0)), part, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _paragraph(text: str, style: str) -> str:
    shown = f'<w:r><w:t xml:space="preserve">{escape(text)}</w:t></w:r>' if text else ""
    return f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr>{shown}</w:p>'


def opened(path: str, data: bytes, kept: str = _BEFORE) -> list[dict[str, Any]]:
    """Return the set-up: the document is kept for `rest_kept`, and open in Writer, whose window is active.

    Args:
        kept: Name of the kept document, different for each document of a task.
    """
    name = path.rpartition("/")[2]
    return [
        upload({path: data}),
        keep_file(path, kept),
        *launch(name, "libreoffice", "--writer", path, wait_s=START_S),
        execute("wmctrl", "-a", name),
    ]


def wanted_text(path: str, rows: Sequence[str]) -> Check:
    """Check that these are all paragraphs that are not empty."""
    return "check_document_text", vm_file(path), {"paragraphs": list(rows)}


def wanted_formats(path: str, formats: Mapping[str, Sequence[str]]) -> Check:
    """Check that these are all texts that are "bold", "italic", "underlined", in their order."""
    return (
        "check_text_formats",
        vm_file(path),
        {"formats": {name: [*texts] for name, texts in formats.items()}},
    )


def rest_kept(path: str, *, kept: str = _BEFORE, **options: Any) -> Check:
    """Check that the document looks as `opened` kept it; options are those of `check_document_kept`."""
    return "check_document_kept", vm_file(path), Kept(kept, options)


def wanted_parts(path: str, *parts: dict[str, Any]) -> Check:
    """Check elements in the XML of the docx file as `check_xml_parts` reads it, by default in its text."""
    return (
        "check_xml_parts",
        vm_file(path),
        {"parts": [{"part": "word/document.xml", **part} for part in parts]},
    )


def command(name: str) -> Steps:
    """Find a command of the menus by its name ("Search Commands"), and run the first one found."""
    return [[key("shift", "esc")], [{"op": "type", "text": name}], [key("enter"), CALM]]


def at_paragraph(number: int) -> list[dict[str, Any]]:
    """Move the caret to the beginning of a paragraph, counted from 0."""
    return [key("ctrl", "home"), *([key("ctrl", "down")] * number)]


def path_of(dice: random.Random, ending: str = "docx") -> str:
    """Draw the path of a document."""
    return f"{HOME}/Documents/{dice.choice(_NAMES)}.{ending}"


def sentences(dice: random.Random, count: int) -> list[str]:
    """Draw different sentences."""
    made: dict[str, None] = {}
    while len(made) < count:
        who, does, what, when = (dice.choice(words) for words in _SENTENCES)
        made[f"{who} {does} {what} {when}."] = None
    return list(made)


PLACES = ("barn", "canal", "depot", "garden", "harbour", "market", "quarry", "school", "tunnel", "workshop")
"""Words for `mention`."""


def mention(dice: random.Random, words: Sequence[str], rows: list[str]) -> None:
    """Add sentences to rows that use each word alone, in longer words, and with a capital."""
    made: list[tuple[int, str]] = []
    for word in words:
        texts = [
            f"The {word} opens on {dice.choice(_DAYS)}, and the other {word} on {dice.choice(_DAYS)}.",
            f"All {word}s are closed on {dice.choice(_DAYS)}.",
            f"{word.capitalize()} Lane ends at the {word}.",
            f"Meet us by the {word}.",
        ]
        made += zip(dice.sample(range(len(rows)), len(texts)), texts, strict=True)
    for row, text in made:
        rows[row] += f" {text}"


_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_NAMES = ("bulletin", "circular", "handout", "memo", "minutes", "notice", "overview", "proposal", "report")
_SENTENCES = (
    (
        *("The caretaker", "Our accountant", "The youth club", "A volunteer", "The head cook", "The choir"),
        *("A visitor", "The gardener", "The new trainee", "The librarian", "Our driver", "Our neighbour"),
    ),
    ("checked", "ordered", "repaired", "described", "collected", "counted", "photographed", "cleaned"),
    (
        *("the wooden chairs", "both lamps", "the old maps", "a box of tools", "three tents", "the keys"),
        *("the spare wheels", "some paint", "the paper cups", "two ladders", "the first aid kit"),
    ),
    (
        *("on Monday", "last week", "before lunch", "in April", "after the meeting", "at noon"),
        *("during the holidays", "in the evening", "without delay", "for the summer fair"),
    ),
)
