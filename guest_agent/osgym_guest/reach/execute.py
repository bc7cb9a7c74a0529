"""``/v1/reach/execute``: runs a command to its end, once for each request id."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import os
import tempfile
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osgym_guest.http import HttpError, Request, Response, bad
from osgym_guest.osworld.process import LINGER_S, open_sink, start
from osgym_guest.osworld.session import DesktopSession
from osgym_guest.reach.context import ReachContext
from osgym_protocol.codec import WireFormatError, known_fields
from osgym_protocol.codes import GuestErrorCode
from osgym_protocol.guest_api import number
from osgym_protocol.limits import (
    MAX_COMMAND_BYTES,
    MAX_COMMAND_S,
    MAX_COMMAND_WORDS,
    MAX_ID_CHARS,
    MAX_OUTPUT_BYTES,
    MAX_STDIN_BYTES,
)

MAX_RUNNING = 16
MAX_KNOWN = 256
"""Number of request ids that are remembered; the oldest go first."""
MAX_KEPT_CHARS = 8 * 1024 * 1024
"""Size of the outputs that are kept of ended commands. Of older ones only the fact that they ran is kept."""
KILL_WAIT_S = 5.0
ABANDONED_S = 20.0
"""Time for which a command continues without a waiting caller.

It exceeds the time for which the SDK repeats a request after a lost connection (`Timeouts.retry_s`), and the
restart of a host agent.
"""
_FIELDS = ("request_id", "command", "shell", "timeout_s", "cwd", "env", "stdin_base64")


@dataclass(frozen=True)
class CommandSpec:
    """Command of one request."""

    command: tuple[str, ...]
    shell: bool
    timeout_s: float
    cwd: Path
    env: tuple[tuple[str, str], ...]
    stdin: bytes


async def execute(context: ReachContext, request: Request) -> Response:
    """Run a command to its end, or return the answer of a known request id."""
    try:
        body = known_fields(request.json_object(), _FIELDS, request.path)
        timeout_s = number(body.get("timeout_s"), "timeout_s", 0.1, MAX_COMMAND_S)
    except WireFormatError as exc:
        raise bad(str(exc)) from exc
    request_id = body.get("request_id")
    if not isinstance(request_id, str) or not 0 < len(request_id) <= MAX_ID_CHARS:
        raise bad("request_id is required")
    order = CommandSpec(
        command=_words(body.get("command")),
        shell=body.get("shell") is True,
        timeout_s=timeout_s,
        cwd=context.desktop.session.home if body.get("cwd") is None else context.path(body["cwd"]),
        env=_env(body.get("env")),
        stdin=_stdin(body.get("stdin_base64")),
    )
    executions = context.kept(Executions, lambda: Executions(context.desktop.session))
    return Response.json(await executions.run(request_id, order))


def _words(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= MAX_COMMAND_WORDS:
        raise bad("command must be a list of words")
    if not all(isinstance(word, str) and "\0" not in word for word in value) or not value[0]:
        raise bad("command has a word that is not text or has a NUL character, or an empty name")
    if sum(map(len, value)) > MAX_COMMAND_BYTES:
        raise bad(f"command is longer than {MAX_COMMAND_BYTES} characters")
    return tuple(value)


def _env(value: object) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict) or len(value) > MAX_COMMAND_WORDS:
        raise bad("env must be an object of texts")
    for name, text in value.items():
        if not isinstance(text, str) or not name or "=" in name or "\0" in name + text:
            raise bad("env has a name or a value that is not allowed in an environment")
    if sum(len(name) + len(text) for name, text in value.items()) > MAX_COMMAND_BYTES:
        raise bad(f"env is longer than {MAX_COMMAND_BYTES} characters")
    return tuple(sorted(value.items()))


def _stdin(value: object) -> bytes:
    if value is None:
        return b""
    try:
        data = base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        data = None
    if data is None or len(data) > MAX_STDIN_BYTES:
        raise bad(f"stdin_base64 must be base64 of at most {MAX_STDIN_BYTES} bytes")
    return data


class Execution:
    """A running command, and the number of callers that wait for its answer."""

    def __init__(self, order: CommandSpec, session: DesktopSession, abandoned_s: float):
        self._abandoned_s = abandoned_s
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None
        self.work: asyncio.Future[dict[str, Any]] = asyncio.ensure_future(_run(order, session))
        self.work.add_done_callback(lambda work: work.cancelled() or work.exception())  # maybe nobody asks

    async def answer(self) -> dict[str, Any]:
        """Wait for the answer. The command ends some time after its last caller left.

        Raises:
            HttpError: It could not be started, or was ended because no caller waited.
        """
        if self._timer is not None:
            self._timer.cancel()
        self._waiting += 1
        try:
            return await asyncio.shield(self.work)
        finally:
            self._waiting -= 1
            if self._waiting == 0 and not self.work.done():
                self._timer = asyncio.get_running_loop().call_later(self._abandoned_s, self._abandon)

    def _abandon(self) -> None:
        if self._waiting == 0:
            self.work.cancel()


class Executions:
    """Commands by their request id: running ones, and the answers of ended ones.

    Args:
        session: Session in which they run.
        abandoned_s: Time for which a command continues without a waiting caller.
    """

    def __init__(self, session: DesktopSession, abandoned_s: float = ABANDONED_S):
        self._session = session
        self._abandoned_s = abandoned_s
        self._known: OrderedDict[str, tuple[CommandSpec, Execution | None]] = OrderedDict()

    async def run(self, request_id: str, order: CommandSpec) -> dict[str, Any]:
        """Run a command, or wait for the one of the same id.

        Raises:
            HttpError: It cannot be started, the id is another command's, too many run, its answer was dropped
                for newer ones, or it was ended because its callers had left.
        """
        known = self._known.get(request_id)
        if known is not None:
            before, execution = known
            if before != order:
                raise bad("this request_id was used for another command")
            if execution is None:
                text = "the command ran, but its answer was dropped in favour of newer ones"
                raise HttpError(409, GuestErrorCode.ANSWER_LOST, text)
            return {**await execution.answer(), "replayed": True}
        if (
            sum(other is not None and not other.work.done() for _, other in self._known.values())
            >= MAX_RUNNING
        ):
            raise HttpError(503, GuestErrorCode.BUSY, f"{MAX_RUNNING} commands are already running")
        execution = Execution(order, self._session, self._abandoned_s)
        self._known[request_id] = order, execution
        try:
            return await execution.answer()
        except HttpError:
            self._known.pop(request_id, None)  # it did not run: this caller waited until now
            raise
        finally:
            self._trim()

    def _trim(self) -> None:
        """Forget the oldest answers, then the oldest ids; never a running command."""
        room = MAX_KEPT_CHARS
        for request_id, (order, execution) in reversed(list(self._known.items())):
            if execution is None or not (work := execution.work).done():
                continue
            if work.cancelled() or work.exception() is not None:
                continue
            room -= len(work.result()["stdout"]) + len(work.result()["stderr"]) + len(order.stdin)
            if room < 0:
                self._known[request_id] = order, None
        while len(self._known) > MAX_KNOWN:
            request_id, (_, execution) = next(iter(self._known.items()))
            if execution is not None and not execution.work.done():
                return
            del self._known[request_id]


async def _run(order: CommandSpec, session: DesktopSession) -> dict[str, Any]:
    if not session.file(order.cwd).is_dir():
        raise HttpError(404, GuestErrorCode.NO_SUCH_FILE, f"the folder does not exist: {order.cwd}")
    began = time.monotonic()
    ends: list[int] = []
    try:
        out_end, out = await open_sink(MAX_OUTPUT_BYTES)
        ends.append(out_end)
        err_end, err = await open_sink(MAX_OUTPUT_BYTES)
        ends.append(err_end)
        with tempfile.TemporaryFile() as stdin:
            stdin.write(order.stdin)
            stdin.seek(0)
            child = await start(
                order.command,
                session,
                shell=order.shell,
                stdin=stdin.fileno(),
                stdout=out_end,
                stderr=err_end,
                cwd=order.cwd,
                env=dict(order.env),
            )
    except (OSError, ValueError) as exc:
        raise HttpError(422, GuestErrorCode.CANNOT_START, f"it cannot be started: {exc}") from exc
    finally:
        for end in ends:
            os.close(end)
    timed_out = False
    try:
        try:
            returncode = await asyncio.wait_for(child.wait(), order.timeout_s)
        except asyncio.TimeoutError:
            timed_out = True
            child.kill_session()
            returncode = await asyncio.wait_for(child.wait(), KILL_WAIT_S)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(out.ended.wait(), err.ended.wait()), LINGER_S)
    except asyncio.CancelledError:
        if child.returncode is None:
            child.kill_session()
        out.take()
        err.take()
        text = "the command was ended, since its caller disconnected and did not ask again in time"
        raise HttpError(409, GuestErrorCode.ANSWER_LOST, text) from None
    truncated = out.truncated or err.truncated
    return {
        "returncode": returncode,
        "stdout": out.take(),
        "stderr": err.take(),
        "timed_out": timed_out,
        "truncated": truncated,
        "duration_ms": round((time.monotonic() - began) * 1000, 3),
    }
