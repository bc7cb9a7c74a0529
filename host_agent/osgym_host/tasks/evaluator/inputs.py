"""A metric's arguments inside the confined process: hostile files, behind limits."""

from __future__ import annotations

import functools
import io
import json
import os
import zipfile
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from xml.etree.ElementTree import Element, ParseError

import defusedxml.ElementTree
from defusedxml.common import DefusedXmlException

from osgym_host.tasks.evaluator.disk.layers import DiskUnreadable, LayeredDisk, LayerFormat
from osgym_host.tasks.evaluator.disk.session_view import read_file

MAX_FILE_BYTES = 64 << 20
MAX_ZIP_ENTRIES = 5000
MAX_ZIP_MEMBER_BYTES = 64 << 20
MAX_ZIP_TOTAL_BYTES = 256 << 20


class Unreadable(Exception):
    """A file is corrupt, a bomb, too large, or of another kind than it should be.

    On the result's side that is a wrong result (0, with a note); on the expected side it is an error.

    Attributes:
        role: ``result`` or ``expected``.
    """

    def __init__(self, role: str, message: str) -> None:
        super().__init__(message)
        self.role = role


_T = TypeVar("_T")


def reader(function: Callable[..., _T]) -> Callable[..., _T]:
    """Declare a function that reads an `InputFile`, its first argument: what it raises is the file's fault.

    But for memory: what runs out while one file is read may have been used up by another.
    """

    @functools.wraps(function)
    def read(file: InputFile, *arguments: Any) -> _T:
        try:
            return function(file, *arguments)
        except (Unreadable, MemoryError):
            raise
        except Exception as error:
            raise file.bad(f"the file cannot be read: {type(error).__name__}: {error}") from error

    return read


class InputFile:
    """A regular file, given as an open descriptor, or as its content.

    Attributes:
        role: ``result`` or ``expected``.
        beside: Other files that the getter names, by name.
    """

    def __init__(self, fd: int, name: str, role: str, data: bytes | None = None) -> None:
        self.name = name
        self.role = role
        self.beside: dict[str, InputFile] = {}
        self._fd = fd
        self._data = data

    def bad(self, message: str) -> Unreadable:
        """Return the error to raise if the content is wrong."""
        return Unreadable(self.role, f"{self.name}: {message}")

    def data(self) -> bytes:
        """Return the whole content.

        Raises:
            Unreadable: it is larger than allowed.
        """
        if self._data is None:
            size = os.fstat(self._fd).st_size
            if size > MAX_FILE_BYTES:
                raise self.bad(f"{size} bytes are more than {MAX_FILE_BYTES}")
            with os.fdopen(os.dup(self._fd), "rb") as file:
                file.seek(0)
                self._data = file.read(MAX_FILE_BYTES)
        return self._data

    @reader
    def text(self) -> str:
        """Return the content as UTF-8, without a byte order mark, lines ended by a newline.

        Raises:
            Unreadable: too large, or not UTF-8.
        """
        try:
            text = self.data().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise self.bad(f"not UTF-8: {error}") from error
        return text.replace("\r\n", "\n")

    @reader
    def json(self) -> Any:
        """Return the content as JSON.

        Raises:
            Unreadable: it is not JSON.
        """
        return parse_json(self.text(), self)

    @reader
    def zip(self) -> zipfile.ZipFile:
        """Return the content as a zip archive whose members all fit the limits.

        Sizes are those of the archive's directory: Python's reader stops there and then checks.

        Raises:
            Unreadable: not a zip archive, or a bomb.
        """
        try:
            archive = zipfile.ZipFile(io.BytesIO(self.data()))
        except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError) as error:
            raise self.bad(f"not a readable zip archive: {error}") from error
        members = archive.infolist()
        if len(members) > MAX_ZIP_ENTRIES:
            raise self.bad(f"{len(members)} members are more than {MAX_ZIP_ENTRIES}")
        if any(m.file_size > MAX_ZIP_MEMBER_BYTES for m in members):
            raise self.bad("a member is too large when unpacked")
        if sum(m.file_size for m in members) > MAX_ZIP_TOTAL_BYTES:
            raise self.bad("too large when unpacked")
        return archive

    @reader
    def member(self, archive: zipfile.ZipFile, name: str) -> bytes:
        """Return one member's content.

        Raises:
            Unreadable: not there, or damaged.
        """
        try:
            return archive.read(name)
        except MemoryError:
            raise
        except Exception as error:  # zip archives fail in as many ways as there are compressions
            raise self.bad(f"member {name}: {error}") from error

    @reader
    def xml(self, data: bytes) -> Element:
        """Parse XML; entities, external references and document types are refused.

        Raises:
            Unreadable: malformed, or it tries one of these.
        """
        try:
            root: Element = defusedxml.ElementTree.fromstring(data, forbid_dtd=True)
        except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
            raise self.bad(f"XML: {error!r}") from error
        return root


def file_of_disk(
    fds: Sequence[int], formats: Sequence[LayerFormat], path: str, name: str, role: str
) -> InputFile:
    """Return a file of a disk whose layers are open, read at once.

    Raises:
        Unreadable: it is not there, too large, or the disk is damaged.
    """
    try:
        data = read_file(LayeredDisk(fds, formats), path, MAX_FILE_BYTES)
    except DiskUnreadable as error:
        raise Unreadable(role, f"{path} {error}") from error
    return InputFile(-1, name, role, data)


def parse_json(text: str, source: InputFile | None) -> Any:
    """Parse a JSON text.

    Raises:
        Unreadable: it is not JSON (or nested beyond reason).
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"not JSON: {error}"
        raise source.bad(message) if source else Unreadable("result", message) from error


class TaskObject(dict[str, Any]):
    """An object of the task file (a rule, an option). A missing key is the task's fault and is named."""

    def __missing__(self, key: object) -> Any:
        raise Unreadable("expected", f"the task gives no {key!r}")

    @classmethod
    def of(cls, value: Any) -> Any:
        """Return a JSON value, with all its objects as `TaskObject`."""
        if isinstance(value, dict):
            return cls({key: cls.of(inner) for key, inner in value.items()})
        if isinstance(value, list) and not any(isinstance(inner, InputFile) for inner in value):
            return [cls.of(inner) for inner in value]
        return value


Argument = Any
"""Argument of a metric: a JSON value, an `InputFile`, or a list of `InputFile`."""


def as_text(value: Argument) -> str:
    """Return the text of a string or a file; the JSON of any other value."""
    if isinstance(value, InputFile):
        return value.text()
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value)


def as_file(value: Argument, role: str) -> InputFile:
    """Return the one file of an argument.

    Raises:
        Unreadable: the getter gave something else.
    """
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, InputFile):
        raise Unreadable("expected", f"the {role} of this metric must be a file, e.g. by vm_file")
    return value


def rules_of(value: Argument) -> dict[str, Any]:
    """Return the rules of an expected value, which must be an object.

    Raises:
        Unreadable: not an object.
    """
    if not isinstance(value, dict):
        raise Unreadable("expected", "the expected value of this metric must be a rule with an object")
    return value
