"""Hosts that come and go while a client runs: joined once they answer, drained before they are forgotten."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from osgym_sdk._background import BackgroundTasks
from osgym_sdk._config import ClientConfig, parse_hosts
from osgym_sdk._exceptions import ConfigError, OSGymError
from osgym_sdk._fleet.discovery.open import OpenedFleet
from osgym_sdk._fleet.discovery.watch import HostWatch
from osgym_sdk._fleet.fleet import HOST_REMOVED, Fleet
from osgym_sdk._fleet.host import FleetHost
from osgym_sdk._fleet.scheduler import Scheduler
from osgym_sdk._host_phase import HostPhase
from osgym_sdk._transport.retry import RetryBackoff
from osgym_sdk.host_sources import FoundHost, Listing

_LOG = logging.getLogger("osgym.sdk")
_JOIN_BACKOFF = RetryBackoff(first_s=0.5, factor=1.6, most_s=20.0)
"""A machine of a cloud is listed minutes before its host agent answers."""
_JOIN_AT_ONCE = 64
"""Hosts that are asked at the same time whether they serve."""
_LOOK_S = 0.1
"""Interval of looks at whether the last lease of a leaving host is given back; a look costs no I/O."""


@dataclass(frozen=True, slots=True)
class MemberChanges:
    """Hosts to add and to drain, so that the known hosts become the named ones."""

    add: tuple[FoundHost, ...]
    drain: tuple[str, ...]


def changes(
    known: Iterable[FleetHost], named: Sequence[FoundHost], removed_by_hand: Iterable[str]
) -> MemberChanges:
    """Compare what a source names with what is known. Pure.

    A host that was added by hand stays, one that was removed by hand stays away while the source names it.
    """
    urls = {found.url for found in named}
    staying = {host.link.url for host in known if not host.leaving}
    away = set(removed_by_hand)
    add = {found.url: found for found in named if found.url not in staying | away}
    drain = [host.link.url for host in known if host.discovered and not host.leaving]
    return MemberChanges(tuple(add.values()), tuple(url for url in drain if url not in urls))


class FleetMembers:
    """Adds hosts to a running client's fleet, and takes them out."""

    def __init__(self, config: ClientConfig, fleet: Fleet, scheduler: Scheduler) -> None:
        self._config = config
        self._fleet = fleet
        self._scheduler = scheduler
        self._gate = asyncio.Semaphore(_JOIN_AT_ONCE)
        self._background = BackgroundTasks()
        self._removed_by_hand: set[str] = set()

    async def aclose(self) -> None:
        """Stop waiting for hosts. Idempotent."""
        await self._background.drain(0.0)

    async def add(self, url: str, server_name: str, wait_s: float) -> HostPhase:
        if wait_s < 0:
            raise ConfigError("wait_s must be 0 or more")
        urls = parse_hosts(url)
        if len(urls) != 1:
            raise ConfigError(f"{url!r} names {len(urls)} hosts; add one at a time")
        self._removed_by_hand.discard(urls[0])
        host = self._add(FoundHost(urls[0], server_name))
        host.discovered = False
        end_s = self._config.clock() + wait_s
        while host.joining and (left_s := end_s - self._config.clock()) > 0:
            await self._fleet.wait_for_host(left_s)
        return host.phase

    async def remove(self, url: str, drain: bool, wait_s: float) -> HostPhase:
        if wait_s < 0:
            raise ConfigError("wait_s must be 0 or more")
        (name,) = parse_hosts(url)
        host = self._fleet.find(name)
        if host is None:
            if name in self._fleet.gone:
                return HostPhase.GONE
            raise ConfigError(f"{name} is not a host of this client")
        self._removed_by_hand.add(name)
        self._leave(host, drain)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await host.ended.wait()
        return host.phase

    def watch(self, opened: OpenedFleet) -> HostWatch:
        """Return the watch over a source; it starts with the first use of the client in its event loop."""
        fleet, control_s = self._fleet, self._config.timeouts.control_s

        def failed(why: str) -> None:
            fleet.note = f"{opened.source.name}: {why}" if why else f"{opened.source.name} lists no hosts"
            # Nothing is waited for while the source has never answered; the error says at once what is wrong.
            fleet.grows = fleet.grows or (not why and not opened.hosts)

        watch = HostWatch(opened.source, self._config, self.apply, failed, opened.pause_s)

        async def begin() -> None:
            watch.start()
            if not fleet.hosts:
                await watch.looked(control_s)

        fleet.begin = begin
        return watch

    def apply(self, listing: Listing) -> None:
        """Add the hosts that a source names, and drain those that it names no more."""
        named = listing.hosts
        if listing.trust is not None:
            self._fleet.trust(listing.trust)
            for host in self._fleet.hosts:
                self._background.spawn(host.link.release(), f"renew the connections to {host.link.url}")
        self._removed_by_hand &= {found.url for found in named}
        for found in named:
            if (known := self._fleet.find(found.url)) is not None:
                self._fleet.identify(known, found.server_name)
        todo = changes(self._fleet.hosts, named, self._removed_by_hand)
        for found in todo.add:
            try:
                self._add(found).discovered = True
            except ConfigError as exc:
                _LOG.warning("host %s is not used: %s", found.url, exc)
        for url in todo.drain:
            if (leaver := self._fleet.find(url)) is not None:
                self._leave(leaver, drain=True)

    def _add(self, found: FoundHost) -> FleetHost:
        self._fleet.grows = True
        known = self._fleet.find(found.url)
        if known is not None:
            if known.leaving:
                known.leaving = known.dropped = False
                self._fleet.arrived()
            return known
        host = self._fleet.make(found.url, found.server_name)
        host.joining = True
        self._fleet.hosts.append(host)
        self._background.spawn(self._join(host), f"join {found.url}")
        return host

    async def _join(self, host: FleetHost) -> None:
        """Ask a host until it answers; what it gets in the meantime is nothing. Said once."""
        attempt = 0
        while host.joining and not host.leaving:
            created = host.created
            try:
                async with self._gate:
                    state = await self._fleet.read_state(host)
            except OSGymError as exc:
                if host.down_cause is None:
                    _LOG.warning(
                        "host %s was discovered, but is not used until it accepts episodes: %s",
                        host.link.url,
                        exc,
                    )
                host.down_cause = exc
                await asyncio.sleep(_JOIN_BACKOFF.delay_s(attempt, self._config.rng))
                attempt += 1
                continue
            self._fleet.take_state(host, state, created)
            _LOG.info("host %s has joined", host.link.url)

    def _leave(self, host: FleetHost, drain: bool) -> None:
        first = not host.leaving
        host.leaving = True
        if not drain:
            host.dropped = True
            self._drop_leases(host)
        if first:
            self._background.spawn(self._end(host), f"drain {host.link.url}")

    def _drop_leases(self, host: FleetHost) -> None:
        """End our episodes there; if the host lives it gets its replicas back."""
        for session in self._scheduler.keeper(host.link).sessions():
            session.lose("its host was removed from this client", HOST_REMOVED)
            self._scheduler.background.spawn(session.delete(), f"give back {session.episode_id}")

    async def _end(self, host: FleetHost) -> None:
        """Wait until nothing of ours is there, then forget the host."""
        while host.creating or self._scheduler.keeper(host.link).count:
            await asyncio.sleep(_LOOK_S)
            if not host.leaving:
                return
        if host.ended.is_set() or not host.leaving:
            return
        _LOG.info("host %s has left", host.link.url)
        forgotten = self._fleet.leave(host)
        await self._scheduler.forget(host.link)
        await host.link.release()
        if forgotten is not None:
            await forgotten.link.aclose()
