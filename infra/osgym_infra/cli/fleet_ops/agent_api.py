"""Client of many host agents at once over HTTPS: bounded in number, time and size; failures have remedies."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import httpx

from osgym_infra.cli.fleet_ops.outcome import HostFailure
from osgym_infra.cli.fleet_ops.text import escaped
from osgym_infra.errors import BadInput
from osgym_infra.fleet.managed import FIELD, ManagedFleet, ManagedHost
from osgym_protocol.codec import WireFormatError
from osgym_protocol.fleet_file import FleetFileError
from osgym_protocol.host_api import HostState
from osgym_protocol.http_clients import make_async_client
from osgym_protocol.proxies import host_route

MOST_ANSWER_BYTES = 256 * 1024


class AgentFailed(Exception):
    """A host agent could not be asked, or refused the call."""

    def __init__(self, failure: HostFailure) -> None:
        self.failure = failure
        super().__init__(str(failure))


class Agents:
    """Client of all agents of a fleet.

    Args:
        deadline_s: Deadline of one host, from its first packet to its whole answer.

    Raises:
        BadInput: Fleet.json's authority is no certificate, or the token cannot be read.
    """

    def __init__(self, fleet: ManagedFleet, *, parallel: int, deadline_s: float) -> None:
        self._gate = asyncio.Semaphore(parallel)
        self._deadline_s = deadline_s
        token = fleet.token()
        self._client = make_async_client(
            host_route(os.environ),
            headers={"Authorization": f"Bearer {token}"} if token else {},
            verify=_context(fleet),
            timeout=deadline_s,
            limits=httpx.Limits(max_connections=parallel, max_keepalive_connections=parallel),
        )

    async def __aenter__(self) -> Agents:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def state(self, host: ManagedHost) -> HostState:
        """`GET /v1/host`.

        Raises:
            AgentFailed: See there.
        """
        return _state(await self._ask(host, "GET", "/v1/host"))

    async def drain(self, host: ManagedHost, deadline_s: float | None) -> HostState:
        """`POST /v1/drain`.

        Raises:
            AgentFailed: See there.
        """
        return _state(await self._ask(host, "POST", "/v1/drain", {"deadline_s": deadline_s}))

    async def undrain(self, host: ManagedHost) -> HostState:
        """`DELETE /v1/drain`.

        Raises:
            AgentFailed: See there.
        """
        return _state(await self._ask(host, "DELETE", "/v1/drain"))

    async def _ask(
        self, host: ManagedHost, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> Any:
        async with self._gate:
            try:
                async with asyncio.timeout(self._deadline_s):
                    return await self._answer(host, method, path, body)
            except TimeoutError as error:
                problem = f"{host.authority} did not answer within {self._deadline_s:g} s"
                raise AgentFailed(HostFailure("connect", problem, _away(host))) from error
            except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
                raise AgentFailed(_failure(host, error)) from error

    async def _answer(self, host: ManagedHost, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        extensions = {"sni_hostname": host.server_name} if host.server_name else {}
        request = self._client.build_request(method, f"{host.url}{path}", json=body, extensions=extensions)
        if host.server_name:
            request.headers["Host"] = host.server_name
        answer = await self._client.send(request, stream=True)
        try:
            data = bytearray()
            async for chunk in answer.aiter_bytes():
                data += chunk
                if len(data) > MOST_ANSWER_BYTES:
                    raise _not_ours(host, f"the answer has more than {MOST_ANSWER_BYTES >> 10} KiB")
        finally:
            await answer.aclose()
        if answer.status_code >= 400:
            raise AgentFailed(_refusal(host, answer.status_code, bytes(data)))
        try:
            return json.loads(data)
        except ValueError as error:
            raise _not_ours(host, "its answer is not JSON") from error


async def ask_all(hosts: Sequence[ManagedHost], ask: Callable[[ManagedHost], Awaitable[None]]) -> None:
    """Run a coroutine for all hosts at once; each handles its own failures."""
    async with asyncio.TaskGroup() as group:
        for host in hosts:
            group.create_task(_awaited(ask(host)))


async def _awaited(work: Awaitable[None]) -> None:
    await work


def _context(fleet: ManagedFleet) -> ssl.SSLContext:
    try:
        return fleet.tls_context()
    except FleetFileError as error:
        raise BadInput(FIELD, error.problem, error.remedy) from error


def _state(data: Any) -> HostState:
    try:
        return HostState.from_dict(data)
    except WireFormatError as error:
        raise AgentFailed(
            HostFailure("answer", f"its answer is not that of a host agent: {escaped(str(error))}",
                        "check whether another program uses the port, or the agent has another version")
        ) from error  # fmt: skip


def _not_ours(host: ManagedHost, problem: str) -> AgentFailed:
    remedy = f"check whether another program listens on {host.authority}"
    return AgentFailed(HostFailure("answer", problem, remedy))


def _away(host: ManagedHost) -> str:
    return (
        "Check that the host runs and that osgym:allowed_cidrs includes this machine. "
        f"`osgym fleet logs --host {host.id}` shows its agent's log"
    )


def _failure(host: ManagedHost, error: Exception) -> HostFailure:
    """Return the failure of a host for a failed connection."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            remedy = (
                "after a rotation or a new fleet take a new fleet.json (`osgym fleet export`); else somebody "
                "may be in between, and nothing was sent"
            )
            return HostFailure("tls", f"its certificate is refused: {cause.verify_message}", remedy)
        if isinstance(cause, ssl.SSLError):
            return HostFailure("tls", f"{host.authority} does not speak TLS: {cause.reason}",
                               "use http:// in its URL if the agent has no certificate")  # fmt: skip
        cause = cause.__cause__ or cause.__context__
    problem = escaped(str(error)) or type(error).__name__
    return HostFailure("connect", f"{host.authority} cannot be reached: {problem}", _away(host))


def _refusal(host: ManagedHost, status: int, body: bytes) -> HostFailure:
    try:
        message = escaped(str(json.loads(body)["message"]))
    except (ValueError, KeyError, TypeError):
        message = "no reason given"
    if status == 401:
        return HostFailure("authorize", f"the token is refused: {message}",
                           "set OSGYM_TOKEN, or use the token and fleet.json of the same export")  # fmt: skip
    if status == 403:
        return HostFailure("authorize", f"this machine is refused: {message}",
                           "add its network to osgym:allowed_cidrs")  # fmt: skip
    return HostFailure("answer", f"HTTP {status}: {message}", f"`osgym fleet logs --host {host.id}`")
