"""What is believed of a restored clone and of a layer: no more than of any stranger."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from osgym_host.runtimes.local.criu import layer, restoring
from osgym_host.runtimes.local.criu.commands import LOG, PID_FILE
from osgym_host.runtimes.local.criu.installed import find_criu
from osgym_host.runtimes.local.criu.kept import KeptDumps
from osgym_host.runtimes.local.criu.points import LocalPoints
from osgym_host.runtimes.local.zygote import Zygote


@pytest.fixture
def said(tmp_path: Path) -> Path:
    """The file in which CRIU names the first process."""
    (tmp_path / restoring.WORK).mkdir()
    return tmp_path / restoring.WORK / PID_FILE


def test_what_criu_says_is_a_number_in_a_file(tmp_path: Path, said: Path) -> None:
    """No link to another file, whose text a message would show, and no pipe that holds up who reads it."""
    said.write_text("71")
    assert restoring.first_process(str(tmp_path)) == 71
    for text in ("", "-1", "x", "7 1"):
        said.write_text(text)
        with pytest.raises(ValueError, match="not a number"):
            restoring.first_process(str(tmp_path))
    said.rename(tmp_path / "secret")
    said.symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic links"):
        restoring.first_process(str(tmp_path))
    said.unlink()
    os.mkfifo(said)
    with pytest.raises(OSError, match="not a file"):
        restoring.first_process(str(tmp_path))


def test_the_log_is_read_in_the_same_way(tmp_path: Path, said: Path) -> None:
    """Its errors, or nothing."""
    log = said.with_name(LOG)
    log.write_text("(00.1) Error (mount.c:12): no\n")
    assert restoring.error_of(str(tmp_path)) == "(mount.c:12): no"
    log.unlink()
    assert restoring.error_of(str(tmp_path)) == ""
    os.mkfifo(log)
    assert restoring.error_of(str(tmp_path)) == ""


def test_only_a_child_that_is_no_others_is_a_clones_first_process(tmp_path: Path, said: Path) -> None:
    """Whatever number a restore names: neither another replica nor a process from elsewhere is taken."""
    ours, theirs = socket.socketpair()
    with ours, theirs, subprocess.Popen(["sleep", "60"]) as child:
        zygote = Zygote(theirs)
        try:
            said.write_text(str(child.pid))
            assert zygote._restored(str(tmp_path)) == (child.pid, None)
            zygote._replicas[child.pid] = "1:another"
            with pytest.raises(ValueError, match="another process"):
                zygote._restored(str(tmp_path))
            said.write_text(str(os.getppid()))
            with pytest.raises(ChildProcessError):
                zygote._restored(str(tmp_path))
            zygote._unknown[os.getppid()] = 9  # who ended meanwhile was a child
            assert zygote._restored(str(tmp_path)) == (os.getppid(), 9)
        finally:
            child.kill()
            os.close(zygote._wake_r)
            os.close(zygote._wake_w)


def test_a_criu_that_clones_cannot_see_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they have file systems of their own; there it would be found when dumping, and never again."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        program = Path(folder) / "criu"
        program.write_text("#!/bin/sh\necho Version: 4.2\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", folder, prepend=":")
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        found = find_criu()
    assert (found.version, found.usable) == ((4, 2), False)
    assert str(program) in found.lacking


def test_a_layer_may_be_deep(tmp_path: Path) -> None:
    """Folders within folders, more of them than functions may call one another: read, and removed."""
    top = tmp_path / "points"
    top.mkdir()
    inner = os.open(top, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("a", dir_fd=inner)
        outer, inner = inner, os.open("a", os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    os.close(inner)
    assert layer.digest_of(top) == layer.digest_of(top)
    assert layer.size_mib(top) >= 0
    layer.renumber(top, 1, 2)
    LocalPoints(top, KeptDumps(tmp_path / "kept"), wanted=False).open()
    assert not top.exists()
