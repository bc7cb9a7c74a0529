"""Reach into an episode's desktop past its screen, for whoever holds its lease.

Not for setup and evaluation, which the host does itself. Each reach is an event of the trajectory; a task may
forbid some or all, and a scored episode refuses as it refuses a step. A guest that hangs or talks nonsense
loses its replica, as in a step.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from osgym_host.episodes.early_score import early_score
from osgym_host.episodes.episode import HostEpisode
from osgym_host.episodes.errors import EpisodeOver, already_scored
from osgym_host.episodes.service import EpisodeService
from osgym_host.episodes.tunnel import EpisodeTunnel
from osgym_host.errors import ServiceError
from osgym_host.guest_client import GuestClient, GuestRefused
from osgym_host.guest_client.body import Body
from osgym_protocol.codes import ErrorCode, GuestErrorCode
from osgym_protocol.host_api import EvaluationAnswer
from osgym_protocol.limits import MAX_REACH_EVENTS, MAX_REACHES_AT_ONCE, MAX_TUNNELS
from osgym_protocol.reach import (
    A11yRequest,
    CommandResult,
    ExecuteRequest,
    ReachEvent,
    ReachKind,
    ReadFileRequest,
    RecordEndRequest,
    RecordRequest,
    ScoreRequest,
    WindowsAnswer,
    shortened,
)

T = TypeVar("T")

LARGE_AT_ONCE = 8
"""Number of files and videos in this host's memory at once."""
LARGE_WAIT_S = 60.0
XML_SLACK = 4
"""Factor by which the answer of a tree may exceed the size that is asked for, before it is cut."""

_CODES: Mapping[str, ErrorCode] = {
    GuestErrorCode.NO_SUCH_FILE: ErrorCode.PATH_NOT_FOUND,
    GuestErrorCode.PATH_REFUSED: ErrorCode.PATH_REFUSED,
    GuestErrorCode.TOO_LARGE: ErrorCode.TOO_LARGE,
    GuestErrorCode.BODY_TOO_LARGE: ErrorCode.TOO_LARGE,
    GuestErrorCode.CANNOT_START: ErrorCode.COMMAND_NOT_STARTED,
    GuestErrorCode.PORT_CLOSED: ErrorCode.PORT_CLOSED,
    GuestErrorCode.BAD_REQUEST: ErrorCode.BAD_REQUEST,
    GuestErrorCode.BUSY: ErrorCode.REACH_BUSY,
    GuestErrorCode.NOT_FOUND: ErrorCode.UNSUPPORTED,
    GuestErrorCode.NOT_AVAILABLE: ErrorCode.UNSUPPORTED,
}


def refused_reach(error: GuestRefused) -> ServiceError:
    code = _CODES.get(error.code, ErrorCode.REACH_FAILED)
    message = error.message
    if error.code == GuestErrorCode.NOT_FOUND:
        message = (
            "The guest agent in this desktop is too old or not OSGym's: bake the image again with `osgym "
            "image build`."
        )
    return ServiceError(code, message, {**error.details, "guest_code": error.code})


class ReachService:
    def __init__(self, episodes: EpisodeService, offered: Callable[[], frozenset[ReachKind]]) -> None:
        self._episodes = episodes
        self._offered = offered
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)

    async def execute(self, episode_id: str, body: ExecuteRequest) -> CommandResult:
        """Run a command to its end; a repeated `request_id` runs nothing again."""
        order = {name: value for name, value in body.to_dict().items() if name != "lease"}
        said = {"command": shortened(" ".join(body.command)), "timeout_s": body.timeout_s, "cwd": body.cwd}
        return await self._call(
            ReachKind.EXECUTE,
            episode_id,
            body.lease,
            said,
            lambda guest: guest.reach.execute(order, body.timeout_s),
            body.request_id,
        )

    async def read_file(self, episode_id: str, body: ReadFileRequest) -> Body:
        said = {"path": body.path, "max_bytes": body.max_bytes}
        return await self._call(
            ReachKind.READ_FILE,
            episode_id,
            body.lease,
            said,
            lambda guest: self._one_large(guest.reach.read(body.path, body.max_bytes)),
        )

    async def write_file(self, episode_id: str, lease: str, path: str, data: bytes, mode: str | None) -> None:
        """Write a file whole."""
        said = {"path": path, "size": len(data), "mode": mode}
        await self._call(
            ReachKind.WRITE_FILE,
            episode_id,
            lease,
            said,
            lambda guest: guest.reach.write(path, data, mode),
        )

    async def a11y(self, episode_id: str, body: A11yRequest) -> tuple[bytes, bool]:
        """Return the accessibility tree as XML, and whether it was cut at `max_bytes`."""
        said = {"timeout_s": body.timeout_s, "max_bytes": body.max_bytes}
        text = await self._call(
            ReachKind.A11Y,
            episode_id,
            body.lease,
            said,
            lambda guest: guest.reach.accessibility(body.timeout_s, XML_SLACK * body.max_bytes),
        )
        xml = text.encode()
        return xml[: body.max_bytes], len(xml) > body.max_bytes

    async def windows(self, episode_id: str, lease: str) -> WindowsAnswer:
        return await self._call(ReachKind.WINDOWS, episode_id, lease, {}, lambda guest: guest.reach.windows())

    async def start_recording(self, episode_id: str, body: RecordRequest) -> None:
        order = {name: value for name, value in body.to_dict().items() if name != "lease"}
        said = {"phase": "start", "max_s": body.max_s, "frames_per_s": body.frames_per_s}
        await self._call(
            ReachKind.RECORD,
            episode_id,
            body.lease,
            said,
            lambda guest: guest.reach.start_recording(order),
        )

    async def end_recording(self, episode_id: str, body: RecordEndRequest) -> Body:
        return await self._call(
            ReachKind.RECORD,
            episode_id,
            body.lease,
            {"phase": "end"},
            lambda guest: self._one_large(guest.reach.end_recording(body.recording_id)),
        )

    async def open_tunnel(self, episode_id: str, lease: str, port: int) -> EpisodeTunnel:
        """Connect to a port of the desktop. Its event is recorded when it ends.

        Raises:
            ServiceError: `port_closed`, `reach_busy`, or as any reach.
        """
        episode = self._admitted(ReachKind.EXPOSE, episode_id, lease)
        use = episode.reach
        if use.tunnels >= MAX_TUNNELS:
            raise _busy(f"{MAX_TUNNELS} connections to ports of this desktop are already open")
        began_s, began = time.time(), time.perf_counter()
        step = episode.steps.progress.step

        def ended(outcome: str, up_bytes: int, down_bytes: int) -> None:
            use.tunnels -= 1
            said = {"port": port, "up_bytes": up_bytes, "down_bytes": down_bytes}
            ms = (time.perf_counter() - began) * 1000
            self._record(episode, ReachEvent(ReachKind.EXPOSE, step, began_s, round(ms, 3), outcome, said))

        use.tunnels += 1
        try:
            with episode.in_use():
                await episode.replica.check_alive()
                opened = await episode.replica.call(episode.replica.guest.reach.tunnel(port))
        except GuestRefused as error:
            refused = refused_reach(error)
            ended(refused.code, 0, 0)
            raise refused from error
        except BaseException:
            use.tunnels -= 1
            raise
        return EpisodeTunnel(opened, episode.replica.lost, use.ended, ended)

    async def score(self, episode_id: str, body: ScoreRequest) -> EvaluationAnswer:
        """Score the desktop as it is; the episode goes on. A repeated `request_id` gets the same answer."""
        episode = self._admitted(ReachKind.SCORE, episode_id, body.lease)
        began_s, began, step = time.time(), time.perf_counter(), episode.steps.progress.step
        outcome = "ok"
        try:
            timeout_s = self._episodes.limits.evaluate_s
            return await early_score(episode, body.request_id, prepare=body.prepare, timeout_s=timeout_s)
        except ServiceError as error:
            outcome = error.code
            raise
        finally:
            if episode.reach.first_of(body.request_id):
                ms = round((time.perf_counter() - began) * 1000, 3)
                said = {"prepare": body.prepare}
                self._record(episode, ReachEvent(ReachKind.SCORE, step, began_s, ms, outcome, said))

    # What all share --------------------------------------------------------------------------------

    def _admitted(self, kind: ReachKind, episode_id: str, lease: str) -> HostEpisode:
        episode = self._episodes.claim(episode_id, lease)
        if kind not in self._offered():
            text = f"This host's desktops do not support {kind}, since they have no OSGym guest agent inside."
            raise ServiceError(ErrorCode.UNSUPPORTED, text, {"kind": kind})
        if episode.task is not None and not episode.task.osgym.may_reach(kind):
            text = f"The task forbids its client to reach into the desktop ({kind})."
            raise ServiceError(ErrorCode.REACH_FORBIDDEN, text, {"kind": kind})
        if episode.scored:
            raise already_scored()
        return episode

    async def _call(
        self,
        kind: ReachKind,
        episode_id: str,
        lease: str,
        said: Mapping[str, Any],
        work: Callable[[GuestClient], Coroutine[Any, Any, T]],
        request_id: str | None = None,
    ) -> T:
        """Do one reach and record it.

        Raises:
            ServiceError: It is refused or failed, or the replica is lost.
        """
        episode = self._admitted(kind, episode_id, lease)
        use = episode.reach
        if len(use.calls) >= MAX_REACHES_AT_ONCE:
            raise _busy(f"{MAX_REACHES_AT_ONCE} calls that reach into this desktop are already running")
        began_s, began, step = time.time(), time.perf_counter(), episode.steps.progress.step
        outcome = "ok"
        with episode.in_use():
            await episode.replica.check_alive()
            call = asyncio.ensure_future(episode.replica.call(work(episode.replica.guest)))
            use.calls.add(call)
            try:
                return await call
            except GuestRefused as error:
                refused = refused_reach(error)
                outcome = refused.code
                raise refused from error
            except EpisodeOver as error:
                outcome = error.code
                raise
            except asyncio.CancelledError:
                if use.ended.is_set():
                    outcome = ErrorCode.EPISODE_ENDED
                    raise already_scored() from None
                outcome = ErrorCode.CANCELLED
                raise
            finally:
                use.calls.discard(call)
                # A client that left may ask again: what comes of it then is an event of its own.
                if request_id is None or outcome == ErrorCode.CANCELLED or use.first_of(request_id):
                    arguments = {name: shortened(value) for name, value in said.items() if value is not None}
                    ms = round((time.perf_counter() - began) * 1000, 3)
                    self._record(episode, ReachEvent(kind, step, began_s, ms, outcome, arguments))

    def _record(self, episode: HostEpisode, event: ReachEvent) -> None:
        """Add an event to the trajectory, unless the episode is over or has had too many."""
        episode.reach.events += 1
        if episode.over is None and episode.reach.events <= MAX_REACH_EVENTS:
            fields = event.to_dict()
            line = {**fields, "kind": "reach", "reach": fields["kind"]}
            self._episodes.recorder.add(episode.episode_id, line)

    async def _one_large(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a transfer that may need much memory once few others run."""
        try:
            async with asyncio.timeout(LARGE_WAIT_S):
                await self._large.acquire()
        except BaseException as exc:
            work.close()
            if isinstance(exc, TimeoutError):
                raise _busy("this host transfers as many files at once as it can") from exc
            raise
        try:
            return await work
        finally:
            self._large.release()


def _busy(why: str) -> ServiceError:
    return ServiceError(ErrorCode.REACH_BUSY, f"Too many calls at once: {why}. Try again later.")
