"""Every error as JSON: `{"code","message","details"}` on v1, OSGym's own shapes on its API."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from osgym_host.api.raw import ClientGone
from osgym_host.episodes.errors import EpisodeError

log = logging.getLogger(__name__)

OSGYM_PATHS = frozenset(("/reset", "/step", "/shutdown", "/screenshot"))
_BY_STATUS = {401: "unauthorized", 403: "forbidden", 404: "not_found"}
_RETRY_AFTER_S = {"draining": 30}
"""When a refused client may ask here again; it had better ask another host at once."""
CLIENT_CLOSED = 499
"""Nobody reads it; it marks the access log."""


def is_osgym(path: str) -> bool:
    """Whether a path belongs to the OSGym-compatible API."""
    return path in OSGYM_PATHS


def error_body(code: str, message: str, details: Any = None) -> dict[str, Any]:
    """The one shape of v1."""
    return {"code": code, "message": message, "details": details or {}}


def error_answer(path: str, status: int, code: str, message: str, details: Any = None) -> JSONResponse:
    """An error in the shape of the API that `path` belongs to."""
    if is_osgym(path):
        status = 400 if status not in (403, 500) else status
        return JSONResponse({"message": message, "code": code}, status)
    return JSONResponse(error_body(code, message, details), status)


def install(app: FastAPI) -> None:
    """Registers the handlers."""
    app.add_exception_handler(EpisodeError, _episode_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientGone, _gone)
    app.add_exception_handler(Exception, _internal)


async def _episode_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, EpisodeError)
    answer = error_answer(request.url.path, error.status, error.code, error.message, error.details)
    if error.status == 503 and error.code in _RETRY_AFTER_S:
        answer.headers["Retry-After"] = str(_RETRY_AFTER_S[error.code])
    return answer


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = [_problem(e) for e in error.errors()]
    if is_osgym(request.url.path):
        return JSONResponse({"detail": problems}, 422)
    return JSONResponse(error_body("bad_request", _sentence(problems), {"problems": problems}), 422)


def _problem(error: dict[str, Any]) -> dict[str, Any]:
    return {"loc": list(error.get("loc", ())), "msg": error.get("msg", ""), "type": error.get("type", "")}


def _sentence(problems: Sequence[dict[str, Any]]) -> str:
    parts = [f"{'.'.join(map(str, p['loc'][1:])) or 'body'}: {p['msg']}" for p in problems[:5]]
    return "The request is not what the API says: " + "; ".join(parts)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _BY_STATUS.get(error.status_code, "bad_request" if error.status_code < 500 else "internal")
    body = error_body(code, str(error.detail))
    return JSONResponse(body, error.status_code, headers=dict(error.headers or {}))


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED)


async def _internal(request: Request, error: Exception) -> Response:
    log.exception("a fault of ours in %s %s", request.method, request.url.path, exc_info=error)
    return error_answer(request.url.path, 500, "internal", "A fault in the host agent; see its log.")
