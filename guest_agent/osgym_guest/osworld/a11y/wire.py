"""D-Bus wire format, as far as AT-SPI needs it: outgoing calls, incoming replies, little-endian.

It is not jeepney's (0.9.0, pure Python as well): a tree is thousands of calls, and of AT-SPI's replies
jeepney takes 2.5 to 5 times the CPU to read one (states 34 µs against 10, ten children 93 against 37, all
properties 80 against 31), and 11 times to write a call (59 against 5). Disk images of others, where this
agent runs with Python alone, lack it as well.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

METHOD_CALL, METHOD_RETURN, ERROR, SIGNAL = 1, 2, 3, 4
MAX_MESSAGE_BYTES = 32 * 1024 * 1024

_PATH, _INTERFACE, _MEMBER, _ERROR_NAME, _REPLY_SERIAL, _DESTINATION = 1, 2, 3, 4, 5, 6
_U32 = struct.Struct("<I")
_FIXED = {
    "y": struct.Struct("<B"),
    "b": struct.Struct("<I"),
    "n": struct.Struct("<h"),
    "q": struct.Struct("<H"),
    "i": struct.Struct("<i"),
    "u": struct.Struct("<I"),
    "x": struct.Struct("<q"),
    "t": struct.Struct("<Q"),
    "d": struct.Struct("<d"),
    "h": struct.Struct("<I"),
}
_ALIGN = {"y": 1, "g": 1, "v": 1, "n": 2, "q": 2, "x": 8, "t": 8, "d": 8, "(": 8, "{": 8}


class WireError(ValueError):
    """Bytes that are no D-Bus message."""


@dataclass(frozen=True, slots=True)
class BusMessage:
    """One received message.

    Attributes:
        kind: `METHOD_RETURN`, `ERROR`, …
        serial: Number of this message, given by the sender.
        reply_serial: Number of the call that it answers; 0 when it answers none.
        error_name: D-Bus name of the error, for an `ERROR`.
        body: Arguments.
    """

    kind: int
    serial: int
    reply_serial: int
    error_name: str
    body: tuple[Any, ...]


def encode_call(
    serial: int,
    destination: str,
    path: str,
    interface: str,
    member: str,
    signature: str,
    args: tuple[Any, ...],
) -> bytes:
    """Return a method call; `signature` may hold ``s``, ``o``, ``u`` and ``i`` only."""
    fields = bytearray()
    for code, kind, value in (
        (_PATH, b"o", path),
        (_INTERFACE, b"s", interface),
        (_MEMBER, b"s", member),
        (_DESTINATION, b"s", destination),
    ):
        fields += b"\0" * (-len(fields) % 8)
        fields += bytes((code, 1)) + kind + b"\0"
        _put_string(fields, value)
    body = bytearray()
    if signature:
        fields += b"\0" * (-len(fields) % 8)
        fields += b"\x08\x01g\0" + bytes((len(signature),)) + signature.encode() + b"\0"
        for kind_char, value in zip(signature, args, strict=True):
            if kind_char in "so":
                _put_string(body, value)
            else:
                body += b"\0" * (-len(body) % 4)
                body += _FIXED[kind_char].pack(value)
    head = struct.pack("<cBBBIII", b"l", METHOD_CALL, 0, 1, len(body), serial, len(fields))
    return head + bytes(fields) + b"\0" * (-(len(head) + len(fields)) % 8) + bytes(body)


def _put_string(out: bytearray, value: str) -> None:
    raw = value.encode("utf-8")
    out += b"\0" * (-len(out) % 4)
    out += _U32.pack(len(raw)) + raw + b"\0"


def message_size(buffer: bytes | bytearray | memoryview) -> int:
    """Return the size in bytes of the message at the front of `buffer`; 0 while its header is incomplete.

    Raises:
        WireError: The bytes are not a message, or one beyond `MAX_MESSAGE_BYTES`.
    """
    if len(buffer) < 16:
        return 0
    if buffer[0] != 0x6C:
        raise WireError("only little-endian messages are understood")
    body_length, _serial, fields_length = struct.unpack_from("<III", buffer, 4)
    size: int = 16 + fields_length + (-fields_length % 8) + body_length
    if size > MAX_MESSAGE_BYTES:
        raise WireError(f"a message of {size} bytes")
    return size


def decode(data: bytes) -> BusMessage:
    """Decode one whole message. Raises WireError if the bytes contradict their own lengths or signature."""
    try:
        body_length, serial, fields_length = struct.unpack_from("<III", data, 4)
        at, end = 16, 16 + fields_length
        reply_serial, error_name, signature = 0, "", ""
        while at < end:
            at += -at % 8
            code = data[at]
            value, at = _read_variant(data, at + 1)
            if code == _REPLY_SERIAL:
                reply_serial = value
            elif code == _ERROR_NAME:
                error_name = value
            elif code == 8:
                signature = value
        start = end + (-end % 8)
        values, at = _read(data, start, split_signature(signature), start)
        if at > start + body_length:
            raise WireError("the body is shorter than its signature says")
    except (struct.error, IndexError, UnicodeDecodeError, RecursionError) as exc:
        raise WireError(f"malformed message: {exc}") from exc
    return BusMessage(data[1], serial, reply_serial, error_name, tuple(values))


_signatures: dict[str, tuple[str, ...]] = {}


def split_signature(signature: str) -> tuple[str, ...]:
    """Split a signature into single complete types: ``a(so)u`` into ``a(so)`` and ``u``.

    Raises:
        WireError: Brackets do not match, or a type is unknown.
    """
    known = _signatures.get(signature)
    if known is not None:
        return known
    types: list[str] = []
    at = 0
    while at < len(signature):
        end = _type_end(signature, at)
        types.append(signature[at:end])
        at = end
    result = tuple(types)
    if len(_signatures) < 256:
        _signatures[signature] = result
    return result


def _type_end(signature: str, at: int) -> int:
    while at < len(signature) and signature[at] == "a":
        at += 1
    if at >= len(signature):
        raise WireError(f"bad signature {signature!r}")
    char = signature[at]
    if char in _FIXED or char in "sogv":
        return at + 1
    close = {"(": ")", "{": "}"}.get(char)
    if close is None:
        raise WireError(f"bad signature {signature!r}")
    at += 1
    if signature[at : at + 1] == close:
        raise WireError(f"nothing between brackets in {signature!r}")
    while at < len(signature) and signature[at] != close:
        at = _type_end(signature, at)
    if at >= len(signature):
        raise WireError(f"bad signature {signature!r}")
    return at + 1


def _read(data: bytes, at: int, types: tuple[str, ...], base: int = 0) -> tuple[list[Any], int]:
    """Return values of `types` from offset `at`; alignment counts from `base`, itself a multiple of 8."""
    values: list[Any] = []
    for kind in types:
        char = kind[0]
        at += -at % _ALIGN.get(char, 4)
        fixed = _FIXED.get(char)
        if fixed is not None:
            (number,) = fixed.unpack_from(data, at)
            values.append(bool(number) if char == "b" else number)
            at += fixed.size
        elif char == "s" or char == "o":
            (length,) = _U32.unpack_from(data, at)
            values.append(_text(data, at + 4, length))
            at += 5 + length
        elif char == "g":
            length = data[at]
            values.append(_text(data, at + 1, length))
            at += 2 + length
        elif char == "v":
            value, at = _read_variant(data, at)
            values.append(value)
        elif char == "a":
            value, at = _read_array(data, at, kind[1:])
            values.append(value)
        else:
            fields, at = _read(data, at, split_signature(kind[1:-1]))
            values.append(tuple(fields))
    return values, at


def _read_variant(data: bytes, at: int) -> tuple[Any, int]:
    (signature,), at = _read(data, at, ("g",))
    types = split_signature(signature)
    if len(types) != 1:
        raise WireError(f"a variant of {len(types)} types")
    values, at = _read(data, at, types)
    return values[0], at


def _text(data: bytes, at: int, length: int) -> str:
    if at + length > len(data):
        raise WireError("a string runs over the end of the message")
    return data[at : at + length].decode("utf-8", "replace")


def _read_array(data: bytes, at: int, kind: str) -> tuple[list[Any] | dict[Any, Any], int]:
    (length,) = _U32.unpack_from(data, at)
    at += 4
    at += -at % _ALIGN.get(kind[0], 4)
    end = at + length
    if end > len(data):
        raise WireError("an array runs over the end of the message")
    one = split_signature(kind[1:-1]) if kind[0] == "{" else (kind,)
    if kind[0] == "{" and (len(one) != 2 or one[0][0] in "av({"):
        raise WireError(f"bad dictionary {kind!r}")
    items: list[Any] = []
    while at < end:
        if kind[0] == "{":
            at += -at % 8
        value, at = _read(data, at, one)
        items.append(tuple(value) if kind[0] == "{" else value[0])
    return (dict(items) if kind[0] == "{" else items), at
