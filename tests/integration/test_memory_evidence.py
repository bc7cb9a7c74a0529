"""Whose memory ran out when the kernel killed in a replica's group: its own, or the host's. Real groups."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.host_process import wait_until

from osgym_host.runtimes.processes import ProcessIdentity
from osgym_host.runtimes.replica_cgroup import Caps, CgroupGroup, MemoryEnd, take_notice
from osgym_qemu.runner.held_process import RunningProcess
from osgym_qemu.runner.process import BareProcess, spawn

MIB = 1 << 20
HOARD = "held = []\nwhile True: held.append(bytearray(b'x' * (1 << 20)))"


@pytest.fixture
def groups() -> Iterator[tuple[Path, CgroupGroup]]:
    """Yield a group in another one, as a replica's is in the host's."""
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
    """Set a group's memory cap."""
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
    """A program that takes all memory ends the replica at its own cap."""
    _, group = groups
    group.set_caps(Caps(ram_mib=64))
    hoard(group)
    assert group.memory_cap_reached()


def test_the_sessions_cap(groups: tuple[Path, CgroupGroup]) -> None:
    """A program that takes all memory of the session is killed alone, and no end of memory is reported."""
    _, group = groups
    folder = Path(group.procs_files[0]).parent / "session"
    version = 1 if (folder.parent / "memory.limit_in_bytes").exists() else 2
    if version == 2:
        (folder.parent / "cgroup.subtree_control").write_text("+memory")
    folder.mkdir()
    session = CgroupGroup({"memory": folder}, {"memory": version})
    whole = CgroupGroup({"memory": folder.parent}, {"memory": version}, session=session)
    whole.set_caps(Caps(ram_mib=512))
    session.set_caps(Caps(ram_mib=64), end_together=False)
    fds = [whole.oom_eventfd(), session.oom_eventfd()]
    try:
        hoard(session)
        noticed, session_noticed = (None if fd is None else take_notice(fd) for fd in fds)
        assert (noticed, session_noticed) in ((None, None), (False, True))
        assert whole.memory_end(noticed=noticed, session_noticed=session_noticed) is MemoryEnd.NONE
        assert session.memory_end(noticed=session_noticed) is MemoryEnd.CAP
    finally:
        for fd in filter(None, fds):
            os.close(fd)


def test_its_own_cap_is_told_by_the_kernel(groups: tuple[Path, CgroupGroup]) -> None:
    """The descriptor of version 1 distinguishes the cap from a page cache that filled the group."""
    _, group = groups
    group.set_caps(Caps(ram_mib=64))
    oom_fd = group.oom_eventfd()
    if oom_fd is None:
        pytest.skip("missing: a memory controller of version 1")
    try:
        assert not take_notice(oom_fd)
        hoard(group)
        assert take_notice(oom_fd) and group.memory_cap_reached(noticed=True)
    finally:
        os.close(oom_fd)


def test_a_cache_of_files_is_no_want_of_memory(groups: tuple[Path, CgroupGroup], tmp_path: Path) -> None:
    """A group filled by page cache has not reached its cap when the host's memory runs out later."""
    _, group = groups
    group.set_caps(Caps(ram_mib=64))
    oom_fd = group.oom_eventfd()
    [file] = group.procs_files
    lines = [
        f"open({file!r}, 'w').write('0')",
        f"out = open({str(tmp_path / 'large')!r}, 'wb')",
        "for _ in range(128): out.write(b'x' * (1 << 20))",
        "out.flush()",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, timeout=60)
    noticed = None if oom_fd is None else take_notice(oom_fd)
    if oom_fd is not None:
        os.close(oom_fd)
    assert not group.memory_cap_reached(noticed=noticed)


async def test_a_machine_whose_cap_was_not_reached_was_ended_by_the_host(
    groups: tuple[Path, CgroupGroup],
) -> None:
    """A kill of QEMU below its cap is the host's doing, not the guest's."""
    outer, group = groups
    group.set_caps(Caps(ram_mib=512))
    cap(outer, 64)
    [file] = group.procs_files
    argv = [sys.executable, "-c", f"open({file!r}, 'w').write('0')\n{HOARD}"]
    pid = spawn(argv, {}, {})
    identity = ProcessIdentity.of(pid)
    assert identity is not None
    running = RunningProcess(identity, os.pidfd_open(pid), group, None)
    process = BareProcess("machine", running, lambda name: None, child=True)
    async with asyncio.timeout(60):
        end = await process.wait()
    assert (end.signal, end.memory) == (9, MemoryEnd.HOST)


def test_the_hosts_memory(groups: tuple[Path, CgroupGroup]) -> None:
    """A kill far below the replica's cap means that the host had no memory left."""
    outer, group = groups
    group.set_caps(Caps(ram_mib=512))
    cap(outer, 64)
    hoard(group)
    assert not group.memory_cap_reached()
