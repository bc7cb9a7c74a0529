"""Images, stored once by their content: shards that are appended to, and an index beside each.

A shard has one writer; a new writer begins new ones, so what a dead one left half-written is never touched,
and never read, since the index is written after the image. Readers find an image by its name at random.
"""

from __future__ import annotations

import hashlib
import os
import struct
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from osgym_sdk._exceptions import DatasetError
from osgym_sdk.data._journal import AppendFile

DIGEST_BYTES = 20
SHARD_BYTES = 1024**3
_ENTRY = struct.Struct(f">{DIGEST_BYTES}sQII")  # digest, offset, length, CRC of all before


def digest_of(data: bytes | memoryview) -> bytes:
    """Return the name of an image."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True)
class _Place:
    shard: Path
    offset: int
    length: int


class FrameIndex:
    """Index of the images of a folder; it grows as writers write. Any number of threads may read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: dict[bytes, _Place] = {}
        self._read: dict[str, int] = {}
        self._fds: dict[Path, int] = {}
        self._lock = threading.Lock()

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._places

    def __len__(self) -> int:
        return len(self._places)

    def digests(self) -> Iterator[bytes]:
        """Yield the names of all images that are known."""
        return iter(list(self._places))

    def refresh(self) -> None:
        """Read what was added to the indexes. Raises OSError if one cannot be read."""
        with self._lock:
            for entry in os.scandir(self._folder):
                if not entry.name.endswith(".idx"):
                    continue
                known = self._read.get(entry.name, 0)
                if entry.stat().st_size > known:
                    self._read[entry.name] = known + self._take(Path(entry.path), known)

    def add(self, digest: bytes, shard: Path, offset: int, length: int) -> None:
        """Note an image that this process wrote."""
        self._places[digest] = _Place(shard, offset, length)

    def read(self, digest: bytes) -> bytes:
        """Return an image's bytes.

        Raises:
            KeyError: there is none of this name.
            DatasetError: what is there is damaged, or cannot be read.
        """
        place = self._places.get(digest)
        if place is None:
            self.refresh()
            place = self._places[digest]
        try:
            data = os.pread(self._open(place.shard), place.length, place.offset)
        except OSError as exc:
            raise DatasetError(f"{place.shard}: {exc.strerror}", code="dataset_io") from exc
        if digest_of(data) != digest:
            raise DatasetError(f"{place.shard}: the image at byte {place.offset} is damaged")
        return data

    def close(self) -> None:
        """Close the shards. Idempotent."""
        with self._lock:
            fds, self._fds = self._fds, {}
            for fd in fds.values():
                os.close(fd)

    def _open(self, shard: Path) -> int:
        with self._lock:
            if shard not in self._fds:
                self._fds[shard] = os.open(shard, os.O_RDONLY | os.O_CLOEXEC)
            return self._fds[shard]

    def _take(self, index: Path, known: int) -> int:
        with index.open("rb") as file:
            file.seek(known)
            data = file.read()
        shard, taken = index.with_suffix(".blob"), 0
        for digest, offset, length, crc in _ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size]):
            if _check(digest, offset, length) != crc:
                break
            taken += _ENTRY.size
            self._places.setdefault(digest, _Place(shard, offset, length))
        return taken


class FrameWriter:
    """Adds images; one that any writer of the folder has stored is not stored again."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._number = 0
        self._blob: AppendFile | None = None
        self._index: AppendFile | None = None
        self.known = FrameIndex(folder)
        self.known.refresh()

    def add(self, data: bytes | memoryview) -> str:
        """Store an image unless it is there; return its name.

        Raises:
            OSError: it was not stored; it may be tried again.
        """
        digest = digest_of(data)
        if digest not in self.known:
            self.known.refresh()
        if digest in self.known:
            return digest.hex()
        blob, index = self._shard()
        offset = blob.append(data)
        index.append(_ENTRY.pack(digest, offset, len(data), _check(digest, offset, len(data))))
        self.known.add(digest, blob.path, offset, len(data))
        return digest.hex()

    def sync(self) -> None:
        """Write what was appended to the disk. Raises OSError if that fails."""
        for file in (self._blob, self._index):
            if file is not None:
                file.sync()

    def close(self) -> None:
        """Idempotent."""
        for file in (self._blob, self._index):
            if file is not None:
                file.close()
        self._blob = self._index = None
        self.known.close()

    def _shard(self) -> tuple[AppendFile, AppendFile]:
        if self._blob is not None and self._index is not None and self._blob.size < SHARD_BYTES:
            return self._blob, self._index
        stem = self._folder / f"{self._name}-{self._number:05d}"
        self._number += 1
        blob = AppendFile(stem.with_suffix(".blob"))
        try:
            index = AppendFile(stem.with_suffix(".idx"))
        except OSError:
            blob.close()
            raise
        for old in (self._blob, self._index):
            if old is not None:
                old.sync()
                old.close()
        self._blob, self._index = blob, index
        return blob, index


def _check(digest: bytes, offset: int, length: int) -> int:
    return zlib.crc32(_ENTRY.pack(digest, offset, length, 0))
