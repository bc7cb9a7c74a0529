"""Documents for tasks, as bytes that depend on nothing but their content."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docx.document import Document
    from openpyxl import Workbook
    from pptx.presentation import Presentation

_TIME = (2025, 1, 1, 0, 0, 0)
_DATED = "docProps/core.xml"

UNTIL_IDLE = """
for round in $(seq 100); do
  set -- $(sed 's/.*) //' /proc/$(pgrep -o soffice.bin)/stat)
  [ "$1" = S ] && [ $((${12} + ${13} - ${before:-0})) -le 1 ] && still=$((still + 1)) || still=0
  [ $still -ge 3 ] && exit
  before=$((${12} + ${13}))
  sleep 0.25
done
"""
"""Script that waits for LibreOffice until its window has a title and is idle."""


def document_bytes(document: Workbook | Document | Presentation) -> bytes:
    """Return a document of openpyxl, python-docx or python-pptx as reproducible bytes.

    Their writers put the time into the archive's members and into its properties; both are left out.
    """
    raw, out = io.BytesIO(), io.BytesIO()
    document.save(raw)
    with (
        zipfile.ZipFile(raw) as got,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as made,
    ):
        for name in got.namelist():
            data = got.read(name) if name != _DATED else _PROPERTIES
            made.writestr(zipfile.ZipInfo(name, _TIME), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


_PROPERTIES = (
    b'<?xml version="1.0" encoding="UTF-8" standalone="yes"?><cp:coreProperties xmlns:cp="http://schemas.'
    b'openxmlformats.org/package/2006/metadata/core-properties"></cp:coreProperties>'
)
