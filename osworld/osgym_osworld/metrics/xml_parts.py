"""A metric over the XML inside documents: its elements, their attributes and texts."""

from __future__ import annotations

import fnmatch
import io
import re
import zipfile
from typing import Any
from xml.etree.ElementTree import Element

from osgym_host.tasks.metric_plugin import (
    Argument,
    InputFile,
    Score,
    Unreadable,
    as_file,
    differ,
    metric,
    reader,
    rules_of,
)

_OFFICE = "urn:oasis:names:tc:opendocument:xmlns:"
_OOXML = "http://schemas.openxmlformats.org/"
PREFIXES = {
    "a": f"{_OOXML}drawingml/2006/main",
    "c": f"{_OOXML}drawingml/2006/chart",
    "p": f"{_OOXML}presentationml/2006/main",
    "r": f"{_OOXML}officeDocument/2006/relationships",
    "rel": f"{_OOXML}package/2006/relationships",
    "s": f"{_OOXML}spreadsheetml/2006/main",
    "w": f"{_OOXML}wordprocessingml/2006/main",
    "xdr": f"{_OOXML}drawingml/2006/spreadsheetDrawing",
    **{
        name: f"{_OFFICE}{name}:1.0"
        for name in [
            "chart",
            "config",
            "draw",
            "manifest",
            "office",
            "presentation",
            "style",
            "table",
            "text",
        ]
    },
    "table": f"{_OFFICE}table:1.0",
    "text": f"{_OFFICE}text:1.0",
    "fo": f"{_OFFICE}xsl-fo-compatible:1.0",
    "number": f"{_OFFICE}datastyle:1.0",
    "svg": f"{_OFFICE}svg-compatible:1.0",
    "xlink": "http://www.w3.org/1999/xlink",
    "xspf": "http://xspf.org/ns/0/",
}
"""XML namespaces by the prefixes of paths and attributes."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
MAX_FOUND = 100_000


@metric()
def check_xml_parts(result: Argument, expected: Argument) -> Score:
    """All of ``parts`` hold: each says what its ``path`` (ElementTree's XPath) finds in a ``part``.

    A part is a member of a zip archive by name or pattern (``xl/charts/chart*.xml``, in the order of their
    numbers); without one the file itself is XML. Of each element found the text is read, or its
    ``attribute`` where it has one. ``count`` says how many are found; ``values`` which, in order;
    ``include`` and ``exclude`` which are or are not among them. With ``tolerance`` the numbers that values
    begin with may differ by that much.
    """
    file, rules = as_file(result, "result"), rules_of(expected)
    for rule in rules["parts"]:
        found = _found(file, rule)
        what = f"{rule.get('part', '')} {rule['path']} {rule.get('attribute', '')}".strip()
        if "count" in rule and len(found) != rule["count"]:
            return differ(f"how many {what}", len(found), rule["count"])
        if "values" in rule and not _same(found, rule["values"], rule):
            return differ(what, found, rule["values"])
        for value in rule.get("include", []):
            if not any(_same([one], [value], rule) for one in found):
                return Score(0.0, f"{what}: {value!r} is not among {str(found)[:200]}")
        for value in rule.get("exclude", []):
            if any(_same([one], [value], rule) for one in found):
                return Score(0.0, f"{what}: {value!r} is among them")
    return Score(1.0)


def _found(file: InputFile, rule: dict[str, Any]) -> list[str]:
    path, attribute = str(rule["path"]), rule.get("attribute")
    name = None if attribute is None else _full_name(str(attribute))
    found: list[str] = []
    for root in _parts(file, rule.get("part")):
        try:
            elements = root.findall(path, PREFIXES)
        except (SyntaxError, KeyError, TypeError) as error:  # what ElementTree raises of a wrong path
            raise Unreadable("expected", f"the path {path!r} is wrong: {error}") from error
        for element in elements:
            if name is None:
                found.append("".join(element.itertext()))
            elif (value := element.get(name)) is not None:
                found.append(value)
        if len(found) > MAX_FOUND:
            raise file.bad(f"more than {MAX_FOUND} elements at {path}")
    return found


def _full_name(attribute: str) -> str:
    prefix, colon, name = attribute.partition(":")
    if not colon:
        return attribute
    if prefix not in PREFIXES:
        raise Unreadable("expected", f"the prefix of {attribute!r} is none of {', '.join(sorted(PREFIXES))}")
    return f"{{{PREFIXES[prefix]}}}{name}"


@reader
def _parts(file: InputFile, pattern: Any) -> list[Element]:
    """Return the parsed parts; none where the archive has none of that name."""
    if pattern is None:
        return [file.xml(file.data())]
    if not zipfile.is_zipfile(io.BytesIO(file.data())):
        raise file.bad("the file is not a document with parts")
    archive = file.zip()
    names = [name for name in archive.namelist() if fnmatch.fnmatchcase(name, str(pattern))]
    return [file.xml(file.member(archive, name)) for name in sorted(set(names), key=_by_numbers)]


def _by_numbers(name: str) -> list[Any]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def _same(found: list[str], wanted: list[Any], rule: dict[str, Any]) -> bool:
    if len(found) != len(wanted):
        return False
    tolerance = rule.get("tolerance")
    if tolerance is None:
        return found == [str(value) for value in wanted]
    pairs = [(_number(a), _number(str(b))) for a, b in zip(found, wanted, strict=True)]
    return all(a is not None and b is not None and abs(a - b) <= tolerance for a, b in pairs)


def _number(text: str) -> float | None:
    match = _NUMBER.match(text.strip())
    return float(match[0]) if match else None
