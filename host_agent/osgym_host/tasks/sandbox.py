"""The host's side of the confined evaluator.

One zygote process (``python -I -m osgym_host.tasks.evaluator``) has the parsers imported. For each
metric it forks a child that confines itself (own namespaces, no network, no files, limits on memory
and time) before it looks at a byte from a guest. The host talks to the zygote over one socket and
gets each verdict over a pipe of its own, bounded in bytes and time.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import math
import os
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from osgym_host.core.fair_queue import UNNAMED, ClientKey
from osgym_host.tasks.errors import EvaluatorError
from osgym_host.tasks.evaluator.registry import METRICS, MetricEnd
from osgym_host.tasks.evaluator_process import KILL_GRACE_S, EvaluatorProcess, start_evaluator
from osgym_host.tasks.evaluator_turns import QUICK_S, EvaluatorTurns
from osgym_host.tasks.values import DiskFile, NamedFile, Value

log = logging.getLogger(__name__)

MAX_VERDICT_BYTES = 64 * 1024
MAX_JOB_BYTES = 64 * 1024 * 1024
MAX_JOB_FILES = 64
LONG_TEXT_CHARS = 64 * 1024
"""Longer texts travel in files of their own, written in pieces of this length."""
MAX_NOTE_CHARS = 2000
PROGRAM_S = 60.0
"""Time limit of a metric that runs a result's program; its CPU time is bounded as of other metrics."""


@dataclass(frozen=True, slots=True)
class MetricJob:
    """One metric with its arguments.

    Attributes:
        cpu_s: CPU time that it may use, which its arguments decide.
        timeout_s: Time that it may take in all, which the load of the host decides too.
        memory_bytes: Address space that it may take, beyond that of the libraries that are loaded.
    """

    func: str
    result: Value | None
    expected: Value | None
    options: dict[str, object]
    timeout_s: float = 120
    memory_bytes: int = 1 << 30
    cpu_s: float = 20


@dataclass(frozen=True, slots=True)
class MetricVerdict:
    """A metric's score, 0 to 1, and why.

    Attributes:
        unreadable: The result is not of a kind that the metric reads, so nothing was compared.
    """

    score: float
    note: str = ""
    unreadable: bool = False


class MetricFailed(EvaluatorError):
    """A metric gave no score.

    Attributes:
        end: How it ended; whose fault that is says `osgym_host.tasks.control`.
    """

    def __init__(self, message: str, func: str, end: MetricEnd) -> None:
        super().__init__(message, {"func": func, "end": end.value})
        self.end = end


class Sandbox:
    """Runner of metrics in confined processes. Its zygote starts with the first metric.

    Use as an async context manager, or call `aclose` at the end (idempotent).
    """

    def __init__(self, *, max_parallel: int = 4) -> None:
        self._turns = EvaluatorTurns(quick=max_parallel, slow=2 * max_parallel)
        self._lock = asyncio.Lock()
        self._ids = itertools.count(1)
        self._zygote: EvaluatorProcess | None = None
        self._starting: asyncio.Task[EvaluatorProcess] | None = None
        self._closed = False

    async def __aenter__(self) -> Sandbox:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the zygote and with it every running metric."""
        self._closed = True
        async with self._lock:
            zygote, self._zygote = self._zygote, None
            starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
            (started,) = await asyncio.gather(starting, return_exceptions=True)
            zygote = started if isinstance(started, EvaluatorProcess) else zygote
        if zygote is not None:
            await zygote.close()

    async def confinement(self) -> tuple[str, ...]:
        """Return the layers of the confinement, e.g. ``("namespaces", "landlock", "seccomp")``.

        Raises:
            EvaluatorError: the evaluator does not start here.
        """
        return (await self._running()).confinement

    async def run(
        self,
        job: MetricJob,
        client: ClientKey = UNNAMED,
        waiting: contextlib.AbstractContextManager[None] | None = None,
    ) -> MetricVerdict:
        """Run one metric when it is the client's turn.

        Args:
            waiting: Context that is entered while the metric waits, for instance to put its deadline off.

        Raises:
            MetricFailed: it raised, crashed, ran out of time or memory, or its task is wrong.
            EvaluatorError: it could not be started.
        """
        async with contextlib.AsyncExitStack() as place:
            with waiting or contextlib.nullcontext():
                await place.enter_async_context(self._turns.turn(client))
            zygote = await self._running()
            if why := zygote.cannot(job.func):
                raise MetricFailed(
                    f"the metric {job.func} cannot run here: {why}", job.func, MetricEnd.OUTSIDE
                )
            return await self._run(zygote, job)

    async def _running(self) -> EvaluatorProcess:
        async with self._lock:
            if self._closed:
                raise EvaluatorError("the evaluator is closed")
            if self._zygote is not None and not self._zygote.alive:
                log.warning("the evaluator's process ended; starting another")
                await self._zygote.close()
                self._zygote = None
            if self._zygote is None:
                self._zygote = await self._started()
            return self._zygote

    async def _started(self) -> EvaluatorProcess:
        """Return a new zygote. Its start goes on for the next caller if this one is cancelled."""
        if self._starting is None:
            self._starting = asyncio.create_task(start_evaluator(), name="evaluator-start")
        try:
            return await asyncio.shield(self._starting)
        finally:
            if self._starting.done():
                self._starting = None

    async def _run(self, zygote: EvaluatorProcess, job: MetricJob) -> MetricVerdict:
        job_id = next(self._ids)
        waiter: asyncio.Future[tuple[str, MetricEnd]] = asyncio.get_running_loop().create_future()
        zygote.exits[job_id] = waiter
        read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
        try:
            try:
                async with _job_files(job) as fds:
                    header = {
                        "id": job_id,
                        "timeout_s": job.timeout_s,
                        "cpu_s": job.cpu_s,
                        "memory_bytes": job.memory_bytes,
                        "program_s": _program_s(job),
                        "quick_s": QUICK_S,
                    }
                    await _send(zygote.control, json.dumps(header).encode(), [write_fd, *fds])
            except OSError as error:
                raise EvaluatorError(
                    f"the evaluator did not accept a job: {error}", {"func": job.func}
                ) from error
            finally:
                os.close(write_fd)
            raw = b""
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(job.timeout_s + KILL_GRACE_S):
                    raw = await _read_all(read_fd, MAX_VERDICT_BYTES)
            return await self._verdict(raw, job, waiter, zygote)
        finally:
            os.close(read_fd)
            zygote.exits.pop(job_id, None)

    async def _verdict(
        self,
        raw: bytes,
        job: MetricJob,
        waiter: asyncio.Future[tuple[str, MetricEnd]],
        zygote: EvaluatorProcess,
    ) -> MetricVerdict:
        if (verdict := _parse_verdict(raw, job.func)) is not None:
            return verdict
        try:
            async with asyncio.timeout(KILL_GRACE_S):
                how, end = await waiter
        except TimeoutError:
            how, end = "the process did not end after SIGKILL", MetricEnd.OUTSIDE
            with contextlib.suppress(ProcessLookupError):
                zygote.process.kill()
        raise MetricFailed(f"the metric {job.func} gave no verdict: {how}", job.func, end)


def _program_s(job: MetricJob) -> float:
    """Return the time limit of a result's program: less than the job's, so that the two are told apart."""
    metric = METRICS.get(job.func)
    return min(PROGRAM_S, job.timeout_s / 2) if metric is not None and metric.runs_program else 0.0


def _parse_verdict(raw: bytes, func: str) -> MetricVerdict | None:
    """Parse a confined process's verdict, which may be anything; None if it is no verdict."""
    try:
        message = json.loads(raw)
    except ValueError:
        return None
    if not isinstance(message, dict):
        return None
    if isinstance(problem := message.get("error"), str):
        end = _end_by_itself(message.get("end"))
        raise MetricFailed(f"the metric {func} failed: {_encodable(problem)}", func, end)
    score, note = message.get("score"), message.get("note", "")
    if isinstance(score, bool) or not isinstance(score, int | float) or not isinstance(note, str):
        return None
    if not math.isfinite(score) or not 0 <= score <= 1:
        raise MetricFailed(f"the metric {func} returned the score {score}", func, MetricEnd.CRASHED)
    return MetricVerdict(float(score), _encodable(note), message.get("unreadable") is True)


def _end_by_itself(end: object) -> MetricEnd:
    """Return the end that a confined process reports; it cannot claim a cause outside itself."""
    known = end in set(MetricEnd) - {MetricEnd.OUTSIDE}
    return MetricEnd(str(end)) if known else MetricEnd.CRASHED


def _encodable(text: str) -> str:
    """Return a bounded text that can be encoded: a result's text may have half a surrogate pair."""
    return text[:MAX_NOTE_CHARS].encode("utf-8", "replace").decode()


async def _argument(value: Value | None, fds: list[int]) -> dict[str, object] | None:
    if value is None:
        return None
    reader = {"reader": value.reader, "reader_options": dict(value.reader_options)}
    if not value.files:
        if isinstance(value.data, str) and len(value.data) > LONG_TEXT_CHARS:
            fds.append(await _text_file(value.data))
            return {"text": True, **reader}
        return {"value": value.data, **reader}
    files, beside = _named(value.files, fds), _named(value.beside, fds)
    return {"files": files, "beside": beside, "many": value.many, **reader}


def _named(files: tuple[NamedFile | DiskFile, ...], fds: list[int]) -> list[object]:
    named: list[object] = []
    for file in files:
        if isinstance(file, DiskFile):
            layers = file.disk.layers
            fds += [_open(layer.path) for layer in layers]
            formats = [layer.format for layer in layers]
            named.append({"name": file.name, "path": file.path, "layers": formats})
        else:
            fds.append(_open(file.path))
            named.append(file.name)
    return named


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)


async def _text_file(text: str) -> int:
    """Put a long text into a memfd, in pieces: JSON would escape all of it in one go."""
    memfd = os.memfd_create("osgym-text", os.MFD_CLOEXEC)
    try:
        for begin in range(0, len(text), LONG_TEXT_CHARS):
            piece = memoryview(text[begin : begin + LONG_TEXT_CHARS].encode("utf-8", "surrogatepass"))
            while piece:
                piece = piece[os.write(memfd, piece) :]
            await asyncio.sleep(0)
        os.lseek(memfd, 0, os.SEEK_SET)
    except BaseException:
        os.close(memfd)
        raise
    return memfd


@contextlib.asynccontextmanager
async def _job_files(job: MetricJob) -> AsyncIterator[list[int]]:
    """Yield the descriptors of a job: its description in a memfd, then its files in order."""
    fds: list[int] = []
    try:
        result, expected = await _argument(job.result, fds), await _argument(job.expected, fds)
        arguments = {"result": result, "expected": expected}
        if len(fds) > MAX_JOB_FILES:
            raise EvaluatorError(f"{len(fds)} files are too many for one metric", {"func": job.func})
        text = json.dumps({"func": job.func, "options": job.options, **arguments}).encode()
        if len(text) > MAX_JOB_BYTES:
            raise EvaluatorError("the metric's arguments are too large", {"func": job.func})
        memfd = os.memfd_create("osgym-job", os.MFD_CLOEXEC)
        fds.insert(0, memfd)
        view = memoryview(text)
        while view:
            view = view[os.write(memfd, view) :]
        os.lseek(memfd, 0, os.SEEK_SET)
        yield fds
    finally:
        for fd in fds:
            os.close(fd)


async def _until(fd: int, add: Callable[..., object], remove: Callable[[int], object]) -> None:
    """Wait until a descriptor is ready: ``add`` and ``remove`` are the loop's methods for it."""
    event = asyncio.Event()
    add(fd, event.set)
    try:
        await event.wait()
    finally:
        remove(fd)


async def _send(control: socket.socket, data: bytes, fds: list[int]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            socket.send_fds(control, [data], fds)
            return
        except BlockingIOError:
            async with asyncio.timeout(KILL_GRACE_S):
                await _until(control.fileno(), loop.add_writer, loop.remove_writer)


async def _read_all(fd: int, limit: int) -> bytes:
    """Read up to the end of a pipe; nothing if it has more than ``limit`` bytes."""
    loop = asyncio.get_running_loop()
    os.set_blocking(fd, False)
    chunks = bytearray()
    while len(chunks) <= limit:
        try:
            chunk = os.read(fd, 65536)
        except BlockingIOError:
            await _until(fd, loop.add_reader, loop.remove_reader)
            continue
        if not chunk:
            return bytes(chunks)
        chunks += chunk
    return b""
