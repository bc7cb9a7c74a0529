"""The D-Bus wire format of the accessibility helper."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_guest.osworld.a11y import wire


def reply(signature: str, body: bytes, *, kind: int = wire.METHOD_RETURN, error: str = "") -> bytes:
    """A message as a bus sends it: reply to call 7, with an error name or a signature."""
    fields = b"\x05\x01u\0" + struct.pack("<I", 7)
    if error:
        fields += b"\x04\x01s\0" + struct.pack("<I", len(error)) + error.encode() + b"\0"
        fields += b"\0" * (-len(fields) % 8)
    if signature:
        fields += b"\x08\x01g\0" + bytes((len(signature),)) + signature.encode() + b"\0"
    head = struct.pack("<cBBBIII", b"l", kind, 1, 1, len(body), 3, len(fields)) + fields
    return head + b"\0" * (-len(head) % 8) + body


def string(text: str) -> bytes:
    """A string as it stands on the wire, at an offset that is a multiple of 4."""
    raw = text.encode()
    return struct.pack("<I", len(raw)) + raw + b"\0"


def test_a_call_is_laid_out_as_the_specification_says() -> None:
    """Header, fields, padding and body of a call are those that libdbus writes."""
    data = wire.encode_call(9, "a.b", "/p", "i.f", "Do", "ui", (5, -2))
    kind, body_length, serial, fields_length = data[1], *struct.unpack_from("<III", data, 4)
    assert (data[:1], kind, body_length, serial) == (b"l", wire.METHOD_CALL, 8, 9)
    assert len(data) == 16 + fields_length + (-fields_length % 8) + 8
    assert data[-8:] == struct.pack("<Ii", 5, -2)
    assert data[16:].startswith(b"\x01\x01o\0\x02\0\0\0/p\0")
    assert wire.message_size(data) == len(data)


def test_a_call_can_be_read_back() -> None:
    """Strings and numbers of a call survive encoding and decoding."""
    message = wire.decode(wire.encode_call(9, "a.b", "/p", "i.f", "Do", "suis", ("ä€", 1, -1, "")))
    assert message.body == ("ä€", 1, -1, "")
    assert (message.kind, message.serial, message.reply_serial) == (wire.METHOD_CALL, 9, 0)


def test_references_states_and_extents_are_decoded() -> None:
    """The shapes that AT-SPI answers with: object lists, state words, rectangles, attributes."""
    pair = string(":1.4") + b"\0" * 3 + string("/x/1")
    array = struct.pack("<I", len(pair)) + b"\0" * 4 + pair
    assert wire.decode(reply("a(so)", array)).body == ([(":1.4", "/x/1")],)
    assert wire.decode(reply("au", struct.pack("<III", 8, 3, 4))).body == ([3, 4],)
    assert wire.decode(reply("(iiii)", struct.pack("<iiii", 1, -2, 3, 4))).body == ((1, -2, 3, 4),)
    entry = string("k") + b"\0" * 2 + string("v")
    assert wire.decode(reply("a{ss}", struct.pack("<I", len(entry)) + b"\0" * 4 + entry)).body == (
        {"k": "v"},
    )


def test_variants_hold_any_type() -> None:
    """A property answers with a variant, of a double as well as of a string."""
    assert wire.decode(reply("v", b"\x01d\0" + b"\0" * 5 + struct.pack("<d", 1.5))).body == (1.5,)
    assert wire.decode(reply("v", b"\x01s\0\0" + string("Save"))).body == ("Save",)


def test_an_error_has_its_name_and_text() -> None:
    """An error reply tells which call failed, and why."""
    message = wire.decode(reply("s", string("gone"), kind=wire.ERROR, error="org.x.Gone"))
    assert (message.kind, message.reply_serial, message.error_name) == (wire.ERROR, 7, "org.x.Gone")
    assert message.body == ("gone",)


def test_an_incomplete_header_is_waited_for() -> None:
    """Fewer than 16 bytes say nothing about the size yet."""
    assert wire.message_size(b"l\x02\0\x01") == 0


@pytest.mark.parametrize(
    "head", [b"B" + b"\0" * 15, struct.pack("<cBBBIII", b"l", 2, 0, 1, 1 << 30, 1, 0)], ids=["endian", "huge"]
)
def test_what_is_no_message_is_refused(head: bytes) -> None:
    """Another byte order and a size beyond the bound end the connection instead of memory."""
    with pytest.raises(wire.WireError):
        wire.message_size(head)


@pytest.mark.parametrize("signature", ["(", "a", "(s", "{ss", "z", "a{"])
def test_a_malformed_signature_is_refused(signature: str) -> None:
    """Signatures come from applications and may be anything."""
    with pytest.raises(wire.WireError):
        wire.split_signature(signature)


@given(
    st.binary(max_size=200),
    st.sampled_from(["a(so)", "v", "a{sv}", "as", "(iiii)", "d", "avv", "a{vs}", "a{sss}", "a()"]),
)
def test_hostile_bodies_only_raise_wire_errors(body: bytes, signature: str) -> None:
    """No body of an application makes the decoder fail in another way."""
    with suppress(wire.WireError):
        wire.decode(reply(signature, body))


@given(st.binary(min_size=16, max_size=300))
def test_hostile_messages_only_raise_wire_errors(data: bytes) -> None:
    """No bytes at all make the decoder fail in another way."""
    with suppress(wire.WireError):
        wire.decode(data)
