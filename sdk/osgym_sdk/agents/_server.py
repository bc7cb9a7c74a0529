"""Calls of a model's HTTP API: deadlines, retries where they are safe, bounded answers, typed errors."""

from __future__ import annotations

import asyncio
import datetime
import email.utils
import json
import os
import random
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from osgym_protocol.http_clients import make_async_client
from osgym_protocol.proxies import environment_route
from osgym_sdk._exceptions import ConfigError, ModelError
from osgym_sdk._transport.retry import RetryBackoff

MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""Of one answer. The longest that a grammar reads has 250,000 characters; reasoning stands beside it."""
MAX_WAIT_S = 120.0
"""A `Retry-After` beyond this is cut to it: no header makes an episode sleep for an hour."""
RETRIED = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529))
"""Statuses that say that the same request may succeed later; 529 is Anthropic's "overloaded"."""
_BACKOFF = RetryBackoff(first_s=1.0, factor=2.0, most_s=30.0)
_SHOWN_CHARS = 500


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of calls to a model's API.

    Attributes:
        timeout_s: deadline of one request, its answer included. One that runs out is not sent again: it would
            take as long, and be paid twice.
        retries: how often a request is sent again after no connection, a broken one, or a status that
            says so.
        max_answer_bytes: of one answer.
        transport: of httpx, for each event loop; for tests and for those who sign requests.
        sleep, clock, rng: injected.
    """

    timeout_s: float = 300.0
    retries: int = 5
    max_answer_bytes: int = MAX_ANSWER_BYTES
    transport: Callable[[], httpx.AsyncBaseTransport] | None = None
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic
    rng: random.Random = field(default_factory=random.Random, repr=False)

    def __post_init__(self) -> None:
        if self.timeout_s <= 0 or self.retries < 0 or self.max_answer_bytes < 1:
            raise ConfigError("timeout_s and max_answer_bytes must be more than 0, retries 0 or more")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: its JSON object, and what it took.

    Attributes:
        latency_s: of the request that succeeded.
        attempts: how many requests were sent.
        waited_s: between them.
    """

    data: dict[str, Any]
    latency_s: float
    attempts: int
    waited_s: float


def api_key_of(given: str | None, variable: str, needed: bool, environ: Mapping[str, str]) -> str | None:
    """Return a key from the argument, else from the environment.

    Raises:
        ConfigError: there is none and one is needed, or it cannot stand in a header.
    """
    key = given or environ.get(variable) or None
    if key is None and needed:
        raise ConfigError(f"no API key: pass api_key=... or set {variable}")
    if key is not None and not (key.isascii() and key.isprintable()):
        raise ConfigError(
            "the API key has characters that are not allowed in a header; remove a line break at its end"
        )
    return key


def base_url_of(given: str | None, variable: str, default: str, environ: Mapping[str, str]) -> str:
    """Return the base URL from the argument, else from the environment, else the provider's.

    Raises:
        ConfigError: it is no http or https URL.
    """
    url = given or environ.get(variable) or default
    try:
        parts = urlsplit(url)
        wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
    except ValueError as exc:
        raise ConfigError(f"base_url is not a URL: {exc}") from exc
    if wrong or parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError(f"base_url must be an http or https URL without user and query, such as {default}")
    return url.rstrip("/")


class ModelServer:
    """One API of one provider, for any number of episodes at once, in any number of event loops."""

    def __init__(self, base_url: str, headers: Mapping[str, str], options: ServerOptions) -> None:
        self.base_url = base_url
        self._headers = {"Accept-Encoding": "identity", **headers}
        self._options = options
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient]
        self._clients = weakref.WeakKeyDictionary()

    async def aclose(self) -> None:
        """Close the connections of this event loop; a later request opens new ones."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    async def post(self, path: str, body: Mapping[str, Any]) -> Reply:
        """Send a request and return the answer, trying again where that is safe.

        Raises:
            ModelError: no answer in time, a refusal, or an answer that is not one; ``code`` says which.
        """
        options = self._options
        content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        waited_s, attempts = 0.0, 0
        while True:
            attempts += 1
            began = options.clock()
            try:
                async with asyncio.timeout(options.timeout_s):
                    answer = await self._once(path, content)
            except TimeoutError:
                text = f"the API did not send its whole answer within {options.timeout_s:g} s"
                raise self._error(text, ModelError.UNAVAILABLE, attempts) from None
            except httpx.TransportError as exc:
                failed = self._error(
                    f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__,
                    ModelError.UNAVAILABLE,
                    attempts,
                )
                wait_s = _BACKOFF.delay_s(attempts - 1, options.rng)
            else:
                if answer.status < 300:
                    return Reply(self._object(answer, attempts), options.clock() - began, attempts, waited_s)
                failed = self._refusal(answer, attempts)
                if answer.status not in RETRIED:
                    raise failed
                wait_s = self._wait_s(answer, attempts)
            if attempts > options.retries:
                raise failed
            waited_s += wait_s
            await options.sleep(wait_s)

    async def _once(self, path: str, content: bytes) -> _Answer:
        headers = {**self._headers, "Content-Type": "application/json"}
        most = self._options.max_answer_bytes
        sent = self._client().stream("POST", self.base_url + path, content=content, headers=headers)
        async with sent as response:
            parts: list[bytes] = []
            size = 0
            async for part in response.aiter_bytes():
                size += len(part)
                if size > most:
                    return _Answer(response.status_code, response.headers, b"", too_large=True)
                parts.append(part)
            return _Answer(response.status_code, response.headers, b"".join(parts))

    def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            options = self._options
            client = make_async_client(
                environment_route(os.environ),
                timeout=httpx.Timeout(
                    None, connect=min(30.0, options.timeout_s)
                ),  # asyncio.timeout has the rest
                limits=httpx.Limits(max_connections=None, keepalive_expiry=30.0),
                transport=None if options.transport is None else options.transport(),
            )
            self._clients[loop] = client
        return client

    def _object(self, answer: _Answer, attempts: int) -> dict[str, Any]:
        if answer.too_large:
            text = f"the answer has more than {self._options.max_answer_bytes} bytes (max_answer_bytes)"
            raise self._error(text, ModelError.PROTOCOL, attempts)
        try:
            data = json.loads(answer.body)
        except (ValueError, RecursionError) as exc:
            shown = answer.body[:100].decode("utf-8", "replace")
            text = f"the answer is not JSON ({type(exc).__name__}): {shown!r}"
            raise self._error(text, ModelError.PROTOCOL, attempts) from None
        if not isinstance(data, dict):
            raise self._error("the answer is not a JSON object", ModelError.PROTOCOL, attempts)
        return data

    def _refusal(self, answer: _Answer, attempts: int) -> ModelError:
        code = ModelError.UNAVAILABLE if answer.status in RETRIED else ModelError.REFUSED
        text = f"status {answer.status}: {self._reason(answer)}"
        return self._error(text, code, attempts, status=answer.status)

    def _reason(self, answer: _Answer) -> str:
        """Return what a provider says of its refusal, short and without the key."""
        text = answer.body[: 8 * _SHOWN_CHARS].decode("utf-8", "replace")
        try:
            data = json.loads(answer.body)
            error = data.get("error", data) if isinstance(data, dict) else data
            message = error.get("message") if isinstance(error, dict) else error
            text = message if isinstance(message, str) else text
        except (ValueError, RecursionError):
            pass  # a page of a proxy: its text is shown
        for name in ("authorization", "x-api-key", "x-goog-api-key"):
            secret = self._headers.get(name, "").removeprefix("Bearer ")
            if secret:
                text = text.replace(secret, "***")
        printable = "".join(char if char.isprintable() else " " for char in text[:_SHOWN_CHARS])
        return printable.strip() or "no reason given"

    def _wait_s(self, answer: _Answer, attempts: int) -> float:
        """Return how long to wait: as the server says, with jitter on top, else growing."""
        rng = self._options.rng
        asked = retry_after_s(answer.headers, datetime.datetime.now(datetime.UTC))
        if asked is None:
            return _BACKOFF.delay_s(attempts - 1, rng)
        return min(asked, MAX_WAIT_S) + rng.uniform(0.0, 0.5)

    def _error(self, text: str, code: str, attempts: int, **details: Any) -> ModelError:
        after = f", after {attempts} requests" if attempts > 1 else ""
        details |= {"attempts": attempts}
        return ModelError(f"{text}{after}", code=code, details=details, host=self.base_url)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes
    too_large: bool = False


def retry_after_s(headers: Mapping[str, str], now: datetime.datetime) -> float | None:
    """Return the seconds that an answer asks to wait: `retry-after-ms`, or `Retry-After` in either form."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        if not text:
            continue
        try:
            seconds = float(text) * scale
        except ValueError:
            try:
                at = email.utils.parsedate_to_datetime(text)
            except ValueError:
                continue
            at = at if at.tzinfo else at.replace(tzinfo=datetime.UTC)
            seconds = (at - now).total_seconds()
        if seconds >= 0:  # also false for NaN
            return seconds
    return None


ENVIRON: Mapping[str, str] = os.environ
