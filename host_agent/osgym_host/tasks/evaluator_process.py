"""The host's side of the evaluator's zygote: start, reports of its children's ends, stop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys

from osgym_host.tasks.errors import EvaluatorError
from osgym_host.tasks.evaluator.confine import PROGRAM_LAYERS
from osgym_host.tasks.evaluator.registry import METRICS, MetricEnd
from osgym_protocol.plugins import DuplicatePlugin, PluginGroup, plugin_folders

START_TIMEOUT_S = 60.0
KILL_GRACE_S = 3.0


class EvaluatorProcess:
    def __init__(self, process: asyncio.subprocess.Process, control: socket.socket) -> None:
        self.process = process
        self.control = control
        self.confinement: tuple[str, ...] = ()
        self.lacking: dict[str, str] = {}
        self.exits: dict[int, asyncio.Future[tuple[str, MetricEnd]]] = {}
        self.reader: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        return self.process.returncode is None and self.reader is not None and not self.reader.done()

    def cannot(self, func: str) -> str:
        """Return why this machine cannot run a metric at all; an empty text if it can."""
        metric = METRICS.get(func)
        if metric is not None and metric.runs_program and not set(self.confinement) >= PROGRAM_LAYERS:
            return "programs are run only with user namespaces and seccomp, which this machine lacks"
        return self.lacking.get(func, "")

    async def receive(self) -> dict[str, object] | None:
        data = await asyncio.get_running_loop().sock_recv(self.control, 65536)
        message = json.loads(data) if data else None
        return message if isinstance(message, dict) else None

    async def read_exits(self) -> None:
        """Resolve the future of each child that ends, and all futures when the zygote ends."""
        with contextlib.suppress(OSError):
            while (message := await self.receive()) is not None:
                waiter = self.exits.get(int(str(message.get("id", -1))))
                if waiter is not None and not waiter.done():
                    waiter.set_result((str(message.get("exit", "")), MetricEnd(str(message["end"]))))
        for waiter in self.exits.values():
            if not waiter.done():
                waiter.set_result(("the evaluator's process ended", MetricEnd.OUTSIDE))

    async def close(self) -> None:
        if self.reader is not None:
            self.reader.cancel()
            await asyncio.gather(self.reader, return_exceptions=True)
        self.control.close()
        try:
            async with asyncio.timeout(KILL_GRACE_S):
                await self.process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()


ENVIRONMENT = {
    "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1", "OMP_THREAD_LIMIT": "1",
    "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1",
}  # fmt: skip
"""One thread for numpy and Tesseract: a confined child cannot start more, and would wait for them without
end. Dummy devices for games under test, which have neither screen nor sound."""


async def start_evaluator() -> EvaluatorProcess:
    """Start a zygote and wait until it takes jobs.

    Raises:
        EvaluatorError: It does not start, or nothing here can confine a metric.
    """
    try:
        folders = plugin_folders(PluginGroup.METRICS, PluginGroup.READERS)
    except DuplicatePlugin as error:
        raise EvaluatorError(f"the evaluator cannot be started: {error}") from error
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-m",
            "osgym_host.tasks.evaluator",
            *folders,
            stdin=theirs.fileno(),
            stdout=asyncio.subprocess.DEVNULL,
            env=ENVIRONMENT,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        ours.close()
        raise EvaluatorError(f"the evaluator cannot be started: {error}") from error
    finally:
        theirs.close()
    zygote = EvaluatorProcess(process, ours)
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            hello = await zygote.receive()
    except (TimeoutError, OSError, ValueError) as error:
        await zygote.close()
        raise EvaluatorError(f"the evaluator did not start: {error!r}") from error
    except BaseException:
        await zygote.close()
        raise
    if hello is None or "error" in hello:
        await zygote.close()
        problem = (hello or {}).get("error", "the process ended at once")
        raise EvaluatorError(f"the evaluator did not start: {problem}")
    layers = hello.get("confinement")
    zygote.confinement = tuple(str(x) for x in layers) if isinstance(layers, list) else ()
    lacking = hello.get("lacking")
    zygote.lacking = {str(k): str(v) for k, v in lacking.items()} if isinstance(lacking, dict) else {}
    zygote.reader = asyncio.create_task(zygote.read_exits(), name="evaluator-exits")
    return zygote
