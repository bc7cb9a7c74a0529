"""Who may call: a bearer token, an allowed address (OSGym API only), or this machine itself."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from osgym_host.api.errors import error_answer, is_osgym
from osgym_host.core.fair_queue import ClientKey
from osgym_protocol.codes import MEANINGS, ErrorCode
from osgym_protocol.host_api import CLIENT_HEADER
from osgym_protocol.limits import MAX_ID_CHARS
from osgym_protocol.observation import ErrorInfo

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

OPEN_PATHS = frozenset(("/v1/health", "/health"))
_IPV6_CLIENT_BITS = 64
"""A machine has all addresses of such a network to choose from."""
_LOCAL_NAMES = frozenset(("localhost", "127.0.0.1", "[::1]", "::1"))


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """What callers need.

    Attributes:
        token: The bearer token; None when none is configured.
        allowed: Networks that may use the OSGym API without a token.
    """

    token: str | None = None
    allowed: Sequence[Network] = ()


class AccessControl:
    """ASGI middleware that answers 401 and 403.

    With a token: every call needs it, except from an allowed address to the OSGym API. Without one:
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
        code, message = refused
        info = ErrorInfo(code, message)
        await error_answer(scope["path"], info, MEANINGS[code].status)(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[ErrorCode, str] | None:
        path: str = scope["path"]
        if path in OPEN_PATHS or self._is_open(path):
            return None
        headers = Headers(scope=scope)
        given = headers.get("authorization", "").encode()
        if self._bearer is not None and hmac.compare_digest(given, self._bearer):
            return None
        address = _address(scope)
        if is_osgym(path) and self._policy.allowed:
            if address is not None and any(address in network for network in self._policy.allowed):
                return None
            return ErrorCode.FORBIDDEN, "Access denied: the address is not in OSGYM_ALLOWED_IPS."
        if self._bearer is not None:
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
