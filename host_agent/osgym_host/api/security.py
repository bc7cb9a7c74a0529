"""Who may call what: a bearer token, an allowed address (OSGym API only), or this machine itself."""

from __future__ import annotations

import hmac
import ipaddress
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from osgym_host.api.errors import error_answer, is_osgym
from osgym_host.api.scopes import needed_scope
from osgym_host.api.tokens import ScopedToken, TokenFile
from osgym_host.core.fair_queue import ClientKey
from osgym_host.core.rate_limit import RateLimit
from osgym_protocol.codes import MEANINGS, ErrorCode, TokenScope
from osgym_protocol.host_api import CLIENT_HEADER
from osgym_protocol.limits import MAX_ID_CHARS
from osgym_protocol.observation import ErrorInfo

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

OPEN_PATHS = frozenset(("/v1/health", "/health"))
_BEARER = b"Bearer "
_CALLER = "osgym_caller"
"""Where a call says which token with a scope it came with."""
_IPV6_CLIENT_BITS = 64
"""A machine has all addresses of such a network to choose from."""
_LOCAL_NAMES = frozenset(("localhost", "127.0.0.1", "[::1]", "::1"))


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """What callers need.

    Attributes:
        token: The bearer token that may everything; None when none is configured.
        allowed: Networks that may use the OSGym API without a token.
        tokens: Those with a scope; None when there is no file of them.
        rate: How often each token with a scope may call.
    """

    token: str | None = None
    allowed: Sequence[Network] = ()
    tokens: TokenFile | None = None
    rate: RateLimit = field(default_factory=lambda: RateLimit(0, 1))


class AccessControl:
    """ASGI middleware that answers 401, 403 and 429.

    With a token, or a file of them: every call needs one, of the scope that the call is of, except from an
    allowed address to the OSGym API. Without:
    v1 is for this machine only; the OSGym API is for the allowed addresses, or for this machine when
    there are none. Foreign web pages (by Origin, or a foreign Host name) are kept out where no token is.
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
            answer.headers["Retry-After"] = str(math.ceil(refused.details["retry_after_s"]))
        await answer(scope, receive, send)

    def _refusal(self, scope: Scope) -> ErrorInfo | None:
        path: str = scope["path"]
        if path in OPEN_PATHS or self._is_open(path):
            return None
        headers = Headers(scope=scope)
        given = headers.get("authorization", "").encode()
        if self._bearer is not None and hmac.compare_digest(given, self._bearer):
            return None
        scoped = self._scoped(given)
        if scoped is not None:
            return self._refusal_of(scoped, scope)
        refused = self._refusal_without_token(scope, headers)
        return None if refused is None else ErrorInfo(*refused)

    def _scoped(self, given: bytes) -> ScopedToken | None:
        if self._policy.tokens is None or not given.startswith(_BEARER):
            return None
        return self._policy.tokens.find(given[len(_BEARER) :].decode("utf-8", "replace"))

    def _refusal_of(self, token: ScopedToken, scope: Scope) -> ErrorInfo | None:
        """Say why a token may not make a call; note in the call whose it is."""
        wait_s = self._policy.rate.wait_s(token.name, time.monotonic())
        if wait_s > 0:
            said = f"The token {token.name} asks too often: wait {wait_s:.3f} s. Nothing was done."
            return ErrorInfo(ErrorCode.RATE_LIMITED, said, {"retry_after_s": round(wait_s, 3)})
        needed = needed_scope(scope["method"], scope["path"])
        if not token.scope.includes(needed):
            said = (
                f"This call needs a token of the scope {needed}; {token.name} has {token.scope}. "
                f"Whoever administers the host makes one: osgym token new --scope {needed} --name NAME"
            )
            details = {"needed": str(needed), "scope": str(token.scope), "token": token.name}
            return ErrorInfo(ErrorCode.INSUFFICIENT_SCOPE, said, details)
        scope[_CALLER] = token
        return None

    def _refusal_without_token(self, scope: Scope, headers: Headers) -> tuple[ErrorCode, str] | None:
        path: str = scope["path"]
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


def caller_of(scope: Scope) -> tuple[TokenScope, str | None]:
    """Return what who calls may do, and the name of the token; None where it has no name."""
    token: ScopedToken | None = scope.get(_CALLER)
    return (TokenScope.ADMIN, None) if token is None else (token.scope, token.name)


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
