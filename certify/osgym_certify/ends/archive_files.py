"""Archives in memory: read within bounds, and written so that equal archives are equal bytes."""

from __future__ import annotations

import calendar
import gzip
import io
import stat
import tarfile
import time
import zipfile
import zlib
from dataclasses import dataclass, field
from enum import Enum

MAX_UNPACKED_BYTES = 64 << 20
MAX_MEMBERS = 2_000
_MAX_NAME = 1_000
_MAX_OWNER = 0o7777777
_EARLIEST, _LATEST = 315_619_200, 4_354_732_800
"""Times that a zip file can store: 1980 to 2107, in seconds since 1970, with a day's margin."""


class Form(Enum):
    """Type of an archive."""

    ZIP = "zip"
    TAR = "tar"
    TAR_GZ = "tar.gz"


@dataclass(frozen=True, slots=True)
class Member:
    """File, folder or link of an archive.

    Attributes:
        name: Path in the archive; that of a folder ends with a slash.
        data: Content; empty for folders and links.
        mode: Permissions.
        time: Time of change in seconds since 1970.
        target: What a link leads to; empty for others.
        is_hard_link: Whether the target is another member.
        owner: Number of the user and group; 0 in zip files.
    """

    name: str
    data: bytes = field(repr=False)
    mode: int
    time: int
    target: str = ""
    is_hard_link: bool = False
    owner: int = 0

    @classmethod
    def folder(cls, name: str) -> Member:
        """Return a folder that everybody may enter."""
        return cls(f"{name}/", b"", 0o755, _EARLIEST)

    @property
    def is_folder(self) -> bool:
        """Whether the member is a folder."""
        return self.name.endswith("/")


@dataclass(frozen=True, slots=True)
class Archive:
    """Type and members of an archive."""

    form: Form
    members: tuple[Member, ...]

    @property
    def files(self) -> tuple[Member, ...]:
        """Members that are files."""
        return tuple(one for one in self.members if not one.is_folder and not one.target)

    @property
    def has_distinct_names(self) -> bool:
        """Whether no two members have the same path."""
        return len({one.name.rstrip("/") for one in self.members}) == len(self.members)


def read(data: bytes) -> Archive | None:
    """Return the archive in a file.

    Returns:
        None if the file is no whole archive, or holds more than 64 MiB, more than 2,000 members, two members
        of one name, encrypted members or special files.
    """
    try:
        if data.startswith(b"PK"):
            form, members = Form.ZIP, _read_zip(data)
        elif data.startswith(b"\x1f\x8b"):
            form, members = Form.TAR_GZ, _read_tar(_unpack(data))
        else:
            form, members = Form.TAR, _read_tar(data)
        names = [
            name.encode() for one in members for name in (one.name, one.target)
        ]  # raises for other bytes
    except (
        EOFError,
        IndexError,
        KeyError,
        OSError,
        OverflowError,
        RuntimeError,  # zipfile's error for encrypted members
        ValueError,
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
    ):
        return None
    archive = Archive(form, tuple(members))
    return archive if members and archive.has_distinct_names and max(map(len, names)) <= _MAX_NAME else None


def write(archive: Archive, level: int = 6) -> bytes:
    """Return an archive as a file, compressed with a level from 0 (stored) to 9."""
    if archive.form is Form.ZIP:
        return _write_zip(archive, level)
    data = _write_tar(archive)
    return gzip.compress(data, level, mtime=0) if archive.form is Form.TAR_GZ else data


def _unpack(data: bytes) -> bytes:
    """Return what a gzip file holds.

    Raises:
        ValueError: The gzip data are cut off, or unpack to more than `MAX_UNPACKED_BYTES`.
    """
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
        unpacked = packed.read(MAX_UNPACKED_BYTES + 1)
    if len(unpacked) > MAX_UNPACKED_BYTES:
        raise ValueError("the archive holds too much")
    return unpacked


def _read_zip(data: bytes) -> list[Member]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        infos = file.infolist()
        _check([info.file_size for info in infos])
        members = []
        for info in infos:
            mode = info.external_attr >> 16
            if info.create_system == 3 and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise ValueError("a special file")
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError("a compression whose memory is not bounded")
            content = b"" if info.is_dir() else file.read(info)
            usual = 0o755 if info.is_dir() else 0o644
            changed = calendar.timegm((*info.date_time, 0, 0, 0))
            members.append(Member(info.filename, content, stat.S_IMODE(mode) or usual, changed))
    return members


def _read_tar(data: bytes) -> list[Member]:
    members: list[Member] = []
    sizes: list[int] = []
    if data[-tarfile.BLOCKSIZE :].strip(b"\0"):
        raise ValueError("the archive is cut off")
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as file:
        for info in file:
            sizes.append(info.size)
            _check(sizes)
            common = (info.mode & 0o7777, min(max(int(info.mtime), 0), _LATEST))
            owner = min(max(info.uid, 0), _MAX_OWNER)
            if info.isdir():
                members.append(Member(f"{info.name}/", b"", *common, owner=owner))
            elif info.issym() or info.islnk():
                members.append(Member(info.name, b"", *common, info.linkname, info.islnk(), owner))
            elif info.isreg() and info.sparse is None and (content := file.extractfile(info)) is not None:
                members.append(Member(info.name, content.read(), *common, owner=owner))
            else:
                raise ValueError("a special file")
            if len(members[-1].data) != (info.size if info.isreg() else 0):
                raise ValueError("the archive is cut off")
    return members


def _check(sizes: list[int]) -> None:
    if len(sizes) > MAX_MEMBERS or sum(sizes) > MAX_UNPACKED_BYTES:
        raise ValueError("the archive holds too much")


def _write_zip(archive: Archive, level: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for one in archive.members:
            seconds = min(max(one.time, _EARLIEST), _LATEST)
            info = zipfile.ZipInfo(one.name, time.gmtime(seconds)[:6])
            info.create_system = 3
            kind = stat.S_IFDIR if one.is_folder else stat.S_IFREG
            info.external_attr = (kind | one.mode) << 16 | (0x10 if one.is_folder else 0)
            plain = level == 0 or one.is_folder
            info.compress_type = zipfile.ZIP_STORED if plain else zipfile.ZIP_DEFLATED
            file.writestr(info, one.data, compresslevel=level)
    return out.getvalue()


def _write_tar(archive: Archive) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as file:
        for one in archive.members:
            info = tarfile.TarInfo(one.name.rstrip("/") if one.is_folder else one.name)
            info.mode, info.mtime, info.size, info.uid, info.gid = (
                one.mode,
                one.time,
                len(one.data),
                one.owner,
                one.owner,
            )
            if one.is_folder:
                info.type = tarfile.DIRTYPE
            elif one.target:
                info.type = tarfile.LNKTYPE if one.is_hard_link else tarfile.SYMTYPE
                info.linkname = one.target
            file.addfile(info, io.BytesIO(one.data))
    return out.getvalue()
