"""API v1: the host's state, and draining."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from starlette.requests import Request

from osgym_host.api.answers import ERRORS, json_answer
from osgym_host.api.backend import Backend
from osgym_host.http.access import caller_of
from osgym_protocol import host_api


def make_router(backend: Backend) -> APIRouter:
    router = APIRouter()
    router.include_router(_state_routes(backend))
    router.include_router(_drain_routes(backend))
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
