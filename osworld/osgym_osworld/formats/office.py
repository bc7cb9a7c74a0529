"""Word documents, presentations and PDF files, opened by libraries behind the limits of `InputFile`."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from osgym_host.tasks.metric_plugin import InputFile, reader

if TYPE_CHECKING:
    from PIL import Image

MAX_PDF_PAGES = 500
MAX_PDF_CHARS = 250_000
MAX_PDF_IMAGES, MAX_PDF_PIXELS = 500, 64_000_000
_DECLARATIONS = (b"<!DOCTYPE", b"<!ENTITY")


def _check_package(file: InputFile, main_part: str) -> bytes:
    """Return the bytes of an Office Open XML package without bombs and without declarations in its XML.

    Raises:
        Unreadable: it is none, or has such.
    """
    archive = file.zip()
    names = archive.namelist()
    if main_part not in names:
        raise file.bad(f"it has no {main_part}")
    for name in names:
        if name.lower().endswith((".xml", ".rels")):
            data = file.member(archive, name)
            if any(declaration in data for declaration in _DECLARATIONS):
                raise file.bad(f"member {name} declares a document type")
    return file.data()


@reader
def open_presentation(file: InputFile) -> Any:
    """Return a pptx file as python-pptx's ``Presentation``.

    Raises:
        Unreadable: corrupt, a bomb, or of another kind.
    """
    import pptx

    return pptx.Presentation(io.BytesIO(_check_package(file, "ppt/presentation.xml")))


@reader
def open_document(file: InputFile) -> Any:
    """Return a docx file as python-docx's ``Document``.

    Raises:
        Unreadable: corrupt, a bomb, or of another kind.
    """
    import docx

    return docx.Document(io.BytesIO(_check_package(file, "word/document.xml")))


def cell_runs(document: Any) -> Iterator[Any]:
    """Yield the runs of text in all tables of a document, row by row."""
    for table in document.tables:
        for row in table.rows:
            for cell in row.cells:
                for paragraph in cell.paragraphs:
                    yield from paragraph.runs


@reader
def open_pdf(file: InputFile) -> Any:
    """Return a PDF file as pypdf's ``PdfReader``.

    Raises:
        Unreadable: damaged, encrypted, of another kind, or of more than 500 pages.
    """
    import pypdf

    pdf = pypdf.PdfReader(io.BytesIO(file.data()))
    if len(pdf.pages) > MAX_PDF_PAGES:
        raise file.bad(f"{len(pdf.pages)} pages are more than {MAX_PDF_PAGES}")
    return pdf


@reader
def pdf_text(file: InputFile) -> str:
    """Return the text of all pages, one after the other, without blanks at both ends.

    Raises:
        Unreadable: damaged, encrypted, of another kind, or of more than 250,000 characters.
    """
    parts: list[str] = []
    size = 0
    for page in open_pdf(file).pages:
        parts.append(page.extract_text())
        size += len(parts[-1])
        if size > MAX_PDF_CHARS:
            raise file.bad(f"its text is longer than {MAX_PDF_CHARS} characters")
    return "\n".join(parts).strip()


@reader
def pdf_images(file: InputFile) -> list[Image.Image]:
    """Return the pictures of all pages, page by page; one that cannot be decoded is left out.

    Raises:
        Unreadable: damaged, encrypted, of another kind, or with more than 500 pictures or 64 megapixels.
    """
    pictures: list[Image.Image] = []
    pixels = 0
    for page in open_pdf(file).pages:
        for name in page.images.keys():  # noqa: SIM118 - no mapping: it yields pictures
            try:
                picture = page.images[name].image
            except MemoryError:
                raise
            except Exception:  # noqa: BLE001, S112 - its filters raise anything; OSWorld leaves such out too
                continue
            if picture is None:
                continue
            pixels += picture.width * picture.height
            if len(pictures) == MAX_PDF_IMAGES or pixels > MAX_PDF_PIXELS:
                raise file.bad("its pictures are too many or too large")
            pictures.append(picture)
    return pictures
