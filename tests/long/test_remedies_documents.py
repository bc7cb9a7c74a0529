"""LibreOffice and GIMP with and without patched timers: the same actions save the same documents."""

from __future__ import annotations

import io
import shlex
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks.settle.live import PANEL_HEIGHT_PX
from benchmarks.settle.truth import Box, difference
from PIL import Image as PilImage

from osgym_host.guest_client import GuestClient
from osgym_host.images.errors import ImageError
from osgym_host.images.store import Image, ImageStore, default_data_dir
from osgym_host.runtimes.base import ReplicaSpec
from osgym_host.runtimes.local.runtime import LocalRuntime

pytestmark = [pytest.mark.desktop, pytest.mark.full_image, pytest.mark.timeout(300)]

STEP_TIMEOUT_S = 30.0
STATUS_BAR_HEIGHT_PX = 25
"""Its fields are as wide as what they once showed, so they lie elsewhere when more has been shown."""
FOLDER = "/home/user/remedy"

STYLE = "{urn:oasis:names:tc:opendocument:xmlns:style:1.0}"
AUTOMATIC_STYLES = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}automatic-styles"

MAKE = f"""
import os
os.makedirs("{FOLDER}", exist_ok=True)
with open("{FOLDER}/sheet.csv", "w") as file:
    file.writelines("%d,%d,%d\\n" % (i, i * i, i % 7) for i in range(1, 60))
with open("{FOLDER}/letter.txt", "w") as file:
    file.writelines("The quick brown fox number %d jumps over the lazy dog.\\n\\n" % i for i in range(30))
"""

LIBRARY_IS_LOADED = (
    "for maps in /proc/[0-9]*/maps; do grep -q 'soffice[.]bin' $maps && grep -q lo_timers[.]so $maps "
    "&& exit 0; done 2>/dev/null; exit 1"
)


def key(chord: str) -> dict[str, Any]:
    """A chord as an internal action."""
    return {"op": "key", "keys": chord.split("+")}


def text(words: str) -> dict[str, Any]:
    """Typing as an internal action."""
    return {"op": "type", "text": words}


def click(x: int, y: int, count: int = 1) -> dict[str, Any]:
    """A click as an internal action."""
    return {"op": "click", "x": x, "y": y, "count": count}


CALC = [
    key("ctrl+Home"), text("hello\n"), text("=SUM(B2:B20)\n"), key("Down"), text("3.25\t"), text("world\n"),
    click(260, 400), key("ctrl+b"), text("bold one\n"), click(400, 500), text("=A5*2\n"),
    key("ctrl+Home"), key("shift+Down"), key("shift+Right"), key("ctrl+c"), click(700, 600), key("ctrl+v"),
    key("Escape"), click(260, 700), key("Delete"), key("ctrl+i"), text("seven\n"), key("ctrl+z"),
    key("ctrl+y"),
]  # fmt: skip

WRITER = [
    key("ctrl+Home"), text("A title"), key("Return"), key("ctrl+b"), text("bold "), key("ctrl+b"),
    text("plain"), key("Return"), key("ctrl+e"), text("in the middle"), key("Return"), key("ctrl+l"),
    key("Down"), key("shift+End"), key("ctrl+i"), key("End"), key("BackSpace"), key("Page_Down"),
    click(900, 500, 2), text("replaced"), key("ctrl+a"), key("ctrl+1"), key("ctrl+z"), key("ctrl+End"),
    text("The end."),
]  # fmt: skip


IMPRESS = [
    key("Tab"), key("F2"), key("ctrl+a"), text("A new title"), key("Escape"), key("Escape"),
    key("Tab"), key("Tab"), key("F2"), key("ctrl+End"), text("\nadded line"), key("ctrl+b"), text(" in bold"),
    key("Escape"), key("Escape"), key("Page_Down"), key("Tab"), key("F2"), key("End"), text(" and more"),
    key("ctrl+z"), key("ctrl+y"), key("Escape"), key("Escape"), key("ctrl+m"), key("Page_Up"),
]  # fmt: skip

GIMP = [
    key("alt+i"), key("t"), key("c"),  # Image, Transform, 90° clockwise
    key("alt+i"), key("t"), key("v"), key("ctrl+z"), key("ctrl+y"),  # mirrored vertically
]  # fmt: skip

GIMP_EXPORT = [key("ctrl+shift+e"), key("ctrl+a"), text(f"{FOLDER}/edited.png"), key("Return"), key("Return")]


@dataclass(frozen=True)
class Document:
    """A document to edit.

    Attributes:
        window: a part of its window's title.
        prepare: a shell command in its folder.
        command: opens it.
        actions: what is done with it.
        save: keep it.
        saved: the file that is kept.
    """

    window: str
    prepare: str
    command: str
    actions: Sequence[dict[str, Any]]
    save: Sequence[dict[str, Any]]
    saved: str


def _office(name: str, source: str, options: str, actions: Sequence[dict[str, Any]]) -> Document:
    convert = f"libreoffice --headless {options} --convert-to {name.rpartition('.')[2]} {source}"
    return Document(name, convert, f"libreoffice {FOLDER}/{name}", actions, [key("ctrl+s")], name)


DOCUMENTS = {
    "Calc": _office("sheet.ods", "sheet.csv", "--infilter=CSV:44,34,76,1", CALC),
    "Writer": _office("letter.odt", "letter.txt", "--writer", WRITER),
    "Impress": _office("talk.odp", "talk.fodp", "", IMPRESS),
    "GIMP": Document(
        "[picture]", "true", f"gimp --no-splash {FOLDER}/picture.png", GIMP, GIMP_EXPORT, "edited.png"
    ),
}
PICTURE_COLOURS = ((200, 30, 30), (40, 150, 60), (40, 70, 200), (235, 205, 40))


def talk() -> bytes:
    """Three slides, as one XML file."""
    names = ("office", "text", "draw", "presentation")
    kinds = {"draw": "drawing"}
    spaces = " ".join(
        f'xmlns:{n}="urn:oasis:names:tc:opendocument:xmlns:{kinds.get(n, n)}:1.0"' for n in names
    )
    svg = 'xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0"'

    def box(words: str, top: int) -> str:
        place = f'svg:x="2cm" svg:y="{top}cm" svg:width="20cm" svg:height="3cm"'
        return f"<draw:frame {place}><draw:text-box><text:p>{words}</text:p></draw:text-box></draw:frame>"

    pages = "".join(
        f'<draw:page draw:name="page{n}">{box(f"Title {n}", 1)}{box(f"What slide {n} says", 6)}</draw:page>'
        for n in range(1, 4)
    )
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><office:document {spaces} {svg} office:version="1.2" '
        'office:mimetype="application/vnd.oasis.opendocument.presentation"><office:body><office:presentation>'
        f"{pages}</office:presentation></office:body></office:document>"
    ).encode()


def picture() -> bytes:
    """A picture of four colours that looks different whichever way it is turned."""
    image = PilImage.new("RGB", (360, 240))
    for at, colour in enumerate(PICTURE_COLOURS):
        image.paste(colour, (at % 2 * 180, at // 2 * 120, at % 2 * 180 + 180, at // 2 * 120 + 120))
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


@pytest.fixture(scope="module")
def image() -> Image:
    """The full golden image."""
    try:
        return ImageStore(default_data_dir()).resolve("full")
    except ImageError as error:
        pytest.skip(f"missing: golden image full: {error}")


async def edit(
    runtime: LocalRuntime, image: Image, document: Document, timers: str
) -> tuple[dict[str, bytes], PilImage.Image]:
    """Edit and save a document in a fresh replica.

    Returns:
        The parts of what was saved, by name, and the last screen.
    """
    generation = 1 if timers == "on" else 2
    replica = await runtime.create(ReplicaSpec(f"timers-{timers}", generation, image))
    try:
        async with GuestClient(replica.guest) as guest:
            await guest.ready(timeout_s=60)
            await guest.execute(["python3", "-c", MAKE])
            await guest.upload(f"{FOLDER}/talk.fodp", talk())
            await guest.upload(f"{FOLDER}/picture.png", picture())
            made = await guest.execute(f"cd {FOLDER} && {document.prepare}", shell=True)
            assert made.returncode == 0, made
            switches = f"OSGYM_LO_TIMERS={timers} OSGYM_GTK_TIMERS={timers}"
            await guest.launch(f"{switches} {document.command}", shell=True)
            name = shlex.quote(document.window)
            opened = (
                f"for i in $(seq 300); do wmctrl -l | grep -qF {name} && break; sleep 0.1; done; "
                f"wmctrl -a {name} && wmctrl -r {name} -b add,maximized_vert,maximized_horz"
            )
            assert (await guest.execute(opened, shell=True)).returncode == 0
            if document.command.startswith("libreoffice"):
                loaded = await guest.execute(LIBRARY_IS_LOADED, shell=True)
                assert (loaded.returncode == 0) == (timers == "on")
            # to the end of opening: a step that does nothing, and the frame that is final after it
            await guest.step(1, [{"op": "screenshot"}], timeout_s=STEP_TIMEOUT_S)
            await guest.final(1, wait_s=15)
            actions = [*document.actions, *document.save]
            for seq, action in enumerate(actions, start=2):
                await guest.step(seq, [action], timeout_s=STEP_TIMEOUT_S)
                if seq > len(document.actions):  # what another process opens comes late on a busy machine
                    last = await guest.final(seq, wait_s=10)
            saved = await guest.file(f"{FOLDER}/{document.saved}")
            return parts(saved), PilImage.open(io.BytesIO(last.image)).convert("RGB")
    finally:
        await runtime.destroy(replica)


def parts(data: bytes) -> dict[str, bytes]:
    """What a document consists of, in a form that depends on nothing but its content."""
    if not zipfile.is_zipfile(io.BytesIO(data)):
        image = PilImage.open(io.BytesIO(data)).convert("RGB")
        return {"size": str(image.size).encode(), "pixels": image.tobytes()}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: canonical(archive.read(name)) for name in ("content.xml", "styles.xml")}


def canonical(xml: bytes) -> bytes:
    """XML with each automatic style written where it is used, instead of its number.

    Writer draws a random number for each session, keeps it with what was typed, and numbers the styles
    in the order of those; so the same document saved twice differs in both, and in nothing else.
    """
    root = ElementTree.fromstring(xml)
    for element in root.iter():
        for name in [name for name in element.attrib if name.endswith(("}rsid", "}paragraph-rsid"))]:
            del element.attrib[name]
    styles = root.find(AUTOMATIC_STYLES)
    if styles is None:
        return ElementTree.tostring(root)
    names = [style.attrib.pop(f"{STYLE}name") for style in styles]
    texts = {name: ElementTree.tostring(style).decode() for name, style in zip(names, styles, strict=True)}
    root.remove(styles)
    for element in root.iter():
        for name, value in element.attrib.items():
            if name.endswith("style-name") and value in texts:
                element.attrib[name] = texts[value]
    return ElementTree.tostring(root)


@pytest.mark.parametrize("name", DOCUMENTS)
async def test_documents_come_out_equal(image: Image, tmp_path: Path, name: str) -> None:
    """The patch is in force only where it is switched on; what is saved and what is shown is the same."""
    if not any(remedy.applied for remedy in image.manifest.remedies if remedy.name == "libreoffice-timers"):
        pytest.skip("missing: the remedy, this image was baked without")
    document = DOCUMENTS[name]
    runtime = LocalRuntime(tmp_path, "remedies")
    await runtime.start()
    try:
        patched = await edit(runtime, image, document, "on")
        plain = await edit(runtime, image, document, "off")
    finally:
        await runtime.stop()
    if name == "GIMP":  # what was below on the right has come above on the left
        assert patched[0]["size"] == b"(240, 360)"
        assert patched[0]["pixels"][:3] == bytes(PICTURE_COLOURS[3])
    else:
        marks = [action["text"].strip() for action in document.actions if action["op"] == "type"]
        assert any(mark.encode() in patched[0]["content.xml"] for mark in marks)
    assert patched[0] == plain[0]
    width, height = patched[1].size
    below = Box(0, height - PANEL_HEIGHT_PX - STATUS_BAR_HEIGHT_PX, width, height)
    assert difference(patched[1], plain[1], [below]) is None
