"""Golden files of our families' office tasks, made from what their checks expect, and scores of contents."""

from __future__ import annotations

import base64
import io
import re
from typing import Any

import docx
import openpyxl
from openpyxl.formula.translate import Translator

from osgym_certify.ends.base import GoldenFile
from osgym_certify.ends.docx_parts import set_in_paragraph
from osgym_certify.ends.ooxml import Package
from osgym_certify.ends.xlsx_parts import Book, CellContent
from osgym_host.tasks.evaluator.inputs import InputFile, Unreadable
from osgym_host.tasks.evaluator.registry import METRICS, Score
from osgym_tasks import FAMILIES
from osgym_tasks.office import document_bytes

_CODES = ("General", "0.00E+00", "0.00%", "[$$-409]#,##0.00", "#,##0", "#,##0.00", "0.00", "0")
"""Codes of number formats, of which the first that fits is taken."""


def uploaded(task: dict[str, Any]) -> tuple[str, bytes]:
    """Path and content of the document that a task uploads."""
    files = next(step["parameters"]["files"] for step in task["config"] if step["type"] == "upload_file")
    return files[0]["path"], base64.b64decode(files[0]["data_base64"])


def _checks(task: dict[str, Any]) -> list[tuple[str, dict[str, Any], dict[str, Any] | None, dict[str, Any]]]:
    """The checks of a task that read its document: metric, result, expected, options."""
    judge = task["evaluator"]
    options = judge.get("options", [{} for _ in judge["func"]])
    rows = zip(judge["func"], judge["result"], judge["expected"], options, strict=True)
    return [row for row in rows if row[1]["type"] == "vm_file"]


def _rules(task: dict[str, Any], metric: str) -> dict[str, Any]:
    return next((row[2]["rules"] for row in _checks(task) if row[0] == metric and row[2]), {})


def _options(task: dict[str, Any], metric: str) -> dict[str, Any]:
    return next((row[3] for row in _checks(task) if row[0] == metric), {})


def score(task: dict[str, Any], data: bytes, before: bytes, *, only: str = "") -> dict[str, float]:
    """Scores that the checks of a task give a content of its document, by metric."""
    name = uploaded(task)[0].rpartition("/")[2]
    found: dict[str, float] = {}
    for metric, _, expected, options in _checks(task):
        wanted: Any = None
        if expected is not None:
            wanted = expected.get("rules", InputFile(-1, name, "expected", before))
        if only in ("", metric):
            try:
                result = METRICS[metric].function(InputFile(-1, name, "result", data), wanted, **options)
                number = result.score if isinstance(result, Score) else float(result)
            except Unreadable as error:
                assert error.role == "result", f"{metric}: {error}"
                number = 0.0
            found[metric] = min(found.get(metric, 1.0), number)
    return found


def task_of(family: str, seed: int = 0, level: int = 1) -> dict[str, Any]:
    """A task of a family."""
    return dict(FAMILIES[family].make(seed, level).task)


def golden_workbook(task: dict[str, Any]) -> GoldenFile:
    """The workbook that a task of Calc asks for, with the results of its formulas."""
    path, before = uploaded(task)
    made = openpyxl.load_workbook(io.BytesIO(before))
    kept, cells = _options(task, "check_workbook_kept"), _rules(task, "check_xlsx_cells")["cells"]
    for old, new in kept.get("renamed", {}).items():
        made[old].title = new
    for name in kept.get("hidden", []):
        made[name].sheet_state = "hidden"
    for row in (row for sheet in made for row in sheet.iter_rows()):
        for cell in row:
            cell.value = None
    for reference, value in cells.items():
        sheet, _, place = reference.rpartition("!")
        made[sheet][place] = value
    for rule in _options(task, "compare_table").get("rules", []):
        wanted = rule["props"]["number_format"]["ref"]
        code = next(code for code in _CODES if re.search(wanted, code))
        made[rule["sheet_idx"].removeprefix("RN")][rule["coordinate"]].number_format = code
    for rule in _rules(task, "check_xml_parts").get("parts", []):
        split = rule.get("attribute")
        if split in ("xSplit", "ySplit") and "include" in rule:
            sheet = made.worksheets[int(re.sub(r"\D", "", rule["part"])) - 1]
            corner = sheet[sheet.freeze_panes or "A1"]
            down, across = (rule["include"][0], 0) if split == "ySplit" else (0, rule["include"][0])
            sheet.freeze_panes = corner.offset(down, across).coordinate
    package = Package.read(document_bytes(made))
    book = Book(package)
    book.add_shared_strings()
    for sheet in book.sheets:  # as LibreOffice stores texts; openpyxl stores them in the cells
        for place, content in sheet.filled().items():
            sheet.put(place, content)
    for area, formula in _rules(task, "check_formulas").get("cells", {}).items():
        name, _, area = area.rpartition("!")
        asked = book.sheet(name)
        assert asked is not None
        found = openpyxl.Workbook().create_sheet()[area]
        for (cell,) in found if isinstance(found, tuple) else [(found,)]:
            origin = area.partition(":")[0]
            text = Translator(formula, origin).translate_formula(cell.coordinate).removeprefix("=")
            value = asked.content((cell.row, cell.column))
            asked.put((cell.row, cell.column), CellContent(value.kind, value.text, text))
    return GoldenFile(path, package.data(), before)


def golden_document(task: dict[str, Any]) -> GoldenFile:
    """The document that a task of Writer asks for, if it is about texts, formats, order or styles."""
    path, before = uploaded(task)
    made = docx.Document(io.BytesIO(before))
    styles = {one.text: one.style for one in made.paragraphs}
    rows = _rules(task, "check_document_text")["paragraphs"]
    filled = [one for one in made.paragraphs if one.text.strip()]
    assert len(filled) == len(rows)
    for paragraph, row in zip(filled, rows, strict=True):
        style = styles.get(row, paragraph.style)
        paragraph.text, paragraph.style = row, style
    for rule in _rules(task, "check_xml_parts").get("parts", []):
        style_id = re.search(r"pStyle\[@w:val='(\w+)'\]", rule["path"])
        for paragraph in made.paragraphs:
            if style_id and paragraph.text in rule.get("values", []):
                named = next(one for one in made.styles if one.style_id == style_id[1])
                paragraph.style = named
    for format_name, words in _rules(task, "check_text_formats").get("formats", {}).items():
        for paragraph in made.paragraphs:
            parts = re.split(rf"\b({'|'.join(map(re.escape, {*words}))})\b", paragraph.text) if words else []
            if len(parts) > 1:
                paragraph.text = ""
                for number, part in enumerate(parts):
                    run = paragraph.add_run(part)
                    if number % 2:
                        setattr(run, {"underlined": "underline"}.get(format_name, format_name), True)
    for paragraph in made.paragraphs:  # as LibreOffice states the usual style; python-docx leaves it out
        set_in_paragraph(paragraph._p, "pStyle", val=str(paragraph.style and paragraph.style.style_id))
    return GoldenFile(path, document_bytes(made), before)
