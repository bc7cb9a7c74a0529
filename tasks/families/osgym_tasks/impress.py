"""Presentations for tasks in LibreOffice Impress: how they are made, opened, saved and checked."""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

from osgym_tasks.family import Steps
from osgym_tasks.office import UNTIL_IDLE
from osgym_tasks.pieces import HOME, Kept, execute, keep_file, key, launch, upload, vm_file

Check = tuple[str, dict[str, Any], dict[str, Any] | Kept]
"""Check for `pieces.every`."""
Slide = tuple[str, ...]
"""Title and lines below it."""
APPS = ("libreoffice_impress",)
CALM: dict[str, Any] = {"op": "wait", "duration_ms": 700}
"""Pause after a command, which Impress executes when it is idle."""
START_S = 120
"""Deadline for the start of LibreOffice on a busy host."""
SAVE: Steps = [[CALM, key("ctrl", "s"), CALM]]
_BEFORE = "presentation"
"""Name of the kept presentation."""

_SPACES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{what}:1.0"'
    for name, what in {
        "office": "office",
        "style": "style",
        "text": "text",
        "draw": "drawing",
        "fo": "xsl-fo-compatible",
        "svg": "svg-compatible",
    }.items()
)
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>'
_MIME = "application/vnd.oasis.opendocument.presentation"
_MANIFEST = (
    f'{_HEAD}<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0" '
    f'manifest:version="1.2"><manifest:file-entry manifest:full-path="/" manifest:media-type="{_MIME}"/>'
    '<manifest:file-entry manifest:full-path="content.xml" manifest:media-type="text/xml"/>'
    '<manifest:file-entry manifest:full-path="styles.xml" manifest:media-type="text/xml"/>'
    "</manifest:manifest>"
)
_STYLES = (
    f'{_HEAD}<office:document-styles {_SPACES} office:version="1.2"><office:automatic-styles>'
    '<style:page-layout style:name="PM1"><style:page-layout-properties fo:margin-top="0cm" '
    'fo:margin-bottom="0cm" fo:margin-left="0cm" fo:margin-right="0cm" fo:page-width="28cm" '
    'fo:page-height="15.75cm" style:print-orientation="landscape"/></style:page-layout>'
    '<style:style style:name="Mdp1" style:family="drawing-page"><style:drawing-page-properties '
    'draw:fill="none"/></style:style></office:automatic-styles><office:master-styles>'
    '<style:master-page style:name="Default" style:page-layout-name="PM1" draw:style-name="Mdp1"/>'
    "</office:master-styles></office:document-styles>"
)
_LOOKS = "<office:automatic-styles>{}</office:automatic-styles>".format(
    "".join(
        f'<style:style style:name="{name}" style:family="graphic"><style:graphic-properties draw:fill="none" '
        f'draw:stroke="none" draw:auto-grow-height="false"/><style:text-properties fo:font-size="{size}pt" '
        'fo:font-family="Liberation Sans" fo:color="#000000"/></style:style>'
        for name, size in (("title", 40), ("body", 24))
    )
)
"""Styles of the shapes: text that is typed anew into an emptied shape looks as the old one."""
_BOXES = {
    "title": 'svg:width="25.2cm" svg:height="2.6cm" svg:x="1.4cm" svg:y="0.6cm"',
    "body": 'svg:width="25.2cm" svg:height="9.1cm" svg:x="1.4cm" svg:y="3.7cm"',
}


def odp_bytes(slides: Sequence[Slide]) -> bytes:
    """Return a presentation of these slides; the same slides give the same bytes."""
    pages = "".join(
        f'<draw:page draw:name="page{number}" draw:master-page-name="Default">'
        f"{_frame('title', slide[:1])}{_frame('body', slide[1:])}</draw:page>"
        for number, slide in enumerate(slides, 1)
    )
    content = (
        f'{_HEAD}<office:document-content {_SPACES} office:version="1.2">{_LOOKS}<office:body>'
        f"<office:presentation>{pages}</office:presentation></office:body></office:document-content>"
    )
    parts = {
        "mimetype": _MIME,
        "META-INF/manifest.xml": _MANIFEST,
        "styles.xml": _STYLES,
        "content.xml": content,
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, part in parts.items():
            how = zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED
            archive.writestr(zipfile.ZipInfo(name, (2025, 1, 1, 0, 0, 0)), part, how)
    return made.getvalue()


def _frame(kind: str, lines: Sequence[str]) -> str:
    shown = "".join(f"<text:p>{escape(line)}</text:p>" for line in lines)
    return (
        f'<draw:frame draw:style-name="{kind}" {_BOXES[kind]}><draw:text-box>{shown}</draw:text-box>'
        "</draw:frame>"
    )


def opened(path: str, slides: Sequence[Slide]) -> list[dict[str, Any]]:
    """Return the set-up: the presentation is kept for `rest_kept` and open in Impress, which is ready."""
    name = path.rpartition("/")[2]
    return [
        upload({path: odp_bytes(slides)}),
        keep_file(path, _BEFORE),
        *launch(name, "libreoffice", "--impress", path, wait_s=START_S),
        execute("wmctrl", "-a", name),
        execute("bash", "-c", UNTIL_IDLE),
    ]


def wanted_slides(path: str, slides: Sequence[Slide]) -> Check:
    """Return the check that the slides are these, in this order, with these texts."""
    return "check_slides_text", vm_file(path), {"slides": [list(slide) for slide in slides]}


def rest_kept(path: str, **options: Any) -> Check:
    """Check that all else is as `opened` kept it; options are those of `check_slides_kept`."""
    return "check_slides_kept", vm_file(path), Kept(_BEFORE, options)


def path_of(dice: random.Random) -> str:
    """Draw the path of a presentation."""
    return f"{HOME}/Documents/{dice.choice(_NAMES)}.odp"


def draw_slides(dice: random.Random, count: int, lines: int) -> list[Slide]:
    """Draw slides with titles of their own and lines, of which some are on several slides."""
    titles = dice.sample(_TITLES, count)
    return [(title, *dice.sample(_LINES, lines)) for title in titles]


def draw_title(dice: random.Random, avoided: Sequence[str]) -> str:
    """Draw a title that is none of these."""
    return dice.choice([title for title in _TITLES if title not in avoided])


def draw_lines(dice: random.Random, count: int, avoided: Sequence[str]) -> list[str]:
    """Draw lines that are none of these."""
    return dice.sample([line for line in _LINES if line not in avoided], count)


_NAMES = ("briefing", "course", "kickoff", "lecture", "pitch", "review", "roadmap", "talk", "training")
_TITLES = (
    *("Welcome", "Agenda", "Our team", "Last year", "Budget", "Timeline", "Risks", "Suppliers", "Customers"),
    *("Market", "Prices", "Training", "Safety", "Equipment", "Locations", "Transport", "Energy", "Waste"),
    *("Open questions", "Next steps", "Summary", "Contacts", "Thank you", "Survey", "Results", "Methods"),
)
_LINES = (
    *("Costs went down", "Two offers came in", "Work starts in May", "More staff is needed"),
    *("The lease ends soon", "Visitors liked it", "Parts arrive late", "Nobody was hurt"),
    *("A vote is planned", "Three towns take part", "Prices stay as they are", "The roof was mended"),
    *("Tests are finished", "Letters went out", "A partner left", "The hall is booked"),
    *("Fees rise in autumn", "One site was closed", "Tools are shared", "Reports are due monthly"),
)
