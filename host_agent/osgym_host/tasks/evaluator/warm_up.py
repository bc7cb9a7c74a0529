"""Loads what metrics import late before the evaluator shuts itself in: a confined child imports nothing."""

from __future__ import annotations

import html.parser
import io
import sqlite3
import zipfile

import openpyxl
from PIL import Image

from osgym_host.tasks.evaluator.metrics.slides_compare import differences
from osgym_host.tasks.evaluator.packages import is_there
from osgym_host.tasks.evaluator.structure import structural_similarity


def warm_up() -> None:
    """Use each library once, so that what it imports late is there."""
    _warm_up_parsers()
    if is_there("numpy"):
        structural_similarity(*_two_pictures())
    if is_there("pptx"):
        _warm_up_slides()
    if is_there("docx"):
        _warm_up_documents()
    if is_there("pypdf"):
        _warm_up_pdf()


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
