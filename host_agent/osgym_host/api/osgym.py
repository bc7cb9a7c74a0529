"""The API of OSGym's state manager: `/reset`, `/step`, `/shutdown`, `/screenshot`.

The messages are OSGym's; its faults are not kept: a reset takes no other client's desktop, an idle desktop is
stopped, a vm_id is used only once.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.requests import Request

from osgym_host.api.backend import Backend
from osgym_host.api.raw import RawRoute, cancel_on_disconnect
from osgym_host.core.fair_queue import ClientKey
from osgym_host.core.reasons import Reason
from osgym_host.episodes.create_request import CreatedEpisode
from osgym_host.episodes.episode import HostEpisode
from osgym_host.episodes.errors import EpisodeOver
from osgym_host.errors import ServiceError
from osgym_host.http.access import client_of
from osgym_protocol.bounds import Bounds, Count
from osgym_protocol.codes import ErrorCode, ImageFormat
from osgym_protocol.episode_options import EpisodeOptions
from osgym_protocol.host_api import ObserveRequest, StepRequest
from osgym_protocol.options import ObserveOptions
from osgym_protocol.records import Record

log = logging.getLogger(__name__)

PNG = ObserveOptions(ImageFormat.PNG)
MAKE_WAY_LOOK_S = 0.1
MAKE_WAY_AGAIN_S = 5.0
"""Time after an eviction in which its replica ends and another starts."""
KEEP_SCREENSHOTS = 50
"""Number of ended desktops whose newest frame is kept."""
BASE64_BYTES = 3 * 256 * 1024
"""Bytes of an image that are encoded at once: a multiple of three, so that the pieces join."""
MAX_TIMEOUT_S = 86_400
"""Bound of an idle time; the settings bound it further."""


_VmId = Annotated[int, Bounds(strict=True)]


@dataclass(frozen=True, slots=True)
class ResetBody:
    """`POST /reset` of the OSGym API; `timeout` is an idle time to live in seconds."""

    task_config: dict[str, Any]
    timeout: Count
    strict_setup: bool = False


@dataclass(frozen=True, slots=True)
class OsgymStepBody:
    """`POST /step` of the OSGym API."""

    action: str
    vm_id: _VmId


@dataclass(frozen=True, slots=True)
class ShutdownBody:
    """`POST /shutdown` of the OSGym API."""

    vm_id: _VmId | Literal["all"]


@dataclass(slots=True, eq=False)
class _Vm:
    """One desktop of this API.

    Attributes:
        port: Port of the worker that answered its reset.
        screenshot: Newest frame. The last answer repeats it if the policy broke the desktop.
    """

    episode: HostEpisode
    port: int
    screenshot: bytes
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True, eq=False)
class _WaitingResets:
    """Resets of one worker that wait for a replica, and the times at which VMs were evicted for them."""

    count: int = 0
    taken: deque[float] = field(default_factory=deque)

    def enter(self) -> Callable[[], None]:
        """Count one more reset until the returned function is called; it may be called again."""
        self.count += 1
        entered = True

        def leave() -> None:
            nonlocal entered
            if entered:
                entered = False
                self.count -= 1
                if self.taken:
                    self.taken.popleft()  # the oldest eviction was for this reset

        return leave

    def may_take(self, now: float) -> bool:
        """Return whether fewer VMs were evicted lately than resets wait."""
        while self.taken and now - self.taken[0] > MAKE_WAY_AGAIN_S:
            self.taken.popleft()
        return len(self.taken) < self.count


class Vms:
    """Desktops by their number, which is the replica's generation and so never used twice."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._vms: dict[int, _Vm] = {}
        self._waiting: dict[int, _WaitingResets] = {}
        self._making_way: asyncio.Task[None] | None = None

    async def reset(self, body: ResetBody, port: int, request: Request) -> Response:
        """Lease a fresh desktop and set up the task on it."""
        options = self._backend.osgym
        asked = EpisodeOptions(
            task=body.task_config,
            wait_s=options.wait_s,
            lease_ttl_s=float(min(body.timeout, MAX_TIMEOUT_S)),
            max_steps=options.max_steps,
            observe=PNG,
            strict_setup=body.strict_setup,
        )
        client = client_of(request.scope, f"worker {port}")
        opened = await cancel_on_disconnect(request, self._open(asked, client, port))
        self._forget_ended()
        vm_id = opened.episode.replica.generation
        self._vms[vm_id] = _Vm(opened.episode, port, bytes(opened.frame.image))
        task = opened.episode.task
        answer: dict[str, Any] = {"problem": task.instruction if task is not None else "", "vm_id": vm_id}
        if warnings := opened.episode.setup_warnings:
            answer["setup_warnings"] = [warning.to_dict() for warning in warnings]
        return await _with_screenshot(opened.frame.image, answer)

    async def _open(self, asked: EpisodeOptions, client: ClientKey, port: int) -> CreatedEpisode:
        """Create an episode; while the host is full, evict idle VMs of the same worker."""
        waiting = self._waiting[port] = self._waiting.get(port) or _WaitingResets()
        leave = waiting.enter()
        if self._making_way is None or self._making_way.done():
            self._making_way = asyncio.create_task(self._make_way(), name="osgym:make-way")
        try:
            return await self._backend.creator.create(asked, client, leased=leave)
        finally:
            leave()

    async def _make_way(self) -> None:
        """Evict the VMs that were idle longest, while a /reset of their worker waits and the host is full.

        One VM is evicted for each /reset that waits, and others only if that did not help. Without evictions
        a worker that crashed and restarts would wait for the timeouts of its own VMs.
        """
        while self._waiting:
            await asyncio.sleep(MAKE_WAY_LOOK_S)
            self._waiting = {port: waiting for port, waiting in self._waiting.items() if waiting.count}
            if not self._waiting or not self._backend.host.full:
                continue
            now = time.monotonic()
            for port, waiting in self._waiting.items():
                idle = self._longest_idle(port) if waiting.may_take(now) else None
                if idle is not None:
                    log.info(
                        "VM %d is idle and is ended, so that a /reset of port %d gets a replica", idle, port
                    )
                    waiting.taken.append(now)
                    self._backend.episodes.end(self._vms[idle].episode, Reason.MADE_WAY)

    def _longest_idle(self, port: int) -> int | None:
        """Return the worker's VM that was idle longest, if that is long enough."""
        idle_s = {
            number: vm.episode.lease.idle_s()
            for number, vm in self._vms.items()
            if vm.port == port and vm.episode.over is None and not vm.lock.locked()
        }
        longest = max(idle_s, key=lambda number: idle_s[number], default=None)
        enough = longest is not None and idle_s[longest] >= self._backend.osgym.make_way_s
        return longest if enough else None

    async def step(self, body: OsgymStepBody) -> Response:
        """Carry out an action; a final action scores and ends the desktop."""
        vm = self._find(body.vm_id, lost_by_policy=True)
        async with vm.lock:
            try:
                outcome = await self._act(vm.episode, body.action)
            except EpisodeOver as over:
                if not over.by_policy:
                    raise
            else:
                vm.screenshot = bytes(outcome.blob)
                if outcome.meta["done"] is None:
                    return await _with_screenshot(vm.screenshot, {"is_finish": False, "reward": 0})
            try:
                reward = await self._score(vm.episode)
            finally:
                self._release(body.vm_id)
        return await _with_screenshot(vm.screenshot, {"is_finish": True, "reward": reward})

    async def _act(self, episode: HostEpisode, action: str) -> Record:
        step = StepRequest(episode.lease.token, episode.steps.progress.seq + 1, (action,))
        return await self._backend.episodes.step(episode.episode_id, step)

    async def _score(self, episode: HostEpisode) -> float:
        answer = await self._backend.episodes.evaluate(episode.episode_id, episode.lease.token)
        if answer.reward is None:
            error = answer.error
            assert error is not None, "an absent reward has an error"
            raise ServiceError(ErrorCode(error.code), error.message, error.details)
        return answer.reward

    async def screenshot(self, vm_id: int) -> Response:
        episode = self._find(vm_id).episode
        asked = ObserveRequest(episode.lease.token, PNG)
        frame = await self._backend.episodes.observe(episode.episode_id, asked)
        return await _with_screenshot(frame.blob, {"vm_id": vm_id})

    def shutdown(self, vm_id: int | str, port: int) -> None:
        """Stop a desktop, or all desktops of this worker."""
        if isinstance(vm_id, int):
            self._find(vm_id)
            self._release(vm_id)
            return
        for number in [n for n, vm in self._vms.items() if vm.port == port]:
            self._release(number)

    def _find(self, vm_id: int, *, lost_by_policy: bool = False) -> _Vm:
        """Return the VM with this number.

        Args:
            lost_by_policy: True: a VM that its policy broke is returned as well, since it has a score.

        Raises:
            ServiceError: No VM has this number.
            EpisodeOver: The VM's episode has ended.
        """
        vm = self._vms.get(vm_id)
        if vm is None:
            raise ServiceError(ErrorCode.UNKNOWN_EPISODE, f"No VM has the ID {vm_id}.", {"vm_id": vm_id})
        over = vm.episode.over
        if over is not None and not (lost_by_policy and over.by_policy):
            raise over.copy()
        return vm

    def _release(self, vm_id: int) -> None:
        vm = self._vms.pop(vm_id, None)
        if vm is not None:
            self._backend.episodes.end(vm.episode, Reason.CLOSED)

    def _forget_ended(self) -> None:
        """Forget ended desktops but the last thousand, which can report their reason."""
        ended = [number for number, vm in self._vms.items() if vm.episode.over is not None]
        for number in ended[:-KEEP_SCREENSHOTS]:
            self._vms[number].screenshot = b""
        for number in ended[:-1000]:
            del self._vms[number]


async def _with_screenshot(image: bytes | memoryview, fields: dict[str, Any]) -> Response:
    """Answer with an image in base64 and other fields.

    The image is encoded in pieces, and not once more as JSON: it may be large, and others wait meanwhile.
    """
    parts = [b'{"screenshot":"']
    for begin in range(0, len(image), BASE64_BYTES):
        parts.append(base64.b64encode(image[begin : begin + BASE64_BYTES]))
        await asyncio.sleep(0)
    rest = json.dumps(fields, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    parts += (b'",', rest[1:])

    async def body() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    length = str(sum(len(part) for part in parts))
    return StreamingResponse(body(), media_type="application/json", headers={"content-length": length})


def make_router(backend: Backend) -> APIRouter:
    router = APIRouter(tags=["OSGym"])
    raw = APIRouter(route_class=RawRoute, tags=["OSGym"])
    vms = Vms(backend)

    @raw.post("/reset")
    async def reset(body: ResetBody, request: Request) -> Response:
        """Give out a desktop with the task set up. `timeout`: idle seconds until it is stopped.

        `setup_warnings` of the answer are the commands of the setup that failed; with `strict_setup` they
        are a refusal.
        """
        return await vms.reset(body, _port(request), request)

    @raw.post("/step")
    async def step(body: OsgymStepBody) -> Response:
        """Carry out an action string. On the last step the task is scored and the VM released."""
        return await vms.step(body)

    @raw.post("/shutdown")
    async def shutdown(body: ShutdownBody, request: Request) -> Response:
        """Stop a VM, or `"all"` VMs of this worker."""
        vms.shutdown(body.vm_id, _port(request))
        return JSONResponse({"vm_id": body.vm_id})

    @router.get("/health")
    async def health() -> dict[str, Any]:
        """Say that the service answers, as `GET /v1/health`. Needs no token."""
        return backend.host.health()

    @router.get("/screenshot")
    async def screenshot(vm_id: Annotated[int, Query(alias="vmId")]) -> Response:
        """Take a picture."""
        return await vms.screenshot(vm_id)

    router.include_router(raw)
    return router


def _port(request: Request) -> int:
    server = request.scope.get("server")
    return int(server[1]) if server is not None and server[1] is not None else 0
