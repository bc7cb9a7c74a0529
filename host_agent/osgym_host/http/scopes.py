"""Scope that each call needs: a table, and a pure function over it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from starlette.routing import compile_path

from osgym_protocol.codes import TokenScope

OPEN = ("GET /v1/health", "GET /health")
"""Calls for everybody, which report only that the service answers."""

_OBSERVE = (
    "GET /metrics",
    "GET /openapi.json",
    "GET /v1/access",
    "GET /v1/checkpoints",
    "GET /v1/episodes",
    "GET /v1/episodes/{episode_id}",
    "GET /v1/episodes/{episode_id}/frames/{step}",
    "GET /v1/episodes/{episode_id}/lines",
    "GET /v1/episodes/{episode_id}/replay",
    "GET /v1/episodes/{episode_id}/trajectory",
    "GET /v1/events",
    "GET /v1/history",
    "GET /v1/host",
    "GET /v1/pool",
    "GET /v1/replicas",
    "GET /v1/replicas/{replica_id}/screenshot",
    "GET /v1/runs",
    "GET /v1/runs/episodes",
)
_RUN = (
    "DELETE /v1/checkpoints/{checkpoint_id}",
    "DELETE /v1/episodes/{episode_id}",
    "DELETE /v1/requests/{request_id}",
    "GET /screenshot",  # it keeps the desktop's lease alive
    "GET /v1/checkpoints/{checkpoint_id}/export",  # a desktop's whole memory and disk
    "POST /reset",
    "POST /shutdown",
    "POST /step",
    "POST /v1/checkpoints/import",
    "POST /v1/episodes",
    "POST /v1/episodes/{episode_id}/a11y",
    "POST /v1/episodes/{episode_id}/checkpoint",
    "POST /v1/episodes/{episode_id}/evaluate",
    "POST /v1/episodes/{episode_id}/execute",
    "POST /v1/episodes/{episode_id}/file",
    "POST /v1/episodes/{episode_id}/final",
    "POST /v1/episodes/{episode_id}/fork",
    "POST /v1/episodes/{episode_id}/observe",
    "POST /v1/episodes/{episode_id}/record/end",
    "POST /v1/episodes/{episode_id}/record/start",
    "POST /v1/episodes/{episode_id}/score",
    "POST /v1/episodes/{episode_id}/step",
    "POST /v1/episodes/{episode_id}/tunnel",
    "POST /v1/episodes/{episode_id}/windows",
    "POST /v1/leases/renew",
    "POST /v1/steps",
    "PUT /v1/episodes/{episode_id}/file",
)
_ADMIN = (
    "DELETE /v1/drain",
    "POST /v1/drain",
    "POST /v1/replicas/{replica_id}/checkpoint",  # without the lease of whoever works there
    "POST /v1/replicas/{replica_id}/fork",
    "POST /v1/replicas/{replica_id}/intervene",
)

_STATE = (
    "GET /metrics",
    "GET /v1/access",
    "GET /v1/episodes/{episode_id}",
    "GET /v1/host",
    "GET /v1/pool",
)
"""Routes of the state by which clients place and follow episodes, and of metrics. Their answers are short and
asked for often."""

ROUTES: Mapping[str, TokenScope] = {
    **dict.fromkeys(_OBSERVE, TokenScope.OBSERVE),
    **dict.fromkeys(_RUN, TokenScope.RUN),
    **dict.fromkeys(_ADMIN, TokenScope.ADMIN),
}
"""Method and path of each route that is not for everybody → the scope that it needs."""


def needed_scope(method: str, path: str) -> TokenScope:
    """Return the scope that a call needs; the greatest for unknown routes.

    >>> str(needed_scope("POST", "/v1/episodes/e1/step"))
    'run'
    """
    route = _route(method, path)
    return TokenScope.ADMIN if route is None else ROUTES[route]


def tells_state(method: str, path: str) -> bool:
    """Return whether a call asks for the state of the host or of one episode, on which clients depend.

    >>> tells_state("GET", "/v1/host"), tells_state("GET", "/v1/episodes/e1/lines")
    (True, False)
    """
    return _route(method, path) in _STATE


def _route(method: str, path: str) -> str | None:
    method = "GET" if method == "HEAD" else method
    for pattern, route in _PATTERNS.get((method, path.count("/")), ()):
        if pattern.match(path) is not None:
            return route
    return None


def _patterns() -> dict[tuple[str, int], list[tuple[re.Pattern[str], str]]]:
    """Return the routes, each with the pattern that the router uses, by method and number of slashes."""
    found: dict[tuple[str, int], list[tuple[re.Pattern[str], str]]] = {}
    for route in ROUTES:
        method, path = route.split(" ")
        found.setdefault((method, path.count("/")), []).append((compile_path(path)[0], route))
    return found


_PATTERNS = _patterns()
