"""JSON of a hostile guest, parsed in pieces: the same as in one call, or refused."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from osgym_host.guest_client import json_pieces
from osgym_host.guest_client.answers import large_json_object
from osgym_host.guest_client.errors import GuestAnswerTooLarge, GuestProtocolError
from osgym_host.guest_client.http import HttpResponse
from osgym_host.guest_client.json_pieces import MAX_SKELETON_BYTES, parse_long_texts, put_back

# Characters that are escaped, that take two, three and four bytes, and two escapes in a row.
TEXTS = st.text(st.sampled_from('ax"\\\n\x01üß日😀\u2028'), max_size=3000)
VALUES = st.fixed_dictionaries(
    {"output": TEXTS, "error": TEXTS, "returncode": st.integers(-5, 300)},
    optional={"more": st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=40), max_size=3))},
)


def parsed(body: bytes) -> dict[str, Any]:
    """What comes out in pieces."""
    skeleton, texts = asyncio.run(parse_long_texts(body))
    found: dict[str, Any] = put_back(json.loads(skeleton), texts)
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(VALUES, st.booleans(), st.sampled_from([64, 100, 1000, 32 * 1024]))
def test_pieces_give_what_one_call_gives(
    monkeypatch: pytest.MonkeyPatch, value: dict[str, Any], ascii_only: bool, window: int
) -> None:
    """However the text is written, and wherever the windows cut it."""
    monkeypatch.setattr(json_pieces, "WINDOW_BYTES", window)
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert parsed(body) == value
    assert parsed(bytes(memoryview(body))) == value


@settings(deadline=None)
@given(st.binary(max_size=2000))
def test_whatever_comes_is_parsed_or_refused(noise: bytes) -> None:
    """No other error than its own, and it ends."""
    body = b'{"output":"' + b"x" * 40_000 + noise + b'"}'
    try:
        asyncio.run(large_json_object(HttpResponse(200, {}, body)))
    except GuestProtocolError:
        return


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":[' + b"{}," * 20_000 + b"{}]}",
        b'{"a":' + b"[" * 40_000,
        b'{"a":[' + b'"",' * 20_000 + b'""]}',
        b'{"a":[' + (b'"' + b"x" * 600 + b'",') * 5000 + b"1]}",
        b'{"a":[' + (b'"' + b"\\n" * 20 + b'",') * 5000 + b"1]}",
        b" " * 40_000 + b"{}",
    ],
    ids=["objects", "brackets", "strings", "long strings", "escapes", "blanks"],
)
def test_what_is_large_by_other_things_is_refused(body: bytes) -> None:
    """At the bound, before it is parsed."""
    assert len(body) > MAX_SKELETON_BYTES
    with pytest.raises(GuestAnswerTooLarge):
        asyncio.run(large_json_object(HttpResponse(200, {}, body)))


@pytest.mark.parametrize(
    "text",
    [b"x" * 70_000, b"\\u00zz" * 9000, b"\\q" * 20_000, b"\xc3" * 40_000, b"\x80" * 40_000, b"\n" * 40_000],
    ids=["open", "no digits", "no escape", "cut characters", "continuations", "raw control characters"],
)
def test_a_malformed_text_is_refused(text: bytes) -> None:
    """As JSON's own parser would."""
    end = b"" if text[:1] == b"x" else b'"}'
    with pytest.raises(GuestProtocolError):
        asyncio.run(large_json_object(HttpResponse(200, {}, b'{"output":"' + text + end)))


def test_halves_of_pairs_are_replaced() -> None:
    """Also where a window ends between what could have been a pair."""
    body = b'{"output":"' + b"\\ud83d" * 10_000 + b'","error":"' + b"\\ud83d\\ude00" * 5000 + b'"}'
    found = asyncio.run(large_json_object(HttpResponse(200, {}, body)))
    assert found == {"output": "?" * 10_000, "error": "\N{GRINNING FACE}" * 5000}


def test_a_long_name_is_refused() -> None:
    """Names are not texts."""
    body = b'{"' + b"k" * 40_000 + b'":1}'
    with pytest.raises(GuestProtocolError):
        asyncio.run(large_json_object(HttpResponse(200, {}, body)))


def test_no_group_is_possessive() -> None:
    """Some Pythons (Debian 12: 3.11.2) match such groups wrongly: texts would be cut anywhere."""
    for pattern in (json_pieces._SHORT, json_pieces._INSIDE):
        assert not re.search(rb"\)(?:[*+?]|\{[0-9,]+\})\+", pattern.pattern)


def test_a_text_that_is_short_but_for_its_last_piece_is_whole() -> None:
    """Thirty-two bytes after an escape, then more: what a tree of an application begins with."""
    tree = '<desktop-frame xmlns:st="https://accessibility.ubuntu.example.org/ns/state">' + "a" * 40_000
    assert parsed(json.dumps({"AT": tree}).encode()) == {"AT": tree}
