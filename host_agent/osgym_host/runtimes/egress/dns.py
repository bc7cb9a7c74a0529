"""DNS questions of guests and their answers. Pure. The bytes are hostile.

Only what a desktop needs: one question in a datagram, IPv4 addresses in the answer (RFC 1035).
"""

from __future__ import annotations

import enum
import ipaddress
import struct
from collections.abc import Sequence
from dataclasses import dataclass

MAX_DATAGRAM = 512
MAX_ADDRESSES = 16
TTL_S = 60

_HEADER = struct.Struct("!6H")
_TYPE_A = 1
_CLASS_IN = 1
_RESPONSE = 0x8000
_OPCODE = 0x7800
_RECURSION_DESIRED = 0x0100
_RECURSION_AVAILABLE = 0x0080
_MAX_LABEL = 63
_MAX_NAME = 253
_POINTER_TO_QUESTION = 0xC00C
_PRINTABLE = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_")


class DnsCode(enum.IntEnum):
    """Response codes (RFC 1035, 4.1.1)."""

    OK = 0
    SERVER_FAILED = 2
    NO_SUCH_NAME = 3
    REFUSED = 5


@dataclass(frozen=True, slots=True)
class DnsQuestion:
    """Question of one datagram.

    Attributes:
        name: Lower case, without final dot.
        raw: Question section, which the answer repeats.
    """

    ident: int
    flags: int
    name: str
    asks_address: bool
    raw: bytes


def parse(datagram: bytes) -> DnsQuestion | None:
    """Parse a datagram; None for one that deserves no answer."""
    if not _HEADER.size < len(datagram) <= MAX_DATAGRAM:
        return None
    ident, flags, questions, answers, authorities, _ = _HEADER.unpack_from(datagram)
    if flags & (_RESPONSE | _OPCODE) or questions != 1 or answers or authorities:
        return None
    labels: list[str] = []
    at = _HEADER.size
    while True:
        if at >= len(datagram):
            return None
        size = datagram[at]
        at += 1
        if size == 0:
            break
        label = datagram[at : at + size].lower()
        if size > _MAX_LABEL or len(label) != size or not _PRINTABLE.issuperset(label):
            return None
        labels.append(label.decode("ascii"))
        at += size
    name = ".".join(labels)
    if not name or len(name) > _MAX_NAME or at + 4 > len(datagram):
        return None
    kind, group = struct.unpack_from("!HH", datagram, at)
    asks_address = kind == _TYPE_A and group == _CLASS_IN
    return DnsQuestion(ident, flags, name, asks_address, datagram[_HEADER.size : at + 4])


def answer(question: DnsQuestion, code: DnsCode, addresses: Sequence[str] = ()) -> bytes:
    kept = addresses[:MAX_ADDRESSES] if question.asks_address and code is DnsCode.OK else ()
    flags = _RESPONSE | _RECURSION_AVAILABLE | (question.flags & _RECURSION_DESIRED) | int(code)
    records = b"".join(
        struct.pack("!HHHIH", _POINTER_TO_QUESTION, _TYPE_A, _CLASS_IN, TTL_S, 4)
        + ipaddress.IPv4Address(address).packed
        for address in kept
    )
    return _HEADER.pack(question.ident, flags, 1, len(kept), 0, 0) + question.raw + records
