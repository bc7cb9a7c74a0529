"""QEMU as an unprivileged process, for real: what a stand-in for it finds around itself."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.support.launch_probe import probe, told
from tests.support.runtime_kits import DEADLINE_S

from osgym_host.runtimes.cgroups import open_tree
from osgym_host.runtimes.replica_cgroup import Caps, MemoryEnd
from osgym_qemu.machine.launcher import LaunchFailed, LaunchRequest
from osgym_qemu.runner import users
from osgym_qemu.runner.process import ProcessLauncher

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="missing: root, who gives up its rights")


@pytest.fixture
def open_tmp(tmp_path: Path) -> Path:
    """A folder that other users may pass through on the way to theirs, as an instance's run folder."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o001)
    return tmp_path


@root_only
async def test_a_bare_process_is_nobody(open_tmp: Path) -> None:
    """QEMU has a user of its own, no capability and no way to get one, and writes in its folder only."""
    (open_tmp / "run" / "other").mkdir(parents=True)
    launcher = ProcessLauncher(open_tmp / "run")
    await launcher.prepare()
    assert launcher.notes == ()
    request, listener = probe(open_tmp / "run")
    (request.folder / "vm.json").write_text("secret")
    (request.folder / "overlay").write_text("disk")
    found = await told(launcher, request, listener)
    assert found["uid"] == (request.folder / "overlay").stat().st_uid != 0
    assert (request.folder / "vm.json").stat().st_uid == 0
    assert int(str(found["caps"]), 16) == int(str(found["bounding"]), 16) == 0
    assert found["no_new_privs"] == "1"
    assert found["groups"] in ([], [found["uid"]])
    assert found["writable"] == [str(request.folder)]
    assert found["fds"] == [0, 1, 2, 7]
    assert set(found["environment"]) <= {"LANG", "PATH", "LC_CTYPE", "MALLOC_ARENA_MAX"}


@root_only
async def test_two_machines_are_two_users(open_tmp: Path) -> None:
    """One machine can neither enter the other's folder nor signal its process."""
    launcher = ProcessLauncher(open_tmp / "run")
    await launcher.prepare()
    first, listener = probe(open_tmp / "run", "one")
    with listener:
        one = await launcher.launch(first)
        try:
            attempt = f"import os; os.kill({one.pid}, 0)"
            (open_tmp / "run" / "two").mkdir()
            request = LaunchRequest(
                "two", ["/usr/bin/python3", "-c", attempt], folder=open_tmp / "run" / "two"
            )
            two = await launcher.launch(request)
            end = await asyncio.wait_for(two.wait(), DEADLINE_S)
            assert "PermissionError" in end.output
            assert users.user_of(one.pid) not in (0, -1)
            await two.remove()
        finally:
            await one.remove()


@root_only
async def test_caps_of_a_bare_process_are_enforced(open_tmp: Path) -> None:
    """A process that takes more memory than its cap is killed, and its end says why."""
    tree = open_tree(f"osgym-test-{os.getpid()}")
    if "memory" not in tree.enforces:
        pytest.skip("missing: a memory controller")
    launcher = ProcessLauncher(open_tmp / "run", tree=tree)
    await launcher.prepare()
    (open_tmp / "run" / "vm").mkdir(parents=True)
    argv = ["/usr/bin/python3", "-c", "x = bytearray(300 << 20); input()"]
    process = await launcher.launch(LaunchRequest("vm", argv, folder=open_tmp / "run" / "vm", caps=Caps(64)))
    end = await asyncio.wait_for(process.wait(), DEADLINE_S)
    assert (end.signal, end.memory) == (9, MemoryEnd.CAP)
    await process.remove()
    assert await launcher.find() == []
    tree.remove()


async def test_what_qemu_prints_is_bounded(open_tmp: Path) -> None:
    """A process that prints without end fills neither disk nor memory, and does not hang."""
    launcher = ProcessLauncher(open_tmp / "run")
    await launcher.prepare()
    (open_tmp / "run" / "vm").mkdir(parents=True)
    argv = ["/bin/sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; exit 3"]
    process = await launcher.launch(LaunchRequest("vm", argv, folder=open_tmp / "run" / "vm"))
    end = await asyncio.wait_for(process.wait(), DEADLINE_S)
    assert end.exit_code == 3
    assert 0 < len(process.output_tail(1 << 20)) <= 64 * 1024
    await process.remove()


async def test_a_bare_process_is_adopted(open_tmp: Path) -> None:
    """Another launcher takes over a process by its identity, and can kill it."""
    (open_tmp / "run" / "vm").mkdir(parents=True)
    first, second = ProcessLauncher(open_tmp / "run"), ProcessLauncher(open_tmp / "run")
    await first.prepare()
    await second.prepare()
    process = await first.launch(LaunchRequest("vm", ["sleep", "100"], folder=open_tmp / "run" / "vm"))
    adopted = await second.adopt("vm", process.identity, "")
    assert adopted is not None
    await adopted.kill()
    assert (await asyncio.wait_for(process.wait(), DEADLINE_S)).signal == 9
    assert await second.adopt("vm", process.identity, "") is None
    await process.remove()


async def test_a_program_that_is_not_there_is_an_error(open_tmp: Path) -> None:
    """A launch that cannot be is refused with the program's name."""
    launcher = ProcessLauncher(open_tmp / "run")
    await launcher.prepare()
    with pytest.raises(LaunchFailed, match="no-such-qemu"):
        await launcher.launch(LaunchRequest("vm", ["no-such-qemu"], folder=open_tmp))
