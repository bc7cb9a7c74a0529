"""Open files of one writer of a data set: its frames, its journal, the episodes that are not yet Parquet."""

from __future__ import annotations

import logging
import threading

from osgym_sdk.data._events import END, Event, encode
from osgym_sdk.data._frames import FrameWriter
from osgym_sdk.data._journal import Journal
from osgym_sdk.data._parts import Layout, write_part

_LOG = logging.getLogger("osgym.sdk")

MAX_JOURNAL_BYTES = 16 * 1024 * 1024
MAX_ENDED = 64


class EpisodeStore:
    """Used by one thread at a time; what fails leaves it as it was."""

    def __init__(self, layout: Layout, name: str) -> None:
        """Begin a journal. Raises OSError if it cannot be made."""
        self._layout = layout
        self._lock = threading.Lock()
        self._frames = FrameWriter(layout.frames, name)
        self._journal: Journal | None = Journal(layout.journal_of(name, 0))
        self._episodes: dict[str, list[Event]] = {}
        """Events of the journal by episode."""
        self._ended: set[str] = set()
        self._rotate_at, self._rotate_ended = MAX_JOURNAL_BYTES, MAX_ENDED

    def add_frame(self, data: bytes) -> str:
        """Store an image; return its name. Raises OSError if it is not stored."""
        with self._lock:
            return self._frames.add(data)

    def add(self, event: Event) -> None:
        """Append an event. Raises OSError if it is not written."""
        with self._lock:
            if self._journal is None:
                return
            self._journal.add(encode(event))
            self._episodes.setdefault(event["u"], []).append(event)
            if event["kind"] == END:
                self._ended.add(event["u"])
            if len(self._ended) >= self._rotate_ended or (
                self._ended and self._journal.size >= self._rotate_at
            ):
                self._rotate(self._journal)

    def sync(self) -> None:
        """Write what was appended to the disk. Raises OSError if that fails."""
        with self._lock:
            self._frames.sync()
            if self._journal is not None:
                self._journal.sync()

    def close(self) -> None:
        """Turn all episodes to Parquet, those that go on too. Idempotent.

        Raises:
            OSError: they stay in the journal.
        """
        with self._lock:
            journal, self._journal = self._journal, None
            if journal is None:
                return
            try:
                self._frames.sync()
                if self._episodes:
                    self._write(journal, list(self._episodes))
                journal.path.unlink()
            finally:
                self._frames.close()
                journal.close()

    def _rotate(self, journal: Journal) -> None:
        """Turn episodes that are over to Parquet, and go on in a journal that begins with the others.

        What fails is tried again when the journal has grown by as much again: nothing is lost.
        """
        path = self._layout.following(journal.path)
        going = {name: told for name, told in self._episodes.items() if name not in self._ended}
        following: Journal | None = None
        try:
            self._frames.sync()
            following = Journal(path)
            for told in going.values():
                for event in told:
                    following.add(encode(event))
            self._write(journal, [name for name in self._episodes if name in self._ended])
        except OSError as exc:
            _LOG.warning(
                "data set %s: its journal could not be converted to Parquet: %s", self._layout.root, exc
            )
            if following is not None:
                path.unlink(missing_ok=True)
                following.close()
            self._rotate_at = journal.size + MAX_JOURNAL_BYTES
            self._rotate_ended = len(self._ended) + MAX_ENDED
            return
        journal.path.unlink(missing_ok=True)
        journal.close()
        self._journal, self._episodes, self._ended = following, going, set()
        self._rotate_at, self._rotate_ended = following.size + MAX_JOURNAL_BYTES, MAX_ENDED

    def _write(self, journal: Journal, names: list[str]) -> None:
        target = self._layout.data / f"{journal.path.stem}.parquet"
        write_part(target, (self._episodes[name] for name in names))
