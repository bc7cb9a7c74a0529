"""Content stores: immutable folders named by their digest, with tags; of images, disks and snapshots.

<kind>/<digest>/manifest.json   complete: the folder is renamed into place with its manifest in it
<kind>/tags/<name>              the digest of the tagged entry <kind>/.locks/<name>           lock of the
process that makes the entry; for the store's owner only <kind>/.baking-*, .removing-*   unfinished;
`ContentStore.reap` removes what no process works on
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from osgym_host.images import tree
from osgym_host.images.errors import ImageError, ImageNotFound
from osgym_host.images.file_lock import exclusive
from osgym_host.images.idmap import IdMap, current_idmap
from osgym_host.images.namespaces import NamespaceSpec, operate

MIN_PREFIX = 6
"""Length of the shortest prefix of a digest that may name an entry."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names that people give to disk images and snapshots."""

MANIFEST = "manifest.json"
BAKING = ".baking-"
REMOVING = ".removing-"
_LOCK_NAME = "lock"


class Manifest(BaseModel):
    """Fields that every manifest has.

    Attributes:
        digest: Content digest: 64 hexadecimal digits.
        created_at: ISO 8601, UTC.
        definition_key: Hash of the content's inputs; empty for an import.
    """

    model_config = ConfigDict(frozen=True)

    digest: str
    created_at: str = Field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    definition_key: str = ""


M_co = TypeVar("M_co", bound=Manifest, covariant=True)


@dataclass(frozen=True, slots=True)
class StoredContent(ABC, Generic[M_co]):
    """A complete entry of a store.

    Attributes:
        folder: Folder of its content, which never changes.
    """

    folder: Path
    manifest: M_co

    @property
    def digest(self) -> str:
        """Content digest, which is also the folder's name."""
        return self.manifest.digest

    @property
    @abstractmethod
    def name(self) -> str:
        """Tag under which it was made."""


Entry = TypeVar("Entry", bound=StoredContent[Manifest])
M = TypeVar("M", bound=Manifest)


class ContentStore(ABC, Generic[Entry, M]):
    """Entries of one kind below `<data>/<kind>`; every method may be called by several processes at once."""

    KIND: ClassVar[str]
    """Name of the store's folder."""
    NOUN: ClassVar[str]
    """Noun for an entry in messages."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.folder = data_dir / self.KIND
        self.tags = self.folder / "tags"

    @abstractmethod
    def open_entry(self, folder: Path, text: str) -> Entry:
        """Return the entry in `folder`, whose manifest is `text`."""

    @abstractmethod
    def how_to_make(self, name: str) -> str:
        """Return the command that makes an entry of this name, for hints."""

    def tag_name(self, name: str) -> str:
        """Return the tag of a name.

        Raises:
            ValueError: The name is malformed.
        """
        return name

    def prepare(self) -> None:
        self.tags.mkdir(parents=True, exist_ok=True)

    def all(self) -> list[Entry]:
        """Return all complete entries, the newest first."""
        found = []
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                with contextlib.suppress(PermissionError):  # another user's, which only he may read
                    if not path.name.startswith(".") and (path / MANIFEST).is_file():
                        found.append(self._load(path))
        return sorted(found, key=lambda entry: entry.manifest.created_at, reverse=True)

    def tagged(self) -> dict[str, str]:
        if not self.tags.is_dir():
            return {}
        found = {}
        for path in sorted(path for path in self.tags.iterdir() if not path.name.startswith(".")):
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                found[path.name] = path.read_text().strip()
        return found

    def is_tagged(self, entry: Entry) -> bool:
        """Return whether the entry's own tag still names it."""
        return self.tagged().get(entry.name) == entry.digest

    def resolve(self, name: str) -> Entry:
        """Return the entry of a tag, a digest or a prefix of one.

        Raises:
            ImageNotFound: Nothing matches, or a prefix matches more than one.
            ImageError: It is another user's.
        """
        with contextlib.suppress(ValueError):
            tag = self.tag_name(name)
            if digest := self.tagged().get(tag):
                try:
                    if (self.folder / digest / MANIFEST).is_file():
                        return self._load(self.folder / digest)
                except PermissionError as exc:
                    raise ImageError(
                        f"the {self.NOUN} {tag} belongs to another user and cannot be read",
                        "run as that user, or " + self.how_to_make(tag),
                    ) from exc
                raise ImageNotFound(f"the {self.NOUN} {tag} was removed", self.how_to_make(tag))
        found = [entry for entry in self.all() if entry.digest.startswith(name)]
        if len(found) == 1 and len(name) >= MIN_PREFIX:
            return found[0]
        if found:
            raise ImageNotFound(f"{name!r} fits several {self.NOUN}s", f"give at least {MIN_PREFIX} digits")
        raise ImageNotFound(f"there is no {self.NOUN} {name!r}", self.how_to_make(name))

    def made_from(self, definition_key: str) -> Entry | None:
        return next((entry for entry in self.all() if entry.manifest.definition_key == definition_key), None)

    def tag(self, name: str, digest: str) -> None:
        """Set a tag to this digest, atomically.

        A tag that has this digest already is left alone, with the time of its file, so that an archive of an
        unchanged store is unchanged.

        Raises:
            ValueError: The name is malformed.
        """
        tag = self.tag_name(name)
        if self.tagged().get(tag) != digest:
            replace_file(self.tags / tag, f"{digest}\n")

    def remove(self, entry: Entry) -> None:
        """Remove an entry and its tags in one rename. Replicas that run on it keep their open files."""
        for tag, digest in self.tagged().items():
            if digest == entry.digest:
                (self.tags / tag).unlink(missing_ok=True)
        discard(entry.folder)

    def select(self, names: Sequence[str], *, untagged: bool = False) -> list[Entry]:
        """Return the entries of these names, and with `untagged` all without a tag.

        Raises:
            ImageNotFound: A name matches no entry, or more than one.
        """
        chosen = {entry.digest: entry for entry in map(self.resolve, names)}
        if untagged:
            tagged = self.tagged().values()
            chosen |= {entry.digest: entry for entry in self.all() if entry.digest not in tagged}
        return list(chosen.values())

    @contextlib.contextmanager
    def making(self, name: str, tell: Callable[[str], object] | None = None) -> Iterator[None]:
        """Hold the lock of a tag, so that two processes do not make the same; remove leftovers first.

        Args:
            tell: Called once with a sentence that names the process that is waited for; None: logs it.

        Raises:
            ImageError: Another process has held it for `LOCK_WAIT_S`.
            ValueError: The name is malformed.
        """
        self.prepare()
        tag = self.tag_name(name)
        locks = self.folder / ".locks"
        locks.mkdir(mode=0o700, exist_ok=True)
        locks.chmod(0o700)
        with exclusive(locks / tag, f"the {self.NOUN} {tag}", tell=tell):
            self.reap()
            yield

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        """Make a folder to work in, which is removed afterwards unless it was renamed into place."""
        self.prepare()
        with workspace_in(self.folder) as folder:
            yield folder

    def publish(self, prepared: Path, manifest: M) -> Entry:
        """Publish `prepared`, which holds the content, as the entry of the manifest's digest, atomically.

        An existing entry of this digest is kept, since it is the same; only its manifest is written anew.
        """
        text = manifest.model_dump_json(indent=1) + "\n"
        replace_file(prepared / MANIFEST, text)
        target = self.folder / manifest.digest
        try:
            prepared.rename(target)
        except OSError:
            if not (target / MANIFEST).is_file():
                raise
            replace_file(target / MANIFEST, text)
        fsync_folder(self.folder)
        return self._load(target)

    def reap(self) -> list[str]:
        """Remove leftovers of killed bakes and removals; return their names."""
        return reap_folders(self.folder)

    def _load(self, folder: Path) -> Entry:
        path = folder / MANIFEST
        try:
            return self.open_entry(folder, path.read_text())
        except (OSError, ValidationError) as exc:
            raise ImageError(f"{path} cannot be read: {exc}", f"remove {folder}") from exc


@contextlib.contextmanager
def workspace_in(folder: Path) -> Iterator[Path]:
    """Make a scratch folder below a store's `folder`, removed afterwards unless it was renamed into place.

    A lock on it makes `reap_folders` of another process skip it.
    """
    made = Path(tempfile.mkdtemp(prefix=BAKING, dir=folder))
    made.chmod(0o755)
    # Nobody else may open it: who can open a file can lock it, also for reading only.
    lock = os.open(made / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield made
    finally:
        remove_tree(made)
        os.close(lock)


def reap_folders(*folders: Path) -> list[str]:
    """Remove leftovers of killed bakes and removals in stores' folders; return their names."""
    reaped = []
    for path in [path for folder in folders if folder.is_dir() for path in folder.iterdir()]:
        if path.name.startswith((BAKING, REMOVING)) and not _in_use(path):
            remove_tree(path)
            reaped.append(path.name)
    return reaped


def _in_use(folder: Path) -> bool:
    """Return whether the process that made this workspace still holds its lock."""
    try:
        with (folder / _LOCK_NAME).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically: a reader, or a crash, sees the old or the new content."""
    fd, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    with os.fdopen(fd, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(name).chmod(0o644)
    Path(name).rename(path)
    fsync_folder(path.parent)


def fsync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def open_folder(folder: Path, idmap: IdMap) -> None:
    """Make a folder of ours writable for the mapped root: root gives it away, others open it to all."""
    if os.geteuid() == 0:
        os.chown(folder, idmap.uid_base, idmap.gid_base)
    else:
        folder.chmod(0o777)


def close_folder(folder: Path) -> None:
    """Revert `open_folder`."""
    if os.geteuid() == 0:
        os.chown(folder, 0, 0)
    folder.chmod(0o755)


def discard(folder: Path) -> None:
    """Rename a folder out of a store, then remove it."""
    removed = folder.with_name(f"{REMOVING}{folder.name[:16]}-{os.getpid()}")
    folder.rename(removed)
    remove_tree(removed)


def remove_tree(path: Path) -> None:
    """Remove a folder of ours that may hold trees owned by shifted ids; a missing one is fine."""
    if not path.exists():
        return
    if os.geteuid() == 0:
        tree.remove(str(path))
        return
    # Another process may be removing the same leftover; whoever comes second finds less.
    with contextlib.suppress(FileNotFoundError):
        # The mapped root may not write into our folders unless everybody may.
        path.chmod(0o777)
        for entry in list(path.iterdir()):
            if entry.is_symlink() or not entry.is_dir():
                entry.unlink(missing_ok=True)
            elif entry.stat().st_uid == os.getuid():
                remove_tree(entry)
            else:
                operate(NamespaceSpec(path, current_idmap()), "remove", path=entry.name)
        path.rmdir()
