"""HTTP clients of all distributions, made here so that each follows a `ProxyRoute`.

Distributions that import this module depend on httpx; this one does not. httpx's own reading of the
environment is off: it sends loopback requests through proxies, and knows no CIDR blocks in `NO_PROXY`.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import httpx

from osgym_protocol.proxies import ProxyRoute

Verify = bool | ssl.SSLContext
Transport = TypeVar("Transport", httpx.HTTPTransport, httpx.AsyncHTTPTransport)
_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=5.0)  # httpx's own
_TIMEOUT = httpx.Timeout(5.0)  # httpx's own


def make_client(
    route: ProxyRoute,
    *,
    base_url: str = "",
    headers: Mapping[str, str] | None = None,
    verify: Verify = True,
    timeout: httpx.Timeout | float = _TIMEOUT,
) -> httpx.Client:
    """Return a client whose requests go through the proxies of `route`, and through no others.

    Args:
        route: Proxies by request.
        base_url: URL to which relative URLs of requests are resolved.
        headers: Headers of every request.
        verify: TLS context; True: the system's authorities; False: certificates are not checked.
        timeout: Timeout of each part of a request, in seconds.
    """
    return httpx.Client(
        transport=_RoutedTransport(route, verify),
        trust_env=False,
        base_url=base_url,
        headers=headers,
        timeout=timeout,
    )


def make_async_client(
    route: ProxyRoute,
    *,
    base_url: str = "",
    headers: Mapping[str, str] | None = None,
    verify: Verify = True,
    timeout: httpx.Timeout | float = _TIMEOUT,
    limits: httpx.Limits = _LIMITS,
    transport: httpx.AsyncBaseTransport | None = None,
) -> httpx.AsyncClient:
    """Return an asynchronous client whose requests go through the proxies of `route`, and through no others.

    Args:
        route, base_url, headers, verify, timeout: As for `make_client`.
        limits: Bounds on connections, counted apart for each proxy and for direct connections.
        transport: Transport that replaces `route`, `verify` and `limits`.
    """
    return httpx.AsyncClient(
        transport=transport or _AsyncRoutedTransport(route, verify, limits),
        trust_env=False,
        base_url=base_url,
        headers=headers,
        timeout=timeout,
    )


class _Transports(Generic[Transport]):
    """Transports of one client, each made when a request first needs it."""

    def __init__(
        self, route: ProxyRoute, verify: Verify, make: Callable[[Verify, str | None], Transport]
    ) -> None:
        self._route = route
        self._verify = verify
        self._make: Callable[[Verify, str | None], Transport] = make
        self._made: dict[tuple[str, str | None], Transport] = {}

    def transport_for(self, request: httpx.Request) -> Transport:
        """Return the transport for a request.

        Raises:
            httpx.ProxyError: The proxy's URL is wrong, or its kind is not supported here.
        """
        scheme, proxy = request.url.scheme, self._route.proxy_for(str(request.url))
        found = self._made.get((scheme, proxy))
        if found is None:
            # Authorities take milliseconds to load, which a request without TLS should not cost.
            verify = self._context() if scheme == "https" else False
            try:
                found = self._make(verify, proxy)
            except ImportError as error:
                text = (
                    f"the proxy for {request.url.host} speaks SOCKS, which needs a package: pip install "
                    "'httpx[socks]'"
                )
                raise httpx.ProxyError(f"{text}, or name the host in NO_PROXY", request=request) from error
            except (ValueError, httpx.InvalidURL) as error:
                text = (
                    f"the URL of the proxy for {request.url.host} is wrong ({error}): write http://host:port"
                )
                raise httpx.ProxyError(text, request=request) from error
            # Two threads may each make one; both use the stored one, since only that is closed later.
            found = self._made.setdefault((scheme, proxy), found)
        return found

    def drain(self) -> list[Transport]:
        """Remove and return all transports."""
        made, self._made = list(self._made.values()), {}
        return made

    def _context(self) -> Verify:
        if self._verify is True:
            self._verify = httpx.create_ssl_context()
        return self._verify


class _RoutedTransport(httpx.BaseTransport):
    def __init__(self, route: ProxyRoute, verify: Verify) -> None:
        self._transports = _Transports(route, verify, _make_transport)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._transports.transport_for(request).handle_request(request)

    def close(self) -> None:
        for transport in self._transports.drain():
            transport.close()


class _AsyncRoutedTransport(httpx.AsyncBaseTransport):
    def __init__(self, route: ProxyRoute, verify: Verify, limits: httpx.Limits) -> None:
        def make(verify: Verify, proxy: str | None) -> httpx.AsyncHTTPTransport:
            return httpx.AsyncHTTPTransport(verify=verify, proxy=proxy, limits=limits, trust_env=False)

        self._transports = _Transports(route, verify, make)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._transports.transport_for(request).handle_async_request(request)

    async def aclose(self) -> None:
        for transport in self._transports.drain():
            await transport.aclose()


def _make_transport(verify: Verify, proxy: str | None) -> httpx.HTTPTransport:
    return httpx.HTTPTransport(verify=verify, proxy=proxy, limits=_LIMITS, trust_env=False)
