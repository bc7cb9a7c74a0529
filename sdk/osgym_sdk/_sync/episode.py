"""Episodes, observations and checkpoints for code without ``async``."""

from __future__ import annotations

from typing import Self

from osgym_sdk._episode.checkpoints import AsyncCheckpoint, CheckpointHandle
from osgym_sdk._episode.episode import AsyncEpisode, AsyncObservation
from osgym_sdk._episode.info import EpisodeInfo
from osgym_sdk._episode.tunnel import Exposed, Exposure
from osgym_sdk._exceptions import OSGymError
from osgym_sdk._models.observation import Observation
from osgym_sdk._sync.portal import Portal, calls, same, waits


class SyncObservation(Observation):
    """An observation of an :class:`Episode`."""

    _origin: tuple[AsyncObservation, Portal] | None = None
    """Source of the observation; None in a copy."""

    def __init__(self, inner: AsyncObservation, portal: Portal) -> None:
        super().__init__(inner.answer, inner.data, inner.timing)
        self._take_marks(inner)
        self._origin = (inner, portal)

    def final(self, timeout_s: float = 3.0) -> SyncObservation:
        """Return the frame of this step when the screen has come to rest; see :class:`AsyncObservation`."""
        if self._origin is None:
            raise ValueError("this observation does not belong to an open episode")
        inner, portal = self._origin
        return SyncObservation(portal.call(inner.final(timeout_s)), portal)


class Episode(EpisodeInfo):
    """Made by :meth:`Client.episode`; use it with ``with``. The same as :class:`AsyncEpisode`, waiting."""

    def __init__(self, inner: AsyncEpisode, portal: Portal) -> None:
        super().__init__(inner._context)
        self._inner = inner
        self._portal = portal

    def __enter__(self) -> Self:
        self._portal.call(self._inner.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the replica back. Idempotent."""
        if self._portal.open:
            self._portal.call(self._inner.aclose())

    @property
    def observation(self) -> SyncObservation:
        """The newest observation; the first desktop after start."""
        return SyncObservation(self._inner.observation, self._portal)

    start = waits(AsyncEpisode.start, same)
    step = waits(AsyncEpisode.step, SyncObservation)
    observe = waits(AsyncEpisode.observe, SyncObservation)
    zoom = waits(AsyncEpisode.zoom, SyncObservation)
    evaluate = waits(AsyncEpisode.evaluate, same)
    detach = calls(AsyncEpisode.detach, same)
    fork = waits(AsyncEpisode.fork, lambda children, portal: [Episode(child, portal) for child in children])
    checkpoint = waits(AsyncEpisode.checkpoint, lambda made, portal: Checkpoint(made, portal))
    suspend = waits(AsyncEpisode.suspend, lambda made, portal: Checkpoint(made, portal))
    execute = waits(AsyncEpisode.execute, same)
    read_file = waits(AsyncEpisode.read_file, same)
    write_file = waits(AsyncEpisode.write_file, same)
    a11y = waits(AsyncEpisode.a11y, same)
    windows = waits(AsyncEpisode.windows, same)
    score_now = waits(AsyncEpisode.score_now, same)
    record = calls(AsyncEpisode.record, lambda block, portal: portal.within(block))
    expose = waits(AsyncEpisode.expose, lambda made, portal: SyncExposure(made, portal))


class SyncExposure(Exposed):
    """Made by :meth:`Episode.expose`. The same as :class:`Exposure`, waiting."""

    def __init__(self, inner: Exposure, portal: Portal) -> None:
        super().__init__(inner.host, inner.port)
        self._inner = inner
        self._portal = portal

    @property
    def failure(self) -> OSGymError | None:
        """Error of the last connection; None after one that could be made."""
        return self._inner.failure

    def close(self) -> None:
        """Stop listening and close all connections. Idempotent."""
        if self._portal.open:
            self._portal.call(self._inner.aclose())


class Checkpoint(CheckpointHandle):
    """Made by :meth:`Episode.checkpoint`. The same as :class:`AsyncCheckpoint`, waiting."""

    def __init__(self, inner: AsyncCheckpoint, portal: Portal) -> None:
        super().__init__(inner.info, inner.host)
        self._inner = inner
        self._portal = portal

    delete = waits(AsyncCheckpoint.delete, same)
    export = waits(AsyncCheckpoint.export, same)
