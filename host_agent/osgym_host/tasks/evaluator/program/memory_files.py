"""Files in memory behind Python's own file functions, for a program in a process that can open no file.

Verifiers of other task sets copy files out of a desktop into temporary files and read these. The confined
process has no file system, so `MemoryFiles.installed` puts files in memory behind `open`, `os`, `shutil`,
`tempfile` and `sqlite3.connect` while the verifier runs. This protects nothing: the process is confined.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
import posixpath
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

TEMPORARY = "/tmp"  # noqa: S108 - a folder in memory
_REAL_OPEN = io.open
_REAL_CONNECT = sqlite3.connect


def _error(kind: type[OSError], number: int, path: str) -> OSError:
    return kind(number, os.strerror(number), path)


class _Content(io.RawIOBase):
    """An open file: a position in bytes that all who opened the file share."""

    def __init__(self, name: str, data: bytearray, mode: str, on_close: Callable[[], None] | None) -> None:
        self.name = name
        self._data = data
        self._reads = "r" in mode or "+" in mode
        self._writes = mode.strip("bt") != "r"
        self._appends = "a" in mode
        self._on_close = on_close
        self._at = len(data) if self._appends else 0

    def readable(self) -> bool:
        return self._reads

    def writable(self) -> bool:
        return self._writes

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._data[self._at : self._at + len(buffer)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def write(self, data: Any) -> int:
        given = bytes(data)
        if self._appends:
            self._at = len(self._data)
        self._data.extend(bytes(max(0, self._at - len(self._data))))
        self._data[self._at : self._at + len(given)] = given
        self._at += len(given)
        return len(given)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._data)}[whence]
        self._at = max(0, start + offset)
        return self._at

    def truncate(self, size: int | None = None) -> int:
        size = self._at if size is None else size
        del self._data[size:]
        return size

    def close(self) -> None:
        if not self.closed:
            super().close()
            if self._on_close is not None:
                self._on_close()


class _Entry:
    """An entry of a folder, as `os.scandir` gives it."""

    def __init__(self, files: MemoryFiles, path: str) -> None:
        self.path = path
        self.name = posixpath.basename(path)
        self._files = files

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISDIR(self.stat().st_mode)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return not self.is_dir()

    def is_symlink(self) -> bool:
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return self._files.stat(self.path)


class _Entries:
    """The iterator of `os.scandir`, which is a context manager too."""

    def __init__(self, entries: list[_Entry]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> _Entries:
        return self

    def __next__(self) -> _Entry:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


class MemoryFiles:
    """Files by absolute path. A relative path begins at the root folder."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._data: dict[str, bytearray] = {}
        self._folders = {"/", TEMPORARY}
        self._count = 0
        for path, data in files.items():
            self.put(path, data)

    def put(self, path: str, data: bytes) -> None:
        """Write a whole file and make the folders above it. Open handles of the file see the new content."""
        name = self._path(path)
        above = posixpath.dirname(name)
        while above not in self._folders:
            self._folders.add(above)
            above = posixpath.dirname(above)
        self._data.setdefault(name, bytearray())[:] = data

    def read(self, path: str) -> bytes:
        """Return the content of a file.

        Raises:
            FileNotFoundError: It does not exist.
        """
        return bytes(self._file(self._path(path)))

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Put these files behind the functions of Python's library until the ``with`` block ends."""
        before = [(module, name, getattr(module, name)) for module, name, _ in self._replacements()]
        try:
            for module, name, function in self._replacements():
                setattr(module, name, function)
            yield
        finally:
            for module, name, function in before:
                setattr(module, name, function)

    def _replacements(self) -> list[tuple[Any, str, Any]]:
        def nothing(*_: Any, **__: Any) -> None:
            """Do nothing: files in memory have no permissions and times."""

        return [
            (builtins, "open", self.open),
            (io, "open", self.open),
            (os, "access", self.access),
            (os, "listdir", self.listdir),
            (os, "mkdir", self.mkdir),
            (os, "rmdir", self.rmdir),
            (os, "scandir", self.scandir),
            (os, "stat", self.stat),
            (os, "lstat", self.stat),
            (os, "unlink", self.unlink),
            (os, "remove", self.unlink),
            (os, "rename", self.rename),
            (os, "replace", self.rename),
            (os, "getcwd", lambda: "/"),
            (os, "chmod", nothing),
            (os, "utime", nothing),
            (shutil, "copystat", nothing),
            (shutil, "rmtree", self.rmtree),
            (sqlite3, "connect", self.connect),
            (tempfile, "tempdir", TEMPORARY),
            (tempfile, "mkdtemp", self.mkdtemp),
            (tempfile, "mkstemp", self.mkstemp),
            (tempfile, "NamedTemporaryFile", self.named_temporary_file),
        ]  # fmt: skip

    def _path(self, given: Any) -> str:
        text = os.fsdecode(given)
        return "/" + posixpath.normpath(posixpath.join("/", text)).lstrip("/")

    def _file(self, path: str) -> bytearray:
        if path in self._folders:
            raise _error(IsADirectoryError, errno.EISDIR, path)
        if path not in self._data:
            raise _error(FileNotFoundError, errno.ENOENT, path)
        return self._data[path]

    def _under(self, path: str) -> list[str]:
        if path not in self._folders:
            kind, number = (
                (NotADirectoryError, errno.ENOTDIR)
                if path in self._data
                else (FileNotFoundError, errno.ENOENT)
            )
            raise _error(kind, number, path)
        names = {*self._data, *self._folders} - {"/"}
        return sorted(name for name in names if posixpath.dirname(name) == path)

    def open(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
        on_close: Callable[[], None] | None = None,
    ) -> Any:
        """Open a file as Python's `open` does; a number is a descriptor of the process."""
        if isinstance(file, int):
            return _REAL_OPEN(file, mode, buffering, encoding, errors, newline, closefd)
        path = self._path(file)
        makes = mode.strip("bt+") in {"w", "a", "x"}
        if "x" in mode and path in self._data:
            raise _error(FileExistsError, errno.EEXIST, path)
        if makes and path not in self._data and path not in self._folders:
            self._under(posixpath.dirname(path))
            self._data[path] = bytearray()
        data = self._file(path)
        if "w" in mode:
            del data[:]
        raw = _Content(path, data, mode, on_close)
        whole: Any
        if raw.readable():
            whole = io.BufferedRandom(raw) if raw.writable() else io.BufferedReader(raw)
        else:
            whole = io.BufferedWriter(raw)
        return whole if "b" in mode else io.TextIOWrapper(whole, encoding or "utf-8", errors, newline)

    def stat(self, path: Any, **_: Any) -> os.stat_result:
        """Return type and size of a file or folder; its times are 0."""
        name = self._path(path)
        folder = name in self._folders
        size = 0 if folder else len(self._file(name))
        kind = (stat.S_IFDIR | 0o755) if folder else (stat.S_IFREG | 0o644)
        return os.stat_result((kind, hash(name) & 0xFFFFFFFF, 1, 1, 0, 0, size, 0, 0, 0))

    def access(self, path: Any, mode: int, **_: Any) -> bool:
        name = self._path(path)
        return name in self._data or name in self._folders

    def listdir(self, path: Any = "/") -> list[str]:
        return [posixpath.basename(name) for name in self._under(self._path(path))]

    def scandir(self, path: Any = "/") -> _Entries:
        return _Entries([_Entry(self, name) for name in self._under(self._path(path))])

    def mkdir(self, path: Any, mode: int = 0o777, **_: Any) -> None:
        name = self._path(path)
        if name in self._data or name in self._folders:
            raise _error(FileExistsError, errno.EEXIST, name)
        self._under(posixpath.dirname(name))
        self._folders.add(name)

    def rmdir(self, path: Any, **_: Any) -> None:
        name = self._path(path)
        if self._under(name):
            raise _error(OSError, errno.ENOTEMPTY, name)
        self._folders.discard(name)

    def unlink(self, path: Any, **_: Any) -> None:
        name = self._path(path)
        self._file(name)
        del self._data[name]

    def rename(self, source: Any, target: Any, **_: Any) -> None:
        self.put(self._path(target), self.read(source))
        self.unlink(source)

    def rmtree(self, path: Any, ignore_errors: bool = False, *_: Any, **__: Any) -> None:
        """Remove a folder with all below it."""
        root = self._path(path)
        if root not in self._folders and not ignore_errors:
            raise _error(FileNotFoundError, errno.ENOENT, root)
        below = root.rstrip("/") + "/"
        self._data = {name: data for name, data in self._data.items() if not name.startswith(below)}
        self._folders = {name for name in self._folders if name != root and not name.startswith(below)}

    def _new_name(self, suffix: str | None, prefix: str | None, folder: Any) -> str:
        self._count += 1
        return posixpath.join(
            self._path(folder or TEMPORARY), f"{prefix or 'tmp'}{self._count}{suffix or ''}"
        )

    def mkdtemp(self, suffix: str | None = None, prefix: str | None = None, dir: Any = None) -> str:
        name = self._new_name(suffix, prefix, dir)
        self.mkdir(name)
        return name

    def mkstemp(
        self, suffix: str | None = None, prefix: str | None = None, dir: Any = None, text: bool = False
    ) -> tuple[int, str]:
        """Make an empty file. The descriptor writes to nowhere: it is there to be closed."""
        name = self._new_name(suffix, prefix, dir)
        self.put(name, b"")
        return os.dup(0), name

    def named_temporary_file(
        self,
        mode: str = "w+b",
        buffering: int = -1,
        encoding: str | None = None,
        newline: str | None = None,
        suffix: str | None = None,
        prefix: str | None = None,
        dir: Any = None,
        delete: bool = True,
        *,
        errors: str | None = None,
        **_: Any,
    ) -> Any:
        """Open a new file, which is removed when it is closed unless ``delete`` is false."""
        name = self._new_name(suffix, prefix, dir)

        def removed() -> None:
            with contextlib.suppress(OSError):
                self.unlink(name)

        self.put(name, b"")
        return self.open(
            name, mode, buffering, encoding, errors, newline, on_close=removed if delete else None
        )

    def connect(self, database: Any, *arguments: Any, **named: Any) -> sqlite3.Connection:
        """Open a copy of a SQLite file; any other name opens an empty database in memory."""
        name = os.fsdecode(database)
        if named.pop("uri", False):
            name = name.removeprefix("file:").partition("?")[0]
        connection: sqlite3.Connection = _REAL_CONNECT(":memory:", *arguments, **named)
        if data := self._data.get(self._path(name)):
            connection.deserialize(bytes(data))
        return connection
