"""API v1: forks and checkpoints."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.requests import Request

from osgym_host.api.answers import ERRORS, json_answer
from osgym_host.api.backend import Backend
from osgym_host.api.raw import RawRoute, cancel_on_disconnect
from osgym_host.http.access import client_of, sender_of
from osgym_protocol import host_api

BYTES_TYPE = "application/octet-stream"
_STREAM: dict[str, Any] = {BYTES_TYPE: {"schema": {"type": "string", "format": "binary"}}}


def make_router(backend: Backend) -> APIRouter:
    router = APIRouter()
    router.include_router(_episode_routes(backend))
    router.include_router(_checkpoint_routes(backend))
    return router


def _episode_routes(backend: Backend) -> APIRouter:
    router = APIRouter(route_class=RawRoute, tags=["branching"])

    @router.post("/episodes/{episode_id}/fork", responses=json_answer(host_api.ForkAnswer))
    async def fork(episode_id: str, body: host_api.ForkRequest, request: Request) -> Response:
        """Make children that go on where the episode is, all of them or none.

        Waits for a running step. Repeating `request_id` gives the same children.
        """
        client, sender = client_of(request.scope), sender_of(request.scope)
        work = backend.requests.fork(episode_id, body, client, sender)
        return JSONResponse((await cancel_on_disconnect(request, work)).to_dict())

    @router.post("/episodes/{episode_id}/checkpoint", responses=json_answer(host_api.CheckpointInfo))
    async def checkpoint(episode_id: str, body: host_api.CheckpointRequest, request: Request) -> Response:
        """Take a checkpoint; without `keep` it goes with the episode's lease.

        Waits for a running step. Repeating `request_id` gives the same checkpoint.
        """
        work = backend.requests.checkpoint(episode_id, body, sender_of(request.scope))
        return JSONResponse((await cancel_on_disconnect(request, work)).to_dict())

    return router


def _checkpoint_routes(backend: Backend) -> APIRouter:
    router = APIRouter(tags=["branching"])
    checkpoints = backend.checkpoints

    @router.get("/checkpoints", responses=json_answer(host_api.CheckpointList))
    async def listing() -> Response:
        """List the checkpoints of this host."""
        await checkpoints.refresh()
        return JSONResponse(checkpoints.listing().to_dict())

    @router.post(
        "/checkpoints/import",
        responses=json_answer(host_api.CheckpointInfo),
        openapi_extra={"requestBody": {"required": True, "content": _STREAM}},
    )
    async def take_in(request: Request) -> Response:
        """Take in what `export` of another host gave, which has the same golden snapshot."""
        return JSONResponse((await checkpoints.import_stream(request.stream())).to_dict())

    @router.delete("/checkpoints/{checkpoint_id}", status_code=204, responses=ERRORS)
    async def delete(checkpoint_id: str) -> Response:
        """Delete a checkpoint; episodes that were made from it are not affected."""
        checkpoints.delete(checkpoint_id)
        return Response(status_code=204)

    @router.get(
        "/checkpoints/{checkpoint_id}/export",
        response_class=StreamingResponse,
        responses={**ERRORS, 200: {"description": "The checkpoint.", "content": _STREAM}},
    )
    async def export(checkpoint_id: str) -> Response:
        """Return a kept checkpoint, for `import` of another host."""
        length, pieces = await checkpoints.export(checkpoint_id)
        headers = {"content-length": str(length)}
        return StreamingResponse(pieces, media_type=BYTES_TYPE, headers=headers)

    return router
