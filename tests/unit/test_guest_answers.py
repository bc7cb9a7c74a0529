"""What a hostile guest answers ends as one typed error, or as plain text and numbers."""

from __future__ import annotations

import pytest

from osgym_host.guest_answers import json_object, refusal
from osgym_host.guest_http import GuestProtocolError, HttpAnswer


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"a": NaN}', b'{"a": 1e999}', b'{"a": %s}' % (b"9" * 5000), b'{"a":' * 100_000, b"\xff"],
)
def test_what_is_no_plain_object_is_refused(body: bytes) -> None:
    """Never another error than its own."""
    with pytest.raises(GuestProtocolError):
        json_object(HttpAnswer(200, {}, body))


def test_half_a_surrogate_pair_is_replaced() -> None:
    """A file name that is not UTF-8 must not lose the replica; whole pairs are kept."""
    body = b'{"\\udcff": "\\ud83d\\ude00", "b": "\\u00fc"}'
    assert json_object(HttpAnswer(200, {}, body)) == {"?": "\N{GRINNING FACE}", "b": "ü"}


def test_the_details_of_an_endless_error_are_left_out() -> None:
    """They would be kept with the episode and sent to its client."""
    body = b'{"code": "c", "message": "m", "details": {"x": "%s"}}'
    assert refusal(HttpAnswer(400, {}, body % b"short")).details == {"x": "short"}
    assert refusal(HttpAnswer(400, {}, body % (b"x" * 100_000))).details == {}
