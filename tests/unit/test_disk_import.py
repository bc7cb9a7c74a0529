"""What imported disks are told to be, from their first bytes; all of them hostile."""

from __future__ import annotations

import shutil
import struct
import subprocess
import uuid
from pathlib import Path

import pytest

from osgym_host.images.errors import ImageError
from osgym_qemu.disks.boot import HEAD_BYTES, boot_ways, read_head
from osgym_qemu.disks.foreign import check_qcow2
from osgym_qemu.disks.imports import ImportRequest, examine, import_disk
from osgym_qemu.disks.manifest import DiskFormat, Firmware, GuestKind, Hardware
from osgym_qemu.disks.store import DiskStore

SECTOR = 512
ESP = uuid.UUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b")
LINUX = uuid.UUID("0fc63daf-8483-4772-8e79-3d69d8477de4")

needs_qemu_img = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="missing: qemu-img")


def mbr(*, code: bytes = b"", kinds: tuple[int, ...] = (), active: bool = False) -> bytearray:
    head = bytearray(HEAD_BYTES)
    head[: len(code)] = code
    for index, kind in enumerate(kinds):
        head[446 + 16 * index] = 0x80 if active and index == 0 else 0
        head[446 + 16 * index + 4] = kind
    head[510:512] = b"\x55\xaa"
    return head


def gpt(
    *types: uuid.UUID, code: bytes = b"", legacy: bool = False, entry_bytes: int = 128, count: int = 128
) -> bytearray:
    head = mbr(code=code, kinds=(0xEE,))
    head[SECTOR : SECTOR + 8] = b"EFI PART"
    struct.pack_into("<II", head, SECTOR + 80, count, entry_bytes)
    for index, kind in enumerate(types):
        at = 2 * SECTOR + index * 128
        head[at : at + 16] = kind.bytes_le
        struct.pack_into("<Q", head, at + 48, 4 if legacy else 0)
    return head


@pytest.mark.parametrize(
    ("head", "firmware"),
    [
        (mbr(code=b"\xeb\x63", kinds=(0x83,)), Firmware.BIOS),
        (mbr(code=b"\xeb\x63", kinds=(0x07,), active=True), Firmware.BIOS),
        (mbr(kinds=(0x83,)), None),
        (gpt(ESP, LINUX), Firmware.UEFI),
        (gpt(ESP, LINUX, code=b"\x33\xc0"), Firmware.UEFI),  # as Windows writes it
        (gpt(ESP, LINUX, code=b"\xeb\x63", legacy=True), Firmware.BIOS),
        (gpt(LINUX), None),
        (gpt(ESP, entry_bytes=1 << 31), None),
        (gpt(ESP, count=0xFFFFFFFF), Firmware.UEFI),
        (bytearray(HEAD_BYTES), None),
        (bytearray(b"\xff" * 100), None),
    ],
)
def test_firmware_is_told_from_the_first_sectors(head: bytearray, firmware: Firmware | None) -> None:
    """A BIOS where it finds something to start, UEFI where there is its partition, else nothing."""
    assert boot_ways(bytes(head)).firmware is firmware


def raw_disk(path: Path, head: bytes) -> Path:
    with path.open("wb") as file:
        file.write(head)
        file.truncate(4 << 20)
    return path


@needs_qemu_img
@pytest.mark.parametrize("options", [[], ["-c"], ["-o", "cluster_size=512"], ["-o", "compat=0.10"]])
def test_the_first_sectors_are_read_through_a_qcow2(tmp_path: Path, options: list[str]) -> None:
    """Whatever the size of its clusters, compressed or not, a qcow2 shows the sectors of its disk."""
    head = bytes(gpt(ESP, LINUX, code=b"\xeb\x63"))
    raw, qcow2 = raw_disk(tmp_path / "a.raw", head), tmp_path / "a.qcow2"
    subprocess.run(
        ["qemu-img", "convert", "-q", "-f", "raw", "-O", "qcow2", *options, raw, qcow2],
        check=True,
        timeout=60,
    )
    assert read_head(qcow2, DiskFormat.QCOW2) == head


def qcow2_header(**fields: int) -> bytes:
    values = {"version": 3, "backing": 0, "size": 1 << 30, "crypt": 0, "features": 0, **fields}
    head = bytearray(struct.pack(">4sIQIIQII", b"QFI\xfb", values["version"], values["backing"], 0, 16,
                                 values["size"], values["crypt"], 1))  # fmt: skip
    head += struct.pack(">QQIIQQ", 0x30000, 0x10000, 1, 0, 0, values["features"])
    return bytes(head.ljust(65536, b"\0"))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (qcow2_header(backing=200), "refers to another file"),
        (qcow2_header(features=4), "refers to another file"),
        (qcow2_header(crypt=1), "is encrypted"),
        (qcow2_header(version=9), "version"),
        (qcow2_header(size=1 << 60), "implausible size"),
        (b"QFI\xfb", "ends inside its header"),
        (b"PK\x03\x04" + bytes(508), "ZIP"),
        (b"# Disk DescriptorFile\nRW 1 FLAT /etc/shadow 0\n".ljust(512), "description of a VMDK"),
        (bytes(0x8001) + b"CD001" + bytes(506), "CD image"),
        (b"x" * 100, "not in sectors"),
    ],
)
def test_a_file_that_is_no_whole_disk_is_refused(tmp_path: Path, content: bytes, complaint: str) -> None:
    """What names files of this machine, or is something else, is refused before any program reads it."""
    path = tmp_path / "disk"
    path.write_bytes(content)
    with pytest.raises(ImageError, match=complaint):
        examine(path)


def plain_qcow2(cluster_bits: int = 16) -> bytearray:
    """A sound qcow2 of 8 MiB with one second-level table, in the fourth cluster, and one cluster of data."""
    cluster = 1 << cluster_bits
    entries = -(-(8 << 20) // (cluster * cluster // 8))
    head = struct.pack(
        ">4sIQIIQIIQQIIQQQQII",
        *(b"QFI\xfb", 3, 0, 0, cluster_bits, 8 << 20, 0, entries, cluster, 2 * cluster, 1, 0, 0),
        *(0, 0, 0, 4, 104),
    )
    parts = [
        head,
        struct.pack(">Q", 4 * cluster | 1 << 63),
        struct.pack(">Q", 3 * cluster),
        struct.pack(">6H", *[1] * 6),
        struct.pack(">Q", 5 * cluster | 1 << 63),
        b"data",
    ]
    return bytearray(b"".join(part.ljust(cluster, b"\0") for part in parts))


def with_bytes(at: int, kind: str, *values: int) -> bytes:
    """`plain_qcow2` with big-endian numbers written over it."""
    made = plain_qcow2()
    struct.pack_into(f">{kind}", made, at, *values)
    return bytes(made)


L1_AT, L2_AT = 1 << 16, 4 << 16
HOSTILE = {
    "too short": (bytes(plain_qcow2())[:200], "outside the file"),
    "cut in its tables": (bytes(plain_qcow2())[: L2_AT + 100], "leads out of the file"),
    "huge clusters": (with_bytes(20, "I", 63), "clusters of 2"),
    "tiny clusters": (with_bytes(20, "I", 8), "clusters of 2"),
    "backing file": (with_bytes(8, "QI", 200, 11), "refers to another file"),
    "name without a place": (with_bytes(8, "QI", 0, 11), "refers to another file"),
    "data file": (with_bytes(72, "Q", 1 << 2), "refers to another file"),
    "corrupt": (with_bytes(72, "Q", 1 << 1), "corrupt"),
    "unknown feature": (with_bytes(72, "Q", 1 << 40), "unknown features"),
    "encrypted": (with_bytes(32, "I", 2), "is encrypted"),
    "snapshots": (with_bytes(60, "IQ", 1, 1 << 16), "snapshots"),
    "bitmaps": (with_bytes(88, "Q", 1), "bitmaps"),
    "no first-level table": (with_bytes(36, "I", 0), "first-level table"),
    "first-level table outside": (with_bytes(40, "Q", 1 << 40), "first-level table"),
    "first-level table in the header": (with_bytes(40, "Q", 0), "first-level table"),
    "first-level table askew": (with_bytes(40, "Q", L1_AT + 8), "first-level table"),
    "huge first-level table": (with_bytes(36, "I", 1 << 31), "first-level table"),
    "small first-level table": (with_bytes(24, "Q", 1 << 40), "too small for its disk"),
    "reference counts outside": (with_bytes(48, "Q", 1 << 50), "table of reference counts"),
    "many reference counts": (with_bytes(56, "I", 0xFFFFFFFF), "table of reference counts"),
    "wide reference counts": (with_bytes(96, "I", 31), "reference counts of 2"),
    "long header": (with_bytes(100, "I", 1 << 20), "header cannot be"),
    "short header": (with_bytes(100, "I", 72), "header cannot be"),
    "extension beyond the header": (with_bytes(104, "II", 0x6803F857, 0xFFFFFFF0), "does not fit"),
    "name of a data file": (with_bytes(104, "II", 0x44415441, 8), "0x44415441"),
    "encryption's header": (with_bytes(104, "II", 0x0537BE77, 16), "0x537be77"),
    "second-level table outside": (with_bytes(L1_AT, "Q", 1 << 40), "first-level table"),
    "second-level table askew": (with_bytes(L1_AT, "Q", L2_AT + 512), "first-level table"),
    "reserved bits": (with_bytes(L1_AT, "Q", L2_AT | 1 << 60), "first-level table"),
    "data outside": (with_bytes(L2_AT, "Q", 1 << 40), "second-level table"),
    "data askew": (with_bytes(L2_AT, "Q", (5 << 16) + 512), "second-level table"),
    "compressed data outside": (with_bytes(L2_AT, "Q", 1 << 62 | 1 << 50), "second-level table"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_qcow2_is_refused_before_a_tool_sees_it(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it says of itself is compared with the format's bounds and with the file; nothing is left."""
    source = tmp_path / "disk.qcow2"
    content, complaint = HOSTILE[name]
    source.write_bytes(content)
    monkeypatch.setattr(subprocess, "run", None)
    monkeypatch.setattr(subprocess, "Popen", None)
    store = DiskStore(tmp_path / "data")
    with pytest.raises(ImageError, match=complaint) as caught:
        import_disk(ImportRequest(source, "mine", GuestKind.NONE, Firmware.BIOS, (800, 600)), store)
    assert "qemu-img convert" in caught.value.hint
    assert store.all() == []


@pytest.mark.parametrize("cluster_bits", [12, 16, 21])
def test_a_plain_qcow2_is_taken(tmp_path: Path, cluster_bits: int) -> None:
    """What the hostile ones were made of, by our checks and by those of qemu-img where there is one."""
    (tmp_path / "disk").write_bytes(plain_qcow2(cluster_bits))
    assert examine(tmp_path / "disk") is DiskFormat.QCOW2
    check_qcow2(tmp_path / "disk")


def test_two_entries_with_one_table_are_refused(tmp_path: Path) -> None:
    """What is written through one would be read through the other."""
    made = plain_qcow2(12)
    struct.pack_into(">2Q", made, 4096, 4 * 4096, 4 * 4096)
    (tmp_path / "disk").write_bytes(made)
    with pytest.raises(ImageError, match="the same place"):
        examine(tmp_path / "disk")


@needs_qemu_img
def test_damage_that_only_a_tool_finds_is_refused(tmp_path: Path) -> None:
    """Data that lies on a table is found by qemu-img, which runs bounded."""
    source = tmp_path / "disk.qcow2"
    source.write_bytes(with_bytes(L2_AT, "Q", L1_AT | 1 << 63))
    store = DiskStore(tmp_path / "data")
    with pytest.raises(ImageError, match="qemu-img check ended with 2"):
        import_disk(ImportRequest(source, "mine", GuestKind.NONE, Firmware.BIOS, (800, 600)), store)
    assert store.all() == []


@needs_qemu_img
@pytest.mark.parametrize(
    "options",
    [
        "cluster_size=512",
        "cluster_size=2M",
        "compat=0.10",
        "extended_l2=on",
        "lazy_refcounts=on",
        "preallocation=metadata",
        "preallocation=full",
        "refcount_bits=1",
    ],
)
def test_unusual_but_sound_disks_are_taken(tmp_path: Path, options: str) -> None:
    """Nothing that qemu-img writes by itself is refused."""
    raw, source = raw_disk(tmp_path / "a.raw", bytes(mbr(code=b"\xeb\x63", kinds=(0x83,)))), tmp_path / "disk"
    argv = ["qemu-img", "convert", "-q", "-f", "raw", "-O", "qcow2", "-o", options, raw, source]
    subprocess.run(argv, check=True, timeout=60)
    store = DiskStore(tmp_path / "data")
    made = import_disk(ImportRequest(source, "mine", GuestKind.NONE, Firmware.BIOS, (800, 600)), store)
    assert made.manifest.virtual_size_bytes == 4 << 20


@needs_qemu_img
def test_a_vmdk_with_parts_elsewhere_is_refused(tmp_path: Path) -> None:
    """A part of a VMDK may be any file of this machine: only one that is whole is converted."""
    child = tmp_path / "child.vmdk"
    parent = tmp_path / "parent.vmdk"
    subprocess.run(["qemu-img", "create", "-q", "-f", "vmdk", parent, "4M"], check=True, timeout=60)
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "vmdk", "-b", parent, "-F", "vmdk", child], check=True, timeout=60
    )
    store = DiskStore(tmp_path / "data")
    with pytest.raises(ImageError, match="refers to other files"):
        import_disk(ImportRequest(child, "child", GuestKind.NONE, Firmware.BIOS, (800, 600)), store)
    assert store.all() == []


@needs_qemu_img
@pytest.mark.parametrize("kind", ["raw", "qcow2", "vmdk", "vdi", "vhdx"])
def test_disks_are_taken_in_whatever_their_format(tmp_path: Path, kind: str) -> None:
    """The store's disk has the same content, the manifest what it is; a second import changes nothing."""
    head = bytes(mbr(code=b"\xeb\x63", kinds=(0x83,)))
    raw, source = raw_disk(tmp_path / "a.raw", head), tmp_path / f"disk.{kind}"
    subprocess.run(
        ["qemu-img", "convert", "-q", "-f", "raw", "-O", kind, raw, source], check=True, timeout=60
    )
    store = DiskStore(tmp_path / "data")
    told: list[tuple[int, int]] = []
    request = ImportRequest(source, "mine", GuestKind.NONE, None, (800, 600), Hardware(disk_bus="sata"))
    made = import_disk(request, store, lambda done, total: told.append((done, total)))
    assert (made.manifest.firmware, made.manifest.guest) == (Firmware.BIOS, GuestKind.NONE)
    assert made.manifest.hardware == Hardware(disk_bus="sata")
    assert read_head(made.disk, made.manifest.format) == head
    assert told
    assert told[-1][0] <= told[-1][1]
    again = import_disk(request, store)
    assert (again.digest, len(store.all())) == (made.digest, 1)
    assert store.resolve("mine").digest == made.digest


def test_firmware_that_does_not_show_must_be_said(tmp_path: Path) -> None:
    """The error names the field and what to do; said by hand, the disk is taken."""
    source = raw_disk(tmp_path / "a.raw", bytes(mbr(kinds=(0x83,))))
    store = DiskStore(tmp_path / "data")
    with pytest.raises(ImageError, match="firmware") as caught:
        import_disk(ImportRequest(source, "mine", GuestKind.NONE, None, (800, 600)), store)
    assert "--firmware" in caught.value.hint
    made = import_disk(ImportRequest(source, "mine", GuestKind.NONE, Firmware.UEFI, (800, 600)), store)
    assert made.manifest.firmware is Firmware.UEFI
