"""Who may call what: a bearer token, an allowed address (OSGym API only), or this machine itself."""

from __future__ import annotations

import hmac
import ipaddress
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from osgym_host.api.errors import error_answer, is_osgym
from osgym_host.api.tokens import Grant, TokenFile, TokenLine
from osgym_host.core.fair_queue import ClientKey
from osgym_host.core.scopes import scope_for
from osgym_protocol.codes import MEANINGS, ErrorCode
from osgym_protocol.host_api import CLIENT_HEADER
from osgym_protocol.limits import MAX_ID_CHARS
from osgym_protocol.observation import ErrorInfo

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

OPEN_PATHS = frozenset(("/v1/health", "/health"))
_IPV6_CLIENT_BITS = 64
"""A machine has all addresses of such a network to choose from."""
_BEARER = "Bearer "
_GRANT = "osgym.token"
_LOCAL_NAMES = frozenset(("localhost", "127.0.0.1", "[::1]", "::1"))


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """What callers need.

    Attributes:
        token: The bearer token that may do everything; None when none is configured.
        allowed: Networks that may use the OSGym API without a token.
        tokens: Tokens with a scope; None where there is no file of them.
    """

    token: str | None = None
    allowed: Sequence[Network] = ()
    tokens: TokenFile | None = None


class AccessControl:
    """ASGI middleware that answers 401 and 403.

    With a token: every call needs it, except from an allowed address to the OSGym API. Without one:
    v1 is for this machine only; the OSGym API is for the allowed addresses, or for this machine when
    there are none. Foreign web pages (by Origin, or a foreign Host name) are kept out where no token is.
    A token of the file does what its scope says, so often as its rate says.
    """

    def __init__(self, app: ASGIApp, policy: AccessPolicy, is_open: Callable[[str], bool]) -> None:
        """Wrap `app`; paths that `is_open`, beside `OPEN_PATHS`, are for everybody."""
        self._app = app
        self._is_open = is_open
        self._policy = policy
        self._bearer = None if policy.token is None else f"Bearer {policy.token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the call through or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = self._refusal(scope)
        if refused is None:
            await self._app(scope, receive, send)
            return
        answer = error_answer(scope["path"], refused, MEANINGS[ErrorCode(refused.code)].status)
        if refused.code == ErrorCode.RATE_LIMITED:
            answer.headers["Retry-After"] = str(refused.details["retry_after_s"])
        await answer(scope, receive, send)

    def _refusal(self, scope: Scope) -> ErrorInfo | None:
        """Return why a call is refused; note which token it has."""
        path: str = scope["path"]
        if path in OPEN_PATHS or self._is_open(path):
            return None
        given = Headers(scope=scope).get("authorization", "")
        if self._bearer is not None and hmac.compare_digest(given.encode(), self._bearer):
            return None
        if self._policy.tokens is not None and given.startswith(_BEARER):
            grant = self._policy.tokens.find(given[len(_BEARER) :])
            if grant is not None:
                scope[_GRANT] = grant.line
                return _beyond(grant, scope["method"], path)
        refused = self._strangers_refusal(scope)
        return None if refused is None else ErrorInfo(*refused)

    def _strangers_refusal(self, scope: Scope) -> tuple[ErrorCode, str] | None:
        """Return why a call without a known token is refused."""
        path: str = scope["path"]
        headers = Headers(scope=scope)
        address = _address(scope)
        if is_osgym(path) and self._policy.allowed:
            if address is not None and any(address in network for network in self._policy.allowed):
                return None
            return ErrorCode.FORBIDDEN, "Access denied: the address is not in OSGYM_ALLOWED_IPS."
        if self._bearer is not None or self._policy.tokens is not None:
            if is_osgym(path):
                message = "Access denied: a token or an address in OSGYM_ALLOWED_IPS is needed."
                return ErrorCode.FORBIDDEN, message
            return ErrorCode.UNAUTHORIZED, "The token is missing or wrong."
        if address is not None and not address.is_loopback:
            return ErrorCode.FORBIDDEN, "Without a token this API is for the machine it runs on only."
        host = headers.get("host", "localhost")
        foreign = headers.get("origin") not in (None, f"{scope.get('scheme', 'http')}://{host}")
        if foreign or host.rsplit(":", 1)[0] not in _LOCAL_NAMES:
            return ErrorCode.FORBIDDEN, "Web pages other than the dashboard may not call this API."
        return None


def _beyond(grant: Grant, method: str, path: str) -> ErrorInfo | None:
    """Return what a token lacks for a call."""
    line, needs = grant.line, scope_for(method, path)
    if line.scope < needs:
        text = f"The token {line.name} has the scope {line.scope.word}; this call needs {needs.word}."
        return ErrorInfo(ErrorCode.FORBIDDEN, text, {"needs": needs.word, "has": line.scope.word})
    wait_s = grant.wait_s(time.monotonic())
    if wait_s:
        text = f"The token {line.name} may call {line.rate:g} times a second."
        return ErrorInfo(ErrorCode.RATE_LIMITED, text, {"retry_after_s": math.ceil(wait_s)})
    return None


def caller_of(scope: Scope) -> TokenLine | None:
    """Return the token of the file that a call came with; None for one that may do everything."""
    found: TokenLine | None = scope.get(_GRANT)
    return found


def name_of(scope: Scope) -> str | None:
    """Return the name of that token, for events and trajectories."""
    token = caller_of(scope)
    return None if token is None else token.name


def client_of(scope: Scope, name: str | None = None) -> ClientKey:
    """Return who calls, for the queue: the address (of IPv6 its network), and the name that it gives itself.

    Args:
        name: In place of the header's.
    """
    address = _address(scope)
    if isinstance(address, ipaddress.IPv6Address):
        peer = str(ipaddress.ip_network((address, _IPV6_CLIENT_BITS), strict=False))
    else:
        peer = str(address)
    given = Headers(scope=scope).get(CLIENT_HEADER, "") if name is None else name
    return ClientKey(peer, given[:MAX_ID_CHARS])


def _address(scope: Scope) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    client = scope.get("client")
    if client is None:
        return None
    try:
        address = ipaddress.ip_address(client[0].split("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
