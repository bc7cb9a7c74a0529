"""Splitting of a HAR into entries, so that a hostile file costs little more memory than its own bytes. Pure.

As Python objects, a JSON text may take 30 times its size (`[],`). The text is therefore only scanned for its
structure. One entry at a time is parsed, after its values were counted.
"""

from __future__ import annotations

import codecs
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

from osgym_host.runtimes.web.har import MAX_BODY_BYTES, ArchiveError

MAX_VALUES = 200_000
"""Largest number of values in one entry, or in the text around all entries: some 20 MiB as objects."""
MAX_TEXT_BYTES = 2 * MAX_BODY_BYTES
"""Largest size of one entry, or of the text around all entries."""
_VALUE_STARTS = (b",", b"[", b"{")
"""Characters of which one precedes every value but the first."""
_STRUCTURE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},"]', re.DOTALL)
"""A string, a structural character, or the quote that begins a string without end."""
_COLON = re.compile(rb"\s*+:")
_KEYS = (b'"log"', b'"entries"')


def split_entries(text: bytes) -> Iterator[bytes]:
    """Yield the text of each entry of `log.entries`.

    Raises:
        ArchiveError: The text is no HAR. It may be raised as late as after the last entry.
    """
    text = text.removeprefix(codecs.BOM_UTF8)
    if json.detect_encoding(text[:4]) != "utf-8":
        raise ArchiveError("the file is not UTF-8: save it in that encoding")
    begin = _begin_of_entries(text)
    at, depth, count, values = begin, 0, 0, 0
    for token in _STRUCTURE.finditer(text, begin):
        char = token[0]
        values += char in _VALUE_STARTS
        if values > MAX_VALUES:
            raise ArchiveError(f"entry {count} has more than {MAX_VALUES} values")
        if char in (b"[", b"{"):
            depth += 1
        elif char in (b"]", b"}") and depth > 0:
            depth -= 1
        elif depth == 0 and char in (b",", b"]"):
            entry = text[at : token.start()].strip()
            if entry or char == b"," or at > begin:
                yield entry
            at, values = token.end(), 0
            count += 1
            if char == b"]":
                break
        elif char in (b'"', b"}"):
            raise ArchiveError("not JSON: a string or a bracket has no end")
    else:
        raise ArchiveError("not JSON: the list of entries has no end")
    rest = parse_value(text[:begin] + text[at - 1 :], "the part around the entries")
    log = rest.get("log") if isinstance(rest, dict) else None
    if not isinstance(log, dict) or log.get("entries") != []:
        raise ArchiveError("not a HAR file: it has more than one log.entries")


def parse_value(text: bytes, what: str) -> Any:
    """Parse a JSON text with at most `MAX_VALUES` values.

    Args:
        what: Name of the text in errors.

    Raises:
        ArchiveError: The text is not JSON, larger than `MAX_TEXT_BYTES`, or has more values.
    """
    if len(text) > MAX_TEXT_BYTES:
        raise ArchiveError(f"{what} is larger than {MAX_TEXT_BYTES >> 20} MiB")
    # The fast count includes characters in strings, so it is only an upper bound.
    if sum(text.count(char) for char in _VALUE_STARTS) > MAX_VALUES:
        values = (token for token in _STRUCTURE.finditer(text) if token[0] in _VALUE_STARTS)
        if next(itertools.islice(values, MAX_VALUES, None), None) is not None:
            raise ArchiveError(f"{what} has more than {MAX_VALUES} values")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise ArchiveError(f"{what} is not JSON: {exc}") from None


def _begin_of_entries(text: bytes) -> int:
    """Return the index of the first entry: after the opening bracket of `log.entries`.

    Raises:
        ArchiveError: The text has no such list.
    """
    depth = found = 0
    at_value = False
    for number, token in enumerate(_STRUCTURE.finditer(text)):
        char = token[0]
        if number > MAX_VALUES:
            raise ArchiveError(f"the part before the entries has more than {MAX_VALUES} values")
        if at_value:
            at_value = False
            if char == b"[" and found == len(_KEYS):
                return token.end()
            if char != b"{" or found == len(_KEYS):
                found -= 1
        if char in (b"[", b"{"):
            depth += 1
        elif char in (b"]", b"}"):
            depth -= 1
            found = max(0, min(found, depth - 1))
        elif depth == found + 1 and char == _KEYS[found] and _COLON.match(text, token.end()):
            found += 1
            at_value = True
    raise ArchiveError("not a HAR file: it has no log.entries")
