"""Records on the wire: ``u32 meta_len, u32 blob_len`` (big endian), meta as JSON, the bytes of an image."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from osgym_protocol.codec import WireFormatError
from osgym_protocol.limits import MAX_BLOB_BYTES, MAX_META_BYTES

RECORDS_TYPE = "application/x-osgym-records"

_HEADER = struct.Struct(">II")


@dataclass(frozen=True, slots=True)
class Record:
    """One frame on the wire: a JSON object and the bytes of an image (empty: none)."""

    meta: dict[str, Any]
    blob: bytes | memoryview = b""


def record_head(meta: Mapping[str, Any], blob_bytes: int) -> bytes:
    """Return the bytes of a record before its blob, which may then be sent without being copied.

    Raises:
        WireFormatError: Meta or blob is over the bound that decoders enforce.
    """
    encoded = json.dumps(meta, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    _check_bounds(len(encoded), blob_bytes)
    return _HEADER.pack(len(encoded), blob_bytes) + encoded


def encode_record(meta: Mapping[str, Any], blob: bytes | memoryview = b"") -> bytes:
    """Return the bytes of one record.

    Raises:
        WireFormatError: Meta or blob is over the bound that decoders enforce.
    """
    return b"".join((record_head(meta, len(blob)), blob))


def decode_record(data: bytes | memoryview) -> Record:
    """Decode one record.

    Raises:
        WireFormatError: It is truncated, over the bounds, not JSON, or followed by something else.
    """
    meta, blob = split_record(data)
    return Record(meta, bytes(blob))


def split_record(
    data: bytes | bytearray | memoryview,
    max_meta_bytes: int = MAX_META_BYTES,
    max_meta_parts: int | None = None,
) -> tuple[dict[str, Any], memoryview]:
    """Split one record into meta and blob; the blob is not copied.

    Args:
        max_meta_bytes: Bound on the meta, where it is less than that of every record.
        max_meta_parts: Bound on its objects and lists, counted before it is parsed (in texts, too).

    Raises:
        WireFormatError: It is truncated, over the bounds, not JSON, or followed by something else.
    """
    view = memoryview(data)
    if len(view) < _HEADER.size:
        raise WireFormatError(f"truncated record: {len(view)} bytes")
    meta_len, blob_len = _HEADER.unpack_from(view)
    _check_bounds(meta_len, blob_len, max_meta_bytes)
    end = _HEADER.size + meta_len + blob_len
    if len(view) != end:
        raise WireFormatError(f"record of {end} bytes, got {len(view)}")
    body = view[_HEADER.size :]
    raw = bytes(body[:meta_len])
    if max_meta_parts is not None and raw.count(b"{") + raw.count(b"[") > max_meta_parts:
        raise WireFormatError(f"meta has more than {max_meta_parts} objects and lists")
    return _meta(raw), body[meta_len:]


class RecordDecoder:
    """Splits a stream of bytes into records; memory is bounded by the bounds of one record.

    After an error the decoder is unusable, since the start of the next record is unknown.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._failed = False

    def feed(self, data: bytes | memoryview) -> Iterator[Record]:
        """Decode more bytes and yield the records that are now complete. Exhaust it before the next call.

        Raises:
            WireFormatError: A length is over the bounds, or meta is not a JSON object.
        """
        if self._failed:
            raise WireFormatError("the stream was malformed earlier and cannot be read on")
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            meta_len, blob_len = _HEADER.unpack_from(self._buffer)
            end = _HEADER.size + meta_len + blob_len
            try:
                _check_bounds(meta_len, blob_len)
                if len(self._buffer) < end:
                    return
                with memoryview(self._buffer) as view:
                    at = _HEADER.size + meta_len
                    meta, blob = bytes(view[_HEADER.size : at]), bytes(view[at:end])
                record = Record(_meta(meta), blob)
            except WireFormatError:
                self._failed = True
                self._buffer.clear()
                raise
            del self._buffer[:end]
            yield record

    def close(self) -> None:
        """Check that the stream ended after a whole record.

        Raises:
            WireFormatError: It ended in the middle of a record.
        """
        if self._buffer:
            self._failed = True
            raise WireFormatError(f"the stream ended {len(self._buffer)} bytes into a record")


def _check_bounds(meta_len: int, blob_len: int, max_meta_bytes: int = MAX_META_BYTES) -> None:
    if meta_len > max_meta_bytes or blob_len > MAX_BLOB_BYTES:
        raise WireFormatError(f"record too large: {meta_len} bytes of meta, {blob_len} of blob")


def _meta(raw: bytes) -> dict[str, Any]:
    try:
        # As text: given bytes, Python's parser takes surrogates in UTF-8, which nobody can pass on.
        meta = _DECODER.decode(raw.decode())
        if b"\\u" in raw:  # only an escape can make text that nobody can pass on
            json.dumps(meta, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as exc:
        raise WireFormatError(f"meta is not JSON: {exc}") from exc
    if not isinstance(meta, dict):
        raise WireFormatError("meta is not a JSON object")
    return meta


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:20]} is too large")
    return number


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
"""Decoder that is shared, since `json.loads` makes one for each call that has such arguments."""
