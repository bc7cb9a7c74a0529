"""Parsing of a large JSON answer of a hostile guest in pieces, between which other tasks run.

`json` parses in one call that nothing can interrupt, also from a thread: 16 MiB of empty objects stop the
host agent for over a second. Answers that may be large are objects with a few long texts (the output of a
command, the accessibility tree). The long texts are cut out and decoded a window at a time; what is left is
bounded to a size that parses in a few milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import weakref
from typing import Any

from osgym_host.guest_client.body import Body

WINDOW_BYTES = 32 * 1024
"""Bytes decoded at once: 0.3 ms if every byte is part of an escape."""
MAX_SKELETON_BYTES = 32 * 1024
"""Bound of an answer without its long texts: 4 ms to parse if it is all brackets."""

MAX_TEXT_CHARS = 5 * 1024 * 1024
"""Bound of one text: joining its pieces takes 5 ms if each character takes four bytes."""
_HEX = rb"[0-9a-fA-F]"
# No group is possessive: some Pythons (Debian 12: 3.11.2) end such a match inside of a try that failed.
# None need be, since what comes next is never another way to read what was read.
# Anything but a long string: what lies between strings, and strings of at most 576 bytes.
_SHORT = re.compile(rb'(?:[^"]++|"[^"\\]{0,32}+(?:\\.[^"\\]{0,32}+){0,16}")*', re.DOTALL)
_MAX_SHORT_BYTES = 1024
# A piece of a string that can be decoded by itself: no escape is cut, nor a pair of surrogates.
_INSIDE = re.compile(
    rb'[^"\\]*+(?:\\(?:[^u]|u(?![dD][89abAB])' + _HEX + rb"{4}|u[dD][89abAB]" + _HEX + rb"{2}"
    rb"(?:\\u" + _HEX + rb'{4}|(?=[^\\]|\\[^u])))[^"\\]*+)*',
    re.DOTALL,
)
_QUOTE = ord('"')

_turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()


class AnswerTooLarge(ValueError):
    """A text is too long, or the answer is large apart from its long texts."""


async def parse_long_texts(body: Body) -> tuple[bytes, dict[str, str]]:
    """Cut the long texts out of JSON.

    One such answer is parsed at a time, so that many guests together take no more than one.

    Returns:
        The JSON with a marker in place of each long text, and the texts by marker. Halves of surrogate
        pairs are replaced. The JSON is not checked otherwise.

    Raises:
        AnswerTooLarge: A text has more than `MAX_TEXT_CHARS`, or more than `MAX_SKELETON_BYTES` are left.
        ValueError: A string is malformed.
    """
    loop = asyncio.get_running_loop()
    async with _turns.setdefault(loop, asyncio.Lock()):
        return await _cut(body)


async def _cut(body: Body) -> tuple[bytes, dict[str, str]]:
    skeleton, texts = bytearray(), dict[str, str]()
    mark = secrets.token_hex(8)
    at, size = 0, len(body)
    while True:
        end = _end(_SHORT, body, at, at + MAX_SKELETON_BYTES + _MAX_SHORT_BYTES)
        skeleton += body[at:end]
        if len(skeleton) > MAX_SKELETON_BYTES:
            raise AnswerTooLarge(f"more than {MAX_SKELETON_BYTES} bytes besides long texts")
        if end >= size:
            return bytes(skeleton), texts
        name = f"{mark}-{len(texts)}"
        texts[name], end = await _text(body, end + 1)
        skeleton += f'"{name}"'.encode()
        at = end + 1
        await asyncio.sleep(0)


async def _text(body: Body, at: int) -> tuple[str, int]:
    """Decode the string that begins at `at`; return it and the position of its closing quote."""
    pieces: list[str] = []
    chars = 0
    while True:
        end = _end(_INSIDE, body, at, at + WINDOW_BYTES)
        closed = end < len(body) and body[end] == _QUOTE
        if not closed:
            end = _whole_character(body, at, end)
            if end <= at:
                raise ValueError("a string is malformed, or does not end")
        pieces.append(_decoded(bytes(body[at:end])))
        chars += len(pieces[-1])
        if chars > MAX_TEXT_CHARS:
            raise AnswerTooLarge(f"a text has more than {MAX_TEXT_CHARS} characters")
        if closed:
            return "".join(pieces), end
        at = end
        await asyncio.sleep(0)


def _decoded(raw: bytes) -> str:
    text: str = json.loads(f'"{raw.decode()}"')
    return text.encode("utf-8", "replace").decode() if b"\\u" in raw else text


def _whole_character(body: Body, begin: int, end: int) -> int:
    """Return the end of the last complete UTF-8 character."""
    if end >= len(body):
        return end
    for back in range(min(4, end - begin)):
        if body[end - back] & 0xC0 != 0x80:
            return end - back
    return end


def _end(pattern: re.Pattern[bytes], body: Body, begin: int, end: int) -> int:
    found = pattern.match(body, begin, end)
    assert found is not None, "a pattern must not match the empty text"
    return found.end()


def put_back(value: Any, texts: dict[str, str]) -> Any:
    """Put long texts back in place of their markers; `value` is nested a few levels at most.

    Raises:
        ValueError: A name of an object is a long text.
    """
    if isinstance(value, str):
        return texts.get(value, value)
    if isinstance(value, list):
        return [put_back(item, texts) for item in value]
    if isinstance(value, dict):
        if not texts.keys().isdisjoint(value):
            raise ValueError("a name is too long")
        return {key: put_back(item, texts) for key, item in value.items()}
    return value
