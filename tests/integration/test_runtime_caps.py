"""Caps of replicas in the kernel's own control groups."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from osgym_host.runtimes.cgroups import open_tree
from osgym_host.runtimes.replica_cgroup import Caps, CgroupGroup

_MIB = 1 << 20


def memory_limits(group: CgroupGroup) -> list[int]:
    """Every limit of memory that the kernel keeps for a group, in bytes."""
    names = ("memory.max", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
    files = {Path(procs).parent / name for procs in group.procs_files for name in names}
    return [int(file.read_text()) for file in sorted(files) if file.exists()]


def test_caps_of_a_group_are_raised_and_lowered() -> None:
    """A parked machine's cap becomes its replica's, be that more or less."""
    tree = open_tree(f"osgym-test-caps-{os.getpid()}")
    try:
        if "memory" not in tree.enforces:
            pytest.skip("missing: a memory controller of control groups")
        group = tree.make("r1", Caps(ram_mib=64))
        try:
            for ram_mib in (64, 256, 32):
                group.set_caps(Caps(ram_mib=ram_mib))
                limits = memory_limits(group)
                assert limits and set(limits) == {ram_mib * _MIB}
        finally:
            group.remove()
    finally:
        tree.remove()


SERVICE = """
import os, subprocess, sys
from osgym_host.runtimes import cgroups
from osgym_host.runtimes.replica_cgroup import Caps
cgroups._CONTROLLERS = (sys.argv[2],)
os.setuid(65534)
helper = subprocess.Popen(["sleep", "60"])
for _ in range(2):
    tree = cgroups.open_tree("osgym-test")
    own = open("/proc/self/cgroup").read().split("0::")[1].strip()
    print(sorted(tree.enforces), [str(f) for f in tree.folders], own)
moved = open(sys.argv[1] + "/agent/cgroup.procs").read().split()
print(sorted(moved) == sorted([str(os.getpid()), str(helper.pid)]))
group = tree.make("r1", Caps())
open(group.procs_files[0], "w").write(str(helper.pid))
helper.kill()
helper.wait()
group.remove()
tree.remove()
"""


@pytest.fixture
def delegated() -> Iterator[tuple[Path, str]]:
    """A group of version 2 that belongs to an ordinary user, and a controller that it may pass on."""
    mounts = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    top = next((Path(fields[4]) for fields in mounts if "cgroup2" in fields), None)
    names = [] if top is None else (top / "cgroup.controllers").read_text().split()
    name = next((name for name in ("hugetlb", "memory", "pids", "io") if name in names), "")
    if os.geteuid() != 0 or top is None or not name:
        pytest.skip("missing: root and a controller of version 2 of the control groups")
    passed = name in (top / "cgroup.subtree_control").read_text().split()
    group = top / f"osgym-test-{os.getpid()}"
    try:
        if not passed:
            (top / "cgroup.subtree_control").write_text(f"+{name}")
    except OSError as error:
        pytest.skip(f"missing: control groups that pass {name} on ({error.strerror})")
    try:
        group.mkdir()
        for path in (group, group / "cgroup.procs", group / "cgroup.subtree_control"):
            os.chown(path, 65534, 65534)
        yield group, name
    finally:
        for path in (group / "osgym-test", group / "agent", group):
            with contextlib.suppress(FileNotFoundError):
                path.rmdir()
        if not passed:
            (top / "cgroup.subtree_control").write_text(f"-{name}")


def test_a_service_that_was_delegated_a_group_makes_room_in_it(delegated: tuple[Path, str]) -> None:
    """It starts in the group that it wants to cap below, with a helper, as under systemd: both go aside, the
    controller is passed on, and a process of theirs can be moved to a replica's group."""
    group, name = delegated
    done = subprocess.run(
        ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh",
         sys.executable, "-c", SERVICE, str(group), name],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *opened, moved = done.stdout.splitlines()
    assert len(opened) == 2
    for line in opened:
        assert line.startswith(f"['{name}'] ['{group}/osgym-test'] ")
        assert line.endswith(f"/{group.name}/agent")
    assert moved == "True"
