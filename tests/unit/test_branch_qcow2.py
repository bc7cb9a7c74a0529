"""Headers of qcow2: names in them are wiped, unusual and broken ones are refused."""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path

import pytest
from tests.support.branch_points import DISK_BYTES, make_disk

from osgym_qemu.branching.qcow2 import Qcow2Error, parse_header, without_names


def test_a_backing_file_is_wiped_from_the_header(tmp_path: Path) -> None:
    """After that QEMU finds none, and nothing is wrong with the file."""
    base = make_disk(tmp_path / "base.qcow2")
    disk = make_disk(tmp_path / "disk.qcow2", "-F", "qcow2", "-b", str(base))
    data = disk.read_bytes()
    header = parse_header(data[: 1 << 16], len(data))
    assert header.backing
    assert header.virtual_bytes == DISK_BYTES
    clean = without_names(data[: 1 << 16], header)
    assert len(clean) == 1 << 16
    assert str(base).encode() not in clean
    disk.write_bytes(clean + data[1 << 16 :])
    info = json.loads(subprocess.check_output(["qemu-img", "info", "--output=json", str(disk)]))
    assert "backing-filename" not in info
    assert info["virtual-size"] == DISK_BYTES
    subprocess.run(["qemu-img", "check", "-q", str(disk)], check=True)
    assert not parse_header(disk.read_bytes(), disk.stat().st_size).backing


@pytest.mark.parametrize(
    "options",
    [
        ("-o", "data_file={folder}/data.raw"),
        ("-o", "extended_l2=on"),
        ("-o", "compat=0.10"),
    ],
)
def test_unusual_disks_are_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    """A data file elsewhere, features that we never use, an old version."""
    disk = make_disk(tmp_path / "disk.qcow2", *(option.format(folder=tmp_path) for option in options))
    with pytest.raises(Qcow2Error):
        parse_header(disk.read_bytes(), disk.stat().st_size)


def test_broken_headers_are_refused(tmp_path: Path) -> None:
    """Tables outside the file, too few of them, no end of the extensions, no qcow2 at all."""
    data = make_disk(tmp_path / "disk.qcow2").read_bytes()

    def changed(at: int, value: bytes) -> bytes:
        return data[:at] + value + data[at + len(value) :]

    for broken in (
        b"",
        data[:50],
        b"\x7fELF" + data[4:],
        changed(20, struct.pack(">I", 40)),  # cluster bits
        changed(24, struct.pack(">Q", 1 << 60)),  # a disk beyond its table
        changed(32, struct.pack(">I", 2)),  # encryption
        changed(36, struct.pack(">I", 1 << 30)),  # a table beyond the file
        changed(40, struct.pack(">Q", 1 << 50)),
        changed(48, struct.pack(">Q", 17)),
        changed(60, struct.pack(">I", 1)),  # snapshots
        changed(100, struct.pack(">I", 1 << 20)),  # length of the header
        changed(112, struct.pack(">II", 0x44415441, 8)),  # name of a data file
        changed(112, struct.pack(">II", 0x6803F857, 1 << 31)),
    ):
        with pytest.raises(Qcow2Error):
            parse_header(broken[: 1 << 16], len(broken))
