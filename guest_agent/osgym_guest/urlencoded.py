"""Parsing of queries and forms, without the standard library's heavy modules."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass

MAX_PARTS = 64
MAX_PART_HEADER_BYTES = 8 * 1024


@dataclass(frozen=True)
class FormFile:
    """One uploaded file: its name as the client gave it, and its content."""

    filename: str
    content: memoryview


@dataclass(frozen=True)
class Form:
    """A parsed form: text fields, and files by field name."""

    fields: Mapping[str, str]
    files: Mapping[str, FormFile]


def unquote(text: str, *, plus: bool = False) -> str:
    """Decode percent escapes as UTF-8 (and ``+`` as a space when `plus`)."""
    if plus:
        text = text.replace("+", " ")
    if "%" not in text:
        return text
    first, *rest = text.encode("utf-8").split(b"%")
    out = bytearray(first)
    for piece in rest:
        digits = piece[:2]
        if len(digits) == 2 and all(digit in b"0123456789abcdefABCDEF" for digit in digits):
            out.append(int(digits, 16))
            out += piece[2:]
        else:
            out += b"%" + piece
    return out.decode("utf-8", "replace")


def parse_urlencoded(text: str) -> dict[str, str]:
    """Return the fields of an urlencoded text; the last one of a repeated field."""
    fields: dict[str, str] = {}
    for pair in text.split("&"):
        if pair:
            name, _, value = pair.partition("=")
            fields[unquote(name, plus=True)] = unquote(value, plus=True)
    return fields


def split_query(target: str) -> tuple[str, dict[str, str]]:
    """Return path and query fields of a request target."""
    path, _, query = target.partition("?")
    return unquote(path), parse_urlencoded(query) if query else {}


def parse_multipart(body: bytes | mmap.mmap, content_type: str) -> Form:
    """Return fields and files of a multipart body; file contents are views, not copies.

    Raises:
        ValueError: The body is not well-formed multipart/form-data.
    """
    boundary = _parameter(content_type, "boundary")
    if not boundary:
        raise ValueError("multipart without a boundary")
    mark = b"--" + boundary.encode("latin-1")
    view = memoryview(body)
    fields: dict[str, str] = {}
    files: dict[str, FormFile] = {}
    at = body.find(mark)
    for _ in range(MAX_PARTS):
        if at < 0:
            raise ValueError("the multipart body has no end mark")
        at += len(mark)
        if bytes(view[at : at + 2]) == b"--":
            return Form(fields, files)
        start = at + 2
        head_end = body.find(b"\r\n\r\n", at, at + MAX_PART_HEADER_BYTES)
        end = body.find(b"\r\n" + mark, max(head_end + 2, at))
        if head_end < 0 or end < 0:
            raise ValueError("a part of the multipart body is cut off")
        disposition = _disposition(bytes(view[start:head_end]))
        name = _parameter(disposition, "name")
        if name is None:
            raise ValueError("a part of the multipart body has no name")
        content = view[min(head_end + 4, end) : end]
        filename = _parameter(disposition, "filename")
        if filename is None:
            fields[name] = bytes(content).decode("utf-8", "replace")
        else:
            files[name] = FormFile(filename, content)
        at = end + 2
    raise ValueError(f"the multipart body has more than {MAX_PARTS} parts")


def _disposition(head: bytes) -> str:
    for line in head.decode("utf-8", "replace").split("\r\n"):
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-disposition":
            return value
    raise ValueError("a part of the multipart body has no Content-Disposition")


def _parameter(value: str, name: str) -> str | None:
    """Return a parameter of a header value such as ``form-data; name="a"``."""
    at = 0
    while True:
        at = value.find(";", at)
        if at < 0:
            return None
        key, equals, rest = value[at + 1 :].partition("=")
        at += 1
        if not equals or ";" in key:
            continue
        rest = rest.lstrip()
        if rest.startswith('"'):
            text, end = _quoted(rest)
        else:
            text, _, _ = rest.partition(";")
            text, end = text.strip(), len(text)
        if key.strip().lower() == name:
            return text
        at = len(value) - len(rest) + end


def _quoted(text: str) -> tuple[str, int]:
    out: list[str] = []
    at = 1
    while at < len(text):
        char = text[at]
        if char == '"':
            return "".join(out).replace("%22", '"'), at + 1
        if char == "\\" and at + 1 < len(text) and text[at + 1] in '"\\':
            at += 1
            char = text[at]
        out.append(char)
        at += 1
    raise ValueError("a quoted parameter has no end")
