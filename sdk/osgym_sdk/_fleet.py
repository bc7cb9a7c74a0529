"""Where the next episode goes: the least-loaded host that is up."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from osgym_sdk._config import Config, ssl_context
from osgym_sdk._exceptions import AuthError, HostUnreachable, OSGymError, ProtocolError
from osgym_sdk._host import HostLink
from osgym_sdk._retry import Backoff
from osgym_sdk.wire import HostState, WireFormatError

_LOG = logging.getLogger("osgym.sdk")
_STATE_MAX_AGE_S = 1.0
_STATE_TIMEOUT_S = 3.0
_SAMPLE = 8
"""Beyond so many hosts only a random sample of them is asked: power of d choices."""
_DOWN_BACKOFF = Backoff(first_s=1.0, factor=2.0, most_s=30.0)


@dataclass(slots=True)
class HostView:
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
        """It said so; holds until its state is read again."""
        if self.state is not None:
            self.state = replace(self.state, draining=True)

    def mark_up(self) -> None:
        self.failures = 0
        self.down_until_s = float("-inf")
        self.down_cause = None


def choose(views: Iterable[HostView], rng: random.Random) -> HostView | None:
    """The host with a free replica and the smallest share in use; ties by chance. Pure but for ``rng``."""

    def cost(view: HostView) -> tuple[int, float, float]:
        state = view.state
        if state is None:
            return (1, float(view.placed), rng.random())
        capacity = state.capacity
        used = capacity.leased + capacity.waiting + view.placed
        rank = 3 if state.draining else (0 if view.believed_free > 0 else 2)
        return (rank, used / max(1, capacity.max_replicas), rng.random())

    return min(views, key=cost, default=None)


def _sample(views: Sequence[HostView], rng: random.Random) -> list[HostView]:
    """Some that take episodes, and one that did not when it was last asked: it may again."""
    serving = [view for view in views if not view.draining]
    draining = [view for view in views if view.draining]
    return rng.sample(serving, min(_SAMPLE, len(serving))) + rng.sample(draining, min(1, len(draining)))


class Fleet:
    """The hosts of one client."""

    def __init__(self, config: Config) -> None:
        self._config = config
        needs_tls = any(url.startswith("https:") for url in config.hosts) and config.transport is None
        context = ssl_context(config.verify, config.cert) if needs_tls else None
        self.views = [HostView(HostLink(url, config, context)) for url in config.hosts]
        self.ever_reached = False

    async def aclose(self) -> None:
        """Closes all connections to all hosts."""
        for view in self.views:
            await view.link.aclose()

    def mark_down(self, view: HostView, cause: OSGymError) -> None:
        """Leaves the host out for a while that grows with each failure."""
        delay = _DOWN_BACKOFF.delay_s(view.failures, self._config.rng)
        if view.failures == 0:
            _LOG.warning("host %s is down: %s", view.link.url, cause)
        view.failures += 1
        view.down_until_s = self._config.clock() + delay
        view.down_cause = cause
        view.state = None

    def mark_up(self, view: HostView) -> None:
        """The host answered."""
        self.ever_reached = True
        if view.failures:
            _LOG.warning("host %s is back", view.link.url)
        view.mark_up()

    async def pick(self, exclude: Collection[str] = ()) -> HostView:
        """The best host to place one episode on; one that drains only where there is no other.

        Raises:
            HostUnreachable: none that is not in ``exclude`` can be used.
            AuthError: none of them takes our token.
        """
        now = self._config.clock()
        asked = [v for v in self.views if v.link.url not in exclude and v.down_until_s <= now]
        if len(asked) > _SAMPLE:
            asked = _sample(asked, self._config.rng)
        if len(asked) > 1 or (asked and asked[0].failures):
            await asyncio.gather(*(self.refresh(view) for view in asked))
        up = [v for v in asked if v.down_until_s <= now]
        # Where all drain, the refusal of one says more than we could; it is not asked for twice.
        serving = [v for v in up if not v.draining] or ([] if exclude else up)
        best = choose(serving, self._config.rng)
        if best is None:
            raise self._nothing_left(exclude)
        return best

    async def refresh(self, view: HostView, max_age_s: float = _STATE_MAX_AGE_S) -> None:
        """Reads the host's state unless it is fresh; marks the host down when that fails."""
        async with view.reading:
            if self._config.clock() - view.state_at_s < max_age_s and view.state is not None:
                return
            created = view.created
            try:
                view.state = await self.read_state(view)
            except (OSGymError, WireFormatError) as exc:
                cause = exc if isinstance(exc, OSGymError) else ProtocolError(str(exc), host=view.link.url)
                self.mark_down(view, cause)
                return
            view.created_at_state = created
            view.state_at_s = self._config.clock()
            self.mark_up(view)

    async def read_state(self, view: HostView) -> HostState:
        """``GET /v1/host``.

        Raises:
            OSGymError: the host does not answer, or not as v1.
        """
        answer = await view.link.call("GET", "/v1/host", timeout_s=_STATE_TIMEOUT_S, retry_s=0.3)
        try:
            return HostState.from_dict(answer.json())
        except WireFormatError as exc:
            raise ProtocolError(str(exc), host=view.link.url) from exc

    def _nothing_left(self, exclude: Collection[str]) -> OSGymError:
        causes = [v.down_cause for v in self.views if v.down_cause is not None and v.link.url not in exclude]
        return _summary(causes, len(self.views))


def _summary(causes: Sequence[OSGymError], hosts: int) -> OSGymError:
    if causes and all(isinstance(cause, AuthError) for cause in causes):
        return causes[0]
    if len(causes) == 1:
        cause = causes[0]
        return HostUnreachable(cause.message, host=cause.host, details={"cause": cause.code})
    text = "; ".join(f"{cause.host}: {cause.message}" for cause in causes) or "all were tried"
    return HostUnreachable(f"none of {hosts} hosts can be used: {text}")
