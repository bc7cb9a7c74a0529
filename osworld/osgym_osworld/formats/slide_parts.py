"""Readers of the sound and the background picture of one slide of a pptx file."""

from __future__ import annotations

import posixpath
import zipfile
from xml.etree.ElementTree import Element

from osgym_host.tasks.metric_plugin import Argument, InputFile, as_file, reader, value_reader

MAX_SLIDES = 100
_RELATION = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"
_BACKGROUND = "{http://schemas.openxmlformats.org/presentationml/2006/main}bgPr"
_PICTURE = "{http://schemas.openxmlformats.org/drawingml/2006/main}blip"
_EMBEDDED = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}embed"


@value_reader
def slide_sound(value: Argument, number: int) -> InputFile:
    """Return the first sound of a slide of a presentation; numbers are the package's, from 1."""
    return _sound(as_file(value, "result"), number)


@reader
def _sound(file: InputFile, number: int) -> InputFile:
    archive = file.zip()
    for relation in _relations(file, archive, number):
        if "audio" in relation.get("Type", ""):
            return _target(file, archive, relation)
    raise file.bad(f"slide {number} has no sound")


@value_reader
def slide_background(value: Argument, number: int) -> InputFile:
    """Return the picture behind a slide of a presentation."""
    return _background(as_file(value, "result"), number)


@reader
def _background(file: InputFile, number: int) -> InputFile:
    archive, name = file.zip(), f"ppt/slides/slide{number}.xml"
    if name not in archive.namelist():
        raise file.bad(f"it has no slide {number}")
    root = file.xml(file.member(archive, name))
    shown = [p.get(_EMBEDDED) for ground in root.iter(_BACKGROUND) for p in ground.iter(_PICTURE)]
    for relation in _relations(file, archive, number):
        if shown and relation.get("Id") == shown[0] and "image" in relation.get("Type", ""):
            return _target(file, archive, relation)
    raise file.bad(f"slide {number} has no picture as its background")


def _relations(file: InputFile, archive: zipfile.ZipFile, number: int) -> list[Element]:
    name = f"ppt/slides/_rels/slide{number}.xml.rels"
    if name not in archive.namelist():
        return []
    return list(file.xml(file.member(archive, name)).iter(_RELATION))


def _target(file: InputFile, archive: zipfile.ZipFile, relation: Element) -> InputFile:
    """Return the target of a relation within the package: a name in the archive, never a path of a disk."""
    name = relation.get("Target", "")
    if relation.get("TargetMode") == "External":
        raise file.bad(f"it only has a link to {name[:200]}")
    part = posixpath.normpath(posixpath.join("/ppt/slides", name)).lstrip("/")
    if part not in archive.namelist():
        raise file.bad(f"it has no {part[:200]}")
    return InputFile(-1, f"{file.name}: {part}", file.role, file.member(archive, part))
