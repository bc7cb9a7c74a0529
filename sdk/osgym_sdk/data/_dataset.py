"""Reads a data set: episodes one after the other, steps and images at random. Needs no torch."""

from __future__ import annotations

import bisect
import functools
import io
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from osgym_sdk._exceptions import BadFrame, ConfigError, DatasetError
from osgym_sdk.data._frames import DIGEST_BYTES, FrameIndex
from osgym_sdk.data._parts import Layout
from osgym_sdk.data._rows import EpisodeEntry, read_entries
from osgym_sdk.data._schema import BY_NAME
from osgym_sdk.wire import MAX_IMAGE_PIXELS

if TYPE_CHECKING:
    from PIL.Image import Image

_FORMATS = ("PNG", "JPEG", "WEBP")


class Frames:
    """The images of a data set by their names."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._index = FrameIndex(layout.frames)
        self._index.refresh()

    def __getstate__(self) -> Layout:
        return self._layout

    def __setstate__(self, layout: Layout) -> None:
        self.__init__(layout)  # type: ignore[misc]  # opens the shards anew, as making it does

    def data(self, name: str) -> bytes:
        """Return the bytes of an image, as the desktop sent them."""
        try:
            digest = bytes.fromhex(name)
            if len(digest) != DIGEST_BYTES:
                raise ValueError(name)
        except (TypeError, ValueError) as exc:
            raise KeyError(name) from exc
        try:
            return self._index.read(digest)
        except KeyError:
            raise KeyError(name) from None

    def image(self, name: str) -> Image:
        """Return an image as RGB; it came from a guest, so its kind and size are bounded."""
        from PIL import Image as PilImage

        data = self.data(name)
        try:
            with PilImage.open(io.BytesIO(data), formats=_FORMATS) as opened:
                if opened.size[0] * opened.size[1] > MAX_IMAGE_PIXELS:
                    raise BadFrame(
                        f"an image of {opened.size[0]}x{opened.size[1]} is too large to be decoded"
                    )
                return opened.convert("RGB")
        except (OSError, ValueError, SyntaxError, EOFError, PilImage.DecompressionBombError) as exc:
            if isinstance(exc, BadFrame):
                raise
            raise BadFrame(f"image {name} cannot be decoded: {exc}") from exc

    def __len__(self) -> int:
        return len(self._index)


class Step(Mapping[str, Any]):
    """One row: a mapping of the columns (``docs/data.md``), JSON read, and the images."""

    def __init__(self, row: dict[str, Any], frames: Frames) -> None:
        self._row = row
        self._frames = frames

    def __getitem__(self, column: str) -> Any:
        if column not in BY_NAME:
            raise KeyError(column)
        value = self._row.get(column)
        if value is None or not BY_NAME[column].json:
            return value
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as exc:
            raise DatasetError(f"column {column} of episode {self._row.get('episode')}: {exc}") from exc

    def __iter__(self) -> Iterator[str]:
        return iter(BY_NAME)

    def __len__(self) -> int:
        return len(BY_NAME)

    @property
    def raw(self) -> Mapping[str, Any]:
        """The columns as they are stored, JSON as text."""
        return self._row

    @property
    def image(self) -> Image | None:
        """The screen after the step, as an RGB Pillow image; None where none was kept."""
        return self._image("frame")

    @property
    def image_before(self) -> Image | None:
        """Image that the policy saw when it decided."""
        return self._image("frame_before")

    @property
    def actions(self) -> list[dict[str, Any]]:
        """Executed actions in internal form, in pixels of the screen."""
        return self["executed"] or []

    def __repr__(self) -> str:
        return f"<Step {self['step']} of {self['episode']}: {self._row.get('executed')}>"

    def _image(self, column: str) -> Image | None:
        name = self._row.get(column)
        return None if name is None else self._frames.image(name)


class Episode:
    """One episode; its steps are read when they are asked for."""

    def __init__(self, entry: EpisodeEntry, frames: Frames) -> None:
        self._entry = entry
        self._frames = frames

    @property
    def values(self) -> Mapping[str, Any]:
        """The columns of the episode that are no JSON."""
        return self._entry.values

    @property
    def name(self) -> str:
        """Its identity: column ``episode``."""
        return str(self.values["episode"])

    @property
    def task_id(self) -> str | None:
        return self._entry.values["task_id"]  # type: ignore[no-any-return]  # a text column

    @property
    def reward(self) -> float | None:
        return self._entry.values["reward"]  # type: ignore[no-any-return]  # a column of floats

    @functools.cached_property
    def rows(self) -> list[Step]:
        """All rows: the first desktop, then the steps."""
        entry = self._entry
        return [Step(row, self._frames) for row in entry.source.rows(entry.start, entry.start + entry.count)]

    @property
    def first(self) -> Step:
        """The first desktop; what it says of the episode, JSON too, holds for all rows."""
        return self.rows[0]

    @property
    def steps(self) -> list[Step]:
        return self.rows[1:]

    def __len__(self) -> int:
        return self._entry.count - 1

    def __repr__(self) -> str:
        return f"<Episode {self.name}: task {self.task_id}, {len(self)} steps, reward {self.reward}>"


class Dataset(Sequence[Any]):
    """The steps of all episodes by number: a map-style data set, as torch's loaders take.

    It shows what was there when it was opened, episodes that were running included; open it again for more.
    It can be pickled, so the workers of a loader each read for themselves.
    """

    def __init__(
        self,
        layout: Layout,
        entries: list[EpisodeEntry],
        frames: Frames,
        transform: Callable[[Step], Any] | None = None,
    ) -> None:
        """Use :meth:`open`."""
        self._layout = layout
        self._entries = entries
        self._frames = frames
        self._transform = transform
        self._ends = list(itertools.accumulate(entry.count - 1 for entry in entries))

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, transform: Callable[[Step], Any] | None = None) -> Dataset:
        """Open the folder that a :class:`DatasetWriter` writes or wrote; nothing there is changed.

        Args:
            path: the folder.
            transform: what ``dataset[i]`` gives is made of the step by this.

        Raises:
            DatasetError: it is no data set, or cannot be read.
        """
        layout = Layout(path)
        layout.check()
        try:
            entries = read_entries(layout)
            frames = Frames(layout)
        except OSError as exc:
            raise DatasetError(f"data set {path}: {exc}", code="dataset_io") from exc
        return cls(layout, entries, frames, transform)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: Any) -> Any:
        """The step of this number, or what ``transform`` makes of it; a list for a slice.

        Raises:
            IndexError: there are fewer.
            DatasetError: it cannot be read.
        """
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"step {index} of {len(self)}")
        number = bisect.bisect_right(self._ends, at)
        entry = self._entries[number]
        row = entry.start + 1 + at - (self._ends[number - 1] if number else 0)
        step = Step(entry.source.rows(row, row + 1)[0], self._frames)
        return step if self._transform is None else self._transform(step)

    def episodes(self) -> Iterator[Episode]:
        """Yield the episodes."""
        return (Episode(entry, self._frames) for entry in self._entries)

    def episode(self, name: str) -> Episode:
        """Return the episode whose column ``episode`` or ``episode_id`` begins so.

        Raises:
            KeyError: there is none, or more than one.
        """
        found = [
            entry
            for entry in self._entries
            if any(str(entry.values[column] or "").startswith(name) for column in ("episode", "episode_id"))
        ]
        if len(found) != 1:
            raise KeyError(f"{len(found)} episodes have the name {name}")
        return Episode(found[0], self._frames)

    @property
    def episode_count(self) -> int:
        return len(self._entries)

    @property
    def frame_count(self) -> int:
        """Images in the folder, each counted once."""
        return len(self._frames)

    def frame(self, name: str) -> Image:
        """Return an image by its name as an RGB Pillow image.

        Raises:
            KeyError: there is none.
            DatasetError: the file is damaged or cannot be read.
            BadFrame: it is no image.
        """
        return self._frames.image(name)

    def frame_bytes(self, name: str) -> bytes:
        """Return the bytes of an image, as the desktop sent them; errors as of :meth:`frame`."""
        return self._frames.data(name)

    def filter(
        self,
        where: Callable[[Mapping[str, Any]], bool] | None = None,
        *,
        min_reward: float | None = None,
        **equal: Any,
    ) -> Dataset:
        """Return the data set of some episodes: ``filter(task_id="a", min_reward=1, complete=True)``.

        Args:
            where: called with the episode's columns that are no JSON.
            min_reward: of those that have a reward.
            equal: columns of the episode and what they have to be; a list or set: one of these.

        Raises:
            ConfigError: there is no such column.
        """
        unknown = [name for name in equal if name not in BY_NAME or not BY_NAME[name].per_episode]
        unknown += [name for name in equal if name in BY_NAME and BY_NAME[name].json]
        if unknown:
            raise ConfigError(f"unknown columns to filter episodes by: {', '.join(unknown)}")

        def wanted(values: Mapping[str, Any]) -> bool:
            reward = values["reward"]
            if min_reward is not None and (reward is None or reward < min_reward):
                return False
            return all(_is(values[name], what) for name, what in equal.items()) and (
                where is None or where(values)
            )

        kept = [entry for entry in self._entries if wanted(entry.values)]
        return Dataset(self._layout, kept, self._frames, self._transform)


def _is(value: Any, wanted: Any) -> bool:
    return value in wanted if isinstance(wanted, (list, tuple, set, frozenset)) else bool(value == wanted)
