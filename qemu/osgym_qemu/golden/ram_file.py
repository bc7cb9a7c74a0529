"""Golden RAM in memory: one sealed memory file for all clones of a snapshot on this host.

Clones map it privately, so it must never change under them: the seals forbid writing, growing and
shrinking to everybody, us included. It lives as long as anybody has it open, so clones outlive the host
agent, and the next one gets it back from any of them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from osgym_host.errors import OsgymHostError

PAGE_BYTES = 4096
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_CHUNK_BYTES = 2 << 20
_ZEROS = bytes(PAGE_BYTES)


class RamFileError(OsgymHostError):
    """Failure to load the golden RAM or to find it again."""


@dataclass(frozen=True, slots=True)
class RamIdentity:
    """Identity of a memory file, for records: another host agent recognizes the file by it."""

    device: int
    inode: int
    size_bytes: int


class RamFile:
    """Sealed memory file. The holder of this object closes it; QEMU keeps copies of its own."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        found = os.fstat(fd)
        self.identity = RamIdentity(found.st_dev, found.st_ino, found.st_size)

    @classmethod
    def load(cls, path: Path) -> RamFile:
        """Copy a snapshot's RAM into memory, without its holes. Blocking: a second for each GB or two.

        Raises:
            RamFileError: It cannot be read, or there is not enough memory.
        """
        fd = os.memfd_create("osgym-ram", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with path.open("rb", buffering=0) as source:
                os.ftruncate(fd, os.fstat(source.fileno()).st_size)
                for offset, length in data_extents(source.fileno()):
                    _copy(source.fileno(), fd, offset, length)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        except OSError as exc:
            os.close(fd)
            raise RamFileError(f"{path} cannot be loaded: {exc}") from exc
        except BaseException:
            os.close(fd)
            raise
        return cls(fd)

    @classmethod
    def recover(cls, pid: int, wanted: RamIdentity) -> RamFile:
        """Get the memory file back from a machine that has it open.

        The machine is not trusted: what it shows must be the very file of the record, and sealed.

        Raises:
            RamFileError: It is not there.
        """
        for path in _open_files(pid):
            try:
                found = path.stat()
                if (found.st_dev, found.st_ino, found.st_size) != _key(wanted):
                    continue
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError:
                continue
            with contextlib.suppress(OSError):
                opened = os.fstat(fd)
                same = (opened.st_dev, opened.st_ino, opened.st_size) == _key(wanted)
                if same and fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS == _SEALS:
                    return cls(fd)
            os.close(fd)
        raise RamFileError(f"process {pid} does not have the golden RAM open")

    @property
    def size_bytes(self) -> int:
        return self.identity.size_bytes

    def close(self) -> None:
        """Close our descriptor. Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def template_ram(ram_mib: int) -> int:
    """Return a memory file for a template; writable, so not for clones. The caller closes it."""
    fd = os.memfd_create("osgym-template-ram", os.MFD_CLOEXEC)
    os.ftruncate(fd, ram_mib << 20)
    return fd


def memory_copy(path: Path) -> int:
    """Return the descriptor of a sealed memory file with the content of a small file. The caller closes it.

    Raises:
        OSError: The file cannot be read.
    """
    content = path.read_bytes()
    fd = os.memfd_create(f"osgym-{path.name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        _write_all(fd, memoryview(content), 0)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def save_trimmed(source_fd: int, target: Path) -> int:
    """Write RAM to a new sparse file without the pages that are all zero. Blocking.

    Returns:
        Number of written bytes.

    Raises:
        OSError: The target is there already, or cannot be written.
    """
    size = os.fstat(source_fd).st_size
    out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    written = 0
    try:
        os.ftruncate(out, size)
        for offset, data in _filled_parts(source_fd):
            written += _write_all(out, data, offset)
        os.fsync(out)
    finally:
        os.close(out)
    return written


def sparse_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's non-zero parts, their offsets, and its size. Blocking.

    It is the same for a sparse file and for its copy with holes filled in.
    """
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        for offset, data in _filled_parts(file.fileno()):
            digest.update(b"%d+%d;" % (offset, len(data)))
            digest.update(data)
        digest.update(b"=%d" % os.fstat(file.fileno()).st_size)
    return digest.hexdigest()


def data_extents(fd: int) -> Iterator[tuple[int, int]]:
    """Yield offset and length of the data of a sparse file, in whole pages where it ends in one."""
    size = os.fstat(fd).st_size
    end = 0
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as exc:
            if exc.errno == errno.ENXIO:
                return
            raise
        end = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, end - start


def _filled_parts(fd: int) -> Iterator[tuple[int, memoryview]]:
    """Yield the runs of pages that are not all zero, cut at multiples of a chunk, whatever the holes."""
    done = 0
    for start, length in data_extents(fd):
        first = max(done, start - start % _CHUNK_BYTES)
        for offset in range(first, start + length, _CHUNK_BYTES):
            data = os.pread(fd, _CHUNK_BYTES, offset)
            for begin, end in _filled_runs(data):
                yield offset + begin, memoryview(data)[begin:end]
            done = offset + _CHUNK_BYTES


def _filled_runs(data: bytes) -> Iterator[tuple[int, int]]:
    start = -1
    for offset in range(0, len(data), PAGE_BYTES):
        page = data[offset : offset + PAGE_BYTES]
        empty = page == _ZEROS if len(page) == PAGE_BYTES else not any(page)
        if not empty and start < 0:
            start = offset
        elif empty and start >= 0:
            yield start, offset
            start = -1
    if start >= 0:
        yield start, len(data)


def _write_all(fd: int, data: memoryview, offset: int) -> int:
    done = 0
    while done < len(data):
        done += os.pwrite(fd, data[done:], offset + done)
    return done


def _copy(source: int, target: int, offset: int, length: int) -> None:
    """Copy a part of a file to the same offset of a memory file, through a mapping."""
    begin = offset - offset % mmap.ALLOCATIONGRANULARITY
    with mmap.mmap(target, offset + length - begin, offset=begin) as mapped, memoryview(mapped) as view:
        done = offset - begin
        while done < len(view):
            got = os.preadv(source, [view[done : done + _CHUNK_BYTES]], begin + done)
            if not got:
                raise OSError(errno.EIO, "the file became shorter")
            done += got


def _open_files(pid: int) -> list[Path]:
    """Return the open and mapped files of a process, as paths that open the same files."""
    found: list[Path] = []
    for folder in ("fd", "map_files"):
        with contextlib.suppress(OSError):
            found += sorted(Path(f"/proc/{pid}/{folder}").iterdir())
    return found


def _key(identity: RamIdentity) -> tuple[int, int, int]:
    return identity.device, identity.inode, identity.size_bytes
