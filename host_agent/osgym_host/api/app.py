"""The FastAPI application over a `Backend`."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI, Response
from pydantic import TypeAdapter
from starlette.requests import Request

from osgym_host.api import metrics, osgym, v1
from osgym_host.api.backend import Backend
from osgym_host.api.cpu_share import CpuShares
from osgym_host.api.raw import ClientGone
from osgym_host.http import dashboard, errors
from osgym_host.http.access import AccessControl
from osgym_host.http.bodies import BoundedBodies

DESCRIPTION = (
    "Real desktops, leased to training code. Frames travel in records "
    "(`application/x-osgym-records`); every error is `{code, message, details}`."
)
CLIENT_CLOSED = 499
"""Status of calls whose client is gone: nobody reads it, it marks the access log."""


def make_app(backend: Backend) -> FastAPI:
    app = FastAPI(
        title="OSGym host agent",
        version=backend.host.identity.version,
        description=DESCRIPTION,
        redoc_url=None,
        docs_url=None,
        openapi_url=None,
    )
    errors.install(app)
    app.add_exception_handler(ClientGone, _client_gone)
    app.include_router(v1.make_router(backend))
    app.include_router(osgym.make_router(backend))
    app.include_router(dashboard.make_router())
    app.include_router(metrics.make_router(backend.registry))
    app.add_middleware(BoundedBodies)
    app.add_middleware(CpuShares, percent=backend.access.look_cpu_percent)
    app.add_middleware(AccessControl, policy=backend.access, is_open=dashboard.is_part)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        """Return the description of all calls, which stays the same while the service runs."""
        return Response(described, media_type="application/json")

    schema = app.openapi()  # after the last route: each new one has FastAPI build it anew
    add_record_metas(schema)
    described = json.dumps(schema).encode()
    return app


async def _client_gone(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED)


def add_record_metas(schema: dict[str, Any]) -> None:
    """Describe the metas of records, which no JSON answer of their own describes."""
    components = schema["components"]["schemas"]
    for model in v1.RECORD_METAS:
        described = TypeAdapter(model).json_schema(ref_template="#/components/schemas/{model}")
        for name, part in described.pop("$defs", {}).items():
            components.setdefault(name, part)
        components[model.__name__] = described
