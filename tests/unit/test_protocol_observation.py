"""An observation from a hostile guest is refused, or it can be passed on as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_host.guest_client.answers import frame
from osgym_host.guest_client.errors import GuestProtocolError
from osgym_host.guest_client.http import HttpResponse
from osgym_protocol.actions import Op
from osgym_protocol.codec import WireFormatError
from osgym_protocol.codes import GuestErrorCode, ImageFormat, SettlePolicy, SettleReason
from osgym_protocol.observation import (
    ActionResult,
    ErrorInfo,
    FrameInfo,
    Observation,
    ObservedFrame,
    PreviousFrame,
    SettleInfo,
)

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x02\x00\x00\x00\x01"
SEEN = Observation(
    frame=FrameInfo("h", ImageFormat.PNG, 2, 1, (2, 1), t_ms=1.5),
    seq=3,
    results=(
        ActionResult(True, Op.CLICK),
        ActionResult(False, Op.TYPE, ErrorInfo(GuestErrorCode.INVALID_ACTION, "no", {"a": [1]})),
    ),
    failed_index=1,
    settle=SettleInfo(SettlePolicy.EXACT, SettleReason.QUIET, 20.0, None),
    previous=PreviousFrame(2, False, 12.5),
    final=True,
    timing_ms={"total": 25.0},
)
HOSTILE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["\ud800", 2**64, -(10**400), float("inf")]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the way to every value in a JSON document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [*([path] if path else []), *(p for key, each in inner for p in places(each, (*path, key)))]


def test_it_arrives_as_it_was_sent() -> None:
    """From the guest's record to the host's object, field by field."""
    sent = ObservedFrame(SEEN, PNG)
    assert frame("/v1/step", HttpResponse(200, {}, b"".join(sent.record()))) == sent


@given(st.sampled_from(places(SEEN.to_dict())), HOSTILE)
def test_whatever_stands_anywhere_can_be_passed_on_or_is_refused(
    path: tuple[str | int, ...], value: Any
) -> None:
    """Not a number, not encodable, too large, of another type: none of it gets past the decoder."""
    meta = SEEN.to_dict()
    at: Any = meta
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    try:
        seen = Observation.from_dict(meta)
    except WireFormatError:
        return
    text = json.dumps(seen.to_dict(), ensure_ascii=False, allow_nan=False).encode()
    assert Observation.from_dict(json.loads(text)) == seen


@pytest.mark.parametrize("number", ["1e999", "NaN", "1" * 5000, "9" * 30])
def test_a_record_with_no_number_is_a_fault_of_the_guest(number: str) -> None:
    """Whatever JSON's parsers make of it."""
    meta = json.dumps(SEEN.to_dict()).replace('"seq": 3', f'"seq": {number}').encode()
    body = len(meta).to_bytes(4, "big") + bytes(4) + meta
    with pytest.raises(GuestProtocolError):
        frame("/v1/step", HttpResponse(200, {}, body))
