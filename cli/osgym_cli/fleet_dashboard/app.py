"""The application of the fleet's dashboard: its page, the state of all hosts, and calls passed on to each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, FastAPI, Query, Response
from fastapi.responses import JSONResponse
from starlette.requests import Request

from osgym_cli.fleet_dashboard.views import HostView, find_replicas, fleet_history
from osgym_cli.fleet_dashboard.watch import FleetWatch
from osgym_host.errors import ServiceError
from osgym_host.http import dashboard, errors
from osgym_host.http.access import AccessControl, AccessPolicy
from osgym_host.http.bodies import BoundedBodies
from osgym_protocol.codes import ErrorCode, TokenScope
from osgym_protocol.limits import MAX_ID_CHARS
from osgym_sdk import AsyncClient, OSGymError

MAX_EVENTS_WAIT_S = 30
PASS_S = 45.0
"""Deadline of a forwarded call, such as a new desktop; the page's own deadline is 40 s."""
PASS_REPLAY_S = 190.0
"""Deadline of a replay, which is made of all frames of an episode, one replay at a time."""
MAX_ROWS = 1000
"""Largest number of rows of one answer, as of a host."""
_SHOWN = "^[a-z]{0,20}$"
_LOOKING = re.compile(
    r"access|host|pool|replicas|replicas/[^/]+/screenshot|events|history|runs|runs/[^/]+"
    r"|episodes|episodes/[^/]+/lines|episodes/[^/]+/frames/[0-9]+|episodes/[^/]+/replay"
)
_USING = {
    "POST": re.compile(r"episodes|episodes/[^/]+/(step|observe)|replicas/[^/]+/(intervene|fork|checkpoint)"),
    "DELETE": re.compile(r"episodes/[^/]+"),
}
_ASKED = ("accept", "content-type", "if-none-match", "osgym-lease")
_ANSWERED = (
    "content-type", "content-disposition", "content-security-policy", "etag", "cache-control", "retry-after",
)  # fmt: skip

MAX_BODY_BYTES = 1 << 20
"""Upper bound of a call's body: a person's step fits, whole files are not passed on."""


def make_app(client: AsyncClient, watch: FleetWatch, *, token: str | None, read_only: bool) -> FastAPI:
    """Return the application.

    Args:
        client: Client of the hosts, with the tokens and certificates of their fleet.
        token: Token that callers need; None lets in everybody on this machine.
        read_only: Refuse calls that use a desktop.
    """
    app = FastAPI(title="OSGym fleet dashboard", redoc_url=None, docs_url=None, openapi_url=None)
    errors.install(app)
    app.include_router(dashboard.make_router(index="fleet.html"))
    app.include_router(dashboard.make_router(prefix="/hosts/{key}"))
    app.include_router(_fleet_routes(watch, read_only))
    app.include_router(_host_routes(client, watch, read_only))
    app.add_middleware(BoundedBodies)
    app.add_middleware(AccessControl, policy=AccessPolicy(token=token), is_open=dashboard.is_part)
    return app


def _fleet_routes(watch: FleetWatch, read_only: bool) -> APIRouter:
    router = APIRouter(prefix="/fleet")

    @router.get("/hosts")
    async def hosts() -> dict[str, Any]:
        """Return all hosts with their last answers, and the last hour of all together."""
        await watch.looked()
        views = [watch.views[key] for key in sorted(watch.views)]
        return {
            "hosts": [view.to_dict() for view in views],
            "samples": fleet_history(views),
            "every_s": 10.0,
            "read_only": read_only,
        }

    @router.get("/replicas")
    async def replicas(
        q: Annotated[str, Query(max_length=200)] = "",
        state: Annotated[str, Query(pattern=_SHOWN)] = "",
        limit: Annotated[int, Query(ge=1, le=MAX_ROWS)] = 200,
    ) -> dict[str, Any]:
        """Return the matching replicas of all hosts."""
        await watch.looked()
        return find_replicas(watch.views.values(), q, state, limit)

    @router.get("/episodes")
    async def episodes(limit: Annotated[int, Query(ge=1, le=MAX_ROWS)] = 200) -> list[dict[str, Any]]:
        return await watch.episodes(limit)

    @router.get("/runs")
    async def runs() -> list[dict[str, Any]]:
        """Return the runs that clients named, of all hosts."""
        return await watch.runs()

    @router.get("/runs/episodes")
    async def run_episodes(
        run: Annotated[str, Query(min_length=1, max_length=MAX_ID_CHARS)],
    ) -> list[dict[str, Any]]:
        return await watch.run_episodes(run)

    @router.get("/events")
    async def events(
        after: Annotated[int, Query(ge=0)] = 0,
        wait_s: Annotated[float, Query(ge=0, le=MAX_EVENTS_WAIT_S)] = 0,
    ) -> dict[str, Any]:
        return await watch.events(after, wait_s)

    return router


def _host_routes(client: AsyncClient, watch: FleetWatch, read_only: bool) -> APIRouter:
    router = APIRouter(prefix="/hosts/{key}")

    @router.api_route("/v1/{path:path}", methods=["GET", "POST", "DELETE"])
    async def pass_on(request: Request, key: str, path: str) -> Response:
        """Pass a call of one host's page on to that host."""
        await watch.looked()
        view = watch.views.get(key)
        if view is None:
            raise ServiceError(ErrorCode.NOT_FOUND, "This fleet does not have the host, or no longer has it.")
        if not may_pass(request.method, path, read_only=read_only):
            why = (
                " The dashboard was started with --read-only."
                if read_only and request.method != "GET"
                else ""
            )
            raise ServiceError(ErrorCode.FORBIDDEN, f"The fleet's dashboard does not forward this call.{why}")
        if read_only and path == "access":
            return JSONResponse({"scope": str(TokenScope.OBSERVE), "token": None})
        return await _passed_on(client, view, request, path)

    return router


async def _passed_on(client: AsyncClient, view: HostView, request: Request, path: str) -> Response:
    body = await request.body()
    if len(body) > MAX_BODY_BYTES:
        raise ServiceError(ErrorCode.TOO_LARGE, f"At most {MAX_BODY_BYTES} bytes are forwarded.")
    try:
        reply = await client.ask_host(
            view.url,
            host_path(path, request.url.query),
            method=request.method,
            content=body,
            headers=request_headers(request.headers),
            timeout_s=PASS_REPLAY_S if path.endswith("/replay") else PASS_S,
        )
    except OSGymError as error:
        raise ServiceError(ErrorCode.TIMEOUT, f"{view.key} does not answer: {error.message}") from error
    return Response(reply.body, reply.status, response_headers(reply.headers))


def may_pass(method: str, path: str, *, read_only: bool) -> bool:
    """Return whether a call may go to a host; `path` is the part after `/v1/`.

    >>> may_pass("GET", "replicas/r1/screenshot", read_only=True)
    True
    >>> may_pass("POST", "drain", read_only=False)
    False
    """
    if ".." in path.split("/"):
        return False
    if method == "GET":
        return _LOOKING.fullmatch(path) is not None
    allowed = _USING.get(method)
    return not read_only and allowed is not None and allowed.fullmatch(path) is not None


def host_path(path: str, query: str) -> str:
    """Return the encoded path of a host's API with its query."""
    return f"/v1/{quote(path, safe='/')}" + (f"?{query}" if query else "")


def request_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the page's headers that are passed on to a host; never the token for the dashboard."""
    return {name: headers[name] for name in _ASKED if name in headers}


def response_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the host's headers that are passed on to the page."""
    return {name: headers[name] for name in _ANSWERED if name in headers}
