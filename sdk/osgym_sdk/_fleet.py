"""Where the next episode goes: the least-loaded host that is up."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from osgym_sdk._config import ClientConfig, ssl_context
from osgym_sdk._exceptions import AuthError, HostUnreachable, OSGymError, Timeout
from osgym_sdk._first_contact import explained
from osgym_sdk._host import HostCall, HostLink
from osgym_sdk._retry import RetryBackoff
from osgym_sdk.wire import HostState

_LOG = logging.getLogger("osgym.sdk")
_STATE_MAX_AGE_S = 1.0
_STATE_TIMEOUT_S = 3.0
_STATE_RETRY_S = 0.3
_SHOWN = 5
"""Causes that an error about many hosts cites."""
_ASKED_AT_ONCE = 256
"""Hosts that are asked for their state at the same time: each needs a connection."""
_SAMPLE = 8
"""Beyond so many hosts only a random sample of them is asked: power of d choices."""
_DOWN_BACKOFF = RetryBackoff(first_s=1.0, factor=2.0, most_s=30.0)


@dataclass(slots=True)
class FleetHost:
    """What the client knows of one host. Of its own doing, the state knows only what came before it."""

    link: HostLink
    state: HostState | None = None
    state_at_s: float = float("-inf")
    creating: int = 0
    """Creates that are under way."""
    created: int = 0
    """Creates that succeeded, ever."""
    created_at_state: int = 0
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    known: bool = False
    """Whether a host agent ever answered there."""
    failures: int = 0
    down_until_s: float = float("-inf")
    down_cause: OSGymError | None = None

    @property
    def placed(self) -> int:
        """Replicas that are ours and that the state may not count yet; rather one too many."""
        return self.creating + self.created - self.created_at_state

    @property
    def believed_free(self) -> int:
        """How many replicas should be ready for us."""
        if self.state is None or self.draining:
            return 0
        capacity = self.state.capacity
        return capacity.ready - capacity.waiting - self.placed

    @property
    def draining(self) -> bool:
        """Whether it takes no new episodes, as far as is known."""
        return self.state is not None and self.state.draining

    def mark_draining(self) -> None:
        """Note that it takes no new episodes, until its state is read again."""
        if self.state is not None:
            self.state = replace(self.state, draining=True)

    def mark_up(self) -> None:
        self.failures = 0
        self.down_until_s = float("-inf")
        self.down_cause = None


def choose(hosts: Iterable[FleetHost], rng: random.Random) -> FleetHost | None:
    """Return the host with a free replica and the smallest share in use; ties by chance."""

    def cost(host: FleetHost) -> tuple[int, float, float]:
        state = host.state
        if state is None:
            return (1, float(host.placed), rng.random())
        capacity = state.capacity
        used = capacity.leased + capacity.waiting + host.placed
        rank = 3 if state.draining else (0 if host.believed_free > 0 else 2)
        return (rank, used / max(1, capacity.max_replicas), rng.random())

    return min(hosts, key=cost, default=None)


def _sample(hosts: Sequence[FleetHost], rng: random.Random) -> list[FleetHost]:
    """Return some that take episodes, and one that did not when it was last asked: it may again."""
    serving = [host for host in hosts if not host.draining]
    draining = [host for host in hosts if host.draining]
    return rng.sample(serving, min(_SAMPLE, len(serving))) + rng.sample(draining, min(1, len(draining)))


class Fleet:
    """The hosts of one client."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        needs_tls = any(url.startswith("https:") for url in config.hosts) and config.transport is None
        context = ssl_context(config.verify, config.cert) if needs_tls else None
        self.hosts = [FleetHost(HostLink(url, config, context)) for url in config.hosts]
        self.ever_reached = False

    async def aclose(self) -> None:
        """Close all connections to all hosts."""
        for host in self.hosts:
            await host.link.aclose()

    def mark_down(self, host: FleetHost, cause: OSGymError) -> None:
        """Leave the host out for a while that grows with each failure."""
        delay = _DOWN_BACKOFF.delay_s(host.failures, self._config.rng)
        if host.failures == 0:
            # Where it is the only one and never answered, the caller gets the error at once.
            level = logging.WARNING if host.known or len(self.hosts) > 1 else logging.DEBUG
            _LOG.log(level, "host %s is down: %s", host.link.url, cause)
        host.failures += 1
        host.down_until_s = self._config.clock() + delay
        host.down_cause = cause
        host.state = None

    def mark_up(self, host: FleetHost) -> None:
        """Note that the host answered."""
        self.ever_reached = host.known = True
        if host.failures:
            _LOG.warning("host %s is back", host.link.url)
        host.mark_up()

    async def pick(self, exclude: Collection[str] = ()) -> FleetHost:
        """Return the best host to place one episode on; one that drains only where there is no other.

        Raises:
            HostUnreachable: none that is not in ``exclude`` can be used.
            AuthError: none of them takes our token.
        """
        now = self._config.clock()
        asked = [v for v in self.hosts if v.link.url not in exclude and v.down_until_s <= now]
        if len(asked) > _SAMPLE:
            asked = _sample(asked, self._config.rng)
        if len(asked) > 1 or (asked and (asked[0].failures or not asked[0].known)):
            await asyncio.gather(*(self.refresh(host) for host in asked))
        up = [v for v in asked if v.down_until_s <= now]
        # Where all drain, the refusal of one says more than we could; it is not asked for twice.
        serving = [v for v in up if not v.draining] or ([] if exclude else up)
        best = choose(serving, self._config.rng)
        if best is None:
            raise self._nothing_left(exclude)
        return best

    async def refresh(self, host: FleetHost, max_age_s: float = _STATE_MAX_AGE_S) -> None:
        """Read the host's state unless it is fresh; mark the host down when that fails."""
        async with host.reading:
            if self._config.clock() - host.state_at_s < max_age_s and host.state is not None:
                return
            created = host.created
            first = not host.known and len(self.hosts) == 1
            try:
                host.state = await self.read_state(host, self._config.timeouts.control_s if first else None)
            except OSGymError as exc:
                self.mark_down(host, exc)
                return
            host.created_at_state = created
            host.state_at_s = self._config.clock()
            self.mark_up(host)

    async def read_state(self, host: FleetHost, timeout_s: float | None = None) -> HostState:
        """Ask the host for its state.

        Raises:
            OSGymError: the host does not answer, or not as v1.
        """
        call = HostCall(
            method="GET", path="/v1/host", timeout_s=timeout_s or _STATE_TIMEOUT_S, retry_s=_STATE_RETRY_S
        )
        try:
            return (await host.link.call(call)).message(HostState)
        except OSGymError as exc:
            if host.known:
                raise
            raise explained(exc, host.link.url) from exc

    async def read_states(self, timeout_s: float) -> dict[str, HostState | OSGymError]:
        """Ask all hosts at once, some hundred at a time; give each its state or its error by the deadline."""
        end_s = self._config.clock() + timeout_s
        gate = asyncio.Semaphore(_ASKED_AT_ONCE)

        async def ask(host: FleetHost) -> HostState | OSGymError:
            text = f"no answer within the {timeout_s:g} s for all {len(self.hosts)} hosts"
            try:
                async with asyncio.timeout(max(0.0, end_s - self._config.clock())), gate:
                    return await self.read_state(host)
            except OSGymError as exc:
                return exc
            except TimeoutError:
                return Timeout(text, code="client_timeout", host=host.link.url)

        answers = await asyncio.gather(*(ask(host) for host in self.hosts))
        return {host.link.url: answer for host, answer in zip(self.hosts, answers, strict=True)}

    def _nothing_left(self, exclude: Collection[str]) -> OSGymError:
        causes = [v.down_cause for v in self.hosts if v.down_cause is not None and v.link.url not in exclude]
        return _summary(causes, len(self.hosts))


def _summary(causes: Sequence[OSGymError], hosts: int) -> OSGymError:
    if causes and all(isinstance(cause, AuthError) for cause in causes):
        return causes[0]
    if len(causes) == 1:
        cause = causes[0]
        return HostUnreachable(cause.message, host=cause.host, details={"cause": cause.code})
    text = "; ".join(_short(cause) for cause in causes[:_SHOWN]) or "all were tried"
    if len(causes) > _SHOWN:
        text += f"; and {len(causes) - _SHOWN} more"
    return HostUnreachable(f"none of {hosts} hosts can be used: {text}")


def _short(cause: OSGymError) -> str:
    return cause.message if cause.host and cause.host in cause.message else f"{cause.host}: {cause.message}"
