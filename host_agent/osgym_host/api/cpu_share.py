"""ASGI middleware: calls that only look wait until their caller's share of a processor allows them.

Steps of other clients are answered by the same thread. The state of the host and of an episode
(`tells_state`) is given at once to callers that may do more than look, since a client takes a host that keeps
silent for one that is down. What a call costs is measured (`osgym_host.cpu_cost`).
"""

from __future__ import annotations

import asyncio
import math
import time

from starlette.types import ASGIApp, Receive, Scope, Send

from osgym_host.api.errors import error_answer
from osgym_host.api.scopes import needed_scope, tells_state
from osgym_host.api.security import caller_of, sender_of
from osgym_host.core.cpu_budget import CpuBudget
from osgym_host.cpu_cost import MeasuredCall
from osgym_protocol.codes import MEANINGS, ErrorCode, TokenScope
from osgym_protocol.observation import ErrorInfo

MAX_WAIT_S = 1.0
"""Longest wait of a call, below the 3 s after which a client takes the host for down. A call that would wait
longer is refused after as long: who is refused at once asks again at once."""
_STATE_BUDGET = "\0state"
"""Appended to a caller's name, for a budget of its own that other calls do not use up."""
_OTHERS = 5
"""How many times as much a caller may use whose token may do more than look: it could slow steps by steps."""
_KIND_PARTS = 5


class CpuShares:
    """Delays calls that only look; others pass at once."""

    def __init__(self, app: ASGIApp, percent: float) -> None:
        """Wrap `app`, behind `AccessControl`.

        Args:
            percent: What a token that may only look may use of a processor; 0: no bound.
        """
        self._app = app
        self._share = percent / 100
        self._budget = CpuBudget()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the call through when it is its turn, or answer 429."""
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
        share = self._share if only_looks else self._share * _OTHERS
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
            "Calls of this caller take more than their share of the host's processor: "
            f"wait {retry_after_s:.3f} s, then ask less often or for less. Nothing was done."
        )
        refused = ErrorInfo(ErrorCode.RATE_LIMITED, said, {"retry_after_s": retry_after_s})
        answer = error_answer(scope["path"], refused, MEANINGS[ErrorCode.RATE_LIMITED].status)
        answer.headers["Retry-After"] = str(math.ceil(retry_after_s))
        await answer(scope, receive, send)


def _kind(path: str) -> str:
    """Return what calls of about the same cost have in common: the path without names.

    >>> _kind("/v1/episodes/e7/lines")
    '/v1/episodes//lines'
    """
    parts = path.split("/")[:_KIND_PARTS]
    return "/".join("" if at == 3 else part for at, part in enumerate(parts))
