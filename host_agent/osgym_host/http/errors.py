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

from osgym_host.errors import ServiceError
from osgym_protocol.codes import ErrorCode
from osgym_protocol.observation import ErrorInfo

log = logging.getLogger(__name__)

OSGYM_PATHS = frozenset(("/reset", "/step", "/shutdown", "/screenshot"))
_BY_STATUS = {401: ErrorCode.UNAUTHORIZED, 403: ErrorCode.FORBIDDEN, 404: ErrorCode.NOT_FOUND}
_RETRY_AFTER_S = {ErrorCode.DRAINING: 30}
"""Seconds after which a refused client may retry here; another host is a better choice."""


def is_osgym(path: str) -> bool:
    return path in OSGYM_PATHS


def error_answer(path: str, error: ErrorInfo, status: int) -> JSONResponse:
    if is_osgym(path):
        status = 400 if status not in (403, 429, 500) else status
        return JSONResponse({"message": error.message, "code": error.code}, status)
    return JSONResponse(error.to_dict(), status)


def install(app: FastAPI) -> None:
    app.add_exception_handler(ServiceError, _episode_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _internal)


async def _episode_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    answer = error_answer(request.url.path, error.info(), error.status)
    if error.status == 503 and error.code in _RETRY_AFTER_S:
        answer.headers["Retry-After"] = str(_RETRY_AFTER_S[error.code])
    return answer


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = [_problem(e) for e in error.errors()]
    if is_osgym(request.url.path):
        return JSONResponse({"detail": problems}, 422)
    info = ErrorInfo(ErrorCode.BAD_REQUEST, _sentence(problems), {"problems": problems})
    return JSONResponse(info.to_dict(), 422)


def _problem(error: dict[str, Any]) -> dict[str, Any]:
    kind, text = error.get("type", ""), error.get("msg", "")
    if kind == "unexpected_keyword_argument":  # pydantic's words for an unknown field of a dataclass
        kind, text = "extra_forbidden", "Extra inputs are not permitted"
    return {"loc": list(error.get("loc", ())), "msg": text, "type": kind}


def _sentence(problems: Sequence[dict[str, Any]]) -> str:
    parts = [f"{'.'.join(map(str, p['loc'][1:])) or 'body'}: {p['msg']}" for p in problems[:5]]
    return "The request does not match the API: " + "; ".join(parts)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    other = ErrorCode.BAD_REQUEST if error.status_code < 500 else ErrorCode.INTERNAL
    info = ErrorInfo(_BY_STATUS.get(error.status_code, other), str(error.detail))
    return JSONResponse(info.to_dict(), error.status_code, headers=dict(error.headers or {}))


async def _internal(request: Request, error: Exception) -> Response:
    log.exception("internal error in %s %s", request.method, request.url.path, exc_info=error)
    info = ErrorInfo(ErrorCode.INTERNAL, "An internal error of the host agent; see its log.")
    return error_answer(request.url.path, info, 500)
