"""Words and numbers of instructions, values and files of a task. Pure."""

from __future__ import annotations

import base64
import binascii
import html
import io
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from osgym_certify.sense.base import View, leaves

MAX_MEMBER_BYTES = 8 << 20
"""Bytes that are read of each member of an archive."""
_WORD = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_LINE_END = re.compile(r"</(?:w:p|text:p|text:h|a:p|si|row)>")
_TAG = re.compile(r"<[^>]*>")
_STEM = 5
"""Letters that two forms of a word have in common: “maximize” and “maximized”."""
_SHORT_PART = 3
"""Letters of the shortest word of the instruction with which another word may begin or end."""
_NUMERALS = (
    ("zero",), ("one", "first", "once", "single"), ("two", "second", "twice", "double", "half"),
    ("three", "third"), ("four", "fourth", "quarter"), ("five", "fifth"), ("six", "sixth"),
    ("seven", "seventh"), ("eight", "eighth"), ("nine", "ninth"), ("ten", "tenth"), ("eleven",),
    ("twelve", "dozen"), ("thirteen",), ("fourteen",), ("fifteen",), ("sixteen",), ("seventeen",),
    ("eighteen",), ("nineteen",), ("twenty",),
)  # fmt: skip
_NUMBERS = {word: str(number) for number, words in enumerate(_NUMERALS) for word in words} | {
    "thirty": "30",
    "forty": "40",
    "fifty": "50",
    "sixty": "60",
    "hundred": "100",
    "max": "100",
}


def words_of(text: str) -> set[str]:
    """Return the words of a text in lower case; digits and punctuation part words."""
    return {word.casefold() for word in _WORD.findall(text)}


def numbers_of(text: str) -> set[str]:
    """Return the numbers of a text, also those in words: without separators of thousands or last zeros."""
    found = {_number(one) for one in _NUMBER.findall(text)}
    found |= {part.lstrip("0") or "0" for one in _NUMBER.findall(text) for part in re.split("[.,]", one)}
    return found | {_NUMBERS[word] for word in words_of(text) & set(_NUMBERS)}


def _number(text: str) -> str:
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", text):
        text = text.replace(",", "")
    whole, _, rest = text.replace(",", ".").partition(".")
    rest = rest.rstrip("0")
    return (whole.lstrip("0") or "0") + (f".{rest}" if rest else "")


@dataclass(frozen=True, slots=True)
class Known:
    """Words and numbers that a policy can read: in the instruction, or in what the set-up makes.

    Attributes:
        named: Words of the instruction alone.
        text: The instruction and what the set-up makes, in lower case.
        opaque: The set-up brings contents that cannot be read here: downloads, pictures, sites.
        data: The set-up brings contents from which values can be computed.
    """

    words: frozenset[str]
    numbers: frozenset[str]
    stems: frozenset[str]
    named: frozenset[str]
    text: str = field(repr=False)
    opaque: bool
    data: bool

    def has(self, word: str) -> bool:
        """Return whether a word is known, in this or another form."""
        return word in self.words or (len(word) >= _STEM and word[:_STEM] in self.stems)

    def is_named(self, word: str) -> bool:
        """Return whether the instruction has a word, in this or another form."""
        if word in self.named:
            return True
        return len(word) >= _STEM and any(one.startswith(word[:_STEM]) for one in self.named)

    def makes(self, word: str) -> bool:
        """Return whether a word begins or ends with one of the instruction, as after a replacement."""
        parts = (one for one in self.named if len(one) >= _SHORT_PART)
        return any(word.startswith(one) or word.endswith(one) for one in parts)


def known_of(view: View) -> Known:
    """Return what the instruction, the set-up's steps and its files have."""
    texts, opaque, data = [view.instruction], False, False
    for step in view.setup:
        opaque |= step.type in ("download", "chrome_open_tabs", "update_browse_history")
        for name, value in leaves(step.parameters, ""):
            if not name.endswith((".data_base64", ".local_path")):
                texts.append(str(value))
    for file in view.uploads():
        text = text_of(file)
        opaque |= text is None
        data |= bool(text is None or text.strip())
        texts.append(text or "")
    whole = "\n".join(texts).replace("\\n", "\n")  # line ends inside JSON
    words = words_of(whole)
    stems = frozenset(word[:_STEM] for word in words if len(word) >= _STEM)
    named = frozenset(words_of(view.instruction))
    return Known(
        frozenset(words), frozenset(numbers_of(whole)), stems, named, whole.casefold(), opaque, data or opaque
    )


def text_of(file: Mapping[str, Any]) -> str | None:
    """Return the text of an uploaded file, of a document without its markup; None if it is no text."""
    if isinstance(text := file.get("text"), str):
        return text
    data = data_of(file)
    if data is None:
        return None
    if data[:4] == b"PK\x03\x04":
        return _archive_text(data)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def data_of(file: Mapping[str, Any]) -> bytes | None:
    """Return the content of an uploaded file, None if the task does not carry it."""
    if isinstance(text := file.get("text"), str):
        return text.encode()
    try:
        return base64.b64decode(str(file["data_base64"]), validate=True)
    except (KeyError, binascii.Error, ValueError):
        return None


def _archive_text(data: bytes) -> str | None:
    found = []
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.infolist():
                found.append(member.filename)
                with archive.open(member) as stream:
                    text = stream.read(MAX_MEMBER_BYTES).decode("utf-8", "replace")
                if member.filename.endswith((".xml", ".rels")):
                    lines = _TAG.sub("", _LINE_END.sub("\n", text))
                    found += [_TAG.sub(" ", text), html.unescape(lines)]
                else:
                    found.append(text)
    except (zipfile.BadZipFile, NotImplementedError, OSError, RuntimeError, ValueError):
        return None
    return "\n".join(found)
