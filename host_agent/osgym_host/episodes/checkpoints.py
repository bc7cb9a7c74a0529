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
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from osgym_host import log_subject
from osgym_host.core.desktop_budget import OverBudget
from osgym_host.core.fair_queue import UNNAMED, ClientKey
from osgym_host.core.reasons import Reason
from osgym_host.episodes.checkpoint_store import (
    Checkpoint,
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
from osgym_host.replicas.saved_desktops import deadline
from osgym_host.runtimes import base
from osgym_protocol.codec import WireFormatError
from osgym_protocol.codes import ErrorCode
from osgym_protocol.episode_options import EpisodeOptions
from osgym_protocol.host_api import CheckpointInfo, CheckpointList, CheckpointRequest, ParentInfo

log = logging.getLogger(__name__)

MIB = 1024 * 1024
CHUNK_BYTES = 1024 * 1024
FIND_S = 20.0
COPY_S = 600.0
"""Deadline of writing or reading a point as one file."""


class Checkpoints:
    """Checkpoints of this host. For one event loop."""

    def __init__(self, creator: EpisodeCreator, brancher: ReplicaBrancher, store: CheckpointStore) -> None:
        self._creator = creator
        self._service = creator.service
        self._brancher = brancher
        self._saved = brancher.saved
        self._held = brancher.saved.of(Checkpoint)
        self._store = store
        self._service.metrics.checkpoints_mib.set_function(self._held.used_mib)

    # Life --------------------------------------------------------------------------------------

    def start(self, points: Sequence[base.BranchPoint]) -> None:
        """Adopt the kept checkpoints that the runtime found.

        Raises:
            OSError: The folder cannot be used.
        """
        described = self._store.open()
        for point in points:
            record = described.pop(point.point_id, None) or CheckpointRecord("", None, None)
            self._saved.hold(Checkpoint(point, record))
        for checkpoint_id in described if not self._store.shared else ():
            log.warning("checkpoint %s: its desktop is gone", checkpoint_id)
            self._store.remove(checkpoint_id)
        self._saved.on_release[Checkpoint] = self._released
        self._service.on_end.append(self._episode_ended)

    async def refresh(self) -> None:
        """Look for kept checkpoints that other host agents have added or deleted since.

        Raises:
            ServiceError: `branch_failed`: the folder cannot be read.
        """
        if not self._store.shared:
            return
        known = [checkpoint for checkpoint in self._held.values() if checkpoint.point.kept]
        with as_service_errors():
            async with deadline(FIND_S, "found"):
                points = {point.point_id: point for point in await self._saved.runtime.find_points()}
                described = await asyncio.to_thread(self._store.read)
        for checkpoint in known:
            if checkpoint.name not in points:
                self._saved.release(checkpoint)
        for point_id in points.keys() & described.keys():
            if point_id not in self._held:
                self._saved.hold(Checkpoint(points[point_id], described[point_id]))

    def _released(self, checkpoint: Checkpoint, cause: str) -> None:
        self._store.remove(checkpoint.name)
        self._service.events.add("checkpoint", state=cause, checkpoint_id=checkpoint.name)

    def _episode_ended(self, episode: HostEpisode) -> None:
        for checkpoint in list(self._held.values()):
            if not checkpoint.point.kept and checkpoint.record.episode_id == episode.episode_id:
                self._saved.release(checkpoint, "episode_ended")

    # Taking and deleting -----------------------------------------------------------------------

    async def take(self, episode_id: str, asked: CheckpointRequest) -> CheckpointInfo:
        """Take a checkpoint between two steps; the episode goes on after a pause, or ends if it is suspended.

        Raises:
            ServiceError: `unsupported`, `branch_failed`; `no_capacity` when the checkpoints of this host
                would be larger than the settings allow; `episode_ended` when the episode is done or
                scored; as any call on the episode.
        """
        episode = self._service.claim(episode_id, asked.lease)
        keep = asked.keep or asked.suspend
        with episode.in_use(), as_service_errors(), self._within_budget():
            self._brancher.check()
            refuse_ended(episode)
            self._held.check()
            saved, point = await take_point(episode, self._brancher, keep=keep)
            # From here to the end of a suspended episode nothing is awaited, so that no step comes between.
            expires_at = None if asked.ttl_s is None else round(time.time() + asked.ttl_s, 3)
            record = CheckpointRecord(episode_id, expires_at, saved, suspended=asked.suspend)
            checkpoint = self._add(Checkpoint(point, record))
        if asked.suspend:
            self._service.end(episode, Reason.SUSPENDED)
        elif episode.over is not None and not keep:  # it ended while the point was taken
            self._episode_ended(episode)
            raise episode.over.copy()
        self._service.metrics.paused(checkpoint.point.pause_ms)
        return self._made(checkpoint, "taken")

    def _made(self, checkpoint: Checkpoint, how: str) -> CheckpointInfo:
        self._count(how, "ok")
        info = describe(checkpoint)
        fields = {name: getattr(info, name) for name in ("checkpoint_id", "episode_id", "step", "kept")}
        self._service.events.add("checkpoint", state=how, **fields)
        return info

    def _add(self, checkpoint: Checkpoint) -> Checkpoint:
        """Register a new checkpoint, or release it if it does not fit or cannot be written."""
        self._saved.add(checkpoint)
        try:
            if checkpoint.point.kept:
                self._store.put(checkpoint.name, checkpoint.record)
        except BaseException:
            self._saved.release(checkpoint)
            raise
        return checkpoint

    @contextmanager
    def _within_budget(self) -> Iterator[None]:
        """Turn the error of the budget into one for clients."""
        try:
            yield
        except OverBudget as error:
            self._count("taken", "no_capacity")
            text = (
                f"The checkpoints of this host use {error.used_mib:.0f} MiB of {error.max_mib} MiB "
                "(setting checkpoints_max_mib); delete some checkpoints."
            )
            details = {
                "used_mib": round(error.used_mib, 1),
                "max_mib": error.max_mib,
                "blocked": "checkpoints",
            }
            raise ServiceError(ErrorCode.NO_CAPACITY, text, details) from error

    def listing(self) -> CheckpointList:
        """Return all checkpoints, the oldest first."""
        found = sorted(self._held.values(), key=lambda c: c.point.created_at)
        infos = tuple(describe(checkpoint) for checkpoint in found)
        return CheckpointList(infos, round(self._held.used_mib(), 3), int(self._held.budget.max_mib))

    def delete(self, checkpoint_id: str) -> None:
        """Delete a checkpoint; episodes that were made from it are not affected.

        Raises:
            ServiceError: `unknown_checkpoint`.
        """
        self._saved.release(self._find(checkpoint_id), "deleted")

    def _find(self, checkpoint_id: str) -> Checkpoint:
        checkpoint = self._held.get(checkpoint_id)
        if checkpoint is None:
            details = {"checkpoint_id": checkpoint_id[:100]}
            raise ServiceError(
                ErrorCode.UNKNOWN_CHECKPOINT, "This host does not have the checkpoint.", details
            )
        return checkpoint

    def _count(self, what: str, outcome: str) -> None:
        self._service.metrics.checkpoints.labels(what, outcome).inc()

    # Restoring ---------------------------------------------------------------------------------

    async def restore(
        self, asked: EpisodeOptions, client: ClientKey = UNNAMED, mark: RequestMark | None = None
    ) -> CreatedEpisode:
        """Make an episode that goes on from a checkpoint, and take its first frame.

        The arguments are those of `EpisodeCreator.create`.

        Raises:
            ServiceError: `unknown_checkpoint`, `unknown_image`, `no_capacity`, `branch_failed`,
                `unsupported`; `bad_request` when a task or another image is given too; `episode_lost`
                when its replica died at once.
        """
        began = time.perf_counter()
        if asked.checkpoint not in self._held:
            await self.refresh()
        checkpoint = self._find(asked.checkpoint or "")
        if asked.task is not None:
            raise ServiceError(
                ErrorCode.BAD_REQUEST, "A checkpoint includes its task; leave `task` out.", status=422
            )
        images = self._creator.images
        asked_image = None if asked.image is None else images.of_episode(asked.image, None).digest
        if asked_image not in (None, checkpoint.point.image_digest):
            text = "image: the checkpoint was made from another image; leave `image` out."
            raise ServiceError(ErrorCode.BAD_REQUEST, text, status=422)
        if checkpoint.point.image_digest not in images:
            text = "The checkpoint was made from another golden snapshot than this host runs now."
            raise ServiceError(
                ErrorCode.UNSUPPORTED, text, {"image_digest": checkpoint.point.image_digest[:100]}
            )
        saved = self._terms(checkpoint, asked)
        episode = self._creator.draft(saved, read_task(saved.task))
        try:
            with log_subject.about(episode), as_service_errors():
                self._brancher.check()
                wait_s = min(asked.wait_s, self._creator.limits.max_wait_s)
                holder = LeaseHolder(episode.episode_id, episode.replica.on_revoked)
                episode.attach(await self._brancher.clone(checkpoint.point, holder, wait_s, client))
            got = time.perf_counter()
            await episode.check_think()
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
            checkpoint_id=checkpoint.name,
            episode_id=episode.episode_id,
        )
        return opened

    def _terms(self, checkpoint: Checkpoint, asked: EpisodeOptions) -> SavedEpisode:
        ttl_s = self._creator.ttl_s(asked.lease_ttl_s)
        saved = checkpoint.record.saved
        if saved is None:
            return SavedEpisode(
                None,
                (1, 1),
                ttl_s,
                asked.max_steps,
                asked.settle,
                asked.observe,
                run=asked.run,
                think=asked.think,
                think_charge=asked.think_charge,
            )
        if asked.max_steps is not None and asked.max_steps <= saved.progress.step:
            text = (
                f"max_steps is {asked.max_steps}, but the checkpoint was made after step "
                f"{saved.progress.step}."
            )
            raise ServiceError(ErrorCode.BAD_REQUEST, text, {"step": saved.progress.step}, status=422)
        return replace(
            saved,
            lease_ttl_s=ttl_s,
            max_steps=saved.max_steps if asked.max_steps is None else asked.max_steps,
            settle=saved.settle if asked.settle is None else asked.settle,
            observe=saved.observe if asked.observe is None else asked.observe,
            run=saved.run if asked.run is None else asked.run,
            think=saved.think if asked.think is None else asked.think,
            think_charge=saved.think_charge if asked.think is None else asked.think_charge,
        )

    @staticmethod
    async def _restore_progress(
        episode: HostEpisode, checkpoint: Checkpoint, progress: EpisodeProgress
    ) -> None:
        if checkpoint.record.saved is None:  # only the guest knows how far it was
            health = await episode.replica.call(episode.replica.guest.health())
            progress = EpisodeProgress(health.last_seq, health.last_seq)
        episode.steps.progress = progress
        episode.parent = ParentInfo(checkpoint.record.episode_id, progress.step, checkpoint.name)

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
                ErrorCode.BAD_REQUEST,
                "Only a kept checkpoint can be exported; take it with keep=true.",
                status=409,
            )
        scratch = self._store.scratch()
        try:
            with as_service_errors():
                async with deadline(COPY_S, "written"):
                    await self._saved.runtime.export_point(checkpoint.point, scratch)
                head = head_of(checkpoint.record)
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
        with as_service_errors(), self._within_budget():
            self._brancher.check()
            self._held.check()
        limit = int((self._held.budget.max_mib - self._held.used_mib()) * MIB)
        scratch, inner = self._store.scratch(), self._store.scratch()
        try:
            await _receive(chunks, scratch, limit)
            record = replace(await asyncio.to_thread(_split, scratch, inner), expires_at=None)
            with as_service_errors(), self._within_budget():
                try:
                    async with deadline(COPY_S, "read"):
                        point = await self._saved.runtime.import_point(inner)
                except base.PointFailed as error:
                    raise WireFormatError(str(error)) from error
                checkpoint = self._add(Checkpoint(point, record))
        except WireFormatError as error:
            raise ServiceError(
                ErrorCode.BAD_REQUEST, f"The checkpoint cannot be imported: {error}", status=422
            ) from error
        finally:
            scratch.unlink(missing_ok=True)
            inner.unlink(missing_ok=True)
        return self._made(checkpoint, "imported")


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
    with path.open("xb", buffering=CHUNK_BYTES) as file:  # its folder is closed to others
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
    with path.open("rb") as file, inner.open("xb") as out:
        kept = read_head(file)
        shutil.copyfileobj(file, out, CHUNK_BYTES)
    return kept
