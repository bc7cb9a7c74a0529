"""Checkpoints: saved episodes with their desktops, from which other episodes start.

One that is not kept goes with the lease of its episode, or when the host agent stops. A kept one is on
disk until somebody deletes it or its time is over, and may travel to another host.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from osgym_host import log_subject
from osgym_host.core.fair_queue import UNNAMED, ClientKey
from osgym_host.core.reasons import Reason
from osgym_host.episodes.checkpoint_store import (
    CheckpointRecord,
    CheckpointStore,
    describe,
    head_of,
    read_head,
)
from osgym_host.episodes.create_request import CreatedEpisode, read_task
from osgym_host.episodes.creator import EpisodeCreator, first_observation
from osgym_host.episodes.episode import HostEpisode
from osgym_host.episodes.episode_state import EpisodeProgress, SavedEpisode
from osgym_host.episodes.errors import EpisodeOver
from osgym_host.episodes.forks import as_service_errors, refuse_ended, take_point
from osgym_host.episodes.journal import RequestMark
from osgym_host.errors import ServiceError
from osgym_host.replicas.brancher import LeaseHolder, ReplicaBrancher
from osgym_host.runtimes import base
from osgym_protocol.codec import WireFormatError
from osgym_protocol.codes import ErrorCode
from osgym_protocol.episode_options import EpisodeOptions
from osgym_protocol.host_api import CheckpointInfo, CheckpointList, CheckpointRequest, ParentInfo

log = logging.getLogger(__name__)

MIB = 1024 * 1024
CHUNK_BYTES = 1024 * 1024
EXPIRY_S = 2.0
"""Longest interval of checks for expired checkpoints."""


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    point: base.BranchPoint
    kept: CheckpointRecord

    @property
    def mib(self) -> float:
        return self.point.ram_mib + self.point.disk_mib


class Checkpoints:
    """Checkpoints of this host. For one event loop."""

    def __init__(
        self,
        creator: EpisodeCreator,
        brancher: ReplicaBrancher,
        store: CheckpointStore,
        *,
        max_mib: int,
    ) -> None:
        self._creator = creator
        self._service = creator.service
        self._brancher = brancher
        self._store = store
        self._max_mib = max_mib
        self._known: dict[str, _Checkpoint] = {}
        self._expiry: asyncio.Task[None] | None = None
        self._service.metrics.checkpoints_mib.set_function(self.used_mib)

    # Life --------------------------------------------------------------------------------------

    def start(self, points: Sequence[base.BranchPoint]) -> None:
        """Adopt the kept checkpoints that the runtime found.

        Raises:
            OSError: The folder cannot be used.
        """
        described = self._store.open()
        for point in points:
            kept = described.pop(point.point_id, None) or CheckpointRecord("", None, None)
            self._known[point.point_id] = _Checkpoint(point, kept)
        for checkpoint_id in described:
            log.warning("checkpoint %s: its desktop is gone", checkpoint_id)
            self._store.remove(checkpoint_id)
        self._service.on_end.append(self._episode_ended)
        self._expiry = asyncio.create_task(self._expire(), name="checkpoints:expiry")

    async def close(self) -> None:
        """Release the checkpoints that are not kept. Idempotent."""
        if self._expiry is not None:
            self._expiry.cancel()
            await asyncio.gather(self._expiry, return_exceptions=True)
        for checkpoint in list(self._known.values()):
            if not checkpoint.point.kept:
                self._drop(checkpoint, "stopped")
        await self._brancher.settle()

    async def _expire(self) -> None:
        while True:
            now = time.time()
            for checkpoint in list(self._known.values()):
                if checkpoint.kept.expires_at is not None and checkpoint.kept.expires_at <= now:
                    self._drop(checkpoint, "expired")
            due = [c.kept.expires_at for c in self._known.values() if c.kept.expires_at is not None]
            await asyncio.sleep(max(0.01, min([EXPIRY_S, *(at - now for at in due)])))

    def _episode_ended(self, episode: HostEpisode) -> None:
        for checkpoint in list(self._known.values()):
            if not checkpoint.point.kept and checkpoint.kept.episode_id == episode.episode_id:
                self._drop(checkpoint, "episode_ended")

    # Taking and deleting -----------------------------------------------------------------------

    async def take(self, episode_id: str, asked: CheckpointRequest) -> CheckpointInfo:
        """Take a checkpoint between two steps; the episode goes on after a pause.

        Raises:
            ServiceError: `unsupported`, `branch_failed`; `no_capacity` when the checkpoints of this host
                would be larger than the settings allow; `episode_ended` when the episode is done or
                scored; as any call on the episode.
        """
        episode = self._service.claim(episode_id, asked.lease)
        with episode.in_use(), as_service_errors():
            self._brancher.check()
            refuse_ended(episode)
            self._refuse_over(0.0)
            saved, point = await take_point(episode, self._brancher, keep=asked.keep)
            expires_at = None if asked.ttl_s is None else round(time.time() + asked.ttl_s, 3)
            checkpoint = _Checkpoint(point, CheckpointRecord(episode_id, expires_at, saved))
            self._add(checkpoint)
        if episode.over is not None and not asked.keep:  # it ended while the point was taken
            self._episode_ended(episode)
            raise episode.over.copy()
        self._service.metrics.paused(point.pause_ms)
        self._count("taken", "ok")
        info = describe(point, checkpoint.kept)
        self._service.events.add("checkpoint", state="taken", **_event_fields(info))
        return info

    def _add(self, checkpoint: _Checkpoint) -> None:
        """Register a new checkpoint, or release it if it does not fit."""
        point = checkpoint.point
        try:
            self._refuse_over(checkpoint.mib)
            if point.kept:
                self._store.put(point.point_id, checkpoint.kept)
        except BaseException:
            self._brancher.release(point)
            raise
        self._known[point.point_id] = checkpoint

    def _refuse_over(self, more_mib: float) -> None:
        used_mib = self.used_mib()
        if used_mib + more_mib >= self._max_mib:
            self._count("taken", "no_capacity")
            text = (
                f"The checkpoints of this host use {used_mib:.0f} MiB of {self._max_mib} MiB "
                "(setting checkpoints_max_mib); delete some."
            )
            details = {"used_mib": round(used_mib, 1), "max_mib": self._max_mib, "blocked": "checkpoints"}
            raise ServiceError(ErrorCode.NO_CAPACITY, text, details)

    def used_mib(self) -> float:
        """Return the RAM and disk space of all checkpoints."""
        return sum(checkpoint.mib for checkpoint in self._known.values())

    def listing(self) -> CheckpointList:
        """Return all checkpoints, the oldest first."""
        found = sorted(self._known.values(), key=lambda c: c.point.created_at)
        infos = tuple(describe(c.point, c.kept) for c in found)
        return CheckpointList(infos, round(self.used_mib(), 3), self._max_mib)

    def delete(self, checkpoint_id: str) -> None:
        """Delete a checkpoint; episodes that were made from it are not affected.

        Raises:
            ServiceError: `unknown_checkpoint`.
        """
        self._drop(self._find(checkpoint_id), "deleted")

    def discard(self, checkpoint_id: str) -> None:
        """Delete a checkpoint whose id no client has seen. Idempotent."""
        checkpoint = self._known.get(checkpoint_id)
        if checkpoint is not None:
            self._drop(checkpoint, "deleted")

    def _find(self, checkpoint_id: str) -> _Checkpoint:
        checkpoint = self._known.get(checkpoint_id)
        if checkpoint is None:
            details = {"checkpoint_id": checkpoint_id[:100]}
            raise ServiceError(
                ErrorCode.UNKNOWN_CHECKPOINT, "There is no such checkpoint on this host.", details
            )
        return checkpoint

    def _drop(self, checkpoint: _Checkpoint, state: str) -> None:
        self._known.pop(checkpoint.point.point_id, None)
        self._store.remove(checkpoint.point.point_id)
        self._brancher.release(checkpoint.point)
        self._service.events.add("checkpoint", state=state, checkpoint_id=checkpoint.point.point_id)

    def _count(self, what: str, outcome: str) -> None:
        self._service.metrics.checkpoints.labels(what, outcome).inc()

    # Restoring ---------------------------------------------------------------------------------

    async def restore(
        self, asked: EpisodeOptions, client: ClientKey = UNNAMED, mark: RequestMark | None = None
    ) -> CreatedEpisode:
        """Make an episode that goes on from a checkpoint, and take its first frame.

        The arguments are those of `EpisodeCreator.create`.

        Raises:
            ServiceError: `unknown_checkpoint`, `no_capacity`, `branch_failed`, `unsupported`;
                `bad_request` when a task is given too; `episode_lost` when its replica died at once.
        """
        began = time.perf_counter()
        checkpoint = self._find(asked.checkpoint or "")
        if asked.task is not None:
            raise ServiceError(
                ErrorCode.BAD_REQUEST, "A checkpoint has its task; give none with it.", status=422
            )
        if checkpoint.point.image_digest != self._creator.image.digest:
            text = "The checkpoint is of another golden snapshot than this host runs now."
            raise ServiceError(
                ErrorCode.UNSUPPORTED, text, {"image_digest": checkpoint.point.image_digest[:100]}
            )
        saved = self._terms(checkpoint, asked)
        episode = self._creator.draft(saved, read_task(saved.task))
        try:
            with log_subject.about(episode), as_service_errors():
                self._brancher.check()
                wait_s = min(asked.wait_s, self._creator.limits.max_wait_s)
                async with self._brancher.reserve(1, wait_s, client) as reservation:
                    holders = [LeaseHolder(episode.episode_id, episode.replica.on_revoked)]
                    (manager,) = await self._brancher.make(reservation, checkpoint.point, holders)
                    episode.attach(manager)
            got = time.perf_counter()
            await self._restore_progress(episode, checkpoint, saved.progress)
            opened = await first_observation(episode, began, got)
        except BaseException as error:
            reason = error.reason if isinstance(error, EpisodeOver) else Reason.CLIENT_GONE
            self._creator.discard(episode, reason)
            self._count("restored", error.code if isinstance(error, ServiceError) else "cancelled")
            raise
        self._service.register(episode, mark, opened.frame, timing_ms=opened.timing_ms)
        self._count("restored", "ok")
        self._service.events.add(
            "checkpoint",
            state="restored",
            checkpoint_id=checkpoint.point.point_id,
            episode_id=episode.episode_id,
        )
        return opened

    def _terms(self, checkpoint: _Checkpoint, asked: EpisodeOptions) -> SavedEpisode:
        ttl_s = self._creator.ttl_s(asked.lease_ttl_s)
        saved = checkpoint.kept.saved
        if saved is None:
            return SavedEpisode(
                None, (1, 1), ttl_s, asked.max_steps, asked.settle, asked.observe, run=asked.run
            )
        if asked.max_steps is not None and asked.max_steps <= saved.progress.step:
            text = f"max_steps is {asked.max_steps}; the checkpoint is after step {saved.progress.step}."
            raise ServiceError(ErrorCode.BAD_REQUEST, text, {"step": saved.progress.step}, status=422)
        return replace(
            saved,
            lease_ttl_s=ttl_s,
            max_steps=saved.max_steps if asked.max_steps is None else asked.max_steps,
            settle=saved.settle if asked.settle is None else asked.settle,
            observe=saved.observe if asked.observe is None else asked.observe,
            run=saved.run if asked.run is None else asked.run,
        )

    @staticmethod
    async def _restore_progress(
        episode: HostEpisode, checkpoint: _Checkpoint, progress: EpisodeProgress
    ) -> None:
        if checkpoint.kept.saved is None:  # only the guest knows how far it was
            health = await episode.replica.call(episode.replica.guest.health())
            progress = EpisodeProgress(health.last_seq, health.last_seq)
        episode.steps.progress = progress
        episode.parent = ParentInfo(checkpoint.kept.episode_id, progress.step, checkpoint.point.point_id)

    # Travelling --------------------------------------------------------------------------------

    async def export(self, checkpoint_id: str) -> tuple[int, AsyncIterator[bytes]]:
        """Write a kept checkpoint as one stream.

        Returns:
            Its length in bytes and its pieces; the pieces must be taken, or the iterator closed.

        Raises:
            ServiceError: `unknown_checkpoint`, `branch_failed`; `bad_request` when it is not a kept one.
        """
        checkpoint = self._find(checkpoint_id)
        if not checkpoint.point.kept:
            raise ServiceError(
                ErrorCode.BAD_REQUEST, "Only a checkpoint that is kept can be exported.", status=409
            )
        scratch = self._store.scratch()
        try:
            with as_service_errors():
                await self._brancher.export_point(checkpoint.point, scratch)
                head = head_of(checkpoint.kept)
                length = len(head) + (await asyncio.to_thread(scratch.stat)).st_size
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise
        self._count("exported", "ok")
        return length, _pieces(head, scratch)

    async def import_stream(self, chunks: AsyncIterator[bytes]) -> CheckpointInfo:
        """Import a stream of `export` as a kept checkpoint. The stream is hostile input.

        Raises:
            ServiceError: `bad_request`: it is broken, too large, or of another golden snapshot;
                `no_capacity`, `unsupported`.
        """
        with as_service_errors():
            self._brancher.check()
        self._refuse_over(0.0)
        limit = int((self._max_mib - self.used_mib()) * MIB)
        scratch, inner = self._store.scratch(), self._store.scratch()
        try:
            await _receive(chunks, scratch, limit)
            kept = await asyncio.to_thread(_split, scratch, inner)
            with as_service_errors():
                try:
                    point = await self._brancher.import_point(inner)
                except base.PointFailed as error:
                    raise WireFormatError(str(error)) from error
                checkpoint = _Checkpoint(point, replace(kept, expires_at=None))
                self._add(checkpoint)
        except WireFormatError as error:
            raise ServiceError(
                ErrorCode.BAD_REQUEST, f"It cannot be taken in: {error}", status=422
            ) from error
        finally:
            scratch.unlink(missing_ok=True)
            inner.unlink(missing_ok=True)
        self._count("imported", "ok")
        info = describe(point, checkpoint.kept)
        self._service.events.add("checkpoint", state="imported", **_event_fields(info))
        return info


def _event_fields(info: CheckpointInfo) -> dict[str, object]:
    return {name: getattr(info, name) for name in ("checkpoint_id", "episode_id", "step", "kept")}


async def _pieces(head: bytes, path: Path) -> AsyncIterator[bytes]:
    """Yield the head and then the file, and remove the file at the end."""
    try:
        yield head
        with path.open("rb") as file:  # opening is quick, reading is done in a thread
            while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
                yield chunk
    finally:
        os.unlink(path)  # noqa: PTH108  # quick


async def _receive(chunks: AsyncIterator[bytes], path: Path, limit: int) -> None:
    """Write a stream to a file and refuse more than `limit` bytes."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb", buffering=CHUNK_BYTES) as file:
        size = 0
        async for chunk in chunks:
            size += len(chunk)
            if size > limit:
                raise ServiceError(
                    ErrorCode.BAD_REQUEST, f"The checkpoint is larger than {limit} bytes.", status=413
                )
            await asyncio.to_thread(file.write, chunk)


def _split(path: Path, inner: Path) -> CheckpointRecord:
    """Read the description and write the runtime's part to a file of its own.

    Raises:
        WireFormatError: The file is not a checkpoint.
    """
    with path.open("rb") as file:
        kept = read_head(file)
        fd = os.open(inner, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as out:
            shutil.copyfileobj(file, out, CHUNK_BYTES)
    return kept
