"""ASGI middleware that bounds the CPU share of each caller's read-only calls.

Read-only calls and the steps of all clients are answered by the same thread. A read-only call therefore waits
until its caller's budget allows it; `osgym_host.cpu_cost` measures its cost. Calls for the state of the host
or of an episode (`tells_state`) do not wait if the caller's token allows more than looking, since a client
takes a silent host for one that is down.
"""

from __future__ import annotations

import asyncio
import math
import time

from starlette.types import ASGIApp, Receive, Scope, Send

from osgym_host.core.cpu_budget import CpuBudget
from osgym_host.cpu_cost import MeasuredCall
from osgym_host.http.access import caller_of, sender_of
from osgym_host.http.errors import error_answer
from osgym_host.http.scopes import needed_scope, tells_state
from osgym_protocol.codes import MEANINGS, ErrorCode, TokenScope
from osgym_protocol.observation import ErrorInfo

MAX_WAIT_S = 1.0
"""Longest wait of a call, below the 3 s after which a client takes the host for down. A call that would have
to wait longer is refused after this time, since a client that is refused at once asks again at once."""
_STATE_BUDGET = "\0state"
"""Suffix of a caller's name for the separate budget of its calls for state."""
_MORE_THAN_OBSERVE_FACTOR = 5
"""Multiple of the share for callers that may do more than look. They could slow others by steps anyway."""
_KIND_PARTS = 5
"""Number of path segments that tell kinds of calls apart."""


class CpuShares:
    """Middleware that delays or refuses read-only calls beyond their caller's share; others pass at once."""

    def __init__(self, app: ASGIApp, percent: float) -> None:
        """Wrap `app`, behind `AccessControl`.

        Args:
            percent: Share of a processor for the calls of one `observe` token; 0: no bound.
        """
        self._app = app
        self._share = percent / 100
        self._budget = CpuBudget()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        looks = scope["type"] == "http" and needed_scope(scope["method"], scope["path"]) is TokenScope.OBSERVE
        if not looks or self._share <= 0:
            await self._app(scope, receive, send)
            return
        only_looks = caller_of(scope)[0] is TokenScope.OBSERVE
        state = tells_state(scope["method"], scope["path"])
        if state and not only_looks:
            await self._app(scope, receive, send)
            return
        sender = sender_of(scope)
        caller = (sender.token or sender.peer) + (_STATE_BUDGET if state else "")
        share = self._share if only_looks else self._share * _MORE_THAN_OBSERVE_FACTOR
        reserved = self._budget.reserve(caller, _kind(scope["path"]), share, time.monotonic())
        if reserved.wait_s > MAX_WAIT_S:
            self._budget.cancel(reserved)
            await asyncio.sleep(MAX_WAIT_S)
            await self._refuse(scope, receive, send, reserved.wait_s - MAX_WAIT_S)
            return
        try:
            await asyncio.sleep(reserved.wait_s)
        except asyncio.CancelledError:
            self._budget.cancel(reserved)
            raise
        call = MeasuredCall(self._app(scope, receive, send))
        try:
            await call.run()
        finally:
            self._budget.settle(reserved, call.cost_s)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, wait_s: float) -> None:
        retry_after_s = math.ceil(wait_s * 1000) / 1000
        said = (
            "This caller's calls exceed their share of the host's CPU (setting look_cpu_percent): "
            f"wait {retry_after_s:.3f} s, then ask less often or for less. Nothing was done."
        )
        refused = ErrorInfo(ErrorCode.RATE_LIMITED, said, {"retry_after_s": retry_after_s})
        answer = error_answer(scope["path"], refused, MEANINGS[ErrorCode.RATE_LIMITED].status)
        answer.headers["Retry-After"] = str(math.ceil(retry_after_s))
        await answer(scope, receive, send)


def _kind(path: str) -> str:
    """Return the kind of a call, whose calls cost about the same: the path without the name in it.

    >>> _kind("/v1/episodes/e7/lines")
    '/v1/episodes//lines'
    """
    parts = path.split("/")[:_KIND_PARTS]
    return "/".join("" if at == 3 else part for at, part in enumerate(parts))
