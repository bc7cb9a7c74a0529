"""Writes episodes to a data set while they run, in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from osgym_sdk._exceptions import ConfigError, DatasetError
from osgym_sdk._models.observation import Observation
from osgym_sdk._models.recorder import EpisodeOutcome
from osgym_sdk._models.trajectory import StepRecord, Trajectory
from osgym_sdk.data._events import Event, Origin, begin_event, end_event, step_event
from osgym_sdk.data._parts import Layout, recover
from osgym_sdk.data._store import EpisodeStore
from osgym_sdk.wire import HostState

_LOG = logging.getLogger("osgym.sdk")

QUEUE_MIB = 64
STALL_S = 30.0
"""How long a step waits for a disk that does not keep up, before episodes go on without their images."""
_RETRY_S = 0.5
_POLL_S = 0.005
_JOIN_S = 60.0
_JOB_BYTES = 4096
"""Size that a job without an image counts as."""


@dataclass(frozen=True, slots=True)
class _Job:
    """Something to write: an event that is made of its image's name."""

    make: Callable[[str | None], Event]
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data) + _JOB_BYTES


class DatasetWriter:
    """Give it as ``record=`` to ``client.run`` or ``client.episode``; close it, or use it with ``with``.

    Every step is in the folder's journal milliseconds after its answer, so that a killed trainer loses at
    most its last; whoever opens the folder next takes over what it left. Any number of processes may write
    to one folder of a local disk. Nothing is done on the event loop but to put a step into a queue; a queue
    that is full slows the episodes down.

    A disk that fails, or is full, ends no episode: what could not be written waits in memory and is tried
    again, and ``flush``, ``close`` and the end of a batch raise. When the queue stays full for 30 s, images
    are left out (``frame_lost`` of their rows).

    Args:
        path: the folder; made where there is none.
        seed: of the run, for tasks that name none in ``osgym.seed``.
        queue_mib: how much may wait to be written.

    Raises:
        DatasetError: the folder cannot be written, or holds something else.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, seed: int | None = None, queue_mib: int = QUEUE_MIB
    ) -> None:
        if queue_mib < 1:
            raise ConfigError("queue_mib must be 1 or more")
        self.layout = Layout(path)
        self.seed = seed
        self.layout.make()
        try:
            recover(self.layout)
            self._store = EpisodeStore(self.layout, f"{int(time.time()):010d}-{uuid.uuid4().hex[:12]}")
        except OSError as exc:
            raise DatasetError(f"data set {path}: {exc}", code="dataset_io") from exc
        self._max_bytes = queue_mib * 1024 * 1024
        self._jobs: deque[_Job] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._error: OSError | None = None
        self._tries = 0
        """Number of failures of the oldest job."""
        self._closed = False
        self._stop = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._write_all, name="osgym-dataset", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def error(self) -> OSError | None:
        """Error that keeps the newest events from being written; None while there is none."""
        return self._error

    def record(self, task: Mapping[str, Any] | None, *, seed: int | None = None) -> EpisodeWriter:
        """Return the recording of a new episode of this task.

        Args:
            seed: of a task that names none in ``osgym.seed``; by default the writer's.
        """
        return EpisodeWriter(self, Origin(uuid.uuid4().hex, task, self.seed if seed is None else seed))

    async def flush(self) -> None:
        """Wait until the disk has all that was told.

        Raises:
            DatasetError: it cannot take it; it is tried again as long as this writer is open.
        """
        await asyncio.to_thread(self.sync)

    def sync(self, timeout_s: float = _JOIN_S) -> None:
        """Do as ``flush``, blocking.

        Raises:
            DatasetError: as there, or it takes longer than ``timeout_s``.
        """
        self._check_process()
        end = time.monotonic() + timeout_s
        with self._changed:
            before = self._tries
            while self._jobs and self._thread.is_alive():
                left = end - time.monotonic()
                if (self._error is not None and self._tries > before) or left <= 0:
                    raise self._failed(f"{len(self._jobs)} records wait to be written")
                self._changed.wait(min(left, _RETRY_S))
        try:
            self._store.sync()
        except OSError as exc:
            self._error = exc
            raise self._failed("the last records may not have reached the disk") from exc

    def close(self) -> None:
        """Write what waits, and turn the journal to Parquet. Idempotent.

        Raises:
            DatasetError: not all could be written; what could is in the folder.
        """
        if self._closed:
            return
        self._check_process()
        self._closed = True
        failure: DatasetError | None = None
        try:
            self.sync()
        except DatasetError as exc:
            failure = exc
        with self._changed:
            self._stop = True
            self._changed.notify_all()
        self._thread.join(_JOIN_S)
        try:
            self._store.close()
        except OSError as exc:
            self._error = self._error or exc
            failure = failure or self._failed("the journal stays unchanged and can still be read")
        if failure is not None:
            raise failure

    # What recordings call. --------------------------------------------------------------------------

    async def room(self) -> None:
        """Wait for the thread while the queue is full, at most ``STALL_S``."""
        end = time.monotonic() + STALL_S
        # Polled: it is a thread that makes room, and episodes of several loops may wait for it.
        while self._bytes > self._max_bytes and not self._closed and time.monotonic() < end:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)

    def wait_for_room(self) -> None:
        """Do as ``room``, blocking."""
        end = time.monotonic() + STALL_S
        with self._changed:
            while self._bytes > self._max_bytes and not self._closed and time.monotonic() < end:
                self._changed.wait(_RETRY_S)

    def put(self, make: Callable[[str | None], Event], data: bytes = b"") -> None:
        """Queue an event and its image; the image only while there is room, if at the cost of waiting."""
        if self._closed or os.getpid() != self._pid:
            _LOG.warning(
                "data set %s: a step came after the writer was closed and was not recorded", self.layout.root
            )
            return
        if self._bytes > 2 * self._max_bytes:
            data = b""
        job = _Job(make, data)
        with self._changed:
            self._jobs.append(job)
            self._bytes += job.size
            self._changed.notify_all()

    # The thread. ------------------------------------------------------------------------------------

    def _write_all(self) -> None:
        while True:
            with self._changed:
                while not self._jobs and not self._stop:
                    self._changed.wait()
                if self._stop:
                    return
                job = self._jobs[0]
            try:
                self._write(job)
                error = None
            except OSError as exc:
                error = exc
            with self._changed:
                if error is not None:
                    if self._error is None:
                        _LOG.error("data set %s: %s; trying again", self.layout.root, error)
                    self._error, self._tries = error, self._tries + 1
                    if not self._stop:
                        self._changed.wait(_RETRY_S)
                    continue
                self._error = None
                self._jobs.popleft()
                self._bytes -= job.size
                self._changed.notify_all()

    def _write(self, job: _Job) -> None:
        frame = self._store.add_frame(job.data) if job.data else None
        try:
            event = job.make(frame)
        except Exception:  # noqa: BLE001 - our fault: said, and at the cost of this record only
            _LOG.exception("data set %s: a record could not be written and was skipped", self.layout.root)
            return
        self._store.add(event)

    def _failed(self, what: str) -> DatasetError:
        error = DatasetError(f"data set {self.layout.root}: {self._error}: {what}", code="dataset_io")
        error.__cause__ = self._error
        return error

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ConfigError("a DatasetWriter cannot be used in a forked process: make a new one there")


class EpisodeWriter:
    """One episode of a :class:`DatasetWriter`: an :class:`~osgym_sdk.EpisodeRecording`."""

    def __init__(self, writer: DatasetWriter, origin: Origin) -> None:
        self._writer = writer
        self._origin = origin

    @property
    def episode(self) -> str:
        """Its identity in the data set (column ``episode``)."""
        return self._origin.episode

    async def room(self) -> None:
        await self._writer.room()

    def begin(self, trajectory: Trajectory, obs: Observation, host: HostState | None) -> None:
        origin, now = self._origin, time.time()
        self._writer.put(lambda frame: begin_event(origin, trajectory, obs, host, frame, now), obs.data)

    def step(self, record: StepRecord, obs: Observation) -> None:
        origin, now = self._origin, time.time()
        self._writer.put(lambda frame: step_event(origin, record, obs, frame, now), obs.data)

    def end(self, trajectory: Trajectory, outcome: EpisodeOutcome) -> None:
        origin, now = self._origin, time.time()
        self._writer.put(lambda frame: end_event(origin, trajectory, outcome, now))
