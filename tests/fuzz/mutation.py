"""How one input is made of another: pure, and the same for the same `Random`."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from random import Random
from typing import Any

MAX_BYTES = 64 * 1024

_WORDS = (
    b"\r\n", b"\r\n\r\n", b"\0", b"\xff\xfe", b"&", b")", b"(", b" & ", b";", b":", b",", b'"', b"\\",
    b"{", b"}", b"[", b"]", b"%", b"--", b"=", b"<|", b"|>", b"\\u0000", b"\\ud800", b"NaN", b"Infinity",
    b"1e999", b"-0", b"0", b"-1", b"4294967296", b"99999999999999999999", b"true", b"null",
    b"chunked", b"Content-Length: ", b"Transfer-Encoding: ", b"HTTP/1.1 ", "²".encode(), "\u0661".encode(),
)  # fmt: skip
"""What means something to one of the parsers, or looks like it."""

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308,
    float("nan"), float("inf"), "", "a", "\0", "\ud800", "é☃", "x" * 5000, "1", [], {}, [[]], [None], {"": 0},
    {"a": {"a": {}}}, [1, 2], [1, 2, 3, 4], ["ctrl", "s"],
)  # fmt: skip


def mutate(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Change a text or its bytes in one to four places; where it is JSON, mostly as JSON."""
    for _ in range(random.choice((1, 1, 2, 4))):
        changed = _mutated_json(random, data) if random.random() < 0.6 else None
        data = changed if changed is not None else _mutated_bytes(random, data, others)
    return data[:MAX_BYTES]


def mutate_record(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Change meta or image of a record and write the lengths anew; now and then leave them wrong."""
    if len(data) < 8 or random.random() < 0.3:
        return mutate(random, data, others)
    length = struct.unpack_from(">I", data)[0]
    meta, blob = data[8 : 8 + length], data[8 + length :]
    if random.random() < 0.8:
        meta = mutate(random, meta, [other[8:] for other in others])
    else:
        blob = mutate(random, blob, others)
    return (struct.pack(">II", len(meta), len(blob)) + meta + blob)[:MAX_BYTES]


def after(prefix: int, inner: Any) -> Any:
    """Return a mutation that leaves the first bytes to chance and the rest to `inner`."""

    def changed(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
        head = bytearray(data[:prefix].ljust(prefix, b"\0"))
        if random.random() < 0.2:
            head[random.randrange(prefix)] = random.randrange(256)
        return bytes(head) + bytes(inner(random, data[prefix:], [other[prefix:] for other in others]))

    return changed


def _mutated_bytes(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at = random.randrange(len(data) + 1)
    to = min(len(data), at + random.choice((1, 1, 2, 8, 64, 1024)))
    match random.randrange(7):
        case 0:
            return data[:at] + bytes([random.randrange(256)]) + data[to:]
        case 1:
            return data[:at] + data[to:]
        case 2:
            return data[:at] + random.choice(_WORDS) + data[at:]
        case 3:
            return data[:at] + random.choice(_WORDS) + data[to:]
        case 4:
            return data[:to] + data[at:to] * random.choice((1, 2, 50, 2000)) + data[to:]
        case 5:
            other = random.choice(others) if others else b""
            cut = random.randrange(len(other) + 1)
            return data[:at] + other[cut:]
        case _:
            return data[:at]


def _mutated_json(random: Random, data: bytes) -> bytes | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    try:
        places = list(_places(value))
        changed = _changed(random, value, random.choice(places))
        return json.dumps(changed, ensure_ascii=random.random() < 0.7).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return None


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += _places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value[:50]):
            found += _places(inner, (*path, index))
    return found


def _changed(random: Random, value: Any, path: tuple[Any, ...]) -> Any:
    if path:
        key, *rest = path
        copy = dict(value) if isinstance(value, dict) else list(value)
        if not rest and random.random() < 0.15:
            del copy[key]
        elif not rest and isinstance(copy, dict) and random.random() < 0.1:
            copy[random.choice(("", "op", "x", str(key) + "_", "\ud800"))] = copy.pop(key)
        elif not rest and isinstance(copy, list) and random.random() < 0.1:
            copy[key:key] = [copy[key]] * random.choice((1, 3, 300))
        else:
            copy[key] = _changed(random, copy[key], tuple(rest))
        return copy
    match random.randrange(5):
        case 0 if isinstance(value, str):
            return value + random.choice(_WORDS).decode("latin-1")
        case 1 if isinstance(value, (int, float)) and not isinstance(value, bool):
            return random.choice((value + 1, -value, value * 1000, float(value) if abs(value) < 1e300 else 0))
        case 2:
            for _ in range(random.choice((1, 3, 400))):
                value = [value]
            return value
        case _:
            return random.choice(_VALUES)
