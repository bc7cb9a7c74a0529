"""One host: its connection pools, and one call to it with deadline, retries and typed errors.

Every call of host API v1 may be repeated: steps by their sequence number, creates by their request
id, the rest by nature. So a call whose connection broke is simply sent again, within its deadline.
"""

from __future__ import annotations

import asyncio
import enum
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from osgym_sdk._config import Config, ssl_context
from osgym_sdk._exceptions import HostUnreachable, OSGymError, ProtocolError, Timeout, error_from_wire
from osgym_sdk._lanes import Lanes
from osgym_sdk._retry import Backoff, Deadline, next_delay
from osgym_sdk.wire import (
    MAX_BLOB_BYTES,
    MAX_META_BYTES,
    ErrorInfo,
    Message,
    Record,
    WireFormatError,
    decode_record,
)

_MAX_ANSWER_BYTES = MAX_BLOB_BYTES + MAX_META_BYTES + 8
_GATEWAY = (502, 503, 504)
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_BACKOFF = Backoff()


class _Broken(Exception):
    """The connection or the answer was broken, so the call may be sent again."""

    def __init__(self, error: OSGymError) -> None:
        super().__init__(str(error))
        self.error = error


class Pool(enum.Enum):
    """Which connections a call uses."""

    CONTROL = "control"
    LONG = "long"
    HEARTBEAT = "heartbeat"


@dataclass(slots=True)
class Answer:
    """What came back: the body, and how long the last attempt was on the way (seconds)."""

    status: int
    body: bytes
    transfer_s: float
    record: Record | None = None
    """The body as one record, where one was asked for."""

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            ProtocolError: it is none.
        """
        try:
            return json.loads(self.body)
        except ValueError as exc:
            raise ProtocolError(f"bad JSON: {exc}") from exc


class HostLink:
    """All connections of one client to one host."""

    def __init__(self, url: str, config: Config, context: ssl.SSLContext | None = None) -> None:
        self.url = url
        self._config = config
        self._context = context
        self._lanes: dict[Pool, Lanes] = {}
        self._headers = {
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": "osgym-sdk",
        }
        if config.token:
            self._headers["authorization"] = f"Bearer {config.token}"
        timeout = httpx.Timeout(None, connect=config.timeouts.connect_s)
        self._extensions: dict[str, Any] = {"timeout": timeout.as_dict()}
        if name := config.server_names.get(url):
            # The certificate is of this name, whatever the address; sent to the host, and verified.
            self._extensions["sni_hostname"] = name
        self._closed = False

    async def aclose(self) -> None:
        """Closes all connections. Idempotent."""
        self._closed = True
        for lanes in self._lanes.values():
            await lanes.aclose()

    async def call(
        self,
        method: str,
        path: str,
        body: Message | Mapping[str, Any] | None = None,
        *,
        timeout_s: float,
        pool: Pool = Pool.CONTROL,
        headers: Mapping[str, str] | None = None,
        retry_s: float | None = None,
        episode_id: str | None = None,
        want_record: bool = False,
    ) -> Answer:
        """Sends one call and gives its answer, repeating it while the connection is what fails.

        Raises:
            Timeout: no answer within ``timeout_s``.
            HostUnreachable: the connection kept failing for ``retry_s``.
            ProtocolError: the answer kept being broken for ``retry_s``.
            OSGymError: the host answered with an error; the subclass says which.
        """
        clock, rng = self._config.clock, self._config.rng
        end = Deadline.after(timeout_s, clock())
        give_up = Deadline.after(self._config.timeouts.retry_s if retry_s is None else retry_s, clock())
        content = _encode(body)
        attempt = 0
        maybe_sent = False
        while True:
            try:
                async with asyncio.timeout(end.left_s(clock())):
                    answer = await self._once(method, path, content, headers, pool, episode_id)
                    if want_record:
                        answer.record = _decode(answer.body, self.url, episode_id)
                    return answer
            except TimeoutError as exc:
                raise self._timeout(method, path, timeout_s, episode_id) from exc
            except _Broken as exc:
                maybe_sent = maybe_sent or not isinstance(exc.__cause__, _NEVER_SENT)
                delay = next_delay(attempt, _BACKOFF, rng, clock(), end, give_up)
                if delay is None:
                    if isinstance(exc.error, HostUnreachable):
                        exc.error.maybe_sent = maybe_sent
                    raise exc.error from exc
            attempt += 1
            await asyncio.sleep(delay)

    @asynccontextmanager
    async def stream(self, path: str, body: Message) -> AsyncIterator[AsyncIterator[bytes]]:
        """A POST whose answer is read piece by piece. Deadlines are the caller's; no retries.

        Raises:
            HostUnreachable: the connection failed.
            OSGymError: the host answered with an error.
        """
        request = self._request("POST", path, _encode(body), None)
        try:
            async with self._pool(Pool.LONG).send(request) as response:
                if response.status_code >= 400:
                    raise self._error(response.status_code, await _read(response), None)
                yield response.aiter_raw()
        except _Broken as exc:
            raise exc.error from exc
        except (httpx.HTTPError, httpx.StreamError) as exc:
            raise HostUnreachable(_reason(exc), host=self.url) from exc

    @asynccontextmanager
    async def download(self, path: str) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        """A GET whose answer is read piece by piece, with its length. Deadlines are the caller's.

        Raises:
            HostUnreachable: the connection failed.
            OSGymError: the host answered with an error.
        """
        try:
            async with self._pool(Pool.LONG).send(self._request("GET", path, None, None)) as response:
                if response.status_code >= 400:
                    raise self._error(response.status_code, await _read(response), None)
                yield int(response.headers.get("content-length", -1)), response.aiter_raw()
        except _Broken as exc:
            raise exc.error from exc
        except (httpx.HTTPError, httpx.StreamError) as exc:
            raise HostUnreachable(_reason(exc), host=self.url) from exc

    async def upload(self, path: str, length: int, pieces: AsyncIterator[bytes], timeout_s: float) -> Answer:
        """A POST whose body is sent piece by piece; no retries.

        Raises:
            Timeout: no answer within ``timeout_s``.
            HostUnreachable: the connection failed.
            OSGymError: the host answered with an error.
        """
        headers = {"content-type": "application/octet-stream", "content-length": str(length)}
        try:
            async with asyncio.timeout(timeout_s):
                return await self._once("POST", path, pieces, headers, Pool.LONG, None)
        except TimeoutError as exc:
            raise self._timeout("POST", path, timeout_s, None) from exc
        except _Broken as exc:
            raise exc.error from exc

    async def _once(
        self,
        method: str,
        path: str,
        content: bytes | AsyncIterator[bytes] | None,
        headers: Mapping[str, str] | None,
        pool: Pool,
        episode_id: str | None,
    ) -> Answer:
        clock = self._config.clock
        lanes = self._pool(pool)
        request = self._request(method, path, content, headers)
        started = clock()
        try:
            async with lanes.send(request) as response:
                data = await _read(response)
                status = response.status_code
        except (httpx.HTTPError, httpx.StreamError) as exc:
            raise _Broken(HostUnreachable(_reason(exc), host=self.url, episode_id=episode_id)) from exc
        if status >= 400:
            raise self._error(status, data, episode_id)
        return Answer(status, data, clock() - started)

    def _error(self, status: int, data: bytes, episode_id: str | None) -> OSGymError:
        try:
            info = ErrorInfo.from_dict(json.loads(data))
        except ValueError:
            text = f"HTTP {status}: {data[:200].decode(errors='replace')}"
            if status in _GATEWAY:
                raise _Broken(HostUnreachable(text, host=self.url, episode_id=episode_id)) from None
            info = ErrorInfo(f"http_{status}", text)
        return error_from_wire(info, status=status, host=self.url, episode_id=episode_id)

    def _timeout(self, method: str, path: str, timeout_s: float, episode_id: str | None) -> Timeout:
        message = f"{method} {path}: no answer within {timeout_s:g} s"
        return Timeout(message, code="client_timeout", host=self.url, episode_id=episode_id)

    def _request(
        self,
        method: str,
        path: str,
        content: bytes | AsyncIterator[bytes] | None,
        headers: Mapping[str, str] | None,
    ) -> httpx.Request:
        return httpx.Request(
            method,
            self.url + path,
            content=content,
            headers={**self._headers, **headers} if headers else self._headers,
            extensions=self._extensions,
        )

    def _pool(self, pool: Pool) -> Lanes:
        if self._closed:
            raise HostUnreachable("the client is closed", host=self.url)
        lanes = self._lanes.get(pool)
        if lanes is None:
            limits = self._config.limits
            limit = {
                Pool.CONTROL: limits.control,
                Pool.LONG: limits.long,
                Pool.HEARTBEAT: limits.heartbeat,
            }[pool]
            lanes = self._lanes[pool] = Lanes(self._transport, limit, limits.keepalive_s, self._config.clock)
        for other in self._lanes.values():
            other.close_stale()
        return lanes

    def _transport(self) -> httpx.AsyncBaseTransport:
        config = self._config
        if config.transport is not None:
            return config.transport()
        if self._context is None and self.url.startswith("https:"):
            self._context = ssl_context(config.verify, config.cert)
        return httpx.AsyncHTTPTransport(
            verify=self._context if self._context is not None else False,
            trust_env=False,
            proxy=config.proxy,
            limits=httpx.Limits(
                max_connections=1, max_keepalive_connections=1, keepalive_expiry=config.limits.keepalive_s
            ),
        )


def _decode(body: bytes, host: str, episode_id: str | None) -> Record:
    try:
        return decode_record(body)
    except WireFormatError as exc:
        raise _Broken(ProtocolError(f"bad record: {exc}", host=host, episode_id=episode_id)) from exc


def _encode(body: Message | Mapping[str, Any] | None) -> bytes | None:
    if body is None:
        return None
    plain = body.to_dict() if isinstance(body, Message) else body
    try:
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError:
        return json.dumps(plain, separators=(",", ":"), allow_nan=False).encode()


async def _read(response: httpx.Response) -> bytes:
    """The whole body, refusing one that is longer than any answer may be."""
    chunks = []
    size = 0
    async for chunk in response.aiter_raw():
        size += len(chunk)
        if size > _MAX_ANSWER_BYTES:
            raise httpx.ReadError(f"the answer is over {_MAX_ANSWER_BYTES} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def _reason(exc: Exception) -> str:
    return str(exc) or type(exc).__name__
