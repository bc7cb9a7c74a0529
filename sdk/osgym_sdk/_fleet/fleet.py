"""The hosts of a client, and the choice of the least-loaded one for the next episode."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from osgym_sdk._config import ClientConfig, ssl_context
from osgym_sdk._exceptions import AuthError, HostUnreachable, OSGymError, RateLimited, Timeout
from osgym_sdk._fleet.asked_image import AskedImage
from osgym_sdk._fleet.host import FleetHost, FleetHostState, explain_first_error
from osgym_sdk._host_phase import HostPhase
from osgym_sdk._transport.calls import HostCall
from osgym_sdk._transport.link import HostLink
from osgym_sdk._transport.retry import RetryBackoff
from osgym_sdk.host_sources import FoundHost, Trust
from osgym_sdk.wire import HostImage, HostState, ServedImage

_LOG = logging.getLogger("osgym.sdk")
_STATE_MAX_AGE_S = 1.0
_STATE_TIMEOUT_S = 3.0
_STATE_RETRY_S = 0.3
HOST_REMOVED = "host_removed"
"""The code of what ends because its host was removed without being drained."""
_SHOWN = 5
"""Causes that an error about many hosts cites."""
_ASKED_AT_ONCE = 256
"""Hosts that are asked for their state at the same time: each needs a connection."""
_SAMPLE = 8
"""Beyond so many hosts only a random sample of them is asked: power of d choices."""
_GONE_KEPT = 256
"""Hosts that left and are still named."""
_DOWN_BACKOFF = RetryBackoff(first_s=1.0, factor=2.0, most_s=30.0)


def choose(hosts: Iterable[FleetHost], rng: random.Random, image: str | None = None) -> FleetHost | None:
    """Return the host with a free replica (of `image`) and the smallest share in use; ties by chance."""

    def cost(host: FleetHost) -> tuple[int, float, float]:
        state = host.state
        if state is None:
            return (1, float(host.placed), rng.random())
        capacity = state.capacity
        used = capacity.leased + capacity.waiting + host.placed
        rank = 3 if state.draining else (0 if host.believed_free(image) > 0 else 2)
        return (rank, used / max(1, capacity.max_replicas), rng.random())

    return min(hosts, key=cost, default=None)


def _sample(hosts: Sequence[FleetHost], rng: random.Random, image: str | None = None) -> list[FleetHost]:
    """Return some that take episodes, and one that did not when it was last asked: it may again.

    Hosts that are known to lack `image` are left out; one that is known to have it is among the sample.
    """
    having = [host for host in hosts if image in host.image_names]
    if image is not None:
        hosts = having + [host for host in hosts if not host.image_names] or hosts
    serving = [host for host in hosts if not host.draining]
    draining = [host for host in hosts if host.draining]
    found = rng.sample(serving, min(_SAMPLE, len(serving))) + rng.sample(draining, min(1, len(draining)))
    usable = [host for host in having if not host.draining]
    if usable and not any(host in usable for host in found):
        found.append(rng.choice(usable))
    return found


class Fleet:
    """The hosts of one client; they come and go.

    Attributes:
        hosts: those that have not left.
        gone: the last ones that did, by URL.
        grows: whether hosts may still come, so that it makes sense to wait for them.
        note: why there may be none, for errors.
        begin: starts the search for hosts, where there is one, and waits for the first of them.
    """

    def __init__(self, config: ClientConfig, found: Iterable[FoundHost] = ()) -> None:
        self._config = config
        self._trust: Trust | None = None
        self._arrived = asyncio.Event()
        self.ever_reached = False
        self.grows = False
        self.note = ""
        self.begin: Callable[[], Awaitable[None]] = _nothing_to_begin
        self.gone: dict[str, FleetHost] = {}
        self.hosts = [self.make(url) for url in config.hosts]
        for one in found:
            host = self.make(one.url, one.server_name)
            host.discovered = True
            self.hosts.append(host)

    async def aclose(self) -> None:
        """Close all connections to all hosts."""
        for host in [*self.hosts, *self.gone.values()]:
            await host.link.aclose()

    def make(self, url: str, server_name: str = "") -> FleetHost:
        """Return what will know a host; it is not among `hosts` yet.

        Raises:
            ConfigError: the TLS settings cannot be used.
        """
        config = self._config
        needs_tls = url.startswith("https:") and config.transport is None
        if needs_tls and self._trust is None:
            self._trust = Trust(ssl_context(config.verify, config.cert), config.token)
        link = HostLink(url, config, self._trust.context if needs_tls and self._trust else None)
        host = FleetHost(link)
        self.identify(host, server_name)
        return host

    def trust(self, trust: Trust) -> None:
        """Use another authority and token from now on, also for hosts that are known."""
        self._trust = trust
        for host in self.hosts:
            self.identify(host, host.link.server_name)
            host.down_until_s = float("-inf")

    def identify(self, host: FleetHost, server_name: str) -> None:
        """Say by which name a host's certificate is checked; the client's own settings win."""
        trust = self._trust
        name = self._config.server_names.get(host.link.url) or server_name
        if trust is not None:
            host.link.identify(name, trust.token, trust.context)
        else:
            host.link.identify(name, self._config.token, None)

    def find(self, url: str) -> FleetHost | None:
        """Return the host with that URL, None where it is not in the fleet (any more)."""
        return next((host for host in self.hosts if host.link.url == url), None)

    def leave(self, host: FleetHost) -> FleetHost | None:
        """Forget a host but for its end; return one that is forgotten wholly, to be closed."""
        self.hosts.remove(host)
        host.ended.set()
        self.gone.pop(host.link.url, None)
        self.gone[host.link.url] = host
        return self.gone.pop(next(iter(self.gone))) if len(self.gone) > _GONE_KEPT else None

    def arrived(self) -> None:
        """Wake up whoever waits for a host."""
        self._arrived.set()
        self._arrived = asyncio.Event()

    async def wait_for_host(self, timeout_s: float) -> None:
        """Wait until a host arrives, at most so long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._arrived.wait()
        except TimeoutError:
            return

    def mark_down(self, host: FleetHost, cause: OSGymError) -> None:
        """Leave the host out for a while that grows with each failure."""
        delay = _DOWN_BACKOFF.delay_s(host.failures, self._config.rng)
        if host.failures == 0:
            # Where it is the only one and never answered, the caller gets the error at once.
            level = logging.WARNING if host.known or len(self.hosts) > 1 else logging.DEBUG
            _LOG.log(level, "host %s is unusable: %s", host.link.url, cause)
        host.failures += 1
        host.down_until_s = self._config.clock() + delay
        host.down_cause = cause
        host.state = None

    def mark_up(self, host: FleetHost) -> None:
        """Note that the host answered."""
        self.ever_reached = host.known = True
        if host.failures:
            _LOG.warning("host %s is usable again", host.link.url)
        host.mark_up()

    async def pick(self, exclude: Collection[str] = (), image: AskedImage | None = None) -> FleetHost:
        """Return the best host to place one episode on; one that drains only where there is no other.

        Hosts that are known not to serve `image` are left out where a usable one does, though that one be in
        ``exclude``. Where the image is not required, a host that does but is down or draining counts as well:
        the others would give another image.

        Raises:
            HostUnreachable: none that is not in ``exclude`` can be used.
            AuthError: none of them takes our token.
        """
        await self.begin()
        now = self._config.clock()
        name = None if image is None else image.name
        asked = [v for v in self.hosts if v.takes_new and v.link.url not in exclude and v.down_until_s <= now]
        if len(asked) > _SAMPLE:
            if name is not None:
                await self._find_image(asked, name)
                asked = [v for v in asked if v.takes_new and v.down_until_s <= now]
            asked = _sample(asked, self._config.rng, name)
        if len(asked) > 1 or (asked and (asked[0].failures or not asked[0].known)):
            await asyncio.gather(*(self.refresh(host) for host in asked))
        up = [v for v in asked if v.takes_new and v.down_until_s <= now]
        # Where all drain, the refusal of one says more than we could; it is not asked for twice.
        serving = [v for v in up if not v.draining] or ([] if exclude else up)
        if image is not None:
            having = [v for v in self.hosts if v.takes_new and image.name in v.image_names]
            usable = [v for v in having if v.down_until_s <= now and not v.draining]
            if usable or (having and not image.required):
                serving = [v for v in serving if v in having]
        best = choose(serving, self._config.rng, name)
        if best is None:
            raise self._nothing_left(exclude)
        return best

    async def _find_image(self, hosts: Sequence[FleetHost], image: str) -> None:
        """Ask the hosts whose images are unknown, where no host is known to have this one."""
        if any(image in host.image_names for host in self.hosts):
            return
        gate = asyncio.Semaphore(_ASKED_AT_ONCE)

        async def ask(host: FleetHost) -> None:
            async with gate:
                await self.refresh(host)

        await asyncio.gather(*(ask(host) for host in hosts if not host.image_names))

    async def refresh(self, host: FleetHost, max_age_s: float = _STATE_MAX_AGE_S) -> None:
        """Read the host's state unless it is fresh; mark the host down when that fails.

        A host that answers 429 is up; its last known state is used until it answers again.
        """
        async with host.reading:
            if self._config.clock() - host.state_at_s < max_age_s and host.state is not None:
                return
            created = host.created
            first = not host.known and len(self.hosts) == 1
            try:
                state = await self.read_state(host, self._config.timeouts.control_s if first else None)
            except RateLimited:
                self.mark_up(host)
                return
            except OSGymError as exc:
                self.mark_down(host, exc)
                return
            self.take_state(host, state, created)

    def take_state(self, host: FleetHost, state: HostState, created: int) -> None:
        """Note what a host said of itself; `created` is our count when it was asked."""
        host.state = state
        images: tuple[HostImage | ServedImage, ...] = (state.image, *state.images)
        host.image_names = frozenset(name for image in images for name in (image.flavor, image.digest))
        host.created_at_state = created
        host.state_at_s = self._config.clock()
        self.mark_up(host)
        if host.joining:
            host.joining = False
            self.arrived()

    async def read_state(self, host: FleetHost, timeout_s: float | None = None) -> HostState:
        """Ask the host for its state. Raises OSGymError if the host does not answer, or not as v1."""
        call = HostCall(
            method="GET", path="/v1/host", timeout_s=timeout_s or _STATE_TIMEOUT_S, retry_s=_STATE_RETRY_S
        )
        try:
            return (await host.link.call(call)).message(HostState)
        except OSGymError as exc:
            if host.known:
                raise
            raise explain_first_error(exc, host.link.url) from exc

    async def read_states(self, timeout_s: float) -> dict[str, FleetHostState | OSGymError]:
        """Ask all hosts at once, some hundred at a time; give each its state or its error by the deadline."""
        await self.begin()
        hosts = list(self.hosts)
        end_s = self._config.clock() + timeout_s
        gate = asyncio.Semaphore(_ASKED_AT_ONCE)

        async def ask(host: FleetHost) -> FleetHostState | OSGymError:
            text = f"no answer within the {timeout_s:g} s for all {len(hosts)} hosts"
            created = host.created
            error: OSGymError
            try:
                async with asyncio.timeout(max(0.0, end_s - self._config.clock())), gate:
                    state = await self.read_state(host)
                self.take_state(host, state, created)
                return FleetHostState.of(state, host.phase)
            except OSGymError as exc:
                error = exc
            except TimeoutError:
                error = Timeout(text, code="client_timeout", host=host.link.url)
            phase = host.phase
            error.phase = HostPhase.AWAY if phase is HostPhase.SERVING else phase
            return error

        answers = await asyncio.gather(*(ask(host) for host in hosts))
        return {host.link.url: answer for host, answer in zip(hosts, answers, strict=True)}

    def those_gone(self) -> dict[str, FleetHostState | OSGymError]:
        """Return the last hosts that left, each with an error that says so."""
        found: dict[str, FleetHostState | OSGymError] = {}
        for url in self.gone:
            error = HostUnreachable("the host has left the fleet", code=HOST_REMOVED, host=url)
            error.phase = HostPhase.GONE
            found[url] = error
        return found

    def _nothing_left(self, exclude: Collection[str]) -> OSGymError:
        hosts = [v for v in self.hosts if not v.leaving]
        causes = [v.down_cause for v in hosts if v.down_cause is not None and v.link.url not in exclude]
        if not hosts:
            return HostUnreachable(f"no host is known{f': {self.note}' if self.note else ''}")
        return _summary(causes, len(hosts))


async def _nothing_to_begin() -> None:
    return


def _summary(causes: Sequence[OSGymError], hosts: int) -> OSGymError:
    if causes and all(isinstance(cause, AuthError) for cause in causes):
        return causes[0]
    if len(causes) == 1:
        cause = causes[0]
        return HostUnreachable(cause.message, host=cause.host, details={"cause": cause.code})
    text = "; ".join(_short(cause) for cause in causes[:_SHOWN]) or "every host was tried"
    if len(causes) > _SHOWN:
        text += f"; and {len(causes) - _SHOWN} more"
    return HostUnreachable(f"none of {hosts} hosts can be used: {text}")


def _short(cause: OSGymError) -> str:
    return cause.message if cause.host and cause.host in cause.message else f"{cause.host}: {cause.message}"
