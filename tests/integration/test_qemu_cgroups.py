"""Control groups of a replica on an emulated kernel that has version 2 only, as ordinary hosts do."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

import pytest
from tests.support import cgroups_inside

import osgym_host.runtimes
from osgym_qemu.disks.overlay import make_overlay
from osgym_qemu.disks.store import DiskImage

MODULES = ("cgroups", "replica_cgroup", "processes")
SECTOR = 512
FIRST = (
    "mount -t proc p /proc; mount -t cgroup2 c /sys/fs/cgroup; cp /dev/vdb /a.zip; "
    "python3 /a.zip; echo o >/proc/sysrq-trigger; sleep 60"
)


def program(path: Path) -> None:
    """Write the modules under test and the program that uses them as a disk that Python can run."""
    runtimes = Path(osgym_host.runtimes.__file__).parent
    with zipfile.ZipFile(path, "w") as archive:
        for package in ("osgym_host", "osgym_host/runtimes"):
            archive.writestr(f"{package}/__init__.py", "")
        for name in MODULES:
            archive.write(runtimes / f"{name}.py", f"osgym_host/runtimes/{name}.py")
        archive.write(cgroups_inside.__file__, "__main__.py")
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b" " * (-path.stat().st_size % SECTOR)


@pytest.mark.timeout(400)
def test_the_session_is_capped_apart_from_its_harness(small_disk: DiskImage, tmp_path: Path) -> None:
    """Bombs in the session harm nothing else; at the cap of the whole everything ends together."""
    if small_disk.kernel is None:
        pytest.skip("missing: a disk image with its kernel beside it")
    program(tmp_path / "program.zip")
    size_bytes = small_disk.manifest.virtual_size_bytes
    make_overlay(tmp_path / "disk.qcow2", size_bytes, str(small_disk.disk), small_disk.manifest.format)
    root = (small_disk.manifest.kernel_append or "").split()[0]
    init = f"init=/bin/dash -- -c {FIRST.replace(' ', '${IFS}')}"
    argv = ["qemu-system-x86_64", "-accel", "tcg", "-m", "1024", "-nographic", "-no-reboot"]
    argv += ["-kernel", str(small_disk.kernel), "-initrd", str(small_disk.initrd)]
    argv += ["-drive", f"file={tmp_path}/disk.qcow2,if=virtio,format=qcow2"]
    argv += ["-drive", f"file={tmp_path}/program.zip,if=virtio,format=raw,readonly=on"]
    argv += ["-append", f"console=ttyS0 {root} rw panic=-1 quiet {init}"]
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=360)
    lines = [line for line in done.stdout.splitlines() if "{" in line and "harness" in line]
    assert lines, done.stdout[-3000:]
    seen = json.loads(lines[0][lines[0].index("{") :])
    assert seen == {
        "enforces": ["cpu", "memory", "pids"],
        "bomb": [-9, None, None],
        "after the bomb": ["NONE", "CAP"],
        "harness forks": 0,
        "whole": [-9, -9, -9],
        "after the end": "CAP",
        "killed": -9,
    }
