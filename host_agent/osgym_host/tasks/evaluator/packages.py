"""The libraries of the extra ``osworld``, which some metrics need and a host may go without.

They are loaded by `warm_up` before the evaluator shuts itself in: a confined child can import nothing.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

DISTRIBUTIONS = {
    "docx": "python-docx",
    "lxml": "lxml",
    "numpy": "numpy",
    "pptx": "python-pptx",
    "pypdf": "pypdf",
}
"""Distributions by the name that is imported."""


@cache
def is_there(module: str) -> bool:
    """Whether a library is installed; it is not imported."""
    return importlib.util.find_spec(module) is not None


def needs(*modules: str) -> Callable[[Mapping[str, Any]], list[str]]:
    """For a metric's ``unsupported``: which of these libraries are missing, and how to get them."""
    assert set(modules) <= DISTRIBUTIONS.keys()

    def missing(options: Mapping[str, Any]) -> list[str]:
        return [
            f"package {DISTRIBUTIONS[module]} (pip install 'osgym-host[osworld]')"
            for module in modules
            if not is_there(module)
        ]

    return missing


def warm_up() -> None:
    """Use each library once, so that what it imports late is there."""
    if is_there("numpy"):
        from osgym_host.tasks.evaluator.structure import structural_similarity

        structural_similarity(*_two_pictures())
    if is_there("pptx"):
        _warm_up_slides()
    if is_there("docx"):
        _warm_up_documents()
    if is_there("pypdf"):
        _warm_up_pdf()


def _two_pictures() -> tuple[Any, Any]:
    from PIL import Image

    return Image.new("RGB", (8, 8)), Image.new("RGB", (8, 8), "red")


def _warm_up_slides() -> None:
    import io

    from PIL import Image
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
    from osgym_host.tasks.evaluator.metrics.slides_compare import differences

    one, other = (Presentation(io.BytesIO(written.getvalue())) for _ in range(2))
    assert next(differences(one, other), None) is None


def _warm_up_documents() -> None:
    import io

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
    import io

    import pypdf
    from PIL import Image

    written = io.BytesIO()
    Image.new("RGB", (2, 2)).save(written, "PDF")
    for page in pypdf.PdfReader(written).pages:
        page.extract_text()
