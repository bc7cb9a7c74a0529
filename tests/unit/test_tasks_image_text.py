"""The text in pictures: what Tesseract finds, screen dumps, what is said where it is missing."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageFont

from osgym_host.tasks.evaluator.inputs import InputFile, Unreadable
from osgym_host.tasks.evaluator.registry import METRICS, Score
from osgym_host.tasks.needs import Verdict, needs_of
from osgym_osworld.formats import ocr
from osgym_osworld.metrics.image_text import _picture

needs_reader = pytest.mark.skipif(not ocr.is_there(), reason="missing: tesseract-ocr")
LINES = ("user@osgym:~$ ls -l", "drwxr-xr-x 2 user 4096 Documents")


def screen(mode: str = "RGB") -> Image.Image:
    """Two lines in a terminal's colours, of a size that can be read."""
    image = Image.new("RGB", (640, 200), "black")
    draw = ImageDraw.Draw(image)
    for index, line in enumerate(LINES):
        draw.text((20, 20 + 40 * index), line, font=ImageFont.load_default(20), fill="white")
    return image.convert(mode)


def file_of(data: bytes, name: str = "screen.png") -> InputFile:
    """A result."""
    return InputFile(-1, name, "result", data)


def png(image: Image.Image) -> InputFile:
    """The same as a file."""
    out = io.BytesIO()
    image.save(out, "PNG")
    return file_of(out.getvalue())


def dump(image: Image.Image, order: int = 0, depth: int = 24, bits: int = 32) -> InputFile:
    """The picture as `xwd -root` writes it: header, name, a colour that nobody needs, rows with a gap."""
    name, row = b"xwdump\0\0", image.width * 4 + 8
    head = [100 + len(name), 7, 2, depth, image.width, image.height, 0, order, 32, order, 32, bits, row]
    head += [4, 0xFF0000, 0xFF00, 0xFF, 8, 256, 1, image.width, image.height, 0, 0, 0]
    rgb = image.convert("RGB").tobytes()
    pixels = (rgb[at : at + 3] for at in range(0, len(rgb), 3))
    raw = b"".join(p[::-1] + b"\0" if order == 0 else b"\0" + p for p in pixels)
    rows = [raw[y * image.width * 4 : (y + 1) * image.width * 4] + bytes(8) for y in range(image.height)]
    return file_of(struct.pack(">25I", *head) + name + bytes(12) + b"".join(rows), "screen.xwd")


def score(file: InputFile, text: Any, kind: str = "text") -> float:
    """The metric's."""
    got = METRICS["compare_image_text"].function(file, {"type": kind, "text": text})
    assert isinstance(got, Score)
    return got.score


@needs_reader
@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA"])
def test_what_is_written_is_found(mode: str) -> None:
    """Also over lines; another word, or the same in capitals, is not."""
    file = png(screen(mode))
    for text in ("ls -l", "Documents", "user@osgym", "ls  -l\ndrwxr-xr-x"):
        assert score(file, text) == 1, text
    for text in ("Music", "DOCUMENTS"):
        assert score(file, text) == 0, text
    assert score(png(Image.new("RGB", (3, 3))), "a") == 0


@needs_reader
def test_a_dump_of_the_screen_is_read() -> None:
    """As OSWorld's reader does."""
    assert score(dump(screen()), "Documents") == 1
    with pytest.raises(Unreadable, match="'text'") as caught:
        score(png(screen()), "a", kind="regex")
    assert caught.value.role == "expected"


@pytest.mark.parametrize("order", [0, 1], ids=["little", "big"])
def test_pixels_of_a_dump_are_in_their_places(order: int) -> None:
    """Byte order, gaps at the ends of rows, colours before the pixels."""
    image = Image.frombytes("RGB", (3, 2), bytes((*range(1, 10), 250, 0, 0, 0, 251, 0, 0, 0, 252)))
    got = _picture(dump(image, order))
    assert (got.mode, got.size, got.tobytes()) == ("RGB", (3, 2), image.tobytes())


def test_wrong_dumps_are_wrong_results() -> None:
    """Cut off, of other depths, larger than the machine: 0 with a note, never a crash."""
    good = dump(screen())
    for file in (
        file_of(good.data()[:-20]),
        dump(screen(), depth=8),
        dump(screen(), bits=16),
        file_of(b"\0" * 200),
    ):
        with pytest.raises(Unreadable) as caught:
            _picture(file)
        assert caught.value.role == "result"
    head = list(struct.unpack(">25I", good.data()[:100]))
    head[4:6] = [0xFFFFFFFF, 0xFFFFFFFF]
    with pytest.raises(Unreadable, match="is not supported"):
        _picture(file_of(struct.pack(">25I", *head) + good.data()[100:]))


def test_a_host_without_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """`osgym task check`, and a reset in the same words."""
    monkeypatch.setattr(ocr, "is_there", lambda: False)
    check = {
        "func": "compare_image_text",
        "result": {"type": "vm_file", "path": "/home/user/a.png", "dest": "a.png"},
        "expected": {"type": "rule", "rules": {"type": "text", "text": "a"}},
    }  # fmt: skip
    found = needs_of({"id": "t", "instruction": "", "config": [], "evaluator": check}, lambda name: True)
    assert found.verdict is Verdict.MISSING
    assert found.missing == ("program Tesseract (apt install tesseract-ocr) of compare_image_text",)
