"""The asynchronous client: hosts, episodes, batches."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

from osgym_sdk import _sigterm
from osgym_sdk._background import BackgroundTasks
from osgym_sdk._batch.batch import Batch
from osgym_sdk._batch.policy import Policy
from osgym_sdk._batch.ready import ReadyQueue
from osgym_sdk._batch.rollouts import Rollouts
from osgym_sdk._client_batches import BatchCalls
from osgym_sdk._config import ClientSettings, make_config
from osgym_sdk._exceptions import ConfigError, OSGymError
from osgym_sdk._fleet.discovery.open import OpenedFleet, open_fleet
from osgym_sdk._fleet.discovery.watch import HostWatch
from osgym_sdk._fleet.fleet import Fleet
from osgym_sdk._fleet.host import FleetHostState
from osgym_sdk._fleet.members import FleetMembers
from osgym_sdk._fleet.scheduler import Scheduler
from osgym_sdk._host_phase import HostPhase
from osgym_sdk._transport.calls import HostReply

_DRAIN_S = 10.0


class AsyncClient(BatchCalls):
    """A client of one host or many.

    Use it with ``async with``, in one event loop. Everything it opens is closed with it: episodes
    whose close was cancelled, creates that were cut short, lease renewal, connections.

    Args:
        hosts: a URL, several separated by commas, or a list; ``OSGYM_HOSTS`` or
            ``http://127.0.0.1:20000`` by default.
        token: bearer token; ``OSGYM_TOKEN`` by default.
        verify: True, False, a CA file or folder, or a TLS context; ``OSGYM_CA`` by default.
        cert: client certificate: a file, or certificate and key.
        timeouts: deadlines in seconds.
        limits: connections per host.
        transport: makes the httpx transport of each connection, in place of our own.
        proxy: URL of a proxy; those of the environment are not used, since hosts are usually close by.
        server_names: by URL, the name in a host's certificate where that is not its address.
        actions, coordinates: of all episodes; see :meth:`episode`.
        handle_sigterm: while this client is open, SIGTERM ends the process as Ctrl-C does, so that leases are
            given back; only where the process has no handler of its own.

    Raises:
        ConfigError: a setting is wrong.
    """

    def __init__(
        self, hosts: str | Sequence[str] | OpenedFleet | None = None, **settings: Unpack[ClientSettings]
    ) -> None:
        found = hosts.hosts if isinstance(hosts, OpenedFleet) else ()
        config = hosts.config() if isinstance(hosts, OpenedFleet) else make_config(hosts, **settings)
        self._config = config
        self._fleet = Fleet(config, found)
        self._scheduler = Scheduler(config, self._fleet, BackgroundTasks())
        self._members = FleetMembers(config, self._fleet, self._scheduler)
        self._watch = self._watched(hosts) if isinstance(hosts, OpenedFleet) else None
        self._ready = ReadyQueue(config.timeouts.step_s)
        self._adapt_policy: Callable[[Policy], Policy] = lambda policy: policy
        self._batches: weakref.WeakSet[Batch | Rollouts] = weakref.WeakSet()
        if config.handle_sigterm:
            _sigterm.watch(self)

    @classmethod
    def from_fleet(
        cls, source: str | Path, *, poll_s: float | None = None, **settings: Unpack[ClientSettings]
    ) -> Self:
        """Return a client of a whole fleet, whose hosts come and go while it runs.

        Args:
            source: the file that ``osgym fleet export`` wrote, which is read again when it was rewritten; or
                ``aws-tag://KEY=VALUE?region=...``, ``gcp-label://KEY=VALUE?project=...``, ``dns://NAME:PORT``.
            poll_s: how often it is looked at; by default 1 s for a file, 10 s for a name, 15 s for a cloud.
            settings: as for the client itself; they win over the file.

        Raises:
            ConfigError: the source cannot be read or used, or the token has to be passed.
        """
        return cls(open_fleet(source, poll_s, settings), **settings)

    async def __aenter__(self) -> Self:
        if self._watch is not None:
            self._watch.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop batches, give back what is leased, close all connections. Idempotent."""
        for batch in list(self._batches):
            await batch.aclose()
        await self._ready.aclose()
        if self._watch is not None:
            await self._watch.aclose()
        await self._members.aclose()
        await self._scheduler.background.drain(_DRAIN_S)
        await self._scheduler.aclose()
        await self._fleet.aclose()
        _sigterm.forget(self)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that are known now and have not left."""
        return tuple(host.link.url for host in self._fleet.hosts)

    async def add_host(self, url: str, *, server_name: str = "", wait_s: float = 0.0) -> HostPhase:
        """Take a host into use; it gets episodes as soon as it answers, also of batches that run.

        One that is there already stays, and is no longer drained.

        Args:
            url: as in ``hosts``.
            server_name: the name in its certificate where that is not its address.
            wait_s: how long to wait until it serves.

        Raises:
            ConfigError: it is not the URL of one host.
        """
        return await self._members.add(url, server_name, wait_s)

    async def remove_host(self, url: str, *, drain: bool = True, wait_s: float = 0.0) -> HostPhase:
        """Use a host no more: it gets no new episodes.

        A source that still names it does not bring it back; :meth:`add_host` does.

        Args:
            drain: let the episodes there go on to their end. Without, they end now as EpisodeLost with the
                cause ``host_removed``, and :meth:`run` tries their tasks again elsewhere.
            wait_s: how long to wait for the end of the last one.

        Raises:
            ConfigError: it is not among the hosts.
        """
        return await self._members.remove(url, drain, wait_s)

    async def host_states(
        self, *, timeout_s: float | None = None, gone: bool = False
    ) -> dict[str, FleetHostState | OSGymError]:
        """Return the state of every host now, or the error why it cannot be had; both have a ``phase``.

        Args:
            timeout_s: deadline for all of them together; ``Timeouts.control_s`` by default.
            gone: also those that left, each with an error.
        """
        states = await self._fleet.read_states(timeout_s or self._config.timeouts.control_s)
        return {**self._fleet.those_gone(), **states} if gone else states

    async def ask_host(
        self,
        url: str,
        path: str,
        *,
        method: str = "GET",
        content: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> HostReply:
        """Send one request of host API v1 to one host, once, and return what it replied: for dashboards.

        Args:
            url: as in ``hosts``.
            path: with its query, as ``/v1/events?after=7``.
            headers: beside those of every request, which say who we are.
            timeout_s: deadline of the whole request.

        Raises:
            ConfigError: it is not among the hosts.
            HostUnreachable: the connection failed; the request may have arrived.
            Timeout: no answer came in time.
        """
        host = self._fleet.find(url)
        if host is None:
            raise ConfigError(f"{url} is not among the hosts")
        return await host.link.pass_on(method, path, content, headers or {}, timeout_s)

    def _watched(self, opened: OpenedFleet) -> HostWatch:
        """Return the watch over a source, which begins with the first use of the client in its event loop."""
        fleet = self._fleet

        def failed(why: str) -> None:
            fleet.note = f"{opened.source.name}: {why}" if why else f"{opened.source.name} names none"
            # Of a source that never answered nothing is waited for; what is wrong is said at once.
            fleet.grows = fleet.grows or (not why and not opened.hosts)

        watch = HostWatch(opened.source, self._config, self._members.apply, failed, opened.pause_s)

        async def begin() -> None:
            watch.start()
            if not fleet.hosts:
                await watch.looked(self._config.timeouts.control_s)

        fleet.begin = begin
        return watch
