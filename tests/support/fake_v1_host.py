"""A small server that speaks host API v1, and misbehaves on request: for tests of the SDK only."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import socket
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from PIL import Image
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from osgym_protocol.codes import Done, ErrorCode, ImageFormat, SettlePolicy, SettleReason
from osgym_protocol.host_api import (
    LEASE_HEADER,
    BatchStepItem,
    BatchStepRequest,
    CreateAnswer,
    CreateRequest,
    EpisodeState,
    EvaluationAnswer,
    HostCapacity,
    HostImage,
    HostLoad,
    HostState,
    LostLease,
    RenewAnswer,
    RenewRequest,
    StepAnswer,
    StepRequest,
)
from osgym_protocol.observation import (
    ActionResult,
    ErrorInfo,
    FrameInfo,
    Observation,
    PreviousFrame,
    SettleInfo,
)
from osgym_protocol.records import RECORDS_TYPE, decode_record, encode_record

SCREEN = (64, 48)

Fault = Callable[[Scope, Receive, Send, Any], Awaitable[None]]


def frame(number: int) -> bytes:
    """A PNG whose colour is the number."""
    out = io.BytesIO()
    Image.new("RGB", SCREEN, (number % 256, 10, 20)).save(out, "PNG")
    return out.getvalue()


class Refused(Exception):
    """Becomes an error answer."""

    def __init__(self, status: int, code: str, message: str, **details: Any) -> None:
        self.status = status
        self.info = ErrorInfo(code, message, details)


@dataclass
class Episode:
    episode_id: str
    lease: str
    request: CreateRequest
    replica: int
    seq: int = 0
    acted: list[Any] = field(default_factory=list)
    answers: dict[int, bytes] = field(default_factory=dict)
    ended: str | None = None
    lost: str | None = None
    evaluations: int = 0
    renewals: int = 0


class FakeV1Host:
    """State of the server; tests read and set its fields while it runs."""

    def __init__(self, replicas: int = 4, token: str | None = None) -> None:
        self.token = token
        self.replicas = replicas
        self.free = deque(range(replicas))
        self.episodes: dict[str, Episode] = {}
        self.by_request: dict[str, Episode] = {}
        self.cancelled: set[str] = set()
        self.calls: list[tuple[str, str]] = []
        self.faults: deque[tuple[str, Fault]] = deque()
        self.step_delay_s = 0.0
        self.create_delay_s = 0.0
        self.reward: float = 1.0
        self.busy = 0
        self.most_busy = 0
        self.draining = False
        self.cut_batch_after = -1
        self.connections: set[tuple[str, int]] = set()
        self._ids = itertools.count(1)
        routes = [
            Route("/v1/host", self.host),
            Route("/v1/episodes", self.create, methods=["POST"]),
            Route("/v1/episodes/{id}", self.state, methods=["GET"]),
            Route("/v1/episodes/{id}", self.delete, methods=["DELETE"]),
            Route("/v1/episodes/{id}/step", self.step, methods=["POST"]),
            Route("/v1/episodes/{id}/observe", self.observe, methods=["POST"]),
            Route("/v1/episodes/{id}/final", self.final, methods=["POST"]),
            Route("/v1/episodes/{id}/evaluate", self.evaluate, methods=["POST"]),
            Route("/v1/requests/{id}", self.undo, methods=["DELETE"]),
            Route("/v1/steps", self.steps, methods=["POST"]),
            Route("/v1/leases/renew", self.renew, methods=["POST"]),
        ]
        self._app = Starlette(routes=routes, exception_handlers={Refused: _refused})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self.calls.append((scope["method"], scope["path"]))
        self.connections.add(tuple(scope["client"]))
        headers = dict(scope["headers"])
        if self.token and headers.get(b"authorization") != f"Bearer {self.token}".encode():
            body = {"code": "unauthorized", "message": "no or wrong token", "details": {}}
            await JSONResponse(body, 401)(scope, receive, send)
            return

        async def serve(answer: Send = send) -> None:
            await self._app(scope, receive, answer)

        for item in list(self.faults):
            if scope["path"].endswith(item[0]):
                self.faults.remove(item)
                await item[1](scope, receive, send, serve)
                return
        await serve()

    def live(self) -> list[Episode]:
        """Episodes that hold a replica."""
        return [e for e in self.episodes.values() if e.ended is None and e.lost is None]

    def lose(self, episode: Episode, cause: str) -> None:
        """Takes the replica away."""
        episode.lost = cause
        self.free.append(episode.replica)

    async def host(self, request: Request) -> Response:
        return JSONResponse(self.host_state().to_dict())

    def host_state(self) -> HostState:
        leased = len(self.live())
        return HostState(
            host_id="fake",
            version="1",
            runtime="none",
            image=HostImage("0" * 8, "small"),
            screen=SCREEN,
            capacity=HostCapacity(self.replicas, len(self.free), leased),
            load=HostLoad(1, 0.0, 1.0, 1.0),
            draining=self.draining,
        )

    async def create(self, request: Request) -> Response:
        wanted = CreateRequest.from_dict(await request.json())
        task = wanted.task or {}
        if task.get("id") == "broken-setup":
            raise Refused(424, ErrorCode.SETUP_FAILED, "setup step 0 failed")
        if wanted.request_id in self.cancelled:
            raise Refused(409, ErrorCode.CANCELLED, "this request was cancelled")
        episode = self.by_request.get(wanted.request_id)
        if episode is None:
            end = asyncio.get_running_loop().time() + wanted.wait_s
            while not self.free:
                if asyncio.get_running_loop().time() >= end:
                    raise Refused(503, ErrorCode.NO_CAPACITY, f"no replica within {wanted.wait_s} s")
                await asyncio.sleep(0.01)
            number = next(self._ids)
            episode = Episode(f"e{number}", f"lease-{number}", wanted, self.free.popleft())
            self.by_request[wanted.request_id] = self.episodes[episode.episode_id] = episode
            await asyncio.sleep(self.create_delay_s)
        answer = CreateAnswer(
            episode.episode_id,
            episode.lease,
            f"r{episode.replica}",
            int(episode.episode_id[1:]),
            SCREEN,
            self._meta(episode, changed=True),
            {"wait": 1.0, "setup": 2.0, "observe": 3.0, "total": 6.0},
        )
        return _record(answer.to_dict(), frame(0))

    async def state(self, request: Request) -> Response:
        episode = self._find(request.path_params["id"], request.headers.get(LEASE_HEADER, ""))
        state = EpisodeState(episode.episode_id, f"r{episode.replica}", 1, "active", episode.seq, episode.seq)
        return JSONResponse(state.to_dict())

    async def delete(self, request: Request) -> Response:
        episode = self._find(request.path_params["id"], request.headers.get(LEASE_HEADER, ""))
        self._end(episode, "closed")
        return Response(status_code=204)

    async def undo(self, request: Request) -> Response:
        self.cancelled.add(request.path_params["id"])
        episode = self.by_request.get(request.path_params["id"])
        if episode is not None:
            self._end(episode, "undone")
        return Response(status_code=204)

    def _end(self, episode: Episode, why: str) -> None:
        if episode.ended is None and episode.lost is None:
            episode.ended = why
            self.free.append(episode.replica)

    async def step(self, request: Request) -> Response:
        body = await request.json()
        data = await self._do_step(request.path_params["id"], StepRequest.from_dict(body))
        return Response(data, media_type=RECORDS_TYPE)

    async def steps(self, request: Request) -> Response:
        wanted = BatchStepRequest.from_dict(await request.json())

        async def one(index: int, item: BatchStepItem) -> bytes:
            step = StepRequest(item.lease, item.seq, item.actions, item.settle, item.observe)
            try:
                record = decode_record(await self._do_step(item.episode_id, step))
            except Refused as exc:
                return encode_record({"index": index, "error": exc.info.to_dict()})
            return encode_record({**record.meta, "index": index}, record.blob)

        async def answers() -> AsyncIterator[bytes]:
            for count, item in enumerate(wanted.steps):
                if count == self.cut_batch_after:
                    raise ConnectionAbortedError
                yield await one(count, item)

        return StreamingResponse(answers(), media_type=RECORDS_TYPE)

    async def _do_step(self, episode_id: str, wanted: StepRequest) -> bytes:
        episode = self._find(episode_id, wanted.lease)
        if wanted.seq in episode.answers:
            return episode.answers[wanted.seq]
        if wanted.seq != episode.seq + 1:
            raise Refused(409, ErrorCode.BAD_SEQUENCE, f"expected {episode.seq + 1}")
        if "nonsense" in wanted.actions:
            raise Refused(400, ErrorCode.INVALID_ACTION, "cannot parse 'nonsense'")
        if episode.ended or episode.request.max_steps == episode.seq:
            raise Refused(409, ErrorCode.EPISODE_ENDED, "the episode has ended")
        episode.seq = wanted.seq
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        try:
            episode.acted.extend(wanted.actions)
            await asyncio.sleep(self.step_delay_s)
        finally:
            self.busy -= 1
        done = None
        if "finish()" in wanted.actions:
            done = Done.DONE
        elif episode.request.max_steps == episode.seq:
            done = Done.MAX_STEPS
        known = wanted.observe.unless_hash if wanted.observe else None
        unchanged = wanted.actions == ("wait()",) and known is not None
        answer = StepAnswer(
            self._meta(episode, changed=not unchanged, hash_=known),
            episode.seq,
            tuple({"op": "click"} for _ in wanted.actions),
            done,
            {"host": 9.0, "guest": 8.0},
        )
        data = encode_record(answer.to_dict(), b"" if unchanged else frame(episode.seq))
        episode.answers[wanted.seq] = data
        return data

    async def observe(self, request: Request) -> Response:
        body = await request.json()
        episode = self._find(request.path_params["id"], body["lease"])
        answer = StepAnswer(self._meta(episode, changed=True))
        return _record(answer.to_dict(), frame(episode.seq + 100))

    async def final(self, request: Request) -> Response:
        body = await request.json()
        episode = self._find(request.path_params["id"], body["lease"])
        meta = self._meta(episode, changed=True).to_dict()
        meta["final"] = True
        meta["previous"] = PreviousFrame(episode.seq, False, 80.0).to_dict()
        return _record({"observation": meta}, frame(episode.seq + 200))

    async def evaluate(self, request: Request) -> Response:
        body = await request.json()
        episode = self._find(request.path_params["id"], body["lease"])
        episode.evaluations += 1
        if (episode.request.task or {}).get("id") == "broken-check":
            error = ErrorInfo(ErrorCode.EVALUATOR_ERROR, "the check raised KeyError")
            answer: dict[str, Any] = {
                "reward": None,
                "details": [],
                "error": error.to_dict(),
                "termination_reason": "evaluator_error",
                "error_class": "task",
                "valid_for_training": False,
            }
            return JSONResponse(answer)
        good = EvaluationAnswer(self.reward, "done", True, ({"metric": "x", "score": self.reward},))
        return JSONResponse(good.to_dict())

    async def renew(self, request: Request) -> Response:
        wanted = RenewRequest.from_dict(await request.json())
        by_lease = {e.lease: e for e in self.episodes.values()}
        renewed, lost = [], []
        for lease in wanted.leases:
            episode = by_lease[lease]
            if episode.lost:
                info = ErrorInfo(ErrorCode.EPISODE_LOST, "the replica died", {"cause": episode.lost})
                lost.append(LostLease(lease, info))
            else:
                episode.renewals += 1
                renewed.append(lease)
        return JSONResponse(RenewAnswer(tuple(renewed), tuple(lost)).to_dict())

    def _find(self, episode_id: str, lease: str) -> Episode:
        episode = self.episodes.get(episode_id)
        if episode is None:
            raise Refused(404, ErrorCode.UNKNOWN_EPISODE, "no such episode")
        if episode.lease != lease:
            raise Refused(403, ErrorCode.LEASE_MISMATCH, "not the lease of this episode")
        if episode.lost:
            raise Refused(410, ErrorCode.EPISODE_LOST, "the replica died", cause=episode.lost)
        return episode

    def _meta(self, episode: Episode, changed: bool, hash_: str | None = None) -> Observation:
        return Observation(
            frame=FrameInfo(
                hash=hash_ if not changed and hash_ else f"h{episode.seq}",
                format=ImageFormat.PNG,
                width=SCREEN[0],
                height=SCREEN[1],
                screen=SCREEN,
                unchanged=not changed,
            ),
            seq=episode.seq,
            results=(ActionResult(True, "click"),),
            settle=SettleInfo(SettlePolicy.EXACT, SettleReason.QUIET, 3.0, 1.0),
            previous=PreviousFrame(episode.seq - 1, False, 40.0) if episode.seq > 1 else None,
            timing_ms={"input": 1.0, "settle": 3.0, "capture": 0.5, "encode": 2.0, "total": 7.0},
        )


def _record(meta: dict[str, Any], blob: bytes) -> Response:
    return Response(encode_record(meta, blob), media_type=RECORDS_TYPE)


async def _refused(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, Refused)
    return JSONResponse(exc.info.to_dict(), exc.status)


async def drop_after(scope: Scope, receive: Receive, send: Send, serve: Any) -> None:
    """Does everything, then breaks the connection before a byte of the answer is out."""

    async def swallow(message: Any) -> None:
        return None

    await serve(swallow)
    send.__self__.transport.abort()  # type: ignore[attr-defined] # uvicorn's: the only way to its socket


async def drop_before(scope: Scope, receive: Receive, send: Send, serve: Any) -> None:
    """Breaks the connection and does nothing."""
    send.__self__.transport.abort()  # type: ignore[attr-defined] # as above


async def truncated(scope: Scope, receive: Receive, send: Send, serve: Any) -> None:
    """A record that promises more than it holds."""
    data = encode_record({"observation": {}}, b"x" * 100)[:-30]
    await Response(data, media_type=RECORDS_TYPE)(scope, receive, send)


async def garbage(scope: Scope, receive: Receive, send: Send, serve: Any) -> None:
    """Something that is no record."""
    await Response(b"\xff" * 64, media_type=RECORDS_TYPE)(scope, receive, send)


async def bad_gateway(scope: Scope, receive: Receive, send: Send, serve: Any) -> None:
    """What a proxy in between says."""
    await Response("<html>bad gateway</html>", 502)(scope, receive, send)


async def never(scope: Scope, receive: Receive, send: Send, serve: Any) -> None:
    """Answers nothing until the client goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass


@dataclass
class Running:
    """A server that runs in a thread of this process."""

    host: FakeV1Host
    url: str
    server: uvicorn.Server
    thread: threading.Thread

    def stop(self) -> None:
        """Ends it, connections and all."""
        self.server.should_exit = True
        self.server.force_exit = True
        self.thread.join(10)


@contextlib.contextmanager
def serving(
    host: FakeV1Host, port: int = 0, address: str = "127.0.0.1", **uvicorn_options: Any
) -> Iterator[Running]:
    """Runs ``host`` on loopback; the port is bound before the thread starts."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((address, port))
    sock.listen(1024)
    config = uvicorn.Config(host, log_level="critical", lifespan="off", **uvicorn_options)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([sock])), name="v1-host", daemon=True)
    thread.start()
    scheme = "https" if uvicorn_options.get("ssl_certfile") else "http"
    running = Running(host, f"{scheme}://{address}:{sock.getsockname()[1]}", server, thread)
    try:
        yield running
    finally:
        running.stop()
        sock.close()
