"""Access control: a bearer token, an allowed address (OSGym API only), or this machine itself.

A foreign web page in somebody's browser has no token. But where an allowed address is enough, it could act
with the rights of the person who opened it: by a cross-site request, or by a domain name of its own that it
lets point to this host's address (DNS rebinding). Both are detected here.

Wrong tokens are counted by the address that shows them (`osgym_host.core.wrong_tokens`).
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from osgym_host.core.fair_queue import ClientKey
from osgym_host.core.rate_limit import RateLimit
from osgym_host.core.request_sender import RequestSender
from osgym_host.core.wrong_tokens import WrongTokens
from osgym_host.http.errors import error_answer, is_osgym
from osgym_host.http.scopes import needed_scope
from osgym_host.http.tokens import ScopedToken, TokenFile
from osgym_protocol.codes import MEANINGS, ErrorCode, TokenScope
from osgym_protocol.host_api import CLIENT_HEADER
from osgym_protocol.limits import MAX_ID_CHARS
from osgym_protocol.observation import ErrorInfo

log = logging.getLogger(__name__)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

OPEN_PATHS = frozenset(("/v1/health", "/health"))
_BEARER = b"Bearer "
_CALLER = "osgym_caller"
"""Key of the call's scoped token in the ASGI scope."""
_IPV6_CLIENT_BITS = 64
"""Prefix length of the network whose addresses one machine can use."""


_FOREIGN_PAGE = "Web pages other than the dashboard may not call this API."
LOCAL_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))
"""Names and addresses of the local machine."""
_PRIVATE_SUFFIXES = (".internal", ".local", ".localhost")
"""Suffixes of names that nobody can register: RFC 6761, RFC 6762, ICANN's resolution 2024.07.29.06."""
_CROSS_SITES = frozenset(("cross-site", "same-site"))


def is_of_foreign_page(headers: Mapping[str, str], scheme: str) -> bool:
    """Return whether the headers say that a page of another origin makes the call.

    A link to this host that a person follows is no such call, since the page cannot read the answer.
    """
    origin = headers.get("origin")
    if origin is not None and origin != f"{scheme}://{headers.get('host', 'localhost')}":
        return True
    follows_link = headers.get("sec-fetch-dest") == "document"
    return headers.get("sec-fetch-site") in _CROSS_SITES and not follows_link


def host_name(host: str) -> str:
    """Return the name or address of a `Host` header, without its port and brackets, in lower case.

    >>> host_name("[::1]:20000")
    '::1'
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().rstrip(".")


def may_be_rebound(name: str, known: Collection[str]) -> bool:
    """Return whether a stranger could have registered this name and let it point to this host.

    Args:
        name: As `host_name` returns it.
        known: Names of this host, in lower case.
    """
    if name in known or name.endswith(_PRIVATE_SUFFIXES):
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "." in name or not name  # nobody can register a name without a dot
    return False


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Credentials that callers need.

    Attributes:
        token: Bearer token with all rights; None if none is configured.
        allowed: Networks that may use the OSGym API without a token.
        host_names: Names of this host in lower case, by which clients without a token may call it. Addresses,
            and names that nobody can register, are allowed anyway.
        tokens: Tokens with a scope; None without a file of them.
        rate: Rate limit of each token with a scope.
        token_rate: Rate limit of `token`, shared by all who have it.
        look_cpu_percent: Share of a processor for the calls of one `observe` token; 0 sets no bound.
    """

    token: str | None = None
    allowed: Sequence[Network] = ()
    host_names: frozenset[str] = frozenset()
    tokens: TokenFile | None = None
    rate: RateLimit = field(default_factory=lambda: RateLimit(0, 1))
    token_rate: RateLimit = field(default_factory=lambda: RateLimit(0, 1))
    wrong: WrongTokens = field(default_factory=WrongTokens)
    look_cpu_percent: float = 0


class AccessControl:
    """ASGI middleware that answers 401, 403 and 429.

    With a token, or a file of them: every call needs one, of the scope that the call is of, except from an
    allowed address to the OSGym API. Without:
    v1 is for this machine only; the OSGym API is for the allowed addresses, or for this machine when
    there are none. Foreign web pages (by Origin, or a foreign Host name) are kept out of every call without a
    token, also from an allowed address.
    """

    def __init__(self, app: ASGIApp, policy: AccessPolicy, is_open: Callable[[str], bool]) -> None:
        """Wrap `app`; paths that `is_open`, and `OPEN_PATHS`, are for everybody."""
        self._app = app
        self._is_open = is_open
        self._policy = policy
        self._bearer = None if policy.token is None else f"Bearer {policy.token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
        shown = given if given.startswith(_BEARER) and self._has_tokens() else None
        address, now_s = _peer_of(scope), time.monotonic()
        if shown is not None and (wait_s := self._policy.wrong.wait_s(address, shown, now_s)) > 0:
            return _too_often("Too many wrong tokens came from this address", wait_s, wrong_tokens=True)
        if self._bearer is not None and hmac.compare_digest(given, self._bearer):
            self._policy.wrong.right(address, given)
            wait_s = self._policy.token_rate.wait_s("", now_s)
            return _too_often("The token exceeds its rate of calls", wait_s) if wait_s > 0 else None
        scoped = self._scoped(given)
        if scoped is not None:
            self._policy.wrong.right(address, given)
            return self._refusal_of(scoped, scope)
        refused = self._refusal_without_token(scope, headers)
        if refused is not None and shown is not None and self._policy.wrong.wrong(address, shown, now_s):
            log.warning(
                "too many wrong tokens came from %s: further unknown tokens from there "
                "are refused for a minute",
                address,
            )
        return None if refused is None else ErrorInfo(*refused)

    def _has_tokens(self) -> bool:
        return self._bearer is not None or self._policy.tokens is not None

    def _scoped(self, given: bytes) -> ScopedToken | None:
        if self._policy.tokens is None or not given.startswith(_BEARER):
            return None
        return self._policy.tokens.find(given[len(_BEARER) :].decode("utf-8", "replace"))

    def _refusal_of(self, token: ScopedToken, scope: Scope) -> ErrorInfo | None:
        """Return why a token may not make a call, or None; note the token in the call."""
        wait_s = self._policy.rate.wait_s(token.name, time.monotonic())
        if wait_s > 0:
            return _too_often(f"The token {token.name} exceeds its rate of calls", wait_s)
        needed = needed_scope(scope["method"], scope["path"])
        if not token.scope.includes(needed):
            said = (
                f"This call needs a token of the scope {needed}; {token.name} has {token.scope}. "
                f"The host's administrator can make one: osgym token new --scope {needed} --name NAME"
            )
            details = {"needed": str(needed), "scope": str(token.scope), "token": token.name}
            return ErrorInfo(ErrorCode.INSUFFICIENT_SCOPE, said, details)
        scope[_CALLER] = token
        return None

    def _refusal_without_token(self, scope: Scope, headers: Headers) -> tuple[ErrorCode, str] | None:
        path: str = scope["path"]
        address = _address(scope)
        if is_osgym(path) and self._policy.allowed:
            if address is None or not any(address in network for network in self._policy.allowed):
                return ErrorCode.FORBIDDEN, "Access denied: the address is not in OSGYM_ALLOWED_IPS."
            name = host_name(headers.get("host", "localhost"))
            if may_be_rebound(name, self._policy.host_names):
                return ErrorCode.FORBIDDEN, _unknown_name(name)
            return self._refusal_of_page(scope, headers)
        if self._has_tokens():
            if is_osgym(path):
                message = "Access denied: a token or an address in OSGYM_ALLOWED_IPS is needed."
                return ErrorCode.FORBIDDEN, message
            return ErrorCode.UNAUTHORIZED, "The token is missing or wrong."
        if address is not None and not address.is_loopback:
            return (
                ErrorCode.FORBIDDEN,
                "This host has no token, so its API accepts calls from its own machine only. Set "
                "OSGYM_TOKEN on the host.",
            )
        if host_name(headers.get("host", "localhost")) not in LOCAL_NAMES:
            return ErrorCode.FORBIDDEN, _FOREIGN_PAGE
        return self._refusal_of_page(scope, headers)

    @staticmethod
    def _refusal_of_page(scope: Scope, headers: Headers) -> tuple[ErrorCode, str] | None:
        foreign = is_of_foreign_page(headers, scope.get("scheme", "http"))
        return (ErrorCode.FORBIDDEN, _FOREIGN_PAGE) if foreign else None


def caller_of(scope: Scope) -> tuple[TokenScope, str | None]:
    """Return the caller's scope, and the name of its token; None without a name."""
    token: ScopedToken | None = scope.get(_CALLER)
    return (TokenScope.ADMIN, None) if token is None else (token.scope, token.name)


def client_of(scope: Scope, name: str | None = None) -> ClientKey:
    """Return the client's key for the queue: its address (of IPv6 its network) and the name that it gives.

    Args:
        name: In place of the header's.
    """
    given = Headers(scope=scope).get(CLIENT_HEADER, "") if name is None else name
    return ClientKey(_peer_of(scope), given[:MAX_ID_CHARS])


def _unknown_name(name: str) -> str:
    shown = ascii(name[:MAX_ID_CHARS])[1:-1]
    return (
        f"Without a token this host answers to its address, not to the name {shown}, which could be "
        f"a web page's. If the name is this host's: OSGYM_ALLOWED_HOSTS={shown}"
    )


def sender_of(scope: Scope) -> RequestSender:
    """Return the sender of a request, whose token scopes the request id."""
    token: ScopedToken | None = scope.get(_CALLER)
    return RequestSender("" if token is None else token.digest.hex()[:32], _peer_of(scope))


def _too_often(what: str, wait_s: float, **details: bool) -> ErrorInfo:
    # Rounded up: a client that waits 0 s would be refused again.
    retry_after_s = math.ceil(wait_s * 1000) / 1000
    said = f"{what}: wait {retry_after_s:.3f} s. Nothing was done."
    return ErrorInfo(ErrorCode.RATE_LIMITED, said, {"retry_after_s": retry_after_s, **details})


def _peer_of(scope: Scope) -> str:
    """Return the caller's address, of IPv6 its network: one machine can use all addresses of that."""
    address = _address(scope)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, _IPV6_CLIENT_BITS), strict=False))
    return str(address)


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
