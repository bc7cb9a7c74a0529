"""Programs in the user namespace that bakes use: owners, isolation, and their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from osgym_host.images.content_store import open_folder
from osgym_host.images.errors import ImageError
from osgym_host.images.idmap import IdMap
from osgym_host.images.namespaces import NamespaceSpec, Overlay, call, operate, running
from osgym_host.images.store import ImageStore

pytestmark = pytest.mark.desktop


@pytest.fixture
def folder(tmp_path: Path, idmap: IdMap) -> Iterator[Path]:
    """A folder that the mapped root may write into."""
    with ImageStore(tmp_path).workspace() as workspace:
        open_folder(workspace, idmap)
        yield workspace


def test_root_inside_is_nobody_outside(folder: Path, idmap: IdMap) -> None:
    """A file that root inside makes belongs to the first mapped id outside."""
    assert call(NamespaceSpec(folder, idmap), ["id", "-u"]).strip() == "0"
    call(NamespaceSpec(folder, idmap), ["touch", "made"])
    assert (folder / "made").stat().st_uid == idmap.uid_base


def test_network_is_closed_unless_asked_for(folder: Path, idmap: IdMap) -> None:
    """Inside there is no interface but loopback."""
    lines = call(NamespaceSpec(folder, idmap), ["cat", "/proc/net/dev"]).splitlines()[2:]
    assert [line.split(":")[0].strip() for line in lines] == ["lo"]


def test_failure_carries_the_output(folder: Path, idmap: IdMap) -> None:
    """The error says how the program ended and what it wrote."""
    with pytest.raises(ImageError, match=r"ended with 3: .*why"):
        call(NamespaceSpec(folder, idmap), ["sh", "-c", "echo why >&2; exit 3"])


def test_deadline_ends_all_that_was_started(folder: Path, idmap: IdMap) -> None:
    """A program that takes too long is killed with its children, and the caller learns so."""
    with pytest.raises(ImageError, match="longer than"):
        call(NamespaceSpec(folder, idmap), ["sh", "-c", "sleep 1234.5 & sleep 1234.5"], timeout_s=0.5)
    assert not _alive("1234.5")


def test_killed_caller_leaves_no_process(folder: Path, idmap: IdMap) -> None:
    """kill -9 of the one who bakes takes everything inside with it."""
    code = (
        "import sys; from pathlib import Path\n"
        "from osgym_host.images.idmap import current_idmap\n"
        "from osgym_host.images.namespaces import NamespaceSpec, call\n"
        "inside = NamespaceSpec(Path(sys.argv[1]), current_idmap())\n"
        "call(inside, ['sh', '-c', 'sleep 4321.5 & sleep 4321.5'])\n"
    )
    caller = subprocess.Popen([sys.executable, "-c", code, str(folder)])
    try:
        assert _wait(lambda: _alive("4321.5"))
    finally:
        caller.send_signal(signal.SIGKILL)
        caller.wait(timeout=10)
    assert _wait(lambda: not _alive("4321.5"))


def test_operations_see_the_overlay(folder: Path, idmap: IdMap) -> None:
    """A file below is seen through the overlay and deleted only in the layer above."""
    operate(NamespaceSpec(folder, idmap), "make", paths=["low", "upper", "work", "merged"])
    call(NamespaceSpec(folder, idmap), ["touch", "low/file"])
    inside = NamespaceSpec(folder, idmap, overlay=Overlay("low", "upper", "work", "merged"))
    assert call(inside, ["ls", "merged"]).split() == ["file"]
    call(inside, ["rm", "merged/file"])
    assert call(inside, ["ls", "merged"]).split() == []
    assert (folder / "low" / "file").exists()
    operate(NamespaceSpec(folder, idmap), "flatten", base="low", layer="upper", target="flat")
    assert list((folder / "flat").iterdir()) == []


def test_stdin_reaches_the_program(folder: Path, idmap: IdMap) -> None:
    """A stream, as a tar archive is one, goes in through a pipe."""
    with running(NamespaceSpec(folder, idmap), ["tee", "copy"], stdin=subprocess.PIPE, stdout=-3) as process:
        process.communicate(b"x" * 100_000, timeout=20)
    assert (folder / "copy").stat().st_size == 100_000


def _alive(word: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            argv = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if int(path.parent.name) != os.getpid() and argv[:2] == [b"sleep", word.encode()]:
            return True
    return False


def _wait(condition: object, timeout_s: float = 10.0) -> bool:
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())
