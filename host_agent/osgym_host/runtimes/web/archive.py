"""Archive of answers by URL: a HAR file, and its answers ready to be sent.

What is replayed lies in a file without a name, of which memory holds an index only. An archive that we write
has one entry on each line and is a whole HAR after every entry; one that a kill cut short loses its last.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from osgym_host.runtimes.web import har
from osgym_host.runtimes.web.har import Answer, ArchiveError
from osgym_host.runtimes.web.har_pieces import MAX_TEXT_BYTES, parse_value, split_entries

MAX_ARCHIVE_BYTES = 8 << 30
MAX_FOREIGN_BYTES = 512 << 20
"""Largest HAR file of other tools, which is read as a whole."""
MAX_ENTRIES = 200_000
_HEADER = b'{"log":{"version":"1.2","creator":{"name":"OSGym","version":"1"},"entries":['
_TAIL = b"\n]}}\n"
MAX_INDEX_BYTES = 256 << 20
"""Largest total size of the URLs of an archive, which are kept in memory."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Place of an answer in the nameless file: its head without the empty line, then its body."""

    offset: int
    head_bytes: int
    body_bytes: int


class Archive:
    """Answers by URL, for one thread."""

    def __init__(self, folder: Path | None = None) -> None:
        """Begin empty.

        Args:
            folder: Where answers lie, on a disk if that can be; None: where temporary files do.

        Raises:
            OSError: There is no room for a file.
        """
        self._spool = _unnamed_file(folder)
        self._closing = weakref.finalize(self, os.close, self._spool)
        self._end = 0
        self._known: dict[str, Stored] = {}
        self._index_bytes = 0
        self.skipped = 0
        """Entries that cannot be replayed."""

    @property
    def urls(self) -> list[str]:
        return list(self._known)

    def find(self, url: str) -> Stored | None:
        return self._known.get(url)

    def head(self, stored: Stored) -> bytes:
        """Return the head of an answer, without the empty line."""
        return os.pread(self._spool, stored.head_bytes, stored.offset)

    def body(self, stored: Stored, piece_bytes: int) -> Iterator[bytes]:
        start = stored.offset + stored.head_bytes
        end = start + stored.body_bytes
        for at in range(start, end, piece_bytes):
            yield os.pread(self._spool, min(piece_bytes, end - at), at)

    def add(self, url: str, answer: Answer) -> Stored:
        """Store an answer, unless there is one already; return the stored one.

        Raises:
            ArchiveError: The URLs would exceed `MAX_INDEX_BYTES`.
            OSError: The body could not be written.
        """
        known = self._known.get(url)
        if known is not None:
            return known
        self.require_room(url)
        head = _head(answer)
        data = memoryview(head + answer.body)
        stored = Stored(self._end, len(head), len(answer.body))
        while data:
            written = os.pwrite(self._spool, data, self._end)
            self._end += written
            data = data[written:]
        self._known[url] = stored
        self._index_bytes += len(url)
        return stored

    def require_room(self, url: str) -> None:
        """Check that a further URL fits.

        Raises:
            ArchiveError: The URLs would exceed `MAX_INDEX_BYTES`.
        """
        if self._index_bytes + len(url) > MAX_INDEX_BYTES:
            raise ArchiveError(f"the URLs of the archive take more than {MAX_INDEX_BYTES >> 20} MiB")

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._closing()

    def load(self, fd: int) -> int:
        """Read a HAR.

        Returns:
            Where the next entry belongs, if the archive is ours; -1 if it is not.

        Raises:
            ArchiveError: It is none, or exceeds a bound.
            OSError: It cannot be read.
        """
        size = os.fstat(fd).st_size
        if size > MAX_ARCHIVE_BYTES:
            raise ArchiveError(f"larger than {MAX_ARCHIVE_BYTES >> 30} GiB")
        with os.fdopen(os.dup(fd), "rb") as file:
            file.seek(0)
            if file.read(len(_HEADER) + 1) == _HEADER + b"\n":
                return self._load_lines(file.fileno(), len(_HEADER) + 1)
            if size > MAX_FOREIGN_BYTES:
                raise ArchiveError(f"larger than {MAX_FOREIGN_BYTES >> 20} MiB and not recorded by OSGym")
            file.seek(0)
            for number, entry in enumerate(split_entries(file.read())):
                self._take(parse_value(entry, f"entry {number}"), number)
        return -1

    def _load_lines(self, fd: int, start: int) -> int:
        """Read an archive of ours; what a kill cut short at its end is left out."""
        end = start - 1
        with os.fdopen(os.dup(fd), "rb") as file:
            file.seek(start)
            for number in range(MAX_ENTRIES + 1):
                line = file.readline(MAX_TEXT_BYTES)
                text = line.rstrip(b"\n").removesuffix(b",")
                if not text or text == b"]}}":
                    return end
                try:
                    entry = parse_value(text, f"entry {number}")
                except ArchiveError:
                    if file.read(1):
                        raise
                    return end
                self._take(entry, number)
                end = file.tell() - (len(line) - len(text))
        raise ArchiveError(f"more than {MAX_ENTRIES} entries")

    def _take(self, entry: object, number: int) -> None:
        if number >= MAX_ENTRIES:
            raise ArchiveError(f"more than {MAX_ENTRIES} entries")
        try:
            found = har.read_entry(entry)
        except ArchiveError as exc:
            raise ArchiveError(f"entry {number}: {exc}") from None
        if found is None:
            self.skipped += 1
        else:
            self.add(*found)


class Recording:
    """A HAR that grows. One host agent at a time writes it."""

    def __init__(self, fd: int, archive: Archive) -> None:
        """Go on with what is there, or begin.

        Args:
            fd: Open for reading and writing; ours to close.

        Raises:
            ArchiveError: Somebody else writes it, or it was not recorded by us.
            OSError: It cannot be read or written.
        """
        self._fd = fd
        self._count = 0
        try:
            self._begin(archive)
        except BaseException:
            self.close()
            raise

    def _begin(self, archive: Archive) -> None:
        fd = self._fd
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArchiveError("another host agent is recording into the archive") from None
        if os.fstat(fd).st_size == 0:
            self._end = len(_HEADER)
            self._write(_HEADER + _TAIL, 0)
        else:
            self._end = archive.load(fd)
            if self._end < 0:
                raise ArchiveError("the archive was not recorded by OSGym, so OSGym does not add to it")
            self._count = len(archive.urls) + archive.skipped
            self._write(_TAIL, self._end)
            os.ftruncate(fd, self._end + len(_TAIL))

    def add(self, line: str) -> None:
        """Add an entry. Blocking.

        Raises:
            ArchiveError: There is no room for it.
            OSError: It cannot be written; the archive is as it was.
        """
        if (
            self._end + len(line) > MAX_ARCHIVE_BYTES
            or len(line) > MAX_TEXT_BYTES
            or self._count >= MAX_ENTRIES
        ):
            raise ArchiveError(
                f"the archive is full: it may have {MAX_ENTRIES} answers and {MAX_ARCHIVE_BYTES >> 30} GiB"
            )
        comma = b"" if self._end == len(_HEADER) else b","
        data = comma + b"\n" + line.encode()
        try:
            self._write(data + _TAIL, self._end)
        except OSError:
            self._write(_TAIL, self._end)
            os.ftruncate(self._fd, self._end + len(_TAIL))
            raise
        self._end += len(data)
        self._count += 1

    def close(self) -> None:
        os.close(self._fd)

    def _write(self, data: bytes, at: int) -> None:
        left = memoryview(data)
        while left:
            written = os.pwrite(self._fd, left, at)
            at += written
            left = left[written:]


def open_archive(path: Path, *, to_record: bool) -> int:
    """Open the file of an archive.

    Raises:
        OSError: It is not there, or not ours to read or write.
    """
    flags = os.O_RDWR | os.O_CREAT if to_record else os.O_RDONLY
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _unnamed_file(folder: Path | None) -> int:
    if folder is not None:
        with contextlib.suppress(OSError):  # not ours to write, or a file system without unnamed files
            return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fd, path = tempfile.mkstemp()
    os.unlink(path)  # noqa: PTH108 - what is gone leaves nothing behind, however we end
    return fd


def _head(answer: Answer) -> bytes:
    try:
        reason = HTTPStatus(answer.status).phrase.encode()
    except ValueError:
        reason = b""
    lines = [b"HTTP/1.1 %d %s" % (answer.status, reason)]
    lines += [name + b": " + value for name, value in answer.headers]
    if answer.status != 204:
        lines.append(b"content-length: %d" % len(answer.body))
    return b"\r\n".join((*lines, b""))
