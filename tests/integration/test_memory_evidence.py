"""Whose memory ran out when the kernel killed in a replica's group: its own, or the host's. Real groups."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.host_process import wait_until

from osgym_host.runtimes.replica_cgroup import Caps, CgroupGroup

MIB = 1 << 20
HOARD = "held = []\nwhile True: held.append(bytearray(b'x' * (1 << 20)))"


@pytest.fixture
def groups() -> Iterator[tuple[Path, CgroupGroup]]:
    """A group in a group, as a replica's lies in the host's."""
    version = 1 if Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists() else 2
    top = Path("/sys/fs/cgroup/memory" if version == 1 else "/sys/fs/cgroup")
    outer = top / f"osgym-evidence-{os.getpid()}"
    inner = outer / "replica"
    try:
        outer.mkdir()
        if version == 2:
            (outer / "cgroup.subtree_control").write_text("+memory")
        inner.mkdir()
    except OSError as error:
        pytest.skip(f"missing: root and a memory controller of its own ({error})")
    group = CgroupGroup({"memory": inner}, {"memory": version})
    try:
        yield outer, group
    finally:
        group.kill()
        group.remove()
        outer.rmdir()


def cap(folder: Path, mib: int) -> None:
    """Bound the memory of a group."""
    one = folder / "memory.limit_in_bytes"
    (one if one.exists() else folder / "memory.max").write_text(str(mib * MIB))


def hoard(group: CgroupGroup) -> None:
    """Use memory in a group until the kernel kills there."""
    [file] = group.procs_files
    command = f"open({file!r}, 'w').write('0')\n{HOARD}"
    with subprocess.Popen([sys.executable, "-c", command], stderr=subprocess.DEVNULL) as process:
        assert process.wait(60) == -9
    wait_until(lambda: group.oom_kills() > 0, 10, "the kernel counted it")


def test_its_own_cap(groups: tuple[Path, CgroupGroup]) -> None:
    """A bomb inside: the replica used all that it may."""
    _, group = groups
    group.set_caps(Caps(ram_mib=64))
    hoard(group)
    assert group.memory_cap_reached()


def test_the_hosts_memory(groups: tuple[Path, CgroupGroup]) -> None:
    """The kernel kills in a replica that is far below its cap: there was none left around it."""
    outer, group = groups
    group.set_caps(Caps(ram_mib=512))
    cap(outer, 64)
    hoard(group)
    assert not group.memory_cap_reached()
