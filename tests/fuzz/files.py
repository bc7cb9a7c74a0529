"""Targets that are files and texts of files: disks, checkpoints, the journal, tasks and the URLs in them."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import struct
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

from osgym_host.core.special_addresses import kind_of
from osgym_host.episodes.checkpoint_store import MAGIC, CheckpointRecord, head_of, read_head
from osgym_host.episodes.journal import JournalEntry
from osgym_host.images.qcow2 import Qcow2Error, check_file
from osgym_host.runtimes.base import PointFailed
from osgym_host.tasks.errors import TaskError
from osgym_host.tasks.parse import parse_task
from osgym_host.tasks.urls import InvalidUrl, check_url, parse_web_url, scheme_of
from osgym_protocol.codec import WireFormatError
from osgym_qemu.branching import delta_file
from osgym_qemu.branching.kept_points import MANIFEST, KeptPointStore
from osgym_qemu.branching.point_archive import EXPORT, import_point
from osgym_qemu.branching.qcow2 import parse_header, without_names
from osgym_qemu.disks import boot
from osgym_qemu.disks.manifest import DiskFormat
from tests.fuzz.engine import Run, Target
from tests.fuzz.mutation import mutate

CLUSTER = 512
HEADER_AREA, TABLE_AREA = 128, 32
RAM_BYTES = 16 << 20
_RAM_HEAD = struct.Struct("<8sIIQQQI")
_NUMBERS = (
    0,
    1,
    7,
    8,
    9,
    63,
    64,
    512,
    1024,
    1 << 16,
    1 << 31,
    (1 << 32) - 1,
    1 << 40,
    1 << 62,
    (1 << 64) - 1,
)


def mutate_binary(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Mostly write a number that means something where one may stand; else as texts are changed."""
    if len(data) < 8 or random.random() < 0.25:
        return mutate(random, data, others)
    made = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 3))):
        code = random.choice((">I", ">Q", "<I", "<Q"))
        size = struct.calcsize(code)
        at = random.randrange(0, len(made) - size + 1, 4)
        number = random.choice(
            (random.choice(_NUMBERS), random.randrange(4096), random.randrange(12) * CLUSTER)
        )
        struct.pack_into(code, made, at, number & ((1 << (8 * size)) - 1))
    return bytes(made)


def mutate_delta(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Change a file of pages, and mostly make number and checksum of its runs right again."""
    made = bytearray(mutate_binary(random, data, others))
    if len(made) >= _RAM_HEAD.size and random.random() < 0.8:
        count = min(struct.unpack_from("<Q", made, 24)[0], 64)
        runs = made[_RAM_HEAD.size : _RAM_HEAD.size + 16 * count]
        struct.pack_into("<Q", made, 24, count)
        struct.pack_into("<I", made, 40, zlib.crc32(runs))
    return bytes(made)


@contextlib.contextmanager
def qcow2() -> Iterator[Run]:
    """A disk of small clusters, given by the beginnings of each: sound in all that it names, or refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "disk"

        def run(data: bytes) -> None:
            areas = [data[:HEADER_AREA], *_cut(data[HEADER_AREA:], TABLE_AREA)]
            content = b"".join(area.ljust(CLUSTER, b"\0") for area in areas)
            path.write_bytes(content)
            with contextlib.suppress(Qcow2Error):
                header = parse_header(content, len(content))
                assert len(without_names(content, header)) == len(content)
            try:
                header = check_file(io.BytesIO(content))
            except Qcow2Error:
                return
            assert header.l1_at + 8 * header.l1_entries <= len(content)
            head = boot.read_head(path, DiskFormat.QCOW2)
            assert head is None or len(head) == boot.HEAD_BYTES
            boot.boot_ways(head or b"")

        yield run


def _cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@contextlib.contextmanager
def ram_delta() -> Iterator[Run]:
    """A file of RAM pages: what the check says, the reader says, and pages are inside the RAM."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as workers:
        path = Path(folder) / "ram"

        def run(data: bytes) -> None:
            path.write_bytes(data)
            sound = True
            try:
                delta_file.check_file(path, RAM_BYTES)
            except delta_file.DeltaFileError:
                sound = False
            try:
                delta = delta_file.read_file(path, RAM_BYTES, workers)
            except delta_file.DeltaFileError:
                assert not sound, "the check let pass what cannot be read"
                return
            assert sound, "the check refused what can be read"
            assert delta.size_bytes <= RAM_BYTES
            delta.close()

        yield run


@contextlib.contextmanager
def checkpoints() -> Iterator[Run]:
    """The description of a travelling checkpoint: read, it can be written again, as strict JSON."""

    def run(data: bytes) -> None:
        for given in (data, MAGIC + struct.pack(">I", len(data)) + data):
            with contextlib.suppress(WireFormatError):
                kept = read_head(io.BytesIO(given))
                assert read_head(io.BytesIO(head_of(kept))) == kept
                json.dumps(kept.to_dict(), ensure_ascii=False, allow_nan=False).encode()

    yield run


@contextlib.contextmanager
def journal() -> Iterator[Run]:
    """What a host agent finds of its predecessor: an episode, a checkpoint's record, or neither."""

    def run(data: bytes) -> None:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return
        for kind in (JournalEntry, CheckpointRecord):
            with contextlib.suppress(WireFormatError):
                kind.from_dict(value).to_dict()

    yield run


@contextlib.contextmanager
def points() -> Iterator[Run]:
    """An exported branch point, its manifest after the first byte 10: refused, and nothing of it is left."""
    with tempfile.TemporaryDirectory() as folder:
        source, there = Path(folder) / "point.tar", Path(folder) / "there"
        store = KeptPointStore(there)

        def run(data: bytes) -> None:
            export, _, manifest = data.partition(b"\n")
            if export == b"honest":
                files = {name: {"size": 1, "sha256": "0" * 64} for name in ("device.state", "ram.delta")}
                files |= {"disk.qcow2": {"size": 1, "sha256": "0" * 64}}
                digest = hashlib.sha256(manifest).hexdigest()
                files |= {MANIFEST: {"size": len(manifest), "sha256": digest}}
                export = json.dumps({"format": 1, "files": files}).encode()
            if export == b"raw":
                source.write_bytes(manifest)
            else:
                with tarfile.open(source, "w", format=tarfile.GNU_FORMAT) as tar:
                    for name, member in ((EXPORT, export), (MANIFEST, manifest)):
                        info = tarfile.TarInfo(name)
                        info.size = len(member)
                        tar.addfile(info, io.BytesIO(member))
            try:
                import_point(store, there, source)
            except PointFailed:
                assert list(store.folder.iterdir()) == []
                return
            raise AssertionError("taken without a golden snapshot")

        yield run


@contextlib.contextmanager
def tasks() -> Iterator[Run]:
    """A task file: parsed, or refused as a task's error."""

    def run(data: bytes) -> None:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return
        try:
            task = parse_task(value)
        except TaskError as error:
            json.dumps({"message": error.message, "details": error.details}, allow_nan=False)
            return
        assert 0 < len(task.safe_id) <= 64

    yield run


@contextlib.contextmanager
def urls() -> Iterator[Run]:
    """A URL of a task: a host and a port that a socket takes, or `InvalidUrl`."""

    def run(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        with contextlib.suppress(InvalidUrl):
            check_url(text)
        scheme_of(text)
        with contextlib.suppress(ValueError):
            kind_of(text)
        try:
            url = parse_web_url(text)
        except InvalidUrl:
            return
        assert 1 <= url.port <= 65535 and url.host.isascii()
        for text in (url.target, url.host_header):
            text.encode("ascii")
            assert not set(text) & set(' \r\n\\"<>^`{|}'), "no request line takes that"
        assert url.target.startswith("/")

    yield run


def _after_line(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Change what follows the first line, seldom that."""
    first, newline, rest = data.partition(b"\n")
    if not newline or random.random() < 0.1:
        return mutate(random, data, others)
    return first + newline + mutate(random, rest, [other.partition(b"\n")[2] for other in others])


FILES = [
    Target("qcow2", qcow2, ("disks/qcow2", "disks/boot", "branching/qcow2"), mutate_binary),
    Target("ram_delta", ram_delta, ("branching/delta_file",), mutate_delta),
    Target("checkpoints", checkpoints, ("episodes/checkpoint_store", "episodes/episode_state")),
    Target("journal", journal, ("episodes/journal", "episodes/episode_state")),
    Target("points", points, ("branching/point_archive", "branching/kept_points"), _after_line),
    Target("tasks", tasks, ("osgym_host/tasks/",)),
    Target("urls", urls, ("tasks/urls", "core/special_addresses"), mutate),
]
