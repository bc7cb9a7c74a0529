"""API v1: calls of operators on desktops that others lease, by the name of the replica."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from starlette.requests import Request

from osgym_host.api.answers import json_answer, record_answer
from osgym_host.api.backend import Backend
from osgym_host.api.raw import RawRoute, RecordResponse, cancel_on_disconnect
from osgym_host.http.access import caller_of, client_of, sender_of
from osgym_protocol import host_api


def make_router(backend: Backend) -> APIRouter:
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
