"""API v1: reach into an episode's desktop past its screen."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from osgym_host.api.answers import ERRORS, json_answer, record_answer
from osgym_host.api.raw import RawRoute, RecordResponse, cancel_on_disconnect
from osgym_host.episodes.reach import ReachService
from osgym_host.episodes.tunnel import EpisodeTunnel
from osgym_host.http.bodies import TUNNEL_SUFFIX
from osgym_protocol import limits, reach
from osgym_protocol.host_api import LEASE_HEADER, EpisodeCall, EvaluationAnswer
from osgym_protocol.records import Record

BYTES_TYPE = "application/octet-stream"
_BYTES: dict[str, Any] = {BYTES_TYPE: {"schema": {"type": "string", "format": "binary"}}}


class TunnelResponse(Response):
    """Connection to a port: the request's body goes to the port, the port's bytes are the answer's body.

    Both go on at once, so request and answer are sent in pieces and the request ends when the client
    closes its side.
    """

    media_type = BYTES_TYPE

    def __init__(self, tunnel: EpisodeTunnel) -> None:
        self._tunnel = tunnel
        self.status_code = 200
        self.background = None
        self.raw_headers = [(b"content-type", BYTES_TYPE.encode())]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Relay until either side ends."""

        async def take() -> bytes | None:
            message = await receive()
            body: bytes | None = message.get("body", b"")
            if message["type"] == "http.disconnect":
                return None
            # A piece may be empty without being the last one.
            return await take() if not body and message.get("more_body", False) else body

        async def give(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": b"", "more_body": True})
            if await self._tunnel.relay(take, give):
                await send({"type": "http.response.body", "body": b""})
        finally:
            self._tunnel.close()


def make_router(reaches: ReachService) -> APIRouter:
    router = APIRouter(route_class=RawRoute, tags=["reach"])

    @router.post("/episodes/{episode_id}/execute", responses=json_answer(reach.CommandResult))
    async def execute(episode_id: str, request: Request, body: reach.ExecuteRequest) -> Response:
        """Run a command in the desktop to its end. Repeating `request_id` runs nothing a second time.

        Its client disconnects: unless it asks again, the command ends some seconds later.
        """
        answer = await cancel_on_disconnect(request, reaches.execute(episode_id, body))
        return JSONResponse(answer.to_dict())

    @router.post("/episodes/{episode_id}/score", responses=json_answer(EvaluationAnswer))
    async def score(episode_id: str, body: reach.ScoreRequest) -> Response:
        """Score the desktop as it is; the episode goes on. Repeating `request_id` gives the same answer."""
        return JSONResponse((await reaches.score(episode_id, body)).to_dict())

    @router.post("/episodes/{episode_id}/file", responses=record_answer(reach.FileAnswer))
    async def read_file(episode_id: str, body: reach.ReadFileRequest) -> Response:
        """Read a file of the desktop: the blob of the record."""
        data = await reaches.read_file(episode_id, body)
        blob = bytes(data) if isinstance(data, bytearray) else data
        return RecordResponse(Record(reach.FileAnswer(len(blob)).to_dict(), blob))

    @router.post("/episodes/{episode_id}/a11y", responses=record_answer(reach.A11yAnswer))
    async def a11y(episode_id: str, body: reach.A11yRequest) -> Response:
        """Return the accessibility tree: XML, the blob of the record."""
        xml, truncated = await reaches.a11y(episode_id, body)
        return RecordResponse(Record(reach.A11yAnswer(truncated).to_dict(), xml))

    @router.post("/episodes/{episode_id}/windows", responses=json_answer(reach.WindowsAnswer))
    async def windows(episode_id: str, body: EpisodeCall) -> Response:
        """List the desktop's windows."""
        return JSONResponse((await reaches.windows(episode_id, body.lease)).to_dict())

    @router.post("/episodes/{episode_id}/record/start", status_code=204, responses=ERRORS)
    async def start_recording(episode_id: str, body: reach.RecordRequest) -> Response:
        """Begin a video of the screen. Repeating `recording_id` begins no other."""
        await reaches.start_recording(episode_id, body)
        return Response(status_code=204)

    @router.post("/episodes/{episode_id}/record/end", responses=record_answer(reach.FileAnswer))
    async def end_recording(episode_id: str, body: reach.RecordEndRequest) -> Response:
        """End the video: the MP4 is the blob of the record, also when asked again."""
        data = await reaches.end_recording(episode_id, body)
        blob = bytes(data) if isinstance(data, bytearray) else data
        return RecordResponse(Record(reach.FileAnswer(len(blob)).to_dict(), blob))

    router.include_router(_byte_routes(reaches))
    return router


def _byte_routes(reaches: ReachService) -> APIRouter:
    """Return the routes whose body is bytes; the lease is in the `OSGym-Lease` header."""
    router = APIRouter(tags=["reach"])

    @router.put(
        "/episodes/{episode_id}/file",
        responses=json_answer(reach.FileAnswer),
        openapi_extra={"requestBody": {"required": True, "content": _BYTES}},
    )
    async def write_file(
        episode_id: str,
        request: Request,
        path: Annotated[str, Query(min_length=1, max_length=limits.MAX_PATH_CHARS)],
        mode: Annotated[str | None, Query(pattern="^[0-7]{1,4}$")] = None,
    ) -> Response:
        """Write a file of the desktop whole; folders above it are made."""
        data = await request.body()
        lease = request.headers.get(LEASE_HEADER, "")
        await reaches.write_file(episode_id, lease, path, data, mode)
        return JSONResponse(reach.FileAnswer(len(data)).to_dict())

    @router.post(
        f"/episodes/{{episode_id}}{TUNNEL_SUFFIX}",
        response_class=Response,
        responses={**ERRORS, 200: {"description": "What the port sends.", "content": _BYTES}},
        openapi_extra={"requestBody": {"required": True, "content": _BYTES}},
    )
    async def tunnel(
        episode_id: str, request: Request, port: Annotated[int, Query(ge=1, le=65535)]
    ) -> Response:
        """Connect to a port of the desktop's loopback: request and answer go on at once, in pieces."""
        lease = request.headers.get(LEASE_HEADER, "")
        return TunnelResponse(await reaches.open_tunnel(episode_id, lease, port))

    return router
