"""What a hostile guest answers ends as one typed error, or as plain text and numbers."""

from __future__ import annotations

import struct

import pytest

from osgym_host.guest_client.answers import frame, json_object, refusal
from osgym_host.guest_client.errors import GuestProtocolError
from osgym_host.guest_client.http import HttpResponse


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"a": NaN}', b'{"a": 1e999}', b'{"a": %s}' % (b"9" * 5000), b'{"a":' * 100_000, b"\xff"],
)
def test_what_is_no_plain_object_is_refused(body: bytes) -> None:
    """Never another error than its own."""
    with pytest.raises(GuestProtocolError):
        json_object(HttpResponse(200, {}, body))


def test_half_a_surrogate_pair_is_replaced() -> None:
    """A file name that is not UTF-8 must not lose the replica; whole pairs are kept."""
    body = b'{"\\udcff": "\\ud83d\\ude00", "b": "\\u00fc"}'
    assert json_object(HttpResponse(200, {}, body)) == {"?": "\N{GRINNING FACE}", "b": "ü"}


def test_the_details_of_an_endless_error_are_left_out() -> None:
    """They would be kept with the episode and sent to its client."""
    body = b'{"code": "c", "message": "m", "details": {"x": "%s"}}'
    assert refusal(HttpResponse(400, {}, body % b"short")).details == {"x": "short"}
    assert refusal(HttpResponse(400, {}, body % (b"x" * 100_000))).details == {}


def test_what_is_shown_of_a_guest_has_no_control_characters() -> None:
    """Its errors reach terminals and logs of clients; line breaks stay."""
    body = b'{"code": "c\\u001b[2J", "message": "a\\u001b]0;x\\u0007\\nb\\r"}'
    refused = refusal(HttpResponse(400, {}, body))
    assert (refused.code, refused.message) == ("c\\x1b[2J", "a\\x1b]0;x\\x07\nb\\r")
    plain = refusal(HttpResponse(500, {}, b"\x1b[31mred"))
    assert plain.message == "\\x1b[31mred"


@pytest.mark.parametrize("timing", ['{"total": 1e999}', '{"total": NaN}', '{"\\udcff": 1}'])
def test_an_observation_that_could_not_be_passed_on_is_refused(timing: str) -> None:
    """Where it is read, not where the host's own answer is written."""
    meta = (
        '{"frame": {"hash": "h", "format": "none", "width": 1, "height": 1, "screen": [1, 1], '
        f'"unchanged": false}}, "timing_ms": {timing}}}'
    ).encode()
    body = struct.pack(">II", len(meta), 0) + meta
    with pytest.raises(GuestProtocolError):
        frame("/v1/step", HttpResponse(200, {}, body))
