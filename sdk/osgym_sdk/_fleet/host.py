"""One host of a client: its state, its load by us, and its phase in the fleet."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import httpx

from osgym_sdk._exceptions import AuthError, HostUnreachable, OSGymError, Timeout
from osgym_sdk._host_phase import HostPhase
from osgym_sdk._transport.link import HostLink
from osgym_sdk.wire import ErrorCode, HostState

_HOW = "check the port, or start a host agent with `osgym host serve` (port 20000 unless --port is given)"
_OWN = frozenset(code.value for code in ErrorCode if code is not ErrorCode.NOT_FOUND)
_REFUSED = f"[Errno {errno.ECONNREFUSED}]"


@dataclass(frozen=True, slots=True)
class FleetHostState(HostState):
    """``GET /v1/host`` of one host, and where the host stands in the fleet of this client."""

    phase: HostPhase = HostPhase.SERVING

    @classmethod
    def of(cls, state: HostState, phase: HostPhase) -> FleetHostState:
        return cls(**state.values(), phase=phase)


@dataclass(slots=True)
class FleetHost:
    """One host of a client. Its state counts only those of our creates that came before it was read."""

    link: HostLink
    state: HostState | None = None
    state_at_s: float = float("-inf")
    image_names: frozenset[str] = frozenset()
    """Flavors and digests of its images when it last answered; kept while the host is down."""
    creating: int = 0
    """Number of creates that are under way."""
    created: int = 0
    """Number of creates that succeeded."""
    created_at_state: int = 0
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    known: bool = False
    """True once a host agent answered there."""
    failures: int = 0
    down_until_s: float = float("-inf")
    down_cause: OSGymError | None = None
    joining: bool = False
    """True: the host came at run time and has not answered yet; it is asked in the background only."""
    leaving: bool = False
    """True: the host was removed; it gets no new leases, and is gone once the last is given back."""
    dropped: bool = False
    """True: the host was removed without being drained."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it has left and no lease of ours is there."""
    discovered: bool = False
    """True: a source named the host, which leaves when the source names it no more."""

    @property
    def placed(self) -> int:
        """Number of our replicas that the state may not count yet; rather one too many."""
        return self.creating + self.created - self.created_at_state

    def believed_free(self, image: str | None = None) -> int:
        """Return the number of replicas that should be ready for this client, of the image where counted.

        Args:
            image: Flavor or digest; None, and one that the host does not serve, mean its default image.
        """
        if self.state is None or self.draining:
            return 0
        images = self.state.images
        named = (one for one in images if image in (one.flavor, one.digest))
        counts = next(named, images[0]) if images else self.state.capacity
        return counts.ready - counts.waiting - self.placed

    @property
    def draining(self) -> bool:
        """True: the host takes no new episodes, as far as is known."""
        return self.leaving or (self.state is not None and self.state.draining)

    @property
    def takes_new(self) -> bool:
        """True: new episodes may be placed on this host."""
        return not (self.leaving or self.joining)

    @property
    def phase(self) -> HostPhase:
        """Where it stands."""
        if self.ended.is_set():
            return HostPhase.GONE
        if self.draining:
            return HostPhase.DRAINING
        if self.joining or not self.known:
            return HostPhase.JOINING
        return HostPhase.AWAY if self.failures else HostPhase.SERVING

    def mark_draining(self) -> None:
        """Note that it takes no new episodes, until its state is read again."""
        if self.state is not None:
            self.state = replace(self.state, draining=True)

    def mark_up(self) -> None:
        self.failures = 0
        self.down_until_s = float("-inf")
        self.down_cause = None


def explain_first_error(error: OSGymError, url: str) -> OSGymError:
    """Return the error of a first call, saying what seems to be at `url` and how a host agent is started.

    What a host agent said itself is returned as it is.
    """
    if isinstance(error, AuthError | Timeout):
        return error
    causes = list(_causes(error))
    if any(isinstance(cause, ConnectionRefusedError) or _REFUSED in str(cause) for cause in causes):
        text = f"nothing listens at {url} (connection refused): {_HOW}"
    elif any(isinstance(cause, httpx.RemoteProtocolError) for cause in causes):
        text = f"the service at {url} does not speak HTTP, so it is not an OSGym host agent: {_HOW}"
    elif any("WRONG_VERSION_NUMBER" in str(cause) for cause in causes):
        text = f"the service at {url} does not speak TLS; write http:// if it is a host agent without TLS"
    elif not isinstance(error, HostUnreachable) and error.code not in _OWN:
        said = error.message.split("\n")[0][:100]
        text = f"the service at {url} is not an OSGym host agent (it answered: {said}): {_HOW}"
    else:
        return error
    found = HostUnreachable(text, host=url, details={**error.details, "cause": error.code})
    found.maybe_sent = False
    found.__cause__ = error
    return found


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
