"""The store of snapshots, what a host says about one, and the memory file clones map."""

from __future__ import annotations

import fcntl
import mmap
import os
from pathlib import Path
from typing import Any

import pytest

from osgym_host.images.errors import DefinitionError, ImageNotFound
from osgym_host.warmups import find_warmup, load_warmup
from osgym_qemu.disks.manifest import DiskFormat, GuestKind
from osgym_qemu.golden.ram_file import (
    RamFile,
    RamFileError,
    RamIdentity,
    data_extents,
    save_trimmed,
    sparse_sha256,
    template_ram,
)
from osgym_qemu.machine.argv import Accel, Shape
from osgym_qemu.machine.host_checks import QemuFacts, reasons_against, shape_fields, shape_of
from osgym_qemu.snapshots import Snapshot, SnapshotManifest, SnapshotStore, full_reference, how_to_make

MIB = 1 << 20


def manifest(digest: str = "a" * 64, **changed: Any) -> SnapshotManifest:
    """A manifest like the builder's."""
    given: dict[str, Any] = {
        "digest": digest,
        "reference": "small@desktop",
        "created_at": "2026-01-02T03:04:05.000+00:00",
        "disk_digest": "d" * 64,
        "disk_format": DiskFormat.QCOW2,
        "image_digest": None,
        "guest": GuestKind.OSGYM,
        "screen": (1920, 1080),
        "qemu_version": "7.2.22",
        "shape": shape_fields(Shape()),
        "argv": ["qemu"],
        "kernel_digest": None,
        "ram_mib": 1024,
        "ram_data_bytes": 1,
        "state_bytes": 1,
        "disk_bytes": 1,
        "ram_sha256": "",
        "state_sha256": "",
        "disk_sha256": "",
        "boot_s": 1.0,
        "build_s": 2.0,
    }
    return SnapshotManifest(**{**given, **changed})


def publish(store: SnapshotStore, digest: str, reference: str = "small@desktop", at: str = "") -> Snapshot:
    """Put a snapshot with a secret into the store."""
    with store.workspace() as folder:
        (folder / "secret").write_text("hush\n")
        changed = {"reference": reference} | ({"created_at": at} if at else {})
        return store.publish(folder, manifest(digest, **changed))


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    """An empty store."""
    return SnapshotStore(tmp_path)


def test_a_snapshot_is_found_by_reference_disk_and_digest(store: SnapshotStore) -> None:
    """A disk's name alone means its desktop."""
    made = publish(store, "a1" * 32)
    store.tag("small@desktop", made.digest)
    for name in ("small@desktop", "small", "a1a1a1", "a1" * 32):
        assert store.resolve(name) == made
    assert made.secret() == "hush"
    assert made.base.name == "base.qcow2"


@pytest.mark.parametrize("name", ["full", "small@other", "a1a1", "../x", "@", "a@b@c", ".hidden", ""])
def test_what_is_not_there_is_not_found(store: SnapshotStore, name: str) -> None:
    """Nor is a path a name."""
    store.tag("small@desktop", publish(store, "a1" * 32).digest)
    with pytest.raises(ImageNotFound) as raised:
        store.resolve(name)
    assert raised.value.hint


def test_a_prefix_of_two_is_none(store: SnapshotStore) -> None:
    """Not the first that comes."""
    publish(store, "abcdef1" + "0" * 57)
    publish(store, "abcdef2" + "0" * 57)
    with pytest.raises(ImageNotFound):
        store.resolve("abcdef")


def test_a_tag_moves_and_the_former_snapshot_stays(store: SnapshotStore) -> None:
    """Clones of the former one may run."""
    former, later = publish(store, "a" * 64), publish(store, "b" * 64, at="2027-01-01T00:00:00.000+00:00")
    store.tag("small@desktop", former.digest)
    store.tag("small@desktop", later.digest)
    assert store.resolve("small") == later
    assert [found.digest for found in store.all()] == [later.digest, former.digest]


def test_removing_takes_the_tags_along(store: SnapshotStore) -> None:
    """And leaves no folder."""
    made = publish(store, "a" * 64)
    store.tag("small@desktop", made.digest)
    store.remove(made)
    assert store.tagged() == {} and store.all() == []
    assert [path.name for path in store.folder.iterdir()] == ["tags"]


def test_an_abandoned_workspace_is_reaped_and_one_in_use_is_not(store: SnapshotStore) -> None:
    """By the lock that its maker holds."""
    store.prepare()
    (store.folder / ".baking-dead").mkdir()
    with store.workspace() as folder:
        assert store.reap() == [".baking-dead"]
        assert folder.is_dir()
    assert not folder.exists()


@pytest.mark.parametrize("name", ["a@", "@b", "a/b@c", "a@b/c", "a b", "x@y@z", "-a@b", "é@b"])
def test_malformed_references_are_refused(store: SnapshotStore, name: str) -> None:
    """They would become names of files."""
    with pytest.raises(ValueError, match="not the name"):
        full_reference(name)


def test_how_to_make_it_is_a_command() -> None:
    """The hint can be pasted."""
    assert how_to_make("full@desktop") == "osgym image snapshot full"
    assert how_to_make("full@calc-open") == "osgym image snapshot full --name calc-open"


def test_a_shape_survives_its_manifest() -> None:
    """As JSON, with its enumerations."""
    shape = Shape(accel=Accel.KVM, cpu="Haswell-noTSX", vga=True, ram_mib=4096, screen_px=(800, 600))
    read = SnapshotManifest.model_validate_json(manifest(shape=shape_fields(shape)).model_dump_json())
    assert shape_of(read) == shape


HERE = QemuFacts("qemu", (7, 2, 22), frozenset({"pc-i440fx-7.2", "pc-q35-7.2"}))


@pytest.mark.parametrize(
    ("changed", "kvm", "lacking", "said"),
    [
        ({}, "", [], None),
        ({"qemu_version": "7.2.9"}, "", [], None),
        ({"qemu_version": "8.0.0"}, "", [], "older 7.2.22"),
        ({"shape": shape_fields(Shape(machine="pc-i440fx-9.0"))}, "", [], "no machine type pc-i440fx-9.0"),
        ({"shape": shape_fields(Shape(accel=Accel.KVM))}, "", [], None),
        ({"shape": shape_fields(Shape(accel=Accel.KVM))}, "it hangs", [], "under KVM: it hangs"),
        (
            {"shape": shape_fields(Shape(accel=Accel.KVM))},
            "",
            ["avx2", "aes"],
            "lacks parts of Nehalem: aes, avx2",
        ),
        ({"shape": {"machine": "pc", "flux": 1}}, "", [], "unknown here"),
        ({}, "it hangs", ["avx2"], None),
    ],
)
def test_a_host_says_why_it_cannot_take_a_snapshot(
    changed: dict[str, Any], kvm: str, lacking: list[str], said: str | None
) -> None:
    """One reason each, none where it fits; KVM matters only where the snapshot was made under it."""
    reasons = reasons_against(manifest(**changed), HERE, kvm, lacking)
    if said is None:
        assert reasons == []
    else:
        assert len(reasons) == 1
        assert said in reasons[0]


def written(path: Path, size: int, parts: dict[int, bytes]) -> Path:
    """A sparse file."""
    with path.open("wb") as file:
        file.truncate(size)
        for offset, data in parts.items():
            file.seek(offset)
            file.write(data)
    return path


PARTS = {0: b"boot" + bytes(8188) + b"x" * 10, 5 * MIB - 3: b"across", 9 * MIB: bytes(MIB)}


def test_golden_ram_is_what_was_frozen_and_cannot_be_changed(tmp_path: Path) -> None:
    """Loaded without its holes, sealed against everybody."""
    source = written(tmp_path / "ram", 16 * MIB, PARTS)
    ram = RamFile.load(source)
    try:
        assert os.pread(ram.fd, ram.size_bytes, 0) == source.read_bytes()
        assert os.fstat(ram.fd).st_blocks * 512 < 4 * MIB
        for attempt in (
            lambda: os.pwrite(ram.fd, b"x", 0),
            lambda: os.ftruncate(ram.fd, 0),
            lambda: mmap.mmap(ram.fd, 4096),
            lambda: fcntl.fcntl(ram.fd, fcntl.F_ADD_SEALS, 0),
        ):
            with pytest.raises(PermissionError):
                attempt()
        with mmap.mmap(ram.fd, 4096, flags=mmap.MAP_PRIVATE) as private:
            private[0:4] = b"mine"
        assert os.pread(ram.fd, 4, 0) == b"boot"
    finally:
        ram.close()
        ram.close()


def test_golden_ram_is_found_again_in_a_process_that_has_it(tmp_path: Path) -> None:
    """And another file in its place is not taken for it."""
    ram = RamFile.load(written(tmp_path / "ram", 4 * MIB, PARTS and {0: b"boot"}))
    unsealed = template_ram(4)
    try:
        again = RamFile.recover(os.getpid(), ram.identity)
        assert again.identity == ram.identity
        assert again.fd != ram.fd
        again.close()
        found = os.fstat(unsealed)
        for wrong in (
            RamIdentity(ram.identity.device, ram.identity.inode + 99999, ram.size_bytes),
            RamIdentity(found.st_dev, found.st_ino, found.st_size),
        ):
            with pytest.raises(RamFileError):
                RamFile.recover(os.getpid(), wrong)
    finally:
        ram.close()
        os.close(unsealed)


def test_pages_of_zeros_are_not_stored(tmp_path: Path) -> None:
    """What a guest freed and cleared takes no room, and the content is the same."""
    fd = template_ram(16)
    try:
        for offset, data in PARTS.items():
            os.pwrite(fd, data, offset)
        stored = save_trimmed(fd, tmp_path / "ram")
        assert (tmp_path / "ram").read_bytes() == os.pread(fd, 16 * MIB, 0)
        assert stored == 4 * 4096  # first and third page, and two around the boundary
        with pytest.raises(FileExistsError):
            save_trimmed(fd, tmp_path / "ram")
    finally:
        os.close(fd)


def test_a_digest_does_not_depend_on_holes(tmp_path: Path) -> None:
    """The same content has the same digest on every file system."""
    sparse = written(tmp_path / "sparse", 12 * MIB, PARTS)
    full = tmp_path / "full"
    full.write_bytes(sparse.read_bytes())
    assert sparse_sha256(sparse) == sparse_sha256(full)
    assert sparse_sha256(sparse) != sparse_sha256(written(tmp_path / "b", 12 * MIB, {**PARTS, 4096: b"y"}))
    assert sparse_sha256(sparse) != sparse_sha256(written(tmp_path / "c", 13 * MIB, PARTS))


def test_extents_of_an_empty_file(tmp_path: Path) -> None:
    """There are none."""
    with written(tmp_path / "empty", MIB, {}).open("rb") as file:
        assert list(data_extents(file.fileno())) == []


def test_every_warm_up_of_the_project_is_well_formed() -> None:
    """And is found by the name of its snapshot."""
    folder = Path(__file__).parents[2] / "images"
    names = sorted(path.stem for path in (folder / "warmups").glob("*.toml"))
    assert {"desktop", "calc-open"} <= set(names)
    for name in names:
        found = find_warmup(name, folder)
        assert found is not None and found.name == name
    assert find_warmup("no-such", folder) is None
    assert find_warmup("../golden", folder) is None


@pytest.mark.parametrize(
    "text",
    [
        "format = 2\nwhy = 'long enough'\n",
        "format = 1\n",
        "format = 1\nwhy = 'long enough'\nother = 1\n",
        "format = 1\nwhy = 'long enough'\n[[steps]]\ntype = 'googledrive'\n",
        "format = 1\nwhy = 'long enough'\n[[steps]]\ntype = 'launch'\n",
        "not toml",
    ],
)
def test_a_malformed_warm_up_is_refused_by_name(tmp_path: Path, text: str) -> None:
    """Before anything is booted."""
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(DefinitionError, match=r"bad\.toml"):
        load_warmup(path)


def test_what_is_published_only_its_owner_reads(store: SnapshotStore) -> None:
    """Whatever was left open on the way; the disk image is another store's too, and keeps its mode."""
    with store.workspace() as folder:
        for name in ("ram", "device.state", "disk.qcow2", "secret", "base.qcow2"):
            (folder / name).write_text("x")
            (folder / name).chmod(0o444)
        made = store.publish(folder, manifest())
    modes = {path.name: path.stat().st_mode & 0o777 for path in made.folder.iterdir()}
    assert made.folder.stat().st_mode & 0o777 == 0o700
    assert {modes[name] for name in ("ram", "device.state", "disk.qcow2", "secret")} == {0o400}
    assert modes["base.qcow2"] == 0o444
    assert store.close_to_others() == []


def test_snapshots_that_others_could_read_are_closed_once(store: SnapshotStore) -> None:
    """And links in their place are not followed."""
    made = publish(store, "a" * 64)
    (made.folder / "ram").symlink_to(store.data_dir / "other")
    (store.data_dir / "other").touch(mode=0o644)
    made.folder.chmod(0o755)
    assert store.close_to_others() == [made.digest]
    assert store.close_to_others() == []
    assert made.folder.stat().st_mode & 0o777 == 0o700
    assert (store.data_dir / "other").stat().st_mode & 0o777 == 0o644


def test_a_snapshot_says_which_programs_run_in_it(store: SnapshotStore) -> None:
    """One that was made before there were any has none."""
    made = publish(store, "a1" * 32)
    assert made.manifest.warm_apps == ()
    with store.workspace() as folder:
        (folder / "secret").write_text("hush\n")
        warm = store.publish(folder, manifest("b2" * 32, warm_apps=("calc", "chromium --incognito")))
    assert store.resolve(warm.digest).manifest.warm_apps == ("calc", "chromium --incognito")
