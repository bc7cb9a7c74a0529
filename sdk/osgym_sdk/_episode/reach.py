"""Calls into an episode's desktop past its screen: commands, files, its tree and windows, video, ports."""

from __future__ import annotations

import asyncio
import base64
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from osgym_protocol import limits
from osgym_protocol.a11y import A11yTree, InvalidTree, parse_tree
from osgym_protocol.codec import WireFormatError
from osgym_protocol.reach import (
    A11yAnswer,
    A11yRequest,
    CommandResult,
    ExecuteRequest,
    ReachEvent,
    ReachKind,
    ReadFileRequest,
    RecordEndRequest,
    RecordRequest,
    ScoreRequest,
    Window,
    WindowsAnswer,
    shortened,
)
from osgym_sdk._episode.info import EpisodeContext
from osgym_sdk._episode.tunnel import Exposure
from osgym_sdk._exceptions import ConfigError, EpisodeEnded, OSGymError, ProtocolError
from osgym_sdk._models.evaluation import Evaluation
from osgym_sdk._transport.calls import HostAnswer
from osgym_sdk.wire import EpisodeCall, EvaluationAnswer, Message

MAX_AT_ONCE = limits.MAX_REACHES_AT_ONCE // 2
"""Number of calls of one episode object at the same time; further ones wait. The host takes twice as many."""
SLACK_S = 30.0
"""Time that a call may take beyond the duration that it asked for."""


class Video:
    """Video of the screen; made by :meth:`AsyncEpisode.record`, complete when its block has ended."""

    _data: bytes | None = None

    @property
    def data(self) -> bytes:
        """The MP4.

        Raises:
            EpisodeEnded: the block has not ended, or the episode ended in it.
        """
        if self._data is None:
            raise EpisodeEnded("the video is available only after the block of record() has ended")
        return self._data

    def save(self, path: str | Path) -> None:
        """Write the MP4 to a file."""
        Path(path).write_bytes(self.data)


class DesktopCalls:
    """Calls of one episode that are no steps; each is an event of ``trajectory.reaches``."""

    def __init__(self, context: EpisodeContext) -> None:
        self._context = context
        self._turns = asyncio.Semaphore(MAX_AT_ONCE)
        self._exposures: list[Exposure] = []

    async def execute(
        self,
        command: str | Sequence[str],
        args: Sequence[str],
        timeout_s: float,
        cwd: str | None,
        env: Mapping[str, str] | None,
        stdin: bytes | str | None,
    ) -> CommandResult:
        """Run a command to its end."""
        shell = isinstance(command, str)
        words = (command, *args) if isinstance(command, str) else (*command, *args)
        data = stdin.encode() if isinstance(stdin, str) else stdin
        if not words or not all(isinstance(word, str) for word in words):
            raise ConfigError("a command must be a string or a sequence of strings")
        if data is not None and len(data) > limits.MAX_STDIN_BYTES:
            raise ConfigError(f"stdin must have at most {limits.MAX_STDIN_BYTES} bytes")
        request = ExecuteRequest(
            request_id=uuid.uuid4().hex,
            lease=self._context.leased().lease,
            command=words,
            shell=shell,
            timeout_s=timeout_s,
            cwd=cwd,
            env=None if env is None else dict(env),
            stdin_base64=None if data is None else base64.b64encode(data).decode(),
        )
        arguments = {"command": " ".join(words), "timeout_s": timeout_s, "cwd": cwd}
        answer = await self._call(ReachKind.EXECUTE, "/execute", request, timeout_s + SLACK_S, arguments)
        return answer.message(CommandResult)

    async def read_file(self, path: str, max_bytes: int) -> bytes:
        """Return the bytes of a file."""
        request = ReadFileRequest(self._context.leased().lease, path, max_bytes)
        arguments = {"path": path, "max_bytes": max_bytes}
        answer = await self._call(ReachKind.READ_FILE, "/file", request, 90.0, arguments, record=True)
        return answer.blob

    async def write_file(self, path: str, data: bytes | str, mode: int | None) -> None:
        """Write a file whole."""
        content = data.encode() if isinstance(data, str) else bytes(data)
        if len(content) > limits.MAX_WRITE_BYTES:
            raise ConfigError(f"a file to write must have at most {limits.MAX_WRITE_BYTES} bytes")
        if mode is not None and not 0 <= mode <= 0o7777:
            raise ConfigError("mode must be from 0 to 0o7777")
        query = {"path": path} if mode is None else {"path": path, "mode": f"{mode:o}"}
        arguments = {"path": path, "size": len(content), "mode": None if mode is None else f"{mode:o}"}
        suffix = f"/file?{urlencode(query)}"
        await self._call(ReachKind.WRITE_FILE, suffix, None, 90.0, arguments, method="PUT", content=content)

    async def a11y(self, max_nodes: int, max_bytes: int, timeout_s: float) -> A11yTree:
        """Return the accessibility tree."""
        session = self._context.leased()
        request = A11yRequest(session.lease, timeout_s, max_bytes)
        arguments = {"timeout_s": timeout_s, "max_bytes": max_bytes}
        answer = await self._call(
            ReachKind.A11Y, "/a11y", request, timeout_s + SLACK_S, arguments, record=True
        )
        cut = answer.message(A11yAnswer).truncated
        try:
            return await asyncio.to_thread(parse_tree, answer.blob, max_nodes=max_nodes, truncated=cut)
        except InvalidTree as exc:
            raise ProtocolError(str(exc), host=session.host, episode_id=session.episode_id) from exc

    async def score(self, prepare: bool, timeout_s: float) -> Evaluation:
        """Score the desktop as it is."""
        request = ScoreRequest(uuid.uuid4().hex, self._context.leased().lease, prepare)
        answer = await self._call(ReachKind.SCORE, "/score", request, timeout_s, {"prepare": prepare})
        return Evaluation.from_wire(answer.message(EvaluationAnswer))

    async def windows(self) -> list[Window]:
        """Return the windows of the desktop."""
        call = EpisodeCall(self._context.leased().lease)
        answer = await self._call(ReachKind.WINDOWS, "/windows", call, 45.0, {})
        return list(answer.message(WindowsAnswer).windows)

    @asynccontextmanager
    async def record(self, max_s: float, max_bytes: int, frames_per_s: int) -> AsyncIterator[Video]:
        """Record the screen while the block runs."""
        video, context = Video(), self._context
        lease = context.leased().lease
        begun = RecordRequest(lease, uuid.uuid4().hex, max_s, max_bytes, frames_per_s)
        arguments: dict[str, Any] = {"phase": "start", "max_s": max_s, "frames_per_s": frames_per_s}
        await self._call(ReachKind.RECORD, "/record/start", begun, 45.0, arguments)
        try:
            yield video
        finally:
            if context.leased().lost is None and not context.closed:
                end = RecordEndRequest(lease, begun.recording_id)
                arguments = {"phase": "end"}
                answer = await self._call(ReachKind.RECORD, "/record/end", end, 120.0, arguments, record=True)
                video._data = answer.blob

    async def expose(self, port: int, local_port: int) -> Exposure:
        """Listen at a port of this machine for one of the desktop."""
        if not 1 <= port <= 65535:
            raise ConfigError("port must be from 1 to 65535")
        session = self._context.running()
        path = f"/v1/episodes/{session.episode_id}/tunnel?port={port}"
        began_s, began = time.time(), time.perf_counter()
        exposure = await Exposure.begin(session, path, local_port)
        self._exposures.append(exposure)
        self._add_event(ReachKind.EXPOSE, began_s, began, "ok", {"port": port})
        return exposure

    async def aclose(self) -> None:
        """Close the exposed ports. Idempotent."""
        exposures, self._exposures = self._exposures, []
        for exposure in exposures:
            await exposure.aclose()

    async def _call(
        self,
        kind: ReachKind,
        suffix: str,
        body: Message | None,
        timeout_s: float,
        arguments: Mapping[str, Any],
        *,
        record: bool = False,
        method: str = "POST",
        content: bytes | None = None,
    ) -> HostAnswer:
        session = self._context.running()
        outcome = "ok"
        async with self._turns:
            began_s, began = time.time(), time.perf_counter()
            try:
                return await session.call(method, suffix, body, timeout_s, record=record, content=content)
            except OSGymError as exc:
                outcome = exc.code
                raise
            except WireFormatError as exc:  # an argument that cannot be sent
                raise ConfigError(str(exc)) from exc
            except asyncio.CancelledError:
                outcome = "cancelled"
                raise
            finally:
                self._add_event(kind, began_s, began, outcome, arguments)

    def _add_event(
        self, kind: ReachKind, began_s: float, began: float, outcome: str, arguments: Mapping[str, Any]
    ) -> None:
        given = {name: shortened(value) for name, value in arguments.items() if value is not None}
        ms = round((time.perf_counter() - began) * 1000, 3)
        trajectory = self._context.trajectory
        step = self._context.base_step + len(trajectory.steps)
        trajectory.reaches.append(ReachEvent(kind.value, step, began_s, ms, str(outcome), given))
