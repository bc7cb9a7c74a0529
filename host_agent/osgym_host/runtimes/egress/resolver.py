"""Name resolution for guests with egress, by the host's resolver, pinned to what the rules then allow.

Each machine has a socket of its own, on the host's end of its link; who asks is known by that. A guest
never talks to a name server: what it sends is parsed here, and only host names leave the host. With the
allowlist, only allowed names are looked up at all, so names cannot carry anything out; the addresses
found are allowed for that machine before it hears of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from osgym_host.core.egress import Allowlist, public_addresses
from osgym_host.runtimes.egress.dns import TTL_S, DnsCode, DnsQuestion, answer, parse
from osgym_host.runtimes.egress.links import Link
from osgym_host.runtimes.egress.tools import NetworkFailed

DNS_PORT = 53
LOOKUP_TIMEOUT_S = 10.0
MAX_PENDING = 16
"""Largest number of pending questions of one machine; others are dropped, and its resolver asks again."""

_MAX_CACHED = 2048
_THREADS = 8


class NameLookup:
    """Name look-ups of all machines, in few threads, cached for a minute."""

    def __init__(
        self,
        look_up: Callable[[str], Sequence[str]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        threads: int = _THREADS,
    ) -> None:
        """Args:
                    look_up: Blocking function that returns the addresses of a name; None: the host's
        resolver.
        """
        self._look_up = look_up or host_look_up
        self._clock = clock
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="osgym-names")
        self._known: dict[str, tuple[float, list[str]]] = {}

    async def find(self, name: str) -> list[str]:
        """Return the public IPv4 addresses of a name, possibly none.

        Raises:
            TimeoutError: The host's resolver took too long.
            OSError: The look-up failed.
        """
        cached = self._known.get(name)
        if cached is not None and self._clock() < cached[0]:
            return cached[1]
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(LOOKUP_TIMEOUT_S):
            found = public_addresses(await loop.run_in_executor(self._pool, self._look_up, name))
        if len(self._known) >= _MAX_CACHED:
            self._known.pop(next(iter(self._known)))
        self._known[name] = (self._clock() + TTL_S, found)
        return found

    def close(self) -> None:
        """Stop the threads. Idempotent."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def host_look_up(name: str) -> list[str]:
    """Resolve exactly this name by the host's resolver, without its search domains. Blocking.

    Raises:
        OSError: The look-up failed.
    """
    try:
        found = socket.getaddrinfo(name + ".", None, socket.AF_INET, socket.SOCK_STREAM)
    except socket.gaierror as exc:
        if exc.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
            return []
        raise
    return [str(entry[4][0]) for entry in found]


Learn = Callable[[list[str]], Awaitable[None]]


class GuestResolver(asyncio.DatagramProtocol):
    """Resolver of one machine.

    Args:
        allowlist: Names that it may ask for; None for any.
        learn: Called to allow addresses before they are answered; None where all are allowed.
    """

    def __init__(self, names: NameLookup, allowlist: Allowlist | None, learn: Learn | None) -> None:
        self._names = names
        self._allowlist = allowlist
        self._learn = learn
        self._transport: asyncio.DatagramTransport | None = None
        self._pending: set[asyncio.Task[None]] = set()

    @classmethod
    async def serve(
        cls, link: Link, names: NameLookup, allowlist: Allowlist | None, learn: Learn | None
    ) -> GuestResolver:
        """Listen on the host's end of a link.

        Raises:
            NetworkFailed: The address is not there, or the port is taken.
        """
        loop = asyncio.get_running_loop()
        try:
            _, protocol = await loop.create_datagram_endpoint(
                lambda: cls(names, allowlist, learn), local_addr=(link.host_ip, DNS_PORT)
            )
        except OSError as exc:
            raise NetworkFailed(f"the resolver cannot listen at {link.host_ip}:{DNS_PORT}: {exc}") from exc
        return protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)  # asyncio's own is no subclass

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer a question in a task of its own, unless too many are pending."""
        question = parse(data)
        if question is None or len(self._pending) >= MAX_PENDING:
            return
        task = asyncio.create_task(self._answer(question, addr))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def _answer(self, question: DnsQuestion, addr: tuple[str, int]) -> None:
        code, addresses = await self._resolve(question)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(answer(question, code, addresses), addr)

    async def _resolve(self, question: DnsQuestion) -> tuple[DnsCode, list[str]]:
        if self._allowlist is not None and not self._allowlist.has_name(question.name):
            return DnsCode.REFUSED, []
        if not question.asks_address:
            return DnsCode.OK, []
        try:
            addresses = await self._names.find(question.name)
            if addresses and self._learn is not None:
                await self._learn(addresses)
        except (TimeoutError, OSError, UnicodeError, NetworkFailed):
            return DnsCode.SERVER_FAILED, []
        return (DnsCode.OK, addresses) if addresses else (DnsCode.NO_SUCH_NAME, [])

    async def close(self) -> None:
        """Stop answering. Idempotent."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        for task in tuple(self._pending):
            task.cancel()
        for task in tuple(self._pending):
            with contextlib.suppress(asyncio.CancelledError):
                await task
