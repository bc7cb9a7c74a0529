"""Metrics that compare PDF files, archives, programs and data with expected ones."""

from __future__ import annotations

import csv
import difflib
import io
import operator
import re
from datetime import UTC, datetime
from typing import Any

from osgym_host.tasks.metric_plugin import (
    Argument,
    InputFile,
    Score,
    Unreadable,
    as_file,
    as_text,
    differ,
    is_installed,
    metric,
    rules_of,
    similarity,
)
from osgym_osworld.formats.office import open_pdf, pdf_images, pdf_text
from osgym_osworld.formats.perceptual_hash import hash_distance
from osgym_osworld.packages import needs

SAME_PDF = 0.95
"""PDF files in an archive are the same when their texts are alike by this."""
SAME_PICTURE_BITS = 5
"""Pictures look the same when their hashes differ in no more bits."""
MAX_DIFF_LINES = 20_000
_MINUTES_OF_A_DAY = 24 * 60
_NUMBERS_DIFFER = 1e-4
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)")
_RELATIONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_HEADERS = ("#!", "# -*- coding:", "# coding:", "# coding=")

_pypdf = needs("pypdf")


def _alike(a: InputFile, b: InputFile) -> float:
    """Similarity of the texts of two PDF files, 0 to 1."""
    wanted = pdf_text(b)
    got = pdf_text(a)
    return 1.0 if got == wanted else similarity(got, wanted)


@metric(unsupported=_pypdf)
def compare_pdfs(result: Argument, expected: Argument) -> Score:
    """Mean similarity of the texts of pairs of PDF files; an unreadable file counts 0."""
    got = result if isinstance(result, list) else [result]
    wanted = expected if isinstance(expected, list) else [expected]
    scores: list[float] = []
    notes: list[str] = []
    for a, b in zip(got, wanted, strict=False):
        try:
            scores.append(_alike(as_file(a, "result"), as_file(b, "expected")))
        except Unreadable as error:
            if error.role != "result" or len(got) == 1:
                raise
            notes.append(str(error))
    notes.append(f"the texts are alike by {[round(score, 4) for score in scores]}")
    return Score(sum(scores) / len(wanted), "; ".join(notes))


@metric(unsupported=needs("pypdf", "numpy"))
def compare_pdf_images(result: Argument, expected: Argument) -> Score:
    """The part of the pictures in two PDF files that look the same, in order; 0 if they are not as many."""
    got, wanted = (pdf_images(as_file(v, r)) for v, r in ((result, "result"), (expected, "expected")))
    if len(got) != len(wanted):
        return differ("the number of pictures", len(got), len(wanted))
    if not wanted:
        return Score(1.0, "there is no picture in either")
    distances = [hash_distance(a, b) for a, b in zip(got, wanted, strict=True)]
    same = sum(distance <= SAME_PICTURE_BITS for distance in distances)
    return Score(same / len(wanted), f"the hashes differ in {distances[:20]} of 64 bits")


@metric(unsupported=_pypdf)
def check_pdf_pages(result: Argument, expected: Argument) -> Score:
    """The number of pages is in ``relation`` (eq ne lt le gt ge) to ``ref_value``."""
    rules = rules_of(expected)
    relation, wanted = str(rules["relation"]), rules["ref_value"]
    if relation not in _RELATIONS:
        raise Unreadable("expected", f"there is no relation {relation}")
    count = len(open_pdf(as_file(result, "result")).pages)
    holds = getattr(operator, relation)(count, wanted)
    return Score(1.0) if holds else differ("the pages", count, f"{relation} {wanted}")


@metric(unsupported=_pypdf)
def is_gold_text_included_in_pdf(result: Argument, expected: Argument) -> Score:
    """Each value of the expected JSON object is in the PDF file's text."""
    wanted, text = _object(as_file(expected, "expected")), pdf_text(as_file(result, "result"))
    missing = [key for key, value in wanted.items() if str(value) not in text]
    return Score(0.0, f"not in the text: {missing[:20]}") if missing else Score(1.0)


def _object(file: InputFile) -> dict[str, Any]:
    value = file.json()
    if not isinstance(value, dict):
        raise file.bad("it is not an object")
    return value


@metric(unsupported=_pypdf)
def compare_zip_files(result: Argument, expected: Argument) -> Score:
    """Two zip archives have the same members: PDF files alike in text by 0.95, others byte by byte."""
    files = as_file(result, "result"), as_file(expected, "expected")
    archives = [file.zip() for file in files]
    got, wanted = (set(archive.namelist()) for archive in archives)
    if got != wanted:
        return differ("the members", sorted(got), sorted(wanted))
    for name in sorted(wanted):
        a, b = (
            InputFile(-1, f"{file.name}: {name}", file.role, file.member(archive, name))
            for file, archive in zip(files, archives, strict=True)
        )
        same = a.data() == b.data()
        if not same and not (name.lower().endswith(".pdf") and _alike(a, b) >= SAME_PDF):
            return Score(0.0, f"the member {name} differs")
    return Score(1.0)


@metric()
def diff_text_file(result: Argument, expected: Argument) -> Score:
    """Similarity of the lines of two text files (difflib's ratio)."""
    got, wanted = (
        as_file(value, role).text().splitlines()
        for value, role in ((result, "result"), (expected, "expected"))
    )
    if len(got) > MAX_DIFF_LINES:
        raise as_file(result, "result").bad(f"{len(got)} lines are more than {MAX_DIFF_LINES}")
    return Score(difflib.SequenceMatcher(a=got, b=wanted).ratio())


@metric()
def compare_python_pure_text(result: Argument, expected: Argument) -> Score:
    """Two programs have the same lines, without empty ones, blanks at the end and a header."""

    def normal(file: InputFile) -> list[str]:
        lines = file.text().splitlines()
        start = 0
        while start < min(len(lines), 3) and lines[start].strip().startswith(_HEADERS):
            start += 1
        return [line.expandtabs(4).rstrip() for line in lines[start:] if line.strip()]

    got, wanted = normal(as_file(result, "result")), normal(as_file(expected, "expected"))
    return Score(1.0) if got == wanted else differ("the program", got, wanted)


@metric()
def compare_result_files(result: Argument, expected: Argument) -> Score:
    """Two texts are equal; an expected number may be anywhere in the text, or equal within 0.0001."""
    got, wanted = as_file(result, "result").text().strip(), as_file(expected, "expected").text().strip()
    try:
        number = float(wanted)
    except ValueError:
        return Score(1.0) if got == wanted else differ("the text", got, wanted)
    try:
        near = abs(float(got) - number) < _NUMBERS_DIFFER
    except ValueError:
        near = False
    return Score(1.0) if near or wanted in got else differ("the number", got, wanted)


@metric()
def check_html_background_image(result: Argument, expected: Argument) -> Score:
    """A style element of the page gives it the background image ``value``."""
    text, value = as_file(result, "result").text(), rules_of(expected)["value"]
    wanted = f"background-image: url('{value}')"
    for style in re.findall(r"<style\b[^>]*>(.*?)</style\s*>", text, re.DOTALL | re.IGNORECASE):
        if wanted in style:
            return Score(1.0)
    return Score(0.0, f"no style has {wanted}")


@metric()
def is_included_all_json_objects(result: Argument, expected: Argument) -> Score:
    """The expected file has each entry of the result's: OSWorld's tasks give the gold file as the result."""
    inner, outer = _object(as_file(result, "result")), _object(as_file(expected, "expected"))
    for key, value in inner.items():
        if key not in outer or outer[key] != value:
            return differ(key, outer.get(key), value)
    return Score(1.0)


@metric()
def check_line_number(result: Argument, expected: Argument) -> Score:
    """So many lines as ``rules.expected`` says have a time of day, hh:mm:ss."""
    count = sum(bool(_TIME.search(line)) for line in as_file(result, "result").text().splitlines())
    wanted = int(rules_of(expected)["expected"])
    return Score(1.0) if count == wanted else differ("the lines", count, wanted)


@metric()
def compare_time_in_speedtest_results(result: Argument, expected: Argument) -> Score:
    """The second line's second column ends in a time of day (UTC) less than ``expected`` minutes from now."""
    lines = as_file(result, "result").text().splitlines()
    row = next(csv.reader(lines[1:2]), [])
    try:
        said = datetime.strptime(row[1].strip()[-5:], "%H:%M").replace(tzinfo=UTC)
    except (IndexError, ValueError):
        return differ("the second line", row, "a date and a time of day")
    now = datetime.now(UTC)
    apart = abs((now.hour - said.hour) * 60 + now.minute - said.minute)
    apart = min(apart, _MINUTES_OF_A_DAY - apart)
    bound = int(as_text(expected))
    return Score(1.0) if apart < bound else differ("the minutes from now", apart, f"less than {bound}")


@metric()
def compare_terminal_and_txt(result: Argument, expected: Argument) -> Score:
    """The file's text is the terminal's."""
    got, wanted = as_file(result, "result").text(), as_text(expected)
    return Score(1.0) if got and got == wanted else differ("the text", got, wanted)


@metric()
def check_csv(result: Argument, expected: Argument) -> Score:
    """Some row has all of each entry of ``expect``; none has all of one of ``unexpect``."""
    rules, file = rules_of(expected), as_file(result, "result")
    try:
        rows = list(csv.DictReader(io.StringIO(file.text(), newline="")))
    except csv.Error as error:
        raise file.bad(f"not csv: {error}") from error

    def found(pattern: dict[str, Any]) -> bool:
        return any(all(key in row and row[key] == value for key, value in pattern.items()) for row in rows)

    for pattern in rules.get("expect", []):
        if not found(pattern):
            return Score(0.0, f"no row has {pattern}")
    for pattern in rules.get("unexpect", []):
        if found(pattern):
            return Score(0.0, f"a row has {pattern}")
    return Score(1.0)


def warm_up() -> None:
    csv.reader(["a"])
    datetime.strptime("1:1", "%H:%M").replace(tzinfo=UTC)  # its locale's names are read from a module
    if not is_installed("pypdf"):
        return
    import pypdf
    from PIL import Image

    written = io.BytesIO()
    Image.new("RGB", (2, 2)).save(written, "PDF")
    for page in pypdf.PdfReader(written).pages:
        page.extract_text()
        assert [picture.image for picture in page.images]
