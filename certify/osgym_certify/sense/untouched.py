"""Verdict of a check on the desktop as the set-up leaves it, as far as the task file shows it. Pure."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any

import openpyxl

from osgym_certify.sense.base import RawCheck, View
from osgym_certify.sense.texts import data_of

_MAX_BOOK_BYTES = 4 << 20


def passes(check: RawCheck, view: View) -> bool | None:
    """Return whether a check holds before anybody acts; None if the file does not show it."""
    if check.keeps:
        return True
    if check.result.get("type") != "vm_file":
        return None
    data = _uploaded(view, check.result.get("path"))
    if data is None:
        return None
    if check.expected.get("type") == "vm_file":
        other = _uploaded(view, check.expected.get("path"))
        return None if other is None else data == other
    return _holds(check.func, check.rules, data) if isinstance(check.rules, Mapping) else None


def _uploaded(view: View, path: Any) -> bytes | None:
    """Return the content of a file that the set-up uploads, unless a later command may change it."""
    data = None
    for step in view.setup:
        if step.type == "upload_file":
            for file in step.parameters.get("files", ()):
                if file.get("path") == path:
                    data = data_of(file)
        elif step.type in ("command", "execute") and isinstance(path, str) and path in step.command:
            data = None
    return data


def _holds(func: str, rules: Mapping[str, Any], data: bytes) -> bool | None:
    if func == "check_xlsx_cells":
        return _cells_hold(rules, data)
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return None
    match func:
        case "check_text_lines" if "line_end" not in rules:
            return text.removesuffix("\n").split("\n") == (list(rules.get("lines", ())) or [""])
        case "compare_config" | "compare_answer":
            return text == str(rules.get("expected"))
        case "file_contains":
            wanted = rules.get("expected", ())
            return all(str(one) in text for one in ([wanted] if isinstance(wanted, str) else wanted))
        case "check_include_exclude":
            included = all(one in text for one in rules.get("include") or ())
            return included and not any(one in text for one in rules.get("exclude") or ())
        case "check_document_text" if "paragraphs" in rules:
            paragraphs: Any = rules["paragraphs"]
            return bool([line.strip() for line in text.splitlines() if line.strip()] == paragraphs)
    return None


def _cells_hold(rules: Mapping[str, Any], data: bytes) -> bool | None:
    cells = rules.get("cells")
    if not isinstance(cells, Mapping) or len(data) > _MAX_BOOK_BYTES or rules.get("others_empty"):
        return None
    try:
        book = openpyxl.load_workbook(io.BytesIO(data))
        return all(_cell(book, str(name)) == wanted for name, wanted in cells.items())
    except (KeyError, ValueError, OSError, TypeError, zipfile.BadZipFile):
        return None


def _cell(book: openpyxl.Workbook, name: str) -> Any:
    sheet, _, coordinate = name.rpartition("!")
    return book[sheet or book.sheetnames[0]][coordinate].value
