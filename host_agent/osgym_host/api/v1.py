"""API v1, as docs/protocol.md describes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from starlette.requests import Request

from osgym_host.api import branching, looking, reach
from osgym_host.api.answers import ERRORS, json_answer, record_answer
from osgym_host.api.backend import Backend
from osgym_host.api.raw import RawRoute, RecordResponse, RecordStreamResponse, cancel_on_disconnect
from osgym_host.episodes.recorder import RecordMode
from osgym_host.episodes.service import EpisodeService
from osgym_host.errors import ServiceError
from osgym_host.http.access import caller_of, client_of, sender_of
from osgym_protocol import host_api
from osgym_protocol.codec import Message
from osgym_protocol.codes import ErrorCode
from osgym_protocol.reach import A11yAnswer, FileAnswer
from osgym_protocol.records import Record

RECORD_METAS: tuple[type[Message], ...] = (
    host_api.CreateAnswer,
    host_api.StepAnswer,
    FileAnswer,
    A11yAnswer,
)
"""Messages that travel only as the meta of a record, to which `x-meta` refers."""


def make_router(backend: Backend) -> APIRouter:
    router = APIRouter(prefix="/v1")
    router.include_router(_hot_routes(backend))
    router.include_router(_lease_routes(backend))
    router.include_router(_episode_routes(backend))
    router.include_router(branching.make_router(backend))
    router.include_router(reach.make_router(backend.reaches))
    router.include_router(_state_routes(backend))
    router.include_router(_drain_routes(backend))
    router.include_router(looking.make_router(backend))
    router.include_router(_operator_routes(backend))
    return router


def _hot_routes(backend: Backend) -> APIRouter:
    """Return the routes that every step of a training run uses."""
    router = APIRouter(route_class=RawRoute, default_response_class=RecordResponse, tags=["episodes"])
    episodes = backend.episodes

    @router.post("/episodes/{episode_id}/step", responses=record_answer(host_api.StepAnswer))
    async def step(episode_id: str, body: host_api.StepRequest) -> Response:
        """Acts, waits for the screen, observes. A repeated `seq` acts no second time."""
        return RecordResponse(await episodes.step(episode_id, body))

    @router.post(
        "/steps",
        responses=record_answer(host_api.StepAnswer, "Records as they are ready, each with `index`."),
    )
    async def steps(body: host_api.BatchStepRequest) -> Response:
        """Carry out steps of many episodes at once and answer each as soon as it is ready."""
        works = [asyncio.create_task(_indexed(episodes, i, item)) for i, item in enumerate(body.steps)]
        return RecordStreamResponse(_as_ready(works))

    @router.post("/episodes/{episode_id}/observe", responses=record_answer(host_api.StepAnswer))
    async def observe(episode_id: str, body: host_api.ObserveRequest) -> Response:
        """Take a frame without acting."""
        return RecordResponse(await episodes.observe(episode_id, body))

    @router.post("/episodes/{episode_id}/final", responses=record_answer(host_api.StepAnswer))
    async def final(episode_id: str, body: host_api.FinalRequest) -> Response:
        """Wait until the frame after step `seq` is known to be final, or the time is up."""
        return RecordResponse(await episodes.final(episode_id, body))

    return router


def _lease_routes(backend: Backend) -> APIRouter:
    router = APIRouter(route_class=RawRoute, default_response_class=RecordResponse, tags=["episodes"])
    episodes = backend.episodes

    @router.post("/episodes", responses=record_answer(host_api.CreateAnswer))
    async def create(body: host_api.CreateRequest, request: Request) -> Response:
        """Lease a replica and set the task up on it, or go on from a checkpoint.

        Repeating `request_id` gives the same episode.
        """
        work = backend.requests.create(body, client_of(request.scope), sender_of(request.scope))
        opened = await cancel_on_disconnect(request, work)
        episode = opened.episode
        answer = host_api.CreateAnswer(
            episode_id=episode.episode_id,
            lease=episode.lease.token,
            replica_id=episode.replica.replica_id,
            generation=episode.replica.generation,
            screen=episode.terms.screen,
            observation=opened.frame.observation,
            timing_ms=opened.timing_ms,
            step=episode.steps.progress.step,
            last_seq=episode.steps.progress.seq,
            parent=episode.parent,
            setup_warnings=episode.setup_warnings,
            template=episode.template,
            warm_apps=episode.warm_apps,
            notes=True if backend.episodes.recorder.mode is not RecordMode.OFF else None,
            image_digest=episode.image_digest or None,
        )
        return RecordResponse(Record(answer.to_dict(), opened.frame.image))

    @router.post(
        "/leases/renew",
        responses=json_answer(host_api.RenewAnswer),
        response_class=JSONResponse,
        tags=["leases"],
    )
    async def renew(body: host_api.RenewRequest) -> Response:
        """Renew leases; say which are lost, and why."""
        renewed: list[str] = []
        lost: list[host_api.LostLease] = []
        for lease in body.leases:
            try:
                episodes.renew(lease)
                renewed.append(lease)
            except ServiceError as error:
                lost.append(host_api.LostLease(lease, error.info()))
        answer = host_api.RenewAnswer(tuple(renewed), tuple(lost), episodes.notice)
        return JSONResponse(answer.to_dict())

    return router


async def _indexed(episodes: EpisodeService, index: int, item: host_api.BatchStepItem) -> Record:
    """Return one step of a batch: its record, or its error as a record. Raises nothing."""
    try:
        record = await episodes.step(item.episode_id, item)
    except ServiceError as error:
        return Record({"index": index, "error": error.info().to_dict()})
    record.meta["index"] = index
    return record


def _episode_routes(backend: Backend) -> APIRouter:
    """Return the routes that an episode uses once or seldom."""
    router = APIRouter(route_class=RawRoute, tags=["episodes"])
    episodes = backend.episodes

    @router.post("/episodes/{episode_id}/evaluate", responses=json_answer(host_api.EvaluationAnswer))
    async def evaluate(episode_id: str, body: host_api.EpisodeCall) -> Response:
        """Score the episode, once; a repetition gives the stored answer."""
        answer = await episodes.evaluate(episode_id, body.lease)
        return JSONResponse(answer.to_dict())

    @router.get("/episodes/{episode_id}", responses=json_answer(host_api.EpisodeState))
    async def state(episode_id: str) -> Response:
        """Return where the episode is, also after its end."""
        return JSONResponse(replace(episodes.find(episode_id).state(), notice=episodes.notice).to_dict())

    @router.get("/episodes/{episode_id}/trajectory", responses=record_answer(host_api.StepAnswer))
    async def trajectory(episode_id: str) -> Response:
        """Return what was recorded: one record per line, with its frame when frames are kept."""
        await asyncio.to_thread(episodes.recorder.flush)
        records = episodes.recorder.read(episode_id)
        try:
            first = await asyncio.to_thread(next, records, None)
        except FileNotFoundError:
            raise ServiceError(
                ErrorCode.NOT_FOUND, "This host has no recording of the episode (setting `trajectory`)."
            ) from None
        return RecordStreamResponse(_one_by_one(first, records))

    @router.delete("/episodes/{episode_id}", status_code=204, responses=ERRORS)
    async def close(episode_id: str, request: Request) -> Response:
        """End the episode (lease in the `OSGym-Lease` header). Idempotent."""
        episodes.close_by_lease(episode_id, request.headers.get(host_api.LEASE_HEADER, ""))
        return Response(status_code=204)

    @router.delete("/requests/{request_id}", status_code=204, responses=ERRORS)
    async def undo(request_id: str, request: Request) -> Response:
        """Undo a create whose answer the client never saw. Idempotent."""
        backend.requests.undo(request_id[:128], sender_of(request.scope))
        return Response(status_code=204)

    return router


async def _as_ready(works: list[asyncio.Task[Record]]) -> AsyncIterator[Record]:
    """Yield results as they are ready. After a disconnect the steps continue: each is bounded, and its client
    can repeat it by its number."""
    for ready in asyncio.as_completed(works):
        yield await ready


async def _one_by_one(first: Record | None, rest: Iterator[Record]) -> AsyncIterator[Record]:
    """Read a record once the one before is sent, since a trajectory may exceed memory."""
    record = first
    while record is not None:
        yield record
        record = await asyncio.to_thread(next, rest, None)


def _operator_routes(backend: Backend) -> APIRouter:
    router = APIRouter(route_class=RawRoute, tags=["operating"])
    interventions, requests = backend.interventions, backend.requests

    @router.post("/replicas/{replica_id}/intervene", responses=record_answer(host_api.StepAnswer))
    async def intervene(replica_id: str, body: host_api.InterveneRequest, request: Request) -> Response:
        """Act between two steps of the policy; its trajectory says so, and its reward is not for training.

        `seq` counts from 1 in each `session`; the last one again acts no second time.
        """
        return RecordResponse(await interventions.act(replica_id, body, by=caller_of(request.scope)[1]))

    @router.post("/replicas/{replica_id}/fork", responses=json_answer(host_api.ForkAnswer))
    async def fork(replica_id: str, body: host_api.ReplicaForkRequest, request: Request) -> Response:
        """Make one child that goes on where the desktop is, for a person: of no run, with no bound of steps.

        Repeating `request_id` gives the same child.
        """
        parent = interventions.episode_on(replica_id)
        asked = host_api.ForkRequest(
            body.request_id, parent.lease.token, 1, body.lease_ttl_s, wait_s=body.wait_s
        )
        client, sender = client_of(request.scope), sender_of(request.scope)
        work = requests.fork(parent.episode_id, asked, client, sender, for_person=True)
        return JSONResponse((await cancel_on_disconnect(request, work)).to_dict())

    @router.post("/replicas/{replica_id}/checkpoint", responses=json_answer(host_api.CheckpointInfo))
    async def checkpoint(
        replica_id: str, body: host_api.ReplicaCheckpointRequest, request: Request
    ) -> Response:
        """Take a checkpoint that is kept until its `ttl_s` is over or somebody deletes it.

        Repeating `request_id` gives the same checkpoint.
        """
        episode = interventions.episode_on(replica_id)
        asked = host_api.CheckpointRequest(body.request_id, episode.lease.token, keep=True, ttl_s=body.ttl_s)
        work = requests.checkpoint(episode.episode_id, asked, sender_of(request.scope))
        return JSONResponse((await cancel_on_disconnect(request, work)).to_dict())

    return router


def _state_routes(backend: Backend) -> APIRouter:
    router = APIRouter(tags=["host"], responses=ERRORS)
    host = backend.host

    @router.get("/health")
    async def health() -> dict[str, Any]:
        """Say that the service answers. Needs no token."""
        return host.health()

    @router.get("/host", responses=json_answer(host_api.HostState))
    async def state() -> Response:
        """Return what this host is, what it has, and how loaded it is."""
        return JSONResponse(host.state().to_dict())

    @router.get("/access")
    async def access(request: Request) -> dict[str, str | None]:
        """Return what the caller may do: the `scope` and, if it has one, the name of its `token`."""
        scope, name = caller_of(request.scope)
        return {"scope": str(scope), "token": name}

    @router.get("/pool")
    async def pool() -> dict[str, Any]:
        """Return how the pool fills, and what keeps it from it."""
        return host.pool()

    return router


def _drain_routes(backend: Backend) -> APIRouter:
    router = APIRouter(tags=["host"], responses=ERRORS)
    host = backend.host

    @router.post("/drain", responses=json_answer(host_api.HostState))
    async def drain(request: Request, body: host_api.DrainRequest | None = None) -> Response:
        """Empty the host: no new episodes; those still open end shortly before `deadline_s` are over.

        Without `deadline_s` they end when their clients end them. Asking again replaces the deadline.
        """
        backend.drain.request(None if body is None else body.deadline_s, by=caller_of(request.scope)[1])
        return JSONResponse(host.state().to_dict())

    @router.delete("/drain", responses=json_answer(host_api.HostState))
    async def undrain(request: Request) -> Response:
        """Take `POST /v1/drain` back. Refused while somebody else takes the host away. Idempotent."""
        backend.drain.cancel(by=caller_of(request.scope)[1])
        return JSONResponse(host.state().to_dict())

    return router
