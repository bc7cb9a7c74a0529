"""The messages and the framing of host API v1."""

from __future__ import annotations

import contextlib
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_sdk import wire
from osgym_sdk.wire import Record, RecordDecoder, WireFormatError, decode_record, encode_record

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
META = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), JSON.map(lambda v: v), max_size=4)
FRAME = {"hash": "h", "format": "png", "width": 2, "height": 1, "screen": [2, 1]}


def _encodable(meta: dict[str, Any]) -> bool:
    try:
        json.dumps(meta, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


@given(st.lists(st.tuples(META.filter(_encodable), st.binary(max_size=200)), max_size=4), st.data())
def test_records_survive_any_cutting_of_the_stream(records: list[Any], data: st.DataObject) -> None:
    """However the bytes arrive, the decoder gives the same records in the same order."""
    stream = b"".join(encode_record(meta, blob) for meta, blob in records)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    decoder = RecordDecoder()
    got: list[Record] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += decoder.feed(stream[start:end])
    decoder.close()
    assert [(r.meta, r.blob) for r in got] == [(meta, blob) for meta, blob in records]


@given(st.binary(max_size=300))
def test_garbage_is_an_error_or_incomplete_and_never_anything_else(data: bytes) -> None:
    """No bytes make the decoder raise anything but its own error."""
    decoder = RecordDecoder()
    try:
        list(decoder.feed(data))
        decoder.close()
    except WireFormatError:
        pass
    with contextlib.suppress(WireFormatError):
        decode_record(data)


@pytest.mark.parametrize("lengths", [(wire.MAX_META_BYTES + 1, 0), (2, wire.MAX_BLOB_BYTES + 1)])
def test_a_length_over_the_bound_is_refused_before_it_is_buffered(lengths: tuple[int, int]) -> None:
    """A hostile length costs no memory."""
    decoder = RecordDecoder()
    with pytest.raises(WireFormatError, match="too large"):
        list(decoder.feed(struct.pack(">II", *lengths)))
    with pytest.raises(WireFormatError, match="malformed earlier"):
        list(decoder.feed(b""))


@pytest.mark.parametrize("meta", [b"[]", b"nonsense", b'{"a": NaN}', b"\xff", b"[" * 100_000])
def test_meta_must_be_a_json_object(meta: bytes) -> None:
    """Anything else in its place is refused."""
    with pytest.raises(WireFormatError):
        decode_record(struct.pack(">II", len(meta), 0) + meta)


def test_a_stream_that_ends_inside_a_record_is_an_error() -> None:
    """A truncated stream is told apart from one that ended."""
    decoder = RecordDecoder()
    assert list(decoder.feed(encode_record({"a": 1}, b"xyz")[:-1])) == []
    with pytest.raises(WireFormatError, match="into a record"):
        decoder.close()


def test_too_much_and_too_little_is_not_one_record() -> None:
    """decode_record takes exactly one record."""
    data = encode_record({}, b"x")
    assert decode_record(data).blob == b"x"
    for bad in (data + b"x", data[:-1], b""):
        with pytest.raises(WireFormatError):
            decode_record(bad)


def test_encoding_refuses_what_decoding_would_refuse() -> None:
    """A record over the bounds is never sent."""
    with pytest.raises(WireFormatError):
        encode_record({"a": "x" * (wire.MAX_META_BYTES + 1)})
    with pytest.raises(ValueError):
        encode_record({"a": float("nan")})


def test_a_step_answer_survives_the_wire() -> None:
    """to_dict and from_dict are inverse, nested messages and enums included."""
    answer = wire.StepAnswer(
        wire.Observation(
            wire.FrameInfo("h", wire.ImageFormat.WEBP, 3, 4, (5, 6), True, 7.5),
            seq=3,
            results=(
                wire.ActionResult(True, "click"),
                wire.ActionResult(False, "type", wire.ErrorInfo("c", "m", {"k": [1]})),
            ),
            failed_index=1,
            settle=wire.SettleInfo(wire.SettlePolicy.FAST, wire.SettleReason.QUIET, 1.5, None),
            previous=wire.PreviousFrame(2, False, 9.0),
            timing_ms={"input": 1.0},
        ),
        step=3,
        actions=({"op": "click", "x": 1},),
        done=wire.Done.MAX_STEPS,
    )
    assert wire.StepAnswer.from_dict(json.loads(json.dumps(answer.to_dict()))) == answer


def test_optional_fields_are_left_out_and_unknown_ones_ignored() -> None:
    """Old and new versions understand each other."""
    request = wire.StepRequest("l", 1, ("click(1,2)",))
    assert request.to_dict() == {"lease": "l", "seq": 1, "actions": ["click(1,2)"]}
    assert wire.FrameInfo.from_dict({**FRAME, "colour": "blue"}).hash == "h"


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"width": "2"}, "FrameInfo.width"),
        ({"width": True}, "FrameInfo.width"),
        ({"screen": [1]}, "FrameInfo.screen"),
        ({"screen": 5}, "FrameInfo.screen"),
        ({"format": "gif"}, "FrameInfo.format"),
        ({"t_ms": "soon"}, "FrameInfo.t_ms"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(change: dict[str, Any], path: str) -> None:
    """The error says which field of which message is wrong."""
    with pytest.raises(WireFormatError, match=path):
        wire.FrameInfo.from_dict({**FRAME, **change})


def test_a_missing_field_is_named() -> None:
    """The error says what is missing."""
    with pytest.raises(WireFormatError, match=r"Observation\.frame\.hash: missing"):
        wire.Observation.from_dict({"frame": {k: v for k, v in FRAME.items() if k != "hash"}})


@given(JSON)
def test_no_json_breaks_a_message(value: Any) -> None:
    """Whatever JSON comes, from_dict gives a message or its own error."""
    for kind in (wire.StepAnswer, wire.CreateAnswer, wire.RenewAnswer, wire.HostState, wire.ErrorInfo):
        with contextlib.suppress(WireFormatError):
            kind.from_dict(value)


def test_every_name_of_the_module_is_exported_and_there() -> None:
    """__all__ is the API that the host builds on."""
    assert sorted(wire.__all__) == sorted(set(wire.__all__))
    for name in wire.__all__:
        assert hasattr(wire, name)
