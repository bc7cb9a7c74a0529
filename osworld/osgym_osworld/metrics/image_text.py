"""Metrics over the text in pictures."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from osgym_host.tasks.metric_plugin import (
    Argument,
    InputFile,
    Score,
    Unreadable,
    as_file,
    metric,
    reader,
    rules_of,
)
from osgym_osworld.formats import ocr
from osgym_osworld.metrics.images import MAX_PIXELS, open_image

if TYPE_CHECKING:
    from PIL import Image

_DUMP_HEADER = struct.Struct(">25I")
"""Header of `xwd`'s files (XWDFile.h), big-endian on every machine."""
_DUMP_VERSION = 7
_DUMP_COLOUR = 12
"""Bytes of each entry of the table between header and pixels."""
_DEPTHS = {24, 32}


@metric(unsupported=ocr.NeedsTesseract())
def compare_image_text(result: Argument, expected: Argument) -> Score:
    """The picture has ``text`` (``type`` "text") written in it, as Tesseract reads it; case counts.

    Runs of blanks and ends of lines are one blank on both sides.
    """
    rules, image = rules_of(expected), _picture(as_file(result, "result"))
    if rules["type"] != "text":
        raise Unreadable("expected", f"the type of the rule is {rules['type']!r}, not 'text'")
    wanted = " ".join(str(rules["text"]).split())
    found = ocr.reader().read(image)
    if any(wanted in text for text in found):
        return Score(1.0)
    return Score(0.0, f"{wanted!r} is not in the picture's text: {found[0]!r}")


def _picture(file: InputFile) -> Image.Image:
    """Return a picture, or a dump of the screen by `xwd`, which programs of the desktop may have written."""
    is_dump = len(file.data()) >= _DUMP_HEADER.size and file.data()[4:8] == struct.pack(">I", _DUMP_VERSION)
    return _dump(file) if is_dump else open_image(file)


@reader
def _dump(file: InputFile) -> Image.Image:
    """Return a screen dump of 24 or 32 bits a pixel.

    Raises:
        Unreadable: damaged, or of another kind.
    """
    from PIL import Image

    data = file.data()
    fields = _DUMP_HEADER.unpack_from(data)
    begin, (depth, width, height), little = fields[0], fields[3:6], fields[7] == 0
    bits, row_bytes, colours = fields[11], fields[12], fields[19]
    if depth not in _DEPTHS or bits != 32 or width * height > MAX_PIXELS:
        raise file.bad(f"a screen dump of {width}×{height} pixels of {depth} bits is not supported")
    pixels = data[begin + colours * _DUMP_COLOUR :][: row_bytes * height]
    order = "BGRX" if little else "XRGB"
    return Image.frombuffer("RGB", (width, height), pixels, "raw", order, row_bytes, 1)


def warm_up() -> None:
    if ocr.is_there():
        from PIL import Image

        ocr.reader().read(Image.new("RGB", (8, 8)))
