"""Changes to CRIU's image of a replica, so that it is restored without the host's rights. Blocking.

An image is a folder of files: two magic numbers and messages of protobuf, each after its length. Changed are
things that CRIU could not restore, or only as the host's root:

- **ids.** The image says which ids of the host the replica had. A clone has others; it is restored in an
  outer user namespace that numbers them from 0.
- **the system call filter.** CRIU itself runs under the same filter, so all that it makes has it from the
  first instruction on. A replica with further filters (a browser's sandbox) is not dumped.
- **files in /proc of threads.** CRIU opens files before it makes threads. The guest agent follows threads of
  the last action by such files, which it closes with the next action; they become those of first threads.
- **control groups.** CRIU is in the clone's already, and so is all that it makes.

Standard library only.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

_HEAD = struct.Struct("<III")
"""Two magic numbers, and the length of the only message."""
_LENGTH = struct.Struct("<I")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LOWER_FIRST = 2
"""`userns_entry`: fields 1 and 2 are maps of extents (first, lower_first, count)."""
_OF_DUMP, _FREEZING_US, _FROZEN_US = 1, 1, 2
"""`stats_entry`: the dump's part, and in it how long the processes took to stop, and stood still."""
_TASK, _THREAD = 3, 5
_DROPPED = {_TASK: frozenset({9, 11, 12}), _THREAD: frozenset({11, 12, 16})}
"""Mode and filter of seccomp, and the set of control groups, in both parts of `core_entry`."""

_REGULAR, _NAME = 3, 6
"""`file_entry`: an ordinary file, and in it the path."""
_OF_THREAD = re.compile(rb"\A(/?proc/)([0-9]+)/task/[0-9]+(/(?:schedstat|syscall))\Z")

Field = tuple[int, int, int | bytes]
"""Number, wire type and value of a protobuf field."""


class ImageMalformed(ValueError):
    """Error for an image file that CRIU 4 would not write."""


def renumber_ids(folder: Path, first: int) -> None:
    """Shift the replica's ids to begin at `first` of the user namespace in which it is restored.

    Raises:
        ImageMalformed: It is of no user namespace, or of several ranges.
        OSError: A file cannot be read or written.
    """
    paths = sorted(folder.glob("userns-*.img"))
    if len(paths) != 1:
        raise ImageMalformed(f"{len(paths)} user namespaces")
    head, message = _read(paths[0])
    maps = list(fields(message))
    if len(maps) != 2:
        raise ImageMalformed("more than one range of ids")
    _write(paths[0], head, encode((number, kind, _renumbered(value, first)) for number, kind, value in maps))


def _renumbered(extent: int | bytes, first: int) -> bytes:
    if not isinstance(extent, bytes):
        raise ImageMalformed("a malformed map of ids")
    return encode(
        (number, kind, first if number == _LOWER_FIRST else value) for number, kind, value in fields(extent)
    )


def pause_ms(folder: Path) -> float:
    """Return how long the replica's processes stood still for the dump, as CRIU has measured it.

    Raises:
        ImageMalformed: The file is not what it should be.
        OSError: It cannot be read.
    """
    _, message = _read(folder / "stats-dump")
    of_dump = next((value for number, _, value in fields(message) if number == _OF_DUMP), b"")
    if not isinstance(of_dump, bytes):
        raise ImageMalformed("stats-dump has no statistics of a dump")
    times = {number: value for number, _, value in fields(of_dump) if isinstance(value, int)}
    return (times.get(_FREEZING_US, 0) + times.get(_FROZEN_US, 0)) / 1000


def drop_inherited(folder: Path) -> None:
    """Remove from every thread what it inherits from CRIU: system call filter and control groups.

    Raises:
        ImageMalformed: A file is not what it should be.
        OSError: A file cannot be read or written.
    """
    for path in folder.glob("core-*.img"):
        head, message = _read(path)
        _write(path, head, encode(_without_inherited(fields(message))))


def _without_inherited(of_core: Iterable[Field]) -> Iterator[Field]:
    for number, kind, value in of_core:
        if number in _DROPPED and isinstance(value, bytes):
            kept = [field for field in fields(value) if field[0] not in _DROPPED[number]]
            yield number, kind, encode(kept)
        else:
            yield number, kind, value


def follow_first_threads(folder: Path) -> None:
    """Let open files in /proc of threads be those of the first thread of their process.

    Raises:
        ImageMalformed: The file is not what it should be.
        OSError: It cannot be read or written.
    """
    path = folder / "files.img"
    data = path.read_bytes()
    changed, at = bytearray(data[: _HEAD.size - _LENGTH.size]), _HEAD.size - _LENGTH.size
    while at < len(data):
        if at + _LENGTH.size > len(data):
            raise ImageMalformed(f"{path.name} is cut short")
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if at + length > len(data):
            raise ImageMalformed(f"{path.name} is cut short")
        message = encode(_of_first_thread(fields(data[at : at + length])))
        changed += _LENGTH.pack(len(message)) + message
        at += length
    path.write_bytes(changed)


def _of_first_thread(of_file: Iterable[Field]) -> Iterator[Field]:
    for number, kind, value in of_file:
        if number == _REGULAR and isinstance(value, bytes):
            yield number, kind, encode(_renamed(fields(value)))
        else:
            yield number, kind, value


def _renamed(of_regular: Iterable[Field]) -> Iterator[Field]:
    for number, kind, value in of_regular:
        if number == _NAME and isinstance(value, bytes):
            yield number, kind, _OF_THREAD.sub(rb"\g<1>\g<2>/task/\g<2>\g<3>", value)
        else:
            yield number, kind, value


def _read(path: Path) -> tuple[tuple[int, int], bytes]:
    data = path.read_bytes()
    if len(data) < _HEAD.size:
        raise ImageMalformed(f"{path.name} is cut short")
    first, second, length = _HEAD.unpack_from(data)
    if len(data) != _HEAD.size + length:
        raise ImageMalformed(f"{path.name} does not have its announced length")
    return (first, second), data[_HEAD.size :]


def _write(path: Path, head: tuple[int, int], message: bytes) -> None:
    path.write_bytes(_HEAD.pack(*head, len(message)) + message)


def fields(message: bytes) -> Iterator[Field]:
    """Yield the fields of a protobuf message, nested ones undecoded.

    Raises:
        ImageMalformed: It is cut short, or has a type that protobuf gave up.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, kind, value
            continue
        if kind == _BYTES:
            length, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise ImageMalformed(f"a field of type {kind}")
        if at + length > len(message):
            raise ImageMalformed("a field is cut short")
        yield number, kind, message[at : at + length]
        at += length


def encode(of_message: Iterable[Field]) -> bytes:
    """Return a protobuf message of these fields."""
    out = bytearray()
    for number, kind, value in of_message:
        out += _of_varint(number << 3 | kind)
        if isinstance(value, int):
            out += _of_varint(value)
        else:
            out += (_of_varint(len(value)) if kind == _BYTES else b"") + value
    return bytes(out)


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ImageMalformed("a number is cut short")
        value |= (message[at] & 0x7F) << shift
        if message[at] < 0x80:
            return value, at + 1
        at, shift = at + 1, shift + 7


def _of_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
