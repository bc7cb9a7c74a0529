"""Branch points as files: what is written is read back, what a stranger made is refused."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import shutil
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.branch_points import DIGEST, DISK_BYTES, RAM_BYTES, RAM_MIB, make_delta, make_disk

from osgym_host.runtimes.base import PointFailed, PointNotFound
from osgym_qemu.branching.delta_file import read_file, write_file
from osgym_qemu.branching.kept_points import KeptPointStore, PointData, PointManifest
from osgym_qemu.branching.point_archive import export_point, import_point
from osgym_qemu.branching.qcow2 import parse_header
from osgym_qemu.branching.ram_pages import PAGE
from osgym_qemu.disks.manifest import DiskFormat, GuestKind
from osgym_qemu.machine.argv import Shape
from osgym_qemu.machine.host_checks import shape_fields
from osgym_qemu.snapshots import SnapshotManifest


@pytest.fixture
def workers() -> Iterator[ThreadPoolExecutor]:
    """Threads that compress."""
    with ThreadPoolExecutor(2) as pool:
        yield pool


def make_snapshot(data_dir: Path, digest: str = DIGEST) -> None:
    """A golden snapshot in a store, as far as branch points look at it."""
    folder = data_dir / "snapshots" / digest
    folder.mkdir(parents=True)
    make_disk(folder / "disk.qcow2")
    manifest = SnapshotManifest(
        digest=digest,
        reference="test@desktop",
        created_at="2026-01-01T00:00:00+00:00",
        disk_digest="0" * 64,
        disk_format=DiskFormat.QCOW2,
        image_digest=None,
        guest=GuestKind.OSGYM,
        screen=(1280, 800),
        qemu_version="7.2.0",
        shape=shape_fields(Shape(ram_mib=RAM_MIB)),
        argv=[],
        kernel_digest=None,
        ram_mib=RAM_MIB,
        ram_data_bytes=0,
        state_bytes=0,
        disk_bytes=0,
        ram_sha256="",
        state_sha256="",
        disk_sha256="",
        boot_s=1,
        build_s=1,
    )
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    (folder / "ram").touch()
    (folder / "device.state").touch()
    (folder / "secret").write_text("frozen")


def make_point(data_dir: Path, workers: ThreadPoolExecutor, **changes: Any) -> PointData:
    """A kept point in a store."""
    store = KeptPointStore(data_dir)
    fields: dict[str, Any] = {
        "point_id": "p-1",
        "image_digest": DIGEST,
        "replica_id": "r1",
        "generation": 7,
        "created_at": 1.0,
        "pause_ms": 9.5,
        "ram_mib": 1.0,
        "disk_mib": 0.2,
        "ram_bytes": RAM_BYTES,
        "screen_bytes": 0,
        "disk_bytes": DISK_BYTES,
    }
    with store.workspace() as folder:
        write_file(folder / "ram.delta", make_delta([3, 5], lambda page: b"p" * PAGE), RAM_BYTES, workers)
        (folder / "device.state").write_bytes(b"state")
        make_disk(folder / "disk.qcow2")
        return store.publish(folder, PointManifest(**(fields | changes)), "the-token")


def test_checkpoints_are_found_again(tmp_path: Path, workers: ThreadPoolExecutor) -> None:
    """What was published is there whole, secrets unreadable to others; the half written is removed."""
    store = KeptPointStore(tmp_path)
    assert store.all() == []
    point = make_point(tmp_path, workers)
    make_point(tmp_path, workers, point_id="p-0", created_at=0.5)
    with pytest.raises(RuntimeError, match="killed"), store.workspace() as folder:
        (folder / "ram.delta").write_bytes(b"half")
        raise RuntimeError("killed")
    left = store.folder / ".baking-left"
    left.mkdir()
    (store.folder / "broken").mkdir()
    (store.folder / "broken" / "manifest.json").write_text("{}")
    store.reap()
    assert not left.exists()
    found = store.all()
    assert [entry.info.point_id for entry in found] == ["p-0", "p-1"]
    assert found[1].info == point.info
    assert found[1].token == "the-token"
    assert "the-token" not in repr(found[1])
    assert store.folder.stat().st_mode & 0o077 == 0
    assert (found[1].folder / "token").stat().st_mode & 0o077 == 0
    store.remove("p-0")
    store.remove("p-0")
    assert [entry.info.point_id for entry in store.all()] == ["p-1"]
    for name in ("p-0", "../checkpoints/p-1", "", "."):
        with pytest.raises(PointNotFound):
            store.load(name)


@pytest.fixture
def exported(tmp_path: Path, workers: ThreadPoolExecutor) -> Path:
    """An exported point, and the data folder `there` that could take it."""
    make_snapshot(tmp_path / "there")
    point = make_point(tmp_path / "here", workers)
    target = tmp_path / "point.tar"
    export_point(KeptPointStore(tmp_path / "here"), point.info.point_id, target)
    return target


def take_in(exported: Path) -> PointData:
    """Import it where the snapshot is."""
    there = exported.parent / "there"
    return import_point(KeptPointStore(there), there, exported)


def test_a_point_travels(exported: Path, workers: ThreadPoolExecutor) -> None:
    """It arrives under another id with the same content; anybody's tar can list it."""
    assert exported.stat().st_mode & 0o077 == 0
    with tarfile.open(exported) as archive:
        assert archive.getnames() == [
            "export.json",
            "manifest.json",
            "token",
            "device.state",
            "ram.delta",
            "disk.qcow2",
        ]
    point = take_in(exported)
    again = take_in(exported)
    assert point.info.point_id != again.info.point_id != "p-1"
    assert point.info.kept
    assert (point.info.generation, point.info.image_digest, point.token) == (7, DIGEST, "the-token")
    assert point.state.read_bytes() == b"state"
    delta = read_file(point.folder / "ram.delta", RAM_BYTES, workers)
    assert bytes(delta.packed()) == b"p" * 2 * PAGE
    with pytest.raises(PointFailed, match="already"):
        export_point(KeptPointStore(exported.parent / "here"), "p-1", exported)


def test_another_snapshot_is_named(tmp_path: Path, exported: Path) -> None:
    """A host without the golden snapshot refuses and names what is missing and what it has."""
    elsewhere = tmp_path / "elsewhere"
    make_snapshot(elsewhere, "e" * 64)
    with pytest.raises(PointFailed, match=r"dddddddddddd.*eeeeeeeeeeee"):
        import_point(KeptPointStore(elsewhere), elsewhere, exported)
    assert list((elsewhere / "checkpoints").iterdir()) == []


def test_no_byte_of_an_export_can_be_changed(exported: Path) -> None:
    """A change anywhere is noticed, or is in padding that means nothing."""
    data = exported.read_bytes()
    bad = exported.parent / "bad.tar"
    chosen = random.Random(1)
    places = [*range(0, 4096, 37), *(chosen.randrange(len(data)) for _ in range(100))]
    good = contents(take_in(exported))
    refused = 0
    for at in places:
        bad.write_bytes(data[:at] + bytes([data[at] ^ 0x5A]) + data[at + 1 :])
        try:
            point = take_in(bad)
        except PointFailed:
            refused += 1
        else:
            assert contents(point) == good
    assert refused > len(places) // 2


def contents(point: PointData) -> dict[str, bytes]:
    """The files of a point but for its manifest, which has its new id."""
    files = {path.name: path.read_bytes() for path in point.folder.iterdir()}
    return {name: data for name, data in files.items() if name != "manifest.json"}


def repacked(
    exported: Path, change: Callable[[str, bytes], tuple[str, bytes] | None], *, honest: bool
) -> Path:
    """The archive with members changed; `honest` also corrects sizes and digests in `export.json`."""
    with tarfile.open(exported) as archive:
        members = {name: archive.extractfile(name).read() for name in archive.getnames()}
    made = [entry for name, data in members.items() if (entry := change(name, data)) is not None]
    if honest:
        files = {
            name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in made
            if name != "export.json"
        }
        made[0] = ("export.json", json.dumps({"format": 1, "files": files}).encode())
    target = exported.parent / "repacked.tar"
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in made:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return target


def edited(
    name: str, edit: Callable[[dict[str, Any]], dict[str, Any]]
) -> Callable[[str, bytes], tuple[str, bytes]]:
    """Change one JSON member."""
    return lambda member, data: (
        (member, json.dumps(edit(json.loads(data))).encode()) if member == name else (member, data)
    )


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda name, data: None if name == "disk.qcow2" else (name, data), "members"),
        (lambda name, data: ("../../etc/cron.d/x" if name == "token" else name, data), "members"),
        (lambda name, data: (name, data + b"\n\0" if name == "token" else data), "token"),
        (lambda name, data: (name, bytes(512) if name == "disk.qcow2" else data), "qcow2"),
        (lambda name, data: (name, b"OSGYMRAM" if name == "ram.delta" else data), "too early"),
        (edited("manifest.json", lambda it: it | {"point_id": "../x"}), "point_id"),
        (edited("manifest.json", lambda it: it | {"version": 2}), "version"),
        (edited("manifest.json", lambda it: it | {"more": 1}), "more"),
        (edited("manifest.json", lambda it: it | {"pause_ms": 1e400}), "pause_ms"),
        (edited("manifest.json", lambda it: it | {"generation": -1}), "generation"),
        (edited("manifest.json", lambda it: it | {"ram_bytes": RAM_BYTES * 2}), "size"),
        (edited("manifest.json", lambda it: it | {"disk_bytes": DISK_BYTES * 2}), "size"),
        (edited("manifest.json", lambda it: it | {"screen_bytes": 4096}), "screen"),
    ],
)
def test_what_a_stranger_packs_is_refused(exported: Path, change: Any, error: str) -> None:
    """Also when its digests are right."""
    with pytest.raises(PointFailed, match=error):
        take_in(repacked(exported, change, honest=True))
    assert list((exported.parent / "there" / "checkpoints").iterdir()) == []
    assert not (exported.parent / "etc").exists()


def test_links_are_no_members(exported: Path) -> None:
    """A member that is a link, or out of its order, is as good as missing."""
    target = exported.parent / "links.tar"
    with tarfile.open(exported) as archive, tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as out:
        for info in archive:
            if info.name == "device.state":
                info.type, info.linkname, info.size = tarfile.SYMTYPE, "/etc/passwd", 0
                out.addfile(info)
            else:
                out.addfile(info, archive.extractfile(info))
    with pytest.raises(PointFailed, match="missing"):
        take_in(target)


def test_names_in_the_disk_are_wiped(exported: Path, tmp_path: Path) -> None:
    """A backing file that the disk names no longer exists once it is taken in."""
    secret = make_disk(tmp_path / "secret.qcow2")
    hostile = make_disk(tmp_path / "hostile.qcow2", "-F", "qcow2", "-b", str(secret)).read_bytes()
    packed = repacked(
        exported, lambda name, data: (name, hostile if name == "disk.qcow2" else data), honest=True
    )
    disk = take_in(packed).layers[0]
    assert str(secret).encode() not in disk.read_bytes()
    assert not parse_header(disk.read_bytes(), disk.stat().st_size).backing


def test_a_small_disk_is_noticed_before(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written where there is no room for all."""
    usage = shutil.disk_usage(exported)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=1 << 20))
    with pytest.raises(PointFailed, match="are free"):
        take_in(exported)


def test_files_that_are_none(tmp_path: Path) -> None:
    """An empty file, zeros, another archive, no file."""
    store = KeptPointStore(tmp_path)
    for name, data in (("empty", b""), ("zeros", bytes(4096)), ("text", os.urandom(2000))):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(PointFailed):
            import_point(store, tmp_path, tmp_path / name)
    with pytest.raises(PointFailed, match="No such file"):
        import_point(store, tmp_path, tmp_path / "nothing")
    with pytest.raises(PointNotFound):
        export_point(store, "p-1", tmp_path / "out")
