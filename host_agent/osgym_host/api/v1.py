"""The API v1, as ARCHITECTURE.md has it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse
from starlette.requests import Request

from osgym_host.api import branching, models
from osgym_host.api.answers import ERRORS, json_answer, record_answer
from osgym_host.api.backend import Backend
from osgym_host.api.errors import error_body
from osgym_host.api.raw import Part, RawRoute, RecordResponse, RecordStreamResponse, unless_gone
from osgym_host.episodes.episode import Frame
from osgym_host.episodes.errors import EpisodeError
from osgym_host.episodes.opening import Wish
from osgym_sdk import wire

RECORD_METAS: tuple[type[wire.Message], ...] = (wire.CreateAnswer, wire.StepAnswer)
"""What `x-meta` names: messages that only ever travel as the meta of a record."""


def make_router(backend: Backend) -> APIRouter:
    """Returns all routes of v1."""
    router = APIRouter(prefix="/v1")
    router.include_router(_hot_routes(backend))
    router.include_router(_lease_routes(backend))
    router.include_router(_episode_routes(backend))
    router.include_router(branching.make_router(backend))
    router.include_router(_host_routes(backend))
    router.include_router(_drain_routes(backend))
    return router


def _hot_routes(backend: Backend) -> APIRouter:
    """The calls that every step of a training run makes."""
    router = APIRouter(route_class=RawRoute, default_response_class=RecordResponse, tags=["episodes"])
    episodes = backend.episodes

    @router.post("/episodes/{episode_id}/step", responses=record_answer(wire.StepAnswer))
    async def step(episode_id: str, body: models.StepBody) -> Response:
        """Acts, waits for the screen, observes. A repeated `seq` acts no second time."""
        meta, image = await _step(backend, episode_id, body)
        return RecordResponse(meta, image)

    @router.post(
        "/steps", responses=record_answer(wire.StepAnswer, "Records as they are ready, each with `index`.")
    )
    async def steps(body: models.BatchBody) -> Response:
        """Carries out steps of many episodes at once and answers each as soon as it is ready."""
        works = [asyncio.create_task(_indexed(backend, i, item)) for i, item in enumerate(body.steps)]
        return RecordStreamResponse(_as_ready(works))

    @router.post("/episodes/{episode_id}/observe", responses=record_answer(wire.StepAnswer))
    async def observe(episode_id: str, body: models.ObserveCall) -> Response:
        """Takes a frame without acting."""
        began = time.perf_counter()
        frame = await episodes.observe(episode_id, body.lease, models.options(body.observe))
        return _frame(backend, episode_id, frame, began)

    @router.post("/episodes/{episode_id}/final", responses=record_answer(wire.StepAnswer))
    async def final(episode_id: str, body: models.FinalCall) -> Response:
        """Waits until the frame after step `seq` is known to be final, or the time is up."""
        began = time.perf_counter()
        frame = await episodes.final(
            episode_id, body.lease, body.seq, body.timeout_ms, models.options(body.observe)
        )
        return _frame(backend, episode_id, frame, began)

    return router


def _lease_routes(backend: Backend) -> APIRouter:
    """Getting an episode, and keeping it."""
    router = APIRouter(route_class=RawRoute, default_response_class=RecordResponse, tags=["episodes"])
    episodes = backend.episodes

    @router.post("/episodes", responses=record_answer(wire.CreateAnswer))
    async def create(body: models.CreateBody, request: Request) -> Response:
        """Leases a replica and sets the task up on it, or goes on from a checkpoint.

        Repeating `request_id` gives the same episode.
        """
        wish = Wish(
            task=body.task,
            wait_s=body.wait_s,
            lease_ttl_s=body.lease_ttl_s,
            max_steps=body.max_steps,
            observe=models.options(body.observe),
            settle=models.options(body.settle),
            checkpoint=body.checkpoint,
        )
        opened = await unless_gone(request, backend.requests.create(body.request_id, wish))
        meta = {
            "episode_id": opened.episode.episode_id,
            "lease": opened.episode.lease,
            "replica_id": opened.episode.replica_id,
            "generation": opened.episode.generation,
            "screen": list(opened.episode.screen),
            "observation": opened.frame.observation.to_dict(),
            "timing_ms": opened.timing_ms,
            "step": opened.episode.step_no,
            "last_seq": opened.episode.last_seq,
            "parent": opened.episode.parent.to_dict() if opened.episode.parent is not None else None,
        }
        return RecordResponse(meta, opened.frame.image)

    @router.post(
        "/leases/renew", responses=json_answer(wire.RenewAnswer), response_class=JSONResponse, tags=["leases"]
    )
    async def renew(body: models.RenewBody) -> Response:
        """Renews leases; says which are lost, and why."""
        renewed: list[str] = []
        lost: list[dict[str, Any]] = []
        for lease in body.leases:
            try:
                episodes.renew(lease)
                renewed.append(lease)
            except EpisodeError as error:
                lost.append({"lease": lease, "error": _error(error)})
        return JSONResponse({"renewed": renewed, "lost": lost, **_noticed(backend)})

    return router


def _error(error: EpisodeError) -> dict[str, Any]:
    return error_body(error.code, error.message, error.details)


async def _step(backend: Backend, episode_id: str, body: models.StepBody) -> tuple[dict[str, Any], bytes]:
    began = time.perf_counter()
    outcome = await backend.episodes.step(
        episode_id,
        body.lease,
        body.seq,
        body.actions,
        models.options(body.settle),
        models.options(body.observe),
    )
    host_ms = (time.perf_counter() - began) * 1000
    backend.metrics.host_s.observe((host_ms - outcome.guest_ms) / 1000)
    outcome.meta["timing_ms"] = {"host": round(host_ms, 3), "guest": round(outcome.guest_ms, 3)}
    outcome.meta.update(_noticed(backend))
    return outcome.meta, outcome.image


def _noticed(backend: Backend) -> dict[str, Any]:
    """What tells a client that this host will be taken away; nothing while it serves."""
    notice = backend.drain.notice
    return {} if notice is None else {"notice": notice.to_dict()}


async def _indexed(backend: Backend, index: int, item: models.BatchItem) -> Part:
    """One step of a batch: its record, or its error as one. Raises nothing."""
    try:
        meta, image = await _step(backend, item.episode_id, item)
    except EpisodeError as error:
        return {"index": index, "error": _error(error)}, b""
    meta["index"] = index
    return meta, image


def _frame(backend: Backend, episode_id: str, frame: Frame, began: float) -> Response:
    observation = frame.observation.to_dict()
    episode = backend.episodes.find(episode_id)
    observation["seq"] = episode.last_seq
    host_ms = (time.perf_counter() - began) * 1000
    meta: Mapping[str, Any] = {
        "observation": observation,
        "step": episode.step_no,
        "timing_ms": {"host": round(host_ms, 3)},
        **_noticed(backend),
    }
    return RecordResponse(meta, frame.image)


def _episode_routes(backend: Backend) -> APIRouter:
    """What happens once or seldom in an episode."""
    router = APIRouter(route_class=RawRoute, tags=["episodes"])
    episodes = backend.episodes

    @router.post("/episodes/{episode_id}/evaluate", responses=json_answer(wire.EvaluationAnswer))
    async def evaluate(episode_id: str, body: models.EvaluateCall) -> Response:
        """Scores the episode, once; a repetition gives the stored answer."""
        answer = await episodes.evaluate(episode_id, body.lease)
        return JSONResponse(answer.to_dict())

    @router.get("/episodes/{episode_id}", responses=json_answer(wire.EpisodeState))
    async def state(episode_id: str) -> Response:
        """Tells where the episode is, also after its end."""
        return JSONResponse({**episodes.find(episode_id).state().to_dict(), **_noticed(backend)})

    @router.get("/episodes/{episode_id}/trajectory", responses=record_answer(wire.StepAnswer))
    async def trajectory(episode_id: str) -> Response:
        """Returns what was recorded: one record per line, with its frame when frames are kept."""
        await asyncio.to_thread(backend.recorder.flush)
        parts = backend.recorder.read(episode_id)
        try:
            first = await asyncio.to_thread(next, parts, None)
        except FileNotFoundError:
            raise EpisodeError("not_found", 404, "Nothing was recorded of this episode.") from None
        return RecordStreamResponse(_one_by_one(first, parts))

    @router.delete("/episodes/{episode_id}", status_code=204, responses=ERRORS)
    async def close(episode_id: str, request: Request) -> Response:
        """Ends the episode (lease in the `OSGym-Lease` header). Idempotent."""
        episodes.close_by_lease(episode_id, request.headers.get(wire.LEASE_HEADER, ""))
        return Response(status_code=204)

    @router.delete("/requests/{request_id}", status_code=204, responses=ERRORS)
    async def undo(request_id: str) -> Response:
        """Undoes a create whose answer the client never saw. Idempotent."""
        backend.requests.undo(request_id[:128])
        return Response(status_code=204)

    return router


async def _as_ready(works: list[asyncio.Task[Part]]) -> AsyncIterator[Part]:
    """Gives results in the order in which they come. When the client goes away the works go on: each is
    bounded, and its client can ask again by its number."""
    for ready in asyncio.as_completed(works):
        yield await ready


async def _one_by_one(first: Part | None, rest: Iterator[Part]) -> AsyncIterator[Part]:
    """Reads a record when the one before was sent: a trajectory may be larger than memory."""
    part = first
    while part is not None:
        yield part
        part = await asyncio.to_thread(next, rest, None)


def _host_routes(backend: Backend) -> APIRouter:
    """The host itself."""
    router = APIRouter(tags=["host"], responses=ERRORS)
    host = backend.host

    @router.get("/health")
    async def health() -> dict[str, Any]:
        """Tells that the service answers. Needs no token."""
        return host.health()

    @router.get("/host", responses=json_answer(wire.HostState))
    async def state() -> Response:
        """Tells what this host is, what it has, and how loaded it is."""
        return JSONResponse(host.state().to_dict())

    @router.get("/pool")
    async def pool() -> dict[str, Any]:
        """Tells how the pool fills, and what keeps it from it."""
        return host.pool()

    @router.get("/replicas")
    async def replicas() -> list[dict[str, Any]]:
        """Lists the replicas that are not gone."""
        return host.replicas()

    @router.get("/replicas/{replica_id}/screenshot", response_class=Response)
    async def screenshot(replica_id: str) -> Response:
        """Returns a PNG of any replica's screen."""
        frame = await host.screenshot(replica_id)
        return Response(bytes(frame.image), media_type="image/png")

    @router.get("/events")
    async def events(
        after: Annotated[int, Query(ge=0)] = 0, wait_s: Annotated[float, Query(ge=0, le=300)] = 0
    ) -> dict[str, Any]:
        """Returns events newer than `after`; waits up to `wait_s` for the first."""
        return await host.events(after, wait_s)

    return router


def _drain_routes(backend: Backend) -> APIRouter:
    """Emptying the host."""
    router = APIRouter(tags=["host"], responses=ERRORS)
    host = backend.host

    @router.post("/drain", responses=json_answer(wire.HostState))
    async def drain(body: models.DrainBody | None = None) -> Response:
        """Empties the host: no new episodes; those still open end shortly before `deadline_s` are over.

        Without `deadline_s` they end when their clients end them. Asking again replaces the deadline.
        """
        backend.drain.ask(None if body is None else body.deadline_s)
        return JSONResponse(host.state().to_dict())

    @router.delete("/drain", responses=json_answer(wire.HostState))
    async def undrain() -> Response:
        """Takes `POST /v1/drain` back. Refused while somebody else takes the host away. Idempotent."""
        backend.drain.undo()
        return JSONResponse(host.state().to_dict())

    return router
