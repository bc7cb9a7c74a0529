"""API v1: what people look at without a lease: desktops, episodes, events, the last hour."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse
from starlette.requests import Request

from osgym_host.api.answers import ERRORS, rows_response
from osgym_host.api.backend import Backend
from osgym_host.api.raw import ImageResponse
from osgym_host.errors import ServiceError
from osgym_protocol.codes import ErrorCode
from osgym_protocol.limits import MAX_ID_CHARS, MAX_SEQ

MAX_ROWS = 1000
MAX_RUN_ROWS = 5000
MIN_WIDTH_PX, MAX_WIDTH_PX = 32, 1920
_NOT_RECORDED = "This host has no recording of the episode (setting `trajectory`)."


def make_router(backend: Backend) -> APIRouter:
    router = APIRouter(responses=ERRORS)
    router.include_router(_host_routes(backend))
    router.include_router(_episode_routes(backend))
    return router


def _host_routes(backend: Backend) -> APIRouter:
    router = APIRouter(tags=["host"])
    host, screenshots = backend.host, backend.screenshots

    @router.get("/replicas", response_model=list[dict[str, Any]])
    async def replicas() -> Response:
        """List the replicas that are not gone."""
        return await rows_response(host.replicas())

    @router.get("/replicas/{replica_id}/screenshot", response_class=Response)
    async def screenshot(
        replica_id: str,
        request: Request,
        width: Annotated[int | None, Query(ge=MIN_WIDTH_PX, le=MAX_WIDTH_PX)] = None,
    ) -> Response:
        """Return any replica's screen: a PNG, or with `width` a WebP of that many pixels.

        The latter has an `ETag`, and 304 answers `If-None-Match` while the screen is the same.
        """
        if width is None:
            return ImageResponse((await screenshots.full(replica_id)).image)
        small = await screenshots.small(replica_id, width)
        headers = {"ETag": f'"{small.hash}"', "Cache-Control": "private, no-cache"}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(small.image, headers=headers, media_type="image/webp")

    @router.get("/events")
    async def events(
        after: Annotated[int, Query(ge=0)] = 0,
        wait_s: Annotated[float, Query(ge=0, le=300)] = 0,
        replica: Annotated[str | None, Query(max_length=MAX_ID_CHARS)] = None,
    ) -> dict[str, Any]:
        """Return events newer than `after`; wait up to `wait_s` for the first. `replica`: only its own."""
        return await host.events(after, wait_s, replica)

    @router.get("/history", response_model=dict[str, Any])
    async def history(last: Annotated[int | None, Query(ge=1)] = None) -> Response:
        """Return the last hour in samples: desktops, steps and creates with their times, load.

        `last`: only so many samples, the newest.
        """
        return JSONResponse(backend.history.to_dict(last))

    return router


def _episode_routes(backend: Backend) -> APIRouter:
    router = APIRouter(tags=["episodes"])
    recorder = backend.episodes.recorder

    @router.get("/episodes", response_model=list[dict[str, Any]])
    async def episodes(limit: Annotated[int, Query(ge=1, le=MAX_ROWS)] = 200) -> Response:
        """List the episodes that live and those that ended last, with their rewards and failures."""
        return await rows_response(backend.host.episodes(limit))

    @router.get("/runs", response_model=list[dict[str, Any]])
    async def runs() -> Response:
        """List the runs that clients named (`run` of a create): episodes, rewards, failures of each."""
        return await rows_response(backend.runs.names())

    @router.get("/runs/episodes", response_model=list[dict[str, Any]])
    async def run_episodes(
        run: Annotated[str, Query(min_length=1, max_length=MAX_ID_CHARS)],
        limit: Annotated[int, Query(ge=1, le=MAX_RUN_ROWS)] = MAX_RUN_ROWS,
    ) -> Response:
        """List the latest episodes of a run in the order of their ends; those that live come last."""
        return await rows_response(backend.runs.episodes(run, limit))

    @router.get("/episodes/{episode_id}/lines")
    async def lines(
        episode_id: str,
        after: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=MAX_ROWS)] = 200,
    ) -> dict[str, Any]:
        """Return the recorded lines behind the first `after`, without frames; `next` is for the next call."""
        await asyncio.to_thread(recorder.flush)
        try:
            found = await asyncio.to_thread(recorder.lines, episode_id, after, limit)
        except FileNotFoundError:
            raise ServiceError(ErrorCode.NOT_FOUND, _NOT_RECORDED) from None
        return {"lines": found, "next": after + len(found)}

    @router.get("/episodes/{episode_id}/frames/{step}", response_class=Response)
    async def frame(episode_id: str, step: int) -> Response:
        """Return the recorded frame that a step answered with; 0 is the first. It never changes."""
        if not 0 <= step <= MAX_SEQ:
            raise ServiceError(ErrorCode.NOT_FOUND, _NOT_RECORDED)
        try:
            image, image_format = await asyncio.to_thread(recorder.frame, episode_id, step)
        except FileNotFoundError:
            message = "The frame of this step was not recorded. Set `trajectory: frames` to record frames."
            raise ServiceError(ErrorCode.NOT_FOUND, message) from None
        headers = {"Cache-Control": "private, max-age=3600, immutable"}
        return Response(image, headers=headers, media_type=f"image/{image_format.value}")

    @router.get("/episodes/{episode_id}/replay", response_class=Response)
    async def replay(episode_id: str) -> Response:
        """Return an episode that ended as one page of HTML, as `osgym data replay` makes it."""
        page = await backend.replays.page(episode_id)
        headers = {
            "Content-Disposition": f'attachment; filename="{episode_id}.html"',
            "Content-Security-Policy": "sandbox; default-src 'none'",
            "X-Content-Type-Options": "nosniff",
        }
        return Response(page, headers=headers, media_type="text/html; charset=utf-8")

    return router
