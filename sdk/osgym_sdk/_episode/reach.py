"""Reach into an episode's desktop past its screen: commands, files, its tree and windows, video, ports."""

from __future__ import annotations

import asyncio
import base64
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
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
    Window,
    WindowsAnswer,
    shortened,
)
from osgym_sdk._episode.info import EpisodeInfo
from osgym_sdk._episode.tunnel import Exposure
from osgym_sdk._episode.video import Video
from osgym_sdk._exceptions import ConfigError, OSGymError, ProtocolError
from osgym_sdk._fleet.session import EpisodeSession
from osgym_sdk._transport.calls import HostAnswer
from osgym_sdk.wire import EpisodeCall, Message

AT_ONCE = limits.MAX_REACHES_AT_ONCE // 2
"""Calls of one episode object at a time; further ones wait their turn. The host takes twice as many."""
SLACK_S = 30.0
"""How much longer than what was asked for a call may take."""


class AsyncReach(EpisodeInfo):
    """What :class:`AsyncEpisode` can do in its desktop besides steps.

    None of these acts by mouse or keyboard, takes a frame or counts as a step; they may run beside steps.
    Each is in ``trajectory.reaches``. Each raises, besides what it names: ReachForbidden (the task forbids
    it), Unsupported (this desktop has no agent of ours inside), ReachBusy, ReachFailed, EpisodeEnded (also
    after the episode was scored), EpisodeLost, Timeout, BadRequest.
    """

    _base = 0
    _reach_turns: asyncio.Semaphore | None = None
    _exposures: tuple[Exposure, ...] = ()

    async def execute(
        self,
        command: str | Sequence[str],
        *args: str,
        timeout_s: float = limits.DEFAULT_COMMAND_S,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
    ) -> CommandResult:
        """Run a command to its end, as the desktop's user. Any exit status is a result, not an error.

        What it leaves in the background goes on. A lost answer runs nothing a second time. When this is
        cancelled, the command is killed some seconds later.

        Args:
            command: the program and its arguments; or one text, which ``/bin/sh -c`` runs.
            args: what a script gets as ``$0``, ``$1``, ….
            timeout_s: up to 600; then it is killed with its session, and ``timed_out`` is set.
            cwd: where it runs; the user's home by default.
            env: laid over the desktop's own environment.
            stdin: up to 4 MiB.

        Raises:
            CommandNotStarted: there is no such program, or it cannot be run.
            PathNotFound: there is no folder ``cwd``.
        """
        shell = isinstance(command, str)
        words = (command, *args) if isinstance(command, str) else (*command, *args)
        data = stdin.encode() if isinstance(stdin, str) else stdin
        if not words or not all(isinstance(word, str) for word in words):
            raise ConfigError("a command is a text, or a sequence of texts")
        if data is not None and len(data) > limits.MAX_STDIN_BYTES:
            raise ConfigError(f"stdin has at most {limits.MAX_STDIN_BYTES} bytes")
        request = ExecuteRequest(
            request_id=uuid.uuid4().hex,
            lease=self.lease,
            command=words,
            shell=shell,
            timeout_s=timeout_s,
            cwd=cwd,
            env=None if env is None else dict(env),
            stdin_base64=None if data is None else base64.b64encode(data).decode(),
        )
        said = {"command": " ".join(words), "timeout_s": timeout_s, "cwd": cwd}
        answer = await self._reach(ReachKind.EXECUTE, "/execute", request, timeout_s + SLACK_S, said)
        return answer.message(CommandResult)

    async def read_file(self, path: str, *, max_bytes: int = limits.DEFAULT_READ_BYTES) -> bytes:
        """Return the bytes of a file.

        Args:
            path: taken as it is; ``~/`` and what is relative lie below the user's home.
            max_bytes: up to 64 MiB.

        Raises:
            PathNotFound: it is not there.
            PathRefused: it is a folder or a device, the user may not read it, or it changed meanwhile.
            TooLarge: it has more than ``max_bytes``; ``details["size"]`` says how many.
        """
        request = ReadFileRequest(self.lease, path, max_bytes)
        said = {"path": path, "max_bytes": max_bytes}
        answer = await self._reach(ReachKind.READ_FILE, "/file", request, 90.0, said, record=True)
        return answer.blob

    async def write_file(self, path: str, data: bytes | str, mode: int | None = None) -> None:
        """Write a file whole, up to 16 MiB; folders above it are made.

        Args:
            path: as in :meth:`read_file`.
            data: text is written as UTF-8.
            mode: its permissions, such as ``0o755``; what it has, or what new files get, by default.

        Raises:
            PathRefused: it is a folder or a device, the user may not write there, or there is no room.
            ConfigError: it is too large, or ``mode`` makes no sense.
        """
        content = data.encode() if isinstance(data, str) else bytes(data)
        if len(content) > limits.MAX_WRITE_BYTES:
            raise ConfigError(f"a file that is written has at most {limits.MAX_WRITE_BYTES} bytes")
        if mode is not None and not 0 <= mode <= 0o7777:
            raise ConfigError("mode is from 0 to 0o7777")
        query = {"path": path} if mode is None else {"path": path, "mode": f"{mode:o}"}
        said = {"path": path, "size": len(content), "mode": None if mode is None else f"{mode:o}"}
        suffix = f"/file?{urlencode(query)}"
        await self._reach(ReachKind.WRITE_FILE, suffix, None, 90.0, said, method="PUT", content=content)

    async def a11y(
        self,
        *,
        max_nodes: int = limits.DEFAULT_A11Y_NODES,
        max_bytes: int = limits.DEFAULT_A11Y_BYTES,
        timeout_s: float = limits.DEFAULT_A11Y_S,
    ) -> A11yTree:
        """Return the accessibility tree of what shows; ``.to_text()`` gives it as lines for a model.

        Args:
            max_nodes: elements beyond are left out (``truncated``).
            max_bytes: of its XML, likewise; up to 16 MiB.
            timeout_s: for each application, up to 40; one that takes longer is ``partial``.

        Raises:
            ProtocolError: what the desktop gave is no tree.
        """
        request = A11yRequest(self.lease, timeout_s, max_bytes)
        said = {"timeout_s": timeout_s, "max_bytes": max_bytes}
        answer = await self._reach(ReachKind.A11Y, "/a11y", request, timeout_s + SLACK_S, said, record=True)
        cut = answer.message(A11yAnswer).truncated
        try:
            return await asyncio.to_thread(parse_tree, answer.blob, max_nodes=max_nodes, truncated=cut)
        except InvalidTree as exc:
            raise ProtocolError(str(exc), host=self.host, episode_id=self.episode_id) from exc

    async def windows(self) -> list[Window]:
        """Return the windows of the desktop, oldest first, at most 64."""
        answer = await self._reach(ReachKind.WINDOWS, "/windows", EpisodeCall(self.lease), 45.0, {})
        return list(answer.message(WindowsAnswer).windows)

    @asynccontextmanager
    async def record(
        self,
        *,
        max_s: float = limits.DEFAULT_RECORD_S,
        max_bytes: int = limits.MAX_READ_BYTES,
        frames_per_s: int = limits.DEFAULT_FRAMES_PER_S,
    ) -> AsyncIterator[Video]:
        """Record the screen while the block runs; afterwards what it gave has the MP4 (``data``, ``save``).

        One recording at a time. Frames that steps give are not affected, but the encoder takes a part of
        the desktop's CPU.

        Args:
            max_s: it ends by itself after this time, up to an hour.
            max_bytes: and with this size, up to 64 MiB.
            frames_per_s: up to 30.

        Raises:
            Unsupported: there is no ffmpeg in this desktop (the full image has it).
        """
        video = Video()
        begun = RecordRequest(self.lease, uuid.uuid4().hex, max_s, max_bytes, frames_per_s)
        said: dict[str, Any] = {"phase": "start", "max_s": max_s, "frames_per_s": frames_per_s}
        await self._reach(ReachKind.RECORD, "/record/start", begun, 45.0, said)
        try:
            yield video
        finally:
            if self.lost is None and not self._record.closed:
                end = RecordEndRequest(self.lease, begun.recording_id)
                said = {"phase": "end"}
                answer = await self._reach(ReachKind.RECORD, "/record/end", end, 120.0, said, record=True)
                video.take(answer.blob)

    async def expose(self, port: int, *, local_port: int = 0) -> Exposure:
        """Make a port of the desktop's loopback reachable at a port of this machine's loopback.

        For a browser's debugging (CDP, WebSockets too), OSWorld's controllers, servers of one's own. Every
        connection is passed on byte for byte, at most 16 at a time, until the episode ends or
        ``aclose()``. Every user of this machine can connect to it.

        Args:
            port: where something listens in the desktop, now or later.
            local_port: a free one by default.

        Returns:
            Where to connect: ``host, port = await episode.expose(9222)``, or ``.url``.

        Raises:
            ConfigError: the client goes by a proxy or a transport of one's own, or the port is taken.
        """
        if not 1 <= port <= 65535:
            raise ConfigError("port is from 1 to 65535")
        session = self._open()
        path = f"/v1/episodes/{session.episode_id}/tunnel?port={port}"
        began_s, began = time.time(), time.perf_counter()
        exposure = await Exposure.begin(session, path, local_port)
        self._exposures = (*self._exposures, exposure)
        self._add_reach(ReachKind.EXPOSE, began_s, began, "ok", {"port": port})
        return exposure

    async def _end_reach(self) -> None:
        """Close what is exposed; with the episode."""
        exposures, self._exposures = self._exposures, ()
        for exposure in exposures:
            await exposure.aclose()

    async def _reach(
        self,
        kind: ReachKind,
        suffix: str,
        body: Message | None,
        timeout_s: float,
        said: Mapping[str, Any],
        *,
        record: bool = False,
        method: str = "POST",
        content: bytes | None = None,
    ) -> HostAnswer:
        session: EpisodeSession = self._open()
        if self._reach_turns is None:
            self._reach_turns = asyncio.Semaphore(AT_ONCE)
        outcome = "ok"
        async with self._reach_turns:
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
                self._add_reach(kind, began_s, began, outcome, said)

    def _add_reach(
        self, kind: ReachKind, began_s: float, began: float, outcome: str, said: Mapping[str, Any]
    ) -> None:
        arguments = {name: shortened(value) for name, value in said.items() if value is not None}
        ms = round((time.perf_counter() - began) * 1000, 3)
        step = self._base + len(self.trajectory.steps)
        self.trajectory.reaches.append(ReachEvent(kind.value, step, began_s, ms, str(outcome), arguments))
