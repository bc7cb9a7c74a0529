"""Attribution of a failed metric to the result or to our side, by a run with a good result.

A metric that raises, crashes or uses up its memory or CPU time failed because of the result (a wrong result:
0), or because of the expected value, the task's rules or the metric itself (then there is no reward). The
difference matters: a result comes from a policy, which must not turn its 0 into a failure of ours by a
file that no parser survives. So the same metric runs with the same expected value on a control: the expected
files in the result's place, or small documents of each kind. If that works, the result was at fault.

What stops a metric from outside (the wall clock, the host's memory) is never the result's: CPU time and
address space are bounded each by itself, and do not depend on what else the host does.
"""

from __future__ import annotations

import base64
import io
import sqlite3
import struct
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from osgym_host.tasks.context import TaskRun
from osgym_host.tasks.evaluator.registry import MetricEnd
from osgym_host.tasks.sandbox import MetricFailed, MetricJob
from osgym_host.tasks.values import Value

_NAMESPACES = "".join(
    f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{urn}:1.0"'
    for name, urn in (("office", "office"), ("text", "text"), ("table", "table"), ("draw", "drawing"))
)
_OPEN_DOCUMENT = (
    f"<office:document-content{_NAMESPACES}><office:body><text:p>a</text:p>"
    '<draw:page draw:name="1"><text:p>a</text:p></draw:page>'
    '<table:table table:name="Sheet1"><table:table-row>'
    '<table:table-cell office:value-type="string"><text:p>a</text:p></table:table-cell>'
    "</table:table-row></table:table></office:body></office:document-content>"
)
_PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVQI12P4//8/AAX+Av7czFnnAAAAAElFTkSuQmCC"
)
_OPEN_XML = "http://schemas.openxmlformats.org"
_WORD, _SLIDES = f"{_OPEN_XML}/wordprocessingml/2006/main", f"{_OPEN_XML}/presentationml/2006/main"
_SHEETS = f"{_OPEN_XML}/spreadsheetml/2006/main"
_TYPES, _RELATIONS = f"{_OPEN_XML}/package/2006/content-types", f"{_OPEN_XML}/package/2006/relationships"
_OFFICE_RELATIONS = f"{_OPEN_XML}/officeDocument/2006/relationships"
_MAIN = "application/vnd.openxmlformats-officedocument"
_RELS = "application/vnd.openxmlformats-package.relationships+xml"
_PAGE = (
    '<w:sectPr><w:pgSz w:w="12240" w:h="15840"/>'
    '<w:pgMar w:top="1" w:right="1" w:bottom="1" w:left="1" w:header="1" w:footer="1" w:gutter="0"/>'
    "</w:sectPr>"
)
_PARAGRAPH = "<w:p><w:r><w:t>a</w:t></w:r></w:p>"
_DOCUMENT = f'<w:document xmlns:w="{_WORD}"><w:body>{_PARAGRAPH}{_PAGE}</w:body></w:document>'
_DECK = f'<p:presentation xmlns:p="{_SLIDES}"><p:sldSz cx="9144000" cy="6858000"/></p:presentation>'
_BOOK = (
    f'<workbook xmlns="{_SHEETS}" xmlns:r="{_OFFICE_RELATIONS}"><sheets>'
    '<sheet name="Sheet1" sheetId="1" r:id="r1"/></sheets></workbook>'
)
_SHEET = (
    f'<worksheet xmlns="{_SHEETS}"><sheetData><row r="1"><c r="A1"><v>1</v></c></row></sheetData></worksheet>'
)
_PDF = (
    b"%PDF-1.4\n1 0 obj\n<</Type/Catalog/Pages 2 0 R>>\nendobj\n"
    b"2 0 obj\n<</Type/Pages/Kids[3 0 R]/Count 1>>\nendobj\n"
    b"3 0 obj\n<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>\nendobj\n"
    b"xref\n0 4\n0000000000 65535 f \n0000000009 00000 n \n0000000054 00000 n \n0000000105 00000 n \n"
    b"trailer\n<</Size 4/Root 1 0 R>>\nstartxref\n168\n%%EOF\n"
)
_MP3_TAGS = b"ID3\x04\0\0\0\0\0\x0cTIT2\0\0\0\x02\0\0\x03a"
_WAV = "<4sI8sIHHIIHH4sI"
_SILENCE = struct.pack(_WAV, b"RIFF", 236, b"WAVEfmt ", 16, 1, 1, 8000, 8000, 1, 8, b"data", 200)


def _package(part: str, kind: str, xml: str, further: Mapping[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in (further or {}).items():
            archive.writestr(name, text)
        override = f'<Override PartName="/{part}" ContentType="{_MAIN}.{kind}.main+xml"/>'
        default = f'<Default Extension="rels" ContentType="{_RELS}"/>'
        archive.writestr("[Content_Types].xml", f'<Types xmlns="{_TYPES}">{default}{override}</Types>')
        relation = f'<Relationship Id="r1" Type="{_OFFICE_RELATIONS}/officeDocument" Target="{part}"/>'
        archive.writestr("_rels/.rels", f'<Relationships xmlns="{_RELATIONS}">{relation}</Relationships>')
        archive.writestr(part, xml)
    return buffer.getvalue()


def _workbook() -> bytes:
    relation = f'<Relationship Id="r1" Type="{_OFFICE_RELATIONS}/worksheet" Target="worksheets/sheet1.xml"/>'
    parts = {
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_RELATIONS}">{relation}</Relationships>',
        "xl/worksheets/sheet1.xml": _SHEET,
    }
    return _package("xl/workbook.xml", "spreadsheetml.sheet", _BOOK, parts)


def _database() -> bytes:
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE TABLE a (b)")
        return bytes(connection.serialize())
    finally:
        connection.close()


@cache
def control_files() -> dict[str, bytes]:
    """Return a small file of each kind that metrics read. The open document is text, table and slides."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("content.xml", _OPEN_DOCUMENT)
        archive.writestr("styles.xml", f"<office:document-styles{_NAMESPACES}/>")
    return {
        "control.txt": b"a\n",
        "control.json": b'{"folder": "/", "entries": {}}',  # a record of a folder, too
        "control.xml": b"<a/>",
        "control.png": _PNG,
        "control.odt": buffer.getvalue(),
        "control.docx": _package("word/document.xml", "wordprocessingml.document", _DOCUMENT),
        "control.xlsx": _workbook(),
        "control.pptx": _package("ppt/presentation.xml", "presentationml.presentation", _DECK),
        "control.pdf": _PDF,
        "control.wav": _SILENCE + bytes([128]) * 200,
        "control.mp3": _MP3_TAGS,
        "control.sqlite": _database(),
    }


CONTROL_DATA: Sequence[object] = ("a\n", "{}", ["a"], {"name": "a", "width": 1, "height": 1, "children": []})
"""Values of getters that return no file: text, names, a size, a folder."""


def may_be_the_results(failure: MetricFailed, job: MetricJob) -> bool:
    """Return whether a control can tell more than the failure itself; pure."""
    match failure.end:
        case MetricEnd.OUTSIDE:
            return False
        case MetricEnd.EXPECTED:  # a result that takes all memory makes the expected file unreadable
            return job.expected is not None and bool(job.expected.files)
        case (
            MetricEnd.RAISED
            | MetricEnd.OUT_OF_MEMORY
            | MetricEnd.CPU_TIME
            | MetricEnd.PROGRAM_TIME
            | MetricEnd.CRASHED
        ):
            return True


async def blame_result(
    job: MetricJob, failure: MetricFailed, run: TaskRun, *, expected_from_replica: bool
) -> str:
    """Return why the result is to blame for a metric's failure.

    Raises:
        MetricFailed: It is not: the metric fails on a control as well, or nothing was its fault.
        EvaluatorError: The control could not be run.
    """
    if job.result is None or not (may_be_the_results(failure, job) or expected_from_replica):
        raise failure
    for control in await _controls(job, run, expected_from_replica=expected_from_replica):
        try:
            await run.verdict(control)
        except MetricFailed as error:
            message = f"{failure.message}; the metric also fails on a good result: {error.message}"
            raise MetricFailed(message, job.func, error.end) from failure
    return f"the result cannot be checked: {failure.message}"


async def _controls(job: MetricJob, run: TaskRun, *, expected_from_replica: bool) -> list[MetricJob]:
    result, expected = job.result, job.expected
    assert result is not None
    if expected is not None and expected.files and not expected_from_replica and result.files:
        good = replace(result, files=expected.files, beside=expected.beside, many=expected.many)
        return [replace(job, result=good)]
    if not result.files:
        given = [Value(data=data) for data in CONTROL_DATA if isinstance(data, type(result.data))]
        return [replace(job, result=value) for value in given]
    jobs = []
    for name, data in control_files().items():
        file = await run.keep(data, name)
        value = replace(result, files=(file,) * len(result.files))
        jobs.append(replace(job, result=value))
        if expected_from_replica and expected is not None and expected.files:
            jobs[-1] = replace(jobs[-1], expected=replace(expected, files=(file,) * len(expected.files)))
    return jobs
