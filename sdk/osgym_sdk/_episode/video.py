"""A video of the screen."""

from __future__ import annotations

from pathlib import Path

from osgym_sdk._exceptions import EpisodeEnded


class Video:
    """What :meth:`AsyncEpisode.record` gives; the video is there when its block has ended."""

    def __init__(self) -> None:
        self._data: bytes | None = None

    def take(self, data: bytes) -> None:
        """Take the video."""
        self._data = data

    @property
    def data(self) -> bytes:
        """The MP4.

        Raises:
            EpisodeEnded: the block has not ended, or the episode ended in it.
        """
        if self._data is None:
            raise EpisodeEnded("there is no video before the block of record() has ended")
        return self._data

    def save(self, path: str | Path) -> None:
        """Write it to a file."""
        Path(path).write_bytes(self.data)
