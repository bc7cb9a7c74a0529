"""Checkpoints: moments of episodes, with their desktops, to begin other episodes from.

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

from osgym_host.core.reasons import Reason
from osgym_host.episodes.branching import refuse_ended, take_point, told_plainly
from osgym_host.episodes.creating import Creator, first_look
from osgym_host.episodes.episode import Episode
from osgym_host.episodes.errors import EpisodeError, EpisodeOver
from osgym_host.episodes.metrics import EpisodeMetrics
from osgym_host.episodes.moment import BadMoment, Moment, Progress
from osgym_host.episodes.opening import Opened, Wish, read_task
from osgym_host.episodes.service import EpisodeService
from osgym_host.episodes.shelf import Kept, Shelf, describe, head_of, read_head
from osgym_host.replicas.branches import Branches, Heir
from osgym_host.replicas.events import EventLog
from osgym_host.runtimes import base
from osgym_sdk.wire import CheckpointInfo, CheckpointList, ParentInfo

log = logging.getLogger(__name__)

MIB = 1024 * 1024
CHUNK_BYTES = 1024 * 1024
EXPIRY_S = 2.0
"""How often the times to live are looked at."""


@dataclass(frozen=True, slots=True)
class CheckpointWish:
    """What a client asks for. `ttl_s` None: until it is deleted, or with the lease."""

    keep: bool = False
    ttl_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    point: base.BranchPoint
    kept: Kept

    @property
    def mib(self) -> float:
        return self.point.ram_mib + self.point.disk_mib


class Checkpoints:
    """The checkpoints of this host. For one event loop."""

    def __init__(
        self,
        *,
        service: EpisodeService,
        creator: Creator,
        branches: Branches,
        shelf: Shelf,
        metrics: EpisodeMetrics,
        events: EventLog,
        image_digest: str,
        max_mib: int,
    ) -> None:
        """Nothing happens before `start`."""
        self._service = service
        self._creator = creator
        self._branches = branches
        self._shelf = shelf
        self._metrics = metrics
        self._events = events
        self._image_digest = image_digest
        self._max_mib = max_mib
        self._known: dict[str, _Checkpoint] = {}
        self._expiry: asyncio.Task[None] | None = None
        metrics.checkpoints_mib.set_function(self.used_mib)

    # Life --------------------------------------------------------------------------------------

    def start(self, points: Sequence[base.BranchPoint]) -> None:
        """Takes over the kept checkpoints that the runtime found.

        Raises:
            OSError: The folder cannot be used.
        """
        described = self._shelf.open()
        for point in points:
            kept = described.pop(point.point_id, None) or Kept("", None, None)
            self._known[point.point_id] = _Checkpoint(point, kept)
        for checkpoint_id in described:
            log.warning("checkpoint %s: its desktop is gone", checkpoint_id)
            self._shelf.remove(checkpoint_id)
        self._service.on_end.append(self._episode_ended)
        self._expiry = asyncio.create_task(self._expire(), name="checkpoints:expiry")

    async def close(self) -> None:
        """Lets go of those that are not kept. Idempotent."""
        if self._expiry is not None:
            self._expiry.cancel()
            await asyncio.gather(self._expiry, return_exceptions=True)
        for checkpoint in list(self._known.values()):
            if not checkpoint.point.kept:
                self._drop(checkpoint, "stopped")
        await self._branches.settle()

    async def _expire(self) -> None:
        while True:
            now = time.time()
            for checkpoint in list(self._known.values()):
                if checkpoint.kept.expires_at is not None and checkpoint.kept.expires_at <= now:
                    self._drop(checkpoint, "expired")
            due = [c.kept.expires_at for c in self._known.values() if c.kept.expires_at is not None]
            await asyncio.sleep(max(0.01, min([EXPIRY_S, *(at - now for at in due)])))

    def _episode_ended(self, episode: Episode) -> None:
        for checkpoint in list(self._known.values()):
            if not checkpoint.point.kept and checkpoint.kept.episode_id == episode.episode_id:
                self._drop(checkpoint, "episode_ended")

    # Taking and deleting -----------------------------------------------------------------------

    async def take(self, episode_id: str, lease: str, wish: CheckpointWish) -> CheckpointInfo:
        """Takes a checkpoint between two steps; the episode goes on after a pause.

        Raises:
            EpisodeError: `unsupported`, `branch_failed`; `no_capacity` when the checkpoints of this host
                would be larger than the settings allow; `episode_ended` when the episode is done or
                scored; as any call on the episode.
        """
        with self._service.using(episode_id, lease) as episode, told_plainly():
            self._branches.check()
            refuse_ended(episode)
            self._refuse_over(0.0)
            moment, point = await take_point(episode, self._branches, keep=wish.keep)
            expires_at = None if wish.ttl_s is None else round(time.time() + wish.ttl_s, 3)
            checkpoint = _Checkpoint(point, Kept(episode_id, expires_at, moment))
            self._add(checkpoint)
        if episode.over is not None and not wish.keep:  # it ended while the point was taken
            self._episode_ended(episode)
            raise episode.over.again()
        self._metrics.paused(point.pause_ms)
        self._count("taken", "ok")
        info = describe(point, checkpoint.kept)
        self._events.add("checkpoint", state="taken", **_told(info))
        return info

    def _add(self, checkpoint: _Checkpoint) -> None:
        """Takes a new one in, or lets go of it again."""
        point = checkpoint.point
        try:
            self._refuse_over(checkpoint.mib)
            if point.kept:
                self._shelf.put(point.point_id, checkpoint.kept)
        except BaseException:
            self._branches.let_go(point)
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
            raise EpisodeError("no_capacity", 503, text, details)

    def used_mib(self) -> float:
        """How much all checkpoints use together."""
        return sum(checkpoint.mib for checkpoint in self._known.values())

    def listing(self) -> CheckpointList:
        """Returns all checkpoints, the oldest first."""
        found = sorted(self._known.values(), key=lambda c: c.point.created_at)
        infos = tuple(describe(c.point, c.kept) for c in found)
        return CheckpointList(infos, round(self.used_mib(), 3), self._max_mib)

    def delete(self, checkpoint_id: str) -> None:
        """Deletes one; episodes that were made from it live on.

        Raises:
            EpisodeError: `unknown_checkpoint`.
        """
        self._drop(self._find(checkpoint_id), "deleted")

    def discard(self, checkpoint_id: str) -> None:
        """Deletes one that nobody heard of. Idempotent."""
        checkpoint = self._known.get(checkpoint_id)
        if checkpoint is not None:
            self._drop(checkpoint, "deleted")

    def _find(self, checkpoint_id: str) -> _Checkpoint:
        checkpoint = self._known.get(checkpoint_id)
        if checkpoint is None:
            details = {"checkpoint_id": checkpoint_id[:100]}
            raise EpisodeError(
                "unknown_checkpoint", 404, "There is no such checkpoint on this host.", details
            )
        return checkpoint

    def _drop(self, checkpoint: _Checkpoint, state: str) -> None:
        self._known.pop(checkpoint.point.point_id, None)
        self._shelf.remove(checkpoint.point.point_id)
        self._branches.let_go(checkpoint.point)
        self._events.add("checkpoint", state=state, checkpoint_id=checkpoint.point.point_id)

    def _count(self, what: str, outcome: str) -> None:
        self._metrics.checkpoints.labels(what, outcome).inc()

    # Restoring ---------------------------------------------------------------------------------

    async def restore(self, wish: Wish) -> Opened:
        """Makes an episode that goes on from a checkpoint, and takes its first frame.

        Raises:
            EpisodeError: `unknown_checkpoint`, `no_capacity`, `branch_failed`, `unsupported`;
                `bad_request` when a task is given too; `episode_lost` when its replica died at once.
        """
        began = time.perf_counter()
        checkpoint = self._find(wish.checkpoint or "")
        if wish.task is not None:
            raise EpisodeError("bad_request", 422, "A checkpoint has its task; give none with it.")
        if checkpoint.point.image_digest != self._image_digest:
            text = "The checkpoint is of another golden snapshot than this host runs now."
            raise EpisodeError(
                "unsupported", 501, text, {"image_digest": checkpoint.point.image_digest[:100]}
            )
        moment = self._moment(checkpoint, wish)
        episode = self._creator.draft(moment, read_task(moment.task))
        try:
            with told_plainly():
                self._branches.check()
                wait_s = min(wish.wait_s, self._creator.limits.max_wait_s)
                async with self._branches.room(1, wait_s) as room:
                    heirs = [Heir(episode.episode_id, episode.hold.revoked)]
                    (manager,) = await self._branches.make(room, checkpoint.point, heirs)
                    episode.take(manager)
            got = time.perf_counter()
            await self._go_on(episode, checkpoint, moment.progress)
            opened = await first_look(episode, began, got)
        except BaseException as error:
            reason = error.reason if isinstance(error, EpisodeOver) else Reason.CLIENT_GONE
            self._creator.discard(episode, reason)
            self._count("restored", error.code if isinstance(error, EpisodeError) else "cancelled")
            raise
        self._service.register(episode, wish.mark, opened.frame, timing_ms=opened.timing_ms)
        self._count("restored", "ok")
        self._events.add(
            "checkpoint",
            state="restored",
            checkpoint_id=checkpoint.point.point_id,
            episode_id=episode.episode_id,
        )
        return opened

    def _moment(self, checkpoint: _Checkpoint, wish: Wish) -> Moment:
        ttl_s = self._creator.ttl_s(wish.lease_ttl_s)
        moment = checkpoint.kept.moment
        if moment is None:
            return Moment(None, (1, 1), ttl_s, wish.max_steps, wish.settle, wish.observe)
        if wish.max_steps is not None and wish.max_steps <= moment.progress.step:
            text = f"max_steps is {wish.max_steps}; the checkpoint is after step {moment.progress.step}."
            raise EpisodeError("bad_request", 422, text, {"step": moment.progress.step})
        return replace(
            moment,
            lease_ttl_s=ttl_s,
            max_steps=moment.max_steps if wish.max_steps is None else wish.max_steps,
            settle=moment.settle if wish.settle is None else wish.settle,
            observe=moment.observe if wish.observe is None else wish.observe,
        )

    @staticmethod
    async def _go_on(episode: Episode, checkpoint: _Checkpoint, progress: Progress) -> None:
        if checkpoint.kept.moment is None:  # only the guest knows how far it was
            health = await episode.hold.call(episode.hold.guest.health())
            progress = Progress(health.last_seq, health.last_seq)
        episode.resume(progress, certain=True)
        episode.parent = ParentInfo(checkpoint.kept.episode_id, progress.step, checkpoint.point.point_id)

    # Travelling --------------------------------------------------------------------------------

    async def export(self, checkpoint_id: str) -> tuple[int, AsyncIterator[bytes]]:
        """Writes a kept checkpoint as one stream.

        Returns:
            Its length in bytes and its pieces; the pieces must be taken, or the iterator closed.

        Raises:
            EpisodeError: `unknown_checkpoint`, `branch_failed`; `bad_request` when it is not a kept one.
        """
        checkpoint = self._find(checkpoint_id)
        if not checkpoint.point.kept:
            raise EpisodeError("bad_request", 409, "Only a checkpoint that is kept can be exported.")
        scratch = self._shelf.scratch()
        try:
            with told_plainly():
                await self._branches.export(checkpoint.point, scratch)
                head = head_of(checkpoint.kept)
                length = len(head) + (await asyncio.to_thread(scratch.stat)).st_size
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise
        self._count("exported", "ok")
        return length, _pieces(head, scratch)

    async def take_in(self, chunks: AsyncIterator[bytes]) -> CheckpointInfo:
        """Takes in what `export` of another host gave; it is hostile input. It is kept.

        Raises:
            EpisodeError: `bad_request`: it is broken, too large, or of another golden snapshot;
                `no_capacity`, `unsupported`.
        """
        with told_plainly():
            self._branches.check()
        self._refuse_over(0.0)
        limit = int((self._max_mib - self.used_mib()) * MIB)
        scratch, inner = self._shelf.scratch(), self._shelf.scratch()
        try:
            await _receive(chunks, scratch, limit)
            kept = await asyncio.to_thread(_split, scratch, inner)
            with told_plainly():
                try:
                    point = await self._branches.take_in(inner)
                except base.PointFailed as error:
                    raise BadMoment(str(error)) from error
                checkpoint = _Checkpoint(point, replace(kept, expires_at=None))
                self._add(checkpoint)
        except BadMoment as error:
            raise EpisodeError("bad_request", 422, f"It cannot be taken in: {error}") from error
        finally:
            scratch.unlink(missing_ok=True)
            inner.unlink(missing_ok=True)
        self._count("imported", "ok")
        info = describe(point, checkpoint.kept)
        self._events.add("checkpoint", state="imported", **_told(info))
        return info


def _told(info: CheckpointInfo) -> dict[str, object]:
    return {name: getattr(info, name) for name in ("checkpoint_id", "episode_id", "step", "kept")}


async def _pieces(head: bytes, path: Path) -> AsyncIterator[bytes]:
    """Gives the head and then the file, which is removed in the end."""
    try:
        yield head
        with path.open("rb") as file:  # opening is quick, reading is done in a thread
            while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
                yield chunk
    finally:
        os.unlink(path)  # noqa: PTH108  # quick


async def _receive(chunks: AsyncIterator[bytes], path: Path, limit: int) -> None:
    """Writes a stream to a file, in pieces, refusing what is longer than `limit` bytes."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb", buffering=CHUNK_BYTES) as file:
        size = 0
        async for chunk in chunks:
            size += len(chunk)
            if size > limit:
                raise EpisodeError("bad_request", 413, f"The checkpoint is larger than {limit} bytes.")
            await asyncio.to_thread(file.write, chunk)


def _split(path: Path, inner: Path) -> Kept:
    """Reads the description and leaves the runtime's part as a file of its own.

    Raises:
        BadMoment: It is no checkpoint.
    """
    with path.open("rb") as file:
        kept = read_head(file)
        fd = os.open(inner, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as out:
            shutil.copyfileobj(file, out, CHUNK_BYTES)
    return kept
