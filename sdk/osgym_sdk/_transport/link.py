"""One host: its connection pools, and one call to it with deadline, retries and typed errors.

Every call of host API v1 may be repeated: steps by their sequence number, creates by their request
id, the rest by nature. So a call whose connection broke is simply sent again, within its deadline.
"""

from __future__ import annotations

import asyncio
import functools
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, assert_never

import httpx

from osgym_protocol.proxies import host_route
from osgym_sdk._config import ClientConfig, ssl_context
from osgym_sdk._exceptions import (
    ConfigError,
    HostUnreachable,
    OSGymError,
    ProtocolError,
    RateLimited,
    Timeout,
    error_from_wire,
)
from osgym_sdk._transport.calls import ConnectionKind, HostAnswer, HostCall, HostReply, PlainConnection
from osgym_sdk._transport.http1 import Http1Connection
from osgym_sdk._transport.pool import ConnectionPool
from osgym_sdk._transport.retry import Deadline, RetryBackoff, next_delay
from osgym_sdk.wire import (
    CLIENT_HEADER,
    LEASE_HEADER,
    MAX_BLOB_BYTES,
    MAX_META_BYTES,
    ErrorInfo,
    Message,
    WireFormatError,
    decode_record,
)

_MAX_ANSWER_BYTES = MAX_BLOB_BYTES + MAX_META_BYTES + 8
_GATEWAY = (502, 503, 504)
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_BACKOFF = RetryBackoff()

_url = functools.lru_cache(maxsize=4096)(httpx.URL)


class HostLink:
    """All connections of one client to one host."""

    def __init__(self, url: str, config: ClientConfig, context: ssl.SSLContext | None = None) -> None:
        self.url = url
        self._config = config
        self._context = context
        self._pools: dict[ConnectionKind, ConnectionPool] = {}
        self._old_pools: list[ConnectionPool] = []
        """Pools from before the host was identified anew; closed with the link."""
        self._headers = {
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": "osgym-sdk",
            CLIENT_HEADER.lower(): config.client_id,
        }
        timeout = httpx.Timeout(None, connect=config.timeouts.connect_s)
        self._extensions: dict[str, Any] = {"timeout": timeout.as_dict()}
        self._closed = False
        self.server_name = ""
        self.identify(config.server_names.get(url, ""), config.token, context)

    def identify(self, server_name: str, token: str | None, context: ssl.SSLContext | None) -> None:
        """Say how the host proves who it is, and how we do; for connections and calls from now on.

        Args:
            server_name: the name in its certificate where that is not its address, else empty.
            token: of the host agents.
            context: which authority is trusted; None: as before.
        """
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        else:
            self._headers.pop("authorization", None)
        if (context is None or context is self._context) and server_name == self.server_name:
            return
        self._context = context or self._context
        self.server_name = server_name
        self._extensions.pop("sni_hostname", None)
        if server_name:
            # The certificate is of this name, whatever the address; sent to the host, and verified.
            self._extensions["sni_hostname"] = server_name
        self._old_pools += self._pools.values()
        self._pools = {}

    async def release(self) -> None:
        """Close connections that nobody uses; later calls make new ones."""
        pools, self._old_pools, self._pools = [*self._old_pools, *self._pools.values()], [], {}
        for pool in pools:
            await pool.aclose()

    async def aclose(self) -> None:
        """Close all connections. Idempotent."""
        self._closed = True
        for pool in [*self._old_pools, *self._pools.values()]:
            await pool.aclose()

    async def call(self, call: HostCall) -> HostAnswer:
        """Send a call and return its answer, repeating it while the connection is what fails.

        Raises:
            Timeout: No answer came within ``timeout_s``.
            HostUnreachable: The connection kept failing for ``retry_s``.
            RateLimited: The token's turn comes after ``timeout_s``.
            ProtocolError: The record kept being broken for ``retry_s``.
            OSGymError: The host answered with an error; the subclass says which.
        """
        config, clock = self._config, self._config.clock
        now_s = clock()
        end = Deadline.after(call.timeout_s, now_s)
        give_up = Deadline.after(config.timeouts.retry_s if call.retry_s is None else call.retry_s, now_s)
        headers = None if call.lease is None else {LEASE_HEADER: call.lease}
        content = call.content or (b"" if call.body is None else _encode(call.body.to_dict()))
        attempt = 0
        maybe_sent = False
        while True:
            pool = self._pool(call.kind)
            error: HostUnreachable | ProtocolError
            try:
                async with asyncio.timeout(end.left_s(clock())):
                    request = self._request(call.method, call.path, content, headers)
                    body, transfer_s = await self._send(pool, request, call.episode_id)
                record = decode_record(body) if call.record else None
                return HostAnswer(self.url, call, body, transfer_s, record)
            except HostUnreachable as exc:
                error = exc
                error.maybe_sent = maybe_sent = maybe_sent or not isinstance(exc.__cause__, _NEVER_SENT)
            except WireFormatError as exc:
                error = ProtocolError(f"bad record: {exc}", host=self.url, episode_id=call.episode_id)
                maybe_sent = True
            except RateLimited as exc:
                if exc.retry_after_s >= end.left_s(clock()):
                    raise
                await asyncio.sleep(exc.retry_after_s)
                continue
            except Timeout:
                raise  # the host's own
            except TimeoutError as exc:
                raise self._timeout(call.method, call.path, call.timeout_s, call.episode_id) from exc
            delay = next_delay(attempt, _BACKOFF, config.rng, clock(), end, give_up)
            if delay is None:
                raise error
            attempt += 1
            await asyncio.sleep(delay)

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, body: Message | None = None
    ) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        """Read an answer piece by piece, with its length (-1: unknown).

        Deadlines are the caller's; there are no retries.

        Raises:
            HostUnreachable: The connection failed.
            OSGymError: The host answered with an error.
        """
        content = b"" if body is None else _encode(body.to_dict())
        pool = self._pool(ConnectionKind.LONG)
        try:
            async with pool.send(self._request(method, path, content)) as response:
                if response.status_code >= 400:
                    raise self._error(response.status_code, await _read(response), None)
                assert isinstance(response.stream, httpx.AsyncByteStream)
                # Not `aiter_raw()`, which goes over every piece a second time.
                yield int(response.headers.get("content-length", -1)), aiter(response.stream)
        except (httpx.HTTPError, httpx.StreamError) as exc:
            raise HostUnreachable(_reason(exc), host=self.url) from exc

    async def upload(
        self, path: str, length: int, pieces: AsyncIterator[bytes], timeout_s: float
    ) -> HostAnswer:
        """Send a body piece by piece; no retries.

        Raises:
            Timeout: No answer came within ``timeout_s``.
            HostUnreachable: The connection failed.
            OSGymError: The host answered with an error.
        """
        headers = {"content-type": "application/octet-stream", "content-length": str(length)}
        call = HostCall(method="POST", path=path, timeout_s=timeout_s, kind=ConnectionKind.UPLOAD)
        request = self._request(call.method, path, pieces, headers)
        try:
            async with asyncio.timeout(timeout_s):
                return HostAnswer(self.url, call, *await self._send(self._pool(call.kind), request, None))
        except Timeout:
            raise  # the host's own
        except TimeoutError as exc:
            raise self._timeout(call.method, path, timeout_s, None) from exc

    async def pass_on(
        self, method: str, path: str, content: bytes, headers: Mapping[str, str], timeout_s: float
    ) -> HostReply:
        """Send a request as it is, once, and return the reply as it is.

        Raises:
            Timeout: No answer came within ``timeout_s``.
            HostUnreachable: The connection failed.
        """
        try:
            async with asyncio.timeout(timeout_s):
                pool = self._pool(ConnectionKind.LONG)
                async with pool.send(self._request(method, path, content, headers)) as response:
                    data = await _read(response)
        except (httpx.HTTPError, httpx.StreamError) as exc:
            raise HostUnreachable(_reason(exc), host=self.url) from exc
        except TimeoutError as exc:
            raise self._timeout(method, path, timeout_s, None) from exc
        return HostReply(response.status_code, dict(response.headers), data)

    def plain_connection(self, lease: str) -> PlainConnection:
        """Return what a connection of somebody else to this host needs, for calls that are no exchange.

        Raises:
            ConfigError: our connections go by a proxy or a transport of the caller's.
        """
        if self._config.proxy is not None or self._config.transport is not None:
            raise ConfigError("ports cannot be exposed through a proxy or a custom transport")
        if self._context is None and self.url.startswith("https:"):
            self._context = ssl_context(self._config.verify, self._config.cert)
        url = _url(self.url)
        headers = {**self._headers, LEASE_HEADER: lease, "host": url.netloc.decode("ascii")}
        tls = self._context if url.scheme == "https" else None
        port = url.port or (80 if tls is None else 443)
        name = (self.server_name or None) if tls is not None else None
        return PlainConnection(url.raw_host.decode("ascii"), port, url.path.rstrip("/"), tls, name, headers)

    def refused(self, status: int, data: bytes, episode_id: str | None) -> OSGymError:
        """Return the exception for an error answer."""
        return self._error(status, data, episode_id)

    async def _send(
        self, pool: ConnectionPool, request: httpx.Request, episode_id: str | None
    ) -> tuple[bytes, float]:
        """Send once; return the body, and the seconds until its last byte."""
        started_s = self._config.clock()
        try:
            async with pool.send(request) as response:
                data = await _read(response)
        except (httpx.HTTPError, httpx.StreamError) as exc:
            raise HostUnreachable(_reason(exc), host=self.url, episode_id=episode_id) from exc
        if response.status_code >= 400:
            raise self._error(response.status_code, data, episode_id)
        return data, self._config.clock() - started_s

    def _error(self, status: int, data: bytes, episode_id: str | None) -> OSGymError:
        try:
            info = ErrorInfo.from_dict(json.loads(data))
        except ValueError:
            text = f"HTTP {status}: {data[:200].decode(errors='replace')}"
            if status in _GATEWAY:
                return HostUnreachable(text, host=self.url, episode_id=episode_id)
            info = ErrorInfo(f"http_{status}", text)
        return error_from_wire(info, status=status, host=self.url, episode_id=episode_id)

    def _timeout(self, method: str, path: str, timeout_s: float, episode_id: str | None) -> Timeout:
        message = f"{method} {path}: no answer within {timeout_s:g} s"
        return Timeout(message, code="client_timeout", host=self.url, episode_id=episode_id)

    def _request(
        self,
        method: str,
        path: str,
        content: bytes | AsyncIterator[bytes],
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Request:
        return httpx.Request(
            method,
            _url(self.url + path),
            content=content,
            headers={**self._headers, **headers} if headers else self._headers,
            extensions=self._extensions,
        )

    def _pool(self, kind: ConnectionKind) -> ConnectionPool:
        if self._closed:
            raise HostUnreachable("the client is closed", host=self.url)
        pool = self._pools.get(kind)
        if pool is None:
            config, limits = self._config, self._config.limits
            match kind:
                case ConnectionKind.CONTROL:
                    limit = limits.control
                case ConnectionKind.LONG:
                    limit = limits.long
                case ConnectionKind.HEARTBEAT:
                    limit = limits.heartbeat
                case ConnectionKind.UPLOAD:
                    limit = limits.control
                case _:
                    assert_never(kind)
            make = functools.partial(self._transport, kind)
            pool = self._pools[kind] = ConnectionPool(make, limit, limits.keepalive_s, config.clock)
        for other in self._pools.values():
            other.close_stale()
        return pool

    def _transport(self, kind: ConnectionKind) -> httpx.AsyncBaseTransport:
        config = self._config
        if config.transport is not None:
            return config.transport()
        if self._context is None and self.url.startswith("https:"):
            self._context = ssl_context(config.verify, config.cert)
        proxy = host_route({}, config.proxy).proxy_for(self.url)
        if proxy is None and kind is not ConnectionKind.UPLOAD:
            return Http1Connection(self._context)
        return httpx.AsyncHTTPTransport(
            verify=self._context if self._context is not None else False,
            trust_env=False,
            proxy=proxy,
            limits=httpx.Limits(
                max_connections=1, max_keepalive_connections=1, keepalive_expiry=config.limits.keepalive_s
            ),
        )


def _encode(plain: Mapping[str, Any]) -> bytes:
    """Return compact JSON; text that is no UTF-8 (lone surrogates) is escaped."""
    try:
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError:
        return json.dumps(plain, separators=(",", ":"), allow_nan=False).encode()


async def _read(response: httpx.Response) -> bytes:
    """Return the whole body, refusing one that is longer than any answer may be."""
    chunks = []
    size = 0
    async for chunk in response.aiter_raw():
        size += len(chunk)
        if size > _MAX_ANSWER_BYTES:
            raise httpx.ReadError(f"the answer has more than {_MAX_ANSWER_BYTES} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def _reason(exc: Exception) -> str:
    return str(exc) or type(exc).__name__
