"""Loads what metrics import late before the evaluator shuts itself in: a confined child imports nothing."""

from __future__ import annotations

import csv
import html.parser
import importlib
import io
import sqlite3
import tarfile
import unittest
import wave
import zipfile
from datetime import UTC, datetime

import openpyxl
from PIL import Image, ImageChops, ImageStat

from osgym_host.tasks.evaluator import ocr
from osgym_host.tasks.evaluator.inputs import InputFile
from osgym_host.tasks.evaluator.metrics.slides_compare import differences
from osgym_host.tasks.evaluator.packages import FOR_PROGRAMS, is_there
from osgym_host.tasks.evaluator.program import served
from osgym_host.tasks.evaluator.structure import structural_similarity

LOADED = (ImageChops, ImageStat, served)
"""What metrics import only when they run."""
OF_THE_LIBRARY = (
    "argparse", "array", "bisect", "cmath", "collections.abc", "colorsys", "contextlib", "copy",
    "dataclasses", "datetime", "decimal", "difflib", "enum", "fractions", "functools", "hashlib",
    "heapq", "inspect", "io", "itertools", "json", "logging", "math", "numbers", "operator", "os",
    "pathlib", "pprint", "queue", "random", "re", "secrets", "shutil", "statistics", "string",
    "subprocess", "sys", "tempfile", "textwrap", "threading", "time", "traceback", "types", "typing",
    "unittest.mock", "uuid", "warnings", "weakref",
)  # fmt: skip
"""What a result's programs and their tests may import of Python's own library."""


def warm_up() -> dict[str, str]:
    """Use each library once, so that its late imports are done before processes are forked.

    Returns:
        Metrics that cannot run on this machine, each with the reason.
    """
    lacking: dict[str, str] = {}
    _warm_up_parsers()
    if is_there("numpy"):
        structural_similarity(*_two_pictures())
    if is_there("pptx"):
        _warm_up_slides()
    if is_there("docx"):
        _warm_up_documents()
    if is_there("pypdf"):
        _warm_up_pdf()
    if is_there("lxml") and is_there("cssselect"):
        _warm_up_trees()
    if is_there("av") and is_there("numpy"):
        _warm_up_media()
    if is_there("mutagen"):
        _warm_up_tags()
    if is_there("yaml"):
        _warm_up_yaml()
    if ocr.is_there():
        try:
            ocr.reader().read(_two_pictures()[0])
        except OSError as error:  # the model does not fit the version of its library
            lacking["compare_image_text"] = str(error)
    _warm_up_programs()
    return lacking


def _warm_up_parsers() -> None:
    buffer = io.BytesIO()
    book = openpyxl.Workbook()
    book.create_sheet("a").append([1, "a", 0.5, True])
    book.save(buffer)
    html.parser.HTMLParser().feed("<p>&amp;</p>")
    sqlite3.connect(":memory:").close()
    openpyxl.load_workbook(io.BytesIO(buffer.getvalue()), data_only=True)
    for image_format in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"):
        buffer = io.BytesIO()
        Image.new("RGB", (2, 2)).save(buffer, image_format)
        Image.open(io.BytesIO(buffer.getvalue())).load()
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(io.BytesIO(), "w", method) as archive:
            archive.writestr("a", b"a")
    for mode in ("w:gz", "w:bz2", "w:xz"):
        with tarfile.open(fileobj=io.BytesIO(), mode=mode) as tar:
            tar.addfile(tarfile.TarInfo("a"))
    csv.reader(["a"])
    datetime.strptime("1:1", "%H:%M").replace(tzinfo=UTC)  # its locale's names are read from a module


def _two_pictures() -> tuple[Image.Image, Image.Image]:
    return Image.new("RGB", (8, 8)), Image.new("RGB", (8, 8), "red")


def _warm_up_slides() -> None:
    from pptx import Presentation
    from pptx.util import Pt

    deck = Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    slide.shapes.title.text = "a"
    slide.background.fill.solid()
    slide.notes_slide.notes_text_frame.text = "a"
    slide.shapes.add_table(1, 1, Pt(1), Pt(1), Pt(9), Pt(9)).table.cell(0, 0).text = "a"
    picture = io.BytesIO()
    Image.new("RGB", (2, 2)).save(picture, "PNG")
    slide.shapes.add_picture(picture, 0, 0)
    written = io.BytesIO()
    deck.save(written)
    one, other = (Presentation(io.BytesIO(written.getvalue())) for _ in range(2))
    assert next(differences(one, other), None) is None


def _warm_up_documents() -> None:
    import docx

    document = docx.Document()
    document.add_paragraph("a").add_run("b").font.strike = True
    document.add_table(1, 1).cell(0, 0).text = "a"
    document.sections[0].footer.paragraphs[0].text = "1"
    written = io.BytesIO()
    document.save(written)
    read = docx.Document(io.BytesIO(written.getvalue()))
    for paragraph in read.paragraphs:
        assert not any(run.font.color.rgb for run in paragraph.runs)
        assert not list(paragraph.paragraph_format.tab_stops)
    assert read.sections[0].footer.paragraphs[0].text == "1"


def _warm_up_pdf() -> None:
    import pypdf

    written = io.BytesIO()
    Image.new("RGB", (2, 2)).save(written, "PDF")
    for page in pypdf.PdfReader(written).pages:
        page.extract_text()
        assert [picture.image for picture in page.images]


def _warm_up_trees() -> None:
    from osgym_host.tasks.evaluator.metrics.accessibility import check_accessibility_tree
    from osgym_host.tasks.evaluator.metrics.archives import compare_epub

    rules = [{"selectors": ["a[attr|id=b]>c"]}, {"xpath": "//c[@st:a]"}]
    assert check_accessibility_tree("<a><c/></a>", rules).score == 0
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("a.html", "<p>a")
    book = InputFile(-1, "a.epub", "result", written.getvalue())
    assert compare_epub(book, book).score == 1


def _warm_up_media() -> None:
    from osgym_host.tasks.evaluator.metrics.sound_and_video import compare_audios, compare_videos

    sound, video = io.BytesIO(), io.BytesIO()
    with wave.open(sound, "wb") as written:
        written.setnchannels(2)
        written.setsampwidth(2)
        written.setframerate(8000)
        written.writeframes(bytes(range(256)) * 128)
    Image.new("RGB", (8, 8)).save(video, "GIF")
    for compare, data in ((compare_audios, sound), (compare_videos, video)):
        file = InputFile(-1, "a", "result", data.getvalue())
        assert compare(file, file).score > 0.999


def _warm_up_tags() -> None:
    from osgym_host.tasks.evaluator.metrics.sound_and_video import check_mp3_meta

    title = b"TIT2\0\0\0\x02\0\0\x03a"
    file = InputFile(-1, "a", "result", b"ID3\x04\0\0\0\0\0" + bytes([len(title)]) + title)
    assert check_mp3_meta(file, {"title": {"method": "eq", "ref": "a"}}).score == 1


def _warm_up_yaml() -> None:
    import yaml

    assert yaml.safe_load("a: [1, b, 2001-01-01]")


def _warm_up_programs() -> None:
    for name in (*OF_THE_LIBRARY, *filter(is_there, FOR_PROGRAMS)):
        importlib.import_module(name)
    unittest.TextTestRunner(stream=io.StringIO()).run(unittest.TestSuite())
