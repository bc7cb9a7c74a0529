"""What all content stores do alike; what is special to images, disks and snapshots is tested beside."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.host_process import wait_until

from osgym_host.images.content_store import ContentStore, Manifest, StoredContent
from osgym_host.images.errors import ImageError, ImageNotFound
from osgym_host.images.file_lock import exclusive
from osgym_host.pidfile import held, pid_path


class NoteManifest(Manifest):
    """The smallest manifest there can be."""

    title: str


class Note(StoredContent[NoteManifest]):
    """An entry of the store below."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """Its title."""
        return self.manifest.title


class NoteStore(ContentStore[Note, NoteManifest]):
    """A store of a kind of its own."""

    KIND = "notes"
    NOUN = "note"

    def tag_name(self, name: str) -> str:
        """Refuse a name that begins with a digit, as a prefix of a digest may."""
        if name[:1].isdigit():
            raise ValueError(name)
        return name

    def open_entry(self, folder: Path, text: str) -> Note:
        """Read the manifest."""
        return Note(folder, NoteManifest.model_validate_json(text))

    def how_to_make(self, name: str) -> str:
        """Say something that can be told from other hints."""
        return f"write {name}"


def put(store: NoteStore, digest: str, title: str = "first", key: str = "", at: str = "2026-01-01") -> Note:
    """Publish a note."""
    with store.workspace() as workspace:
        made = workspace / "made"
        made.mkdir()
        manifest = NoteManifest(digest=digest, created_at=at, definition_key=key, title=title)
        return store.publish(made, manifest)


@pytest.fixture
def store(tmp_path: Path) -> NoteStore:
    """An empty store."""
    return NoteStore(tmp_path)


def test_an_empty_store_has_nothing_and_makes_no_folder(store: NoteStore) -> None:
    """To look is not to write."""
    assert store.all() == [] and store.tagged() == {}
    with pytest.raises(ImageNotFound, match="there is no note 'first'") as raised:
        store.resolve("first")
    assert raised.value.hint == "write first"
    assert not store.folder.exists()


def test_what_was_made_from_a_definition_is_found(store: NoteStore) -> None:
    """The newest of it."""
    put(store, "aa" * 32, key="k", at="2026-01-01")
    later = put(store, "bb" * 32, key="k", at="2026-01-02")
    assert store.made_from("k") == later
    assert store.made_from("other") is None


def test_a_selection_has_each_entry_once(store: NoteStore) -> None:
    """By its tag, its digest, and because no tag names it."""
    kept, loose = put(store, "aa" * 32), put(store, "bb" * 32, "second")
    store.tag("first", kept.digest)
    assert store.is_tagged(kept) and not store.is_tagged(loose)
    assert store.select(["first", "aaaaaa"]) == [kept]
    assert store.select([], untagged=True) == [loose]
    assert store.select(["bbbbbb", "first"], untagged=True) == [loose, kept]
    with pytest.raises(ImageNotFound, match="there is no note"):
        store.select(["first", "none"])


def test_a_name_that_cannot_be_a_tag_may_be_a_digest(store: NoteStore) -> None:
    """And is never made one."""
    made = put(store, "12" * 32)
    assert store.resolve("121212") == made
    with pytest.raises(ValueError, match="1x"):
        store.tag("1x", made.digest)


def test_two_that_make_the_same_wait_for_each_other(store: NoteStore) -> None:
    """By the tag; and leftovers are removed before."""
    store.prepare()
    (store.folder / ".baking-dead").mkdir()
    order: list[str] = []
    told: list[str] = []

    def second() -> None:
        with store.making("first", told.append):
            order.append("second")

    with store.making("first"), store.making("other"):
        assert not (store.folder / ".baking-dead").exists()
        thread = threading.Thread(target=second)
        thread.start()
        wait_until(lambda: bool(told), 10, "the second waits")
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]
    assert told == [f"waiting for process {os.getpid()}, which makes the note first"]
    assert store.tagged() == {}


HOLD = """
import os, sys
from pathlib import Path
from osgym_host.images.file_lock import exclusive
with exclusive(Path(sys.argv[1]), "it"):
    print(os.getpid(), flush=True)
    sys.stdin.read()
"""


def test_who_waits_too_long_hears_which_process_makes_it(store: NoteStore) -> None:
    """The error has the process's number and the remedy; once that process is killed, the lock is free."""
    with store.making("first"):
        pass
    path = store.folder / ".locks" / "first"
    argv = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        pid = int(holder.stdout.readline())
        began = time.monotonic()
        said = f"process {pid} has been making it"
        with pytest.raises(ImageError, match=said) as raised, exclusive(path, "it", wait_s=0.3):
            raise AssertionError("two have it")
        assert 0.3 <= time.monotonic() - began < 5
        assert raised.value.hint == f"see what it does: ps -fp {pid}"
        holder.kill()
    with store.making("first"):
        assert path.read_text() == f"{os.getpid()}\n"


def locked_by_another_user(path: Path) -> bool:
    """Return whether a process of the user nobody can lock the file."""
    lock = (
        "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    )
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    argv = [*nobody, "/usr/bin/python3", "-c", lock, str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "PermissionError" in done.stderr, done.stderr
    return done.returncode == 0


@pytest.fixture
def shared() -> Iterator[Path]:
    """Yield a folder that all users can enter, such as a host's data folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.mark.skipif(os.geteuid() != 0, reason="missing: root, to be another user")
def test_another_user_holds_no_lock_of_the_store(shared: Path) -> None:
    """Other users cannot open lock files of tags and workspaces, which even reading would let them lock."""
    store = NoteStore(shared)
    with store.making("first"):
        assert {path.name for path in store.folder.rglob("*") if path.is_file()} == {"first"}
    with store.workspace() as workspace:
        (workspace / "readable").write_text("by all")
        assert locked_by_another_user(workspace / "readable")
        assert not locked_by_another_user(workspace / "lock")
        assert not locked_by_another_user(store.folder / ".locks" / "first")


@pytest.mark.skipif(os.geteuid() != 0, reason="missing: root, to be another user")
def test_another_user_holds_no_pid_file(shared: Path) -> None:
    """Other users cannot lock the PID file, not even one that an older version made readable."""
    path = pid_path(shared, "default")
    path.parent.mkdir(parents=True)
    path.touch(0o644)
    assert locked_by_another_user(path)
    with held(path):
        pass
    assert not locked_by_another_user(path)


def test_a_manifest_that_cannot_be_read_is_named(store: NoteStore) -> None:
    """With what to do about it."""
    made = put(store, "aa" * 32)
    (made.folder / "manifest.json").write_text("{}")
    with pytest.raises(ImageError, match=r"manifest\.json cannot be read") as raised:
        store.all()
    assert raised.value.hint == f"remove {made.folder}"


def test_a_tag_that_disappears_while_tags_are_read_is_none(store: NoteStore) -> None:
    """Another process may remove an entry at any time; a link to nothing is read as such a file is."""
    made = put(store, "aa" * 32)
    store.tag("first", made.digest)
    (store.tags / "gone").symlink_to(store.tags / "nowhere")
    assert store.tagged() == {"first": made.digest}
    assert store.resolve("first") == made
