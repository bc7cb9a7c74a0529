"""Gets one episode onto one host of the fleet, and leaks none when that is cancelled or breaks."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from osgym_protocol.episode_options import EpisodeOptions
from osgym_sdk._background import BackgroundTasks
from osgym_sdk._config import ClientConfig
from osgym_sdk._exceptions import (
    AuthError,
    ConfigError,
    HostUnreachable,
    NoCapacity,
    OSGymError,
    ProtocolError,
    Timeout,
    Unsupported,
)
from osgym_sdk._fleet.asked_image import AskedImage, unknown_image
from osgym_sdk._fleet.fleet import HOST_REMOVED, Fleet
from osgym_sdk._fleet.host import FleetHost
from osgym_sdk._fleet.leases import LeaseKeeper
from osgym_sdk._transport.calls import ConnectionKind, HostCall
from osgym_sdk._transport.link import HostLink
from osgym_sdk._transport.retry import RetryBackoff
from osgym_sdk.wire import (
    CreateAnswer,
    CreateRequest,
    EpisodeState,
    ErrorCode,
    ForkChild,
    Observation,
    ObserveRequest,
    StepAnswer,
)

_SLICE_S = 5.0
"""Time to queue at one of several full hosts before looking at the others again."""
_READY_SLICE_S = 1.0
"""Time to queue at a host that should have a replica ready; short, as its state may have become old."""
_UNDO_S = 10.0
_CLOSED = (ErrorCode.DRAINING, ErrorCode.SHUTTING_DOWN)
_ROUND_BACKOFF = RetryBackoff(first_s=0.25, factor=1.6, most_s=2.0)


@dataclass(frozen=True, slots=True)
class Ticket:
    """Everything that another client needs to go on with an episode. Its holder controls the replica."""

    host: str
    episode_id: str
    lease: str = field(repr=False)
    lease_ttl_s: float


@dataclass(frozen=True, slots=True)
class Placement:
    """A lease with its host, its keeper and its first observation."""

    host: FleetHost
    keeper: LeaseKeeper
    answer: CreateAnswer
    blob: bytes
    """The image of ``answer.observation``."""
    transfer_s: float

    def of_child(self, child: ForkChild, observation: Observation) -> Placement:
        """Return the lease of a child, whose first observation is its parent's newest."""
        answer = CreateAnswer(
            observation=observation,
            notes=self.answer.notes,
            image_digest=self.answer.image_digest,
            **child.values(),
        )
        return replace(self, answer=answer)


class Scheduler:
    """Creates episodes on the least-loaded host that is up."""

    def __init__(self, config: ClientConfig, fleet: Fleet, background: BackgroundTasks) -> None:
        self.config = config
        self.fleet = fleet
        self.background = background
        self._keepers: dict[str, LeaseKeeper] = {}

    def keeper(self, link: HostLink) -> LeaseKeeper:
        """Return the lease keeper of a host."""
        found = self._keepers.get(link.url)
        if found is None:
            found = self._keepers[link.url] = LeaseKeeper(link, self.config)
        return found

    async def forget(self, link: HostLink) -> None:
        """Let go of the lease keeper of a host that has left."""
        keeper = self._keepers.pop(link.url, None)
        if keeper is not None:
            await keeper.aclose()

    async def aclose(self) -> None:
        """Give back every lease that is still held."""
        await asyncio.gather(*(keeper.aclose() for keeper in self._keepers.values()))

    async def place(self, options: EpisodeOptions) -> Placement:
        """Lease a replica within ``options.wait_s`` and set it up.

        Raises:
            NoCapacity: no host had a free replica in time.
            Unsupported: no usable host serves the image (`unknown_image`).
            HostUnreachable: no host could be reached.
            TaskError: the task is wrong, or its setup failed.
            Timeout: setup took longer than ``setup_s``.
        """
        clock, request_id = self.config.clock, uuid.uuid4().hex
        end_s = clock() + options.wait_s
        tried: set[str] = set()
        full: NoCapacity | None = None
        image, refusals = AskedImage.of(options), dict[str, Unsupported]()
        rounds = attempts = 0
        while True:
            try:
                host = await self.fleet.pick(exclude=tried | refusals.keys(), image=image)
            except (HostUnreachable, AuthError) as exc:
                if isinstance(exc, AuthError) and not refusals and not self.fleet.grows:
                    raise
                error = self._last_error(full, refusals) or exc
                if isinstance(error, Unsupported) and not self._may_come(image, refusals):
                    raise error from None
                never = not self.fleet.ever_reached and full is None and not self.fleet.grows
                if not tried and (never or clock() >= end_s):
                    raise error from None
                tried.clear()
                rounds += 1
                if not await self._pause(rounds, end_s):
                    raise error from None
                continue
            left_s = max(0.0, end_s - clock())
            ready = host.believed_free(None if image is None else image.name) > 0
            only = len(self.fleet.hosts) == 1 and not self.fleet.grows
            wait_s = left_s if only else min(left_s, _READY_SLICE_S if ready else _SLICE_S)
            attempts += 1
            request = CreateRequest.of(f"{request_id}.{attempts}", replace(options, wait_s=wait_s))
            try:
                return await self._create(host, request)
            except NoCapacity as exc:
                full = exc
                tried.add(host.link.url)
                if exc.code in _CLOSED:  # at once, so there may be time for another
                    host.mark_draining()
                elif clock() >= end_s:
                    raise
            except Unsupported as exc:
                if only or exc.code != ErrorCode.UNKNOWN_IMAGE:
                    raise
                refusals[host.link.url] = exc
                host.image_names -= {image.name} if image else set()  # it may have restarted with others
                full = None if full is not None and full.host == host.link.url else full
            except (AuthError, HostUnreachable) as exc:
                if only and isinstance(exc, AuthError):
                    raise
                self.fleet.mark_down(host, exc)

    def _may_come(self, image: AskedImage | None, refusals: Collection[str]) -> bool:
        """Return whether waiting may help: a host may join or come back that has, or may have, the image."""
        if self.fleet.grows:
            return True
        others = [host for host in self.fleet.hosts if host.link.url not in refusals and not host.leaving]
        return any(
            (image is not None and image.name in host.image_names)
            # One that never answered may have any image, unless it refuses this client.
            or (not host.image_names and not isinstance(host.down_cause, AuthError))
            for host in others
        )

    def _last_error(
        self, full: NoCapacity | None, refusals: Mapping[str, Unsupported]
    ) -> NoCapacity | Unsupported | None:
        """Return why no host gave a replica; a host that is closed says nothing of the image."""
        if full is not None and not (refusals and full.code in _CLOSED):
            return full
        if not refusals:
            return None
        others = [host for host in self.fleet.hosts if host.link.url not in refusals]
        return unknown_image(next(iter(refusals.values())), others)

    async def place_on(self, host: str, options: EpisodeOptions) -> Placement:
        """Lease a replica on a certain host within ``options.wait_s``.

        Raises:
            ConfigError: `host` was never among the hosts of this client.
            HostUnreachable: it has left.
            OSGymError: as :meth:`place`, and what the host says of the checkpoint.
        """
        if host in self.fleet.gone:
            raise HostUnreachable("the host has left the fleet", code=HOST_REMOVED, host=host)
        found = self.host_at(host)
        try:
            return await self._create(found, CreateRequest.of(uuid.uuid4().hex, options))
        except HostUnreachable as exc:
            self.fleet.mark_down(found, exc)
            raise

    def host_at(self, url: str) -> FleetHost:
        """Return the host with that URL.

        Raises:
            ConfigError: `url` is not a host of this client.
        """
        host = self.fleet.find(url)
        if host is None:
            raise ConfigError(f"{url} is not a host of this client")
        return host

    async def attach(self, ticket: Ticket) -> Placement:
        """Return the lease of a ticket, with the last sequence number that its host accepted.

        Raises:
            ConfigError: The ticket's host is not a host of this client.
            EpisodeLost, EpisodeEnded: The episode does not go on.
        """
        host = self.host_at(ticket.host)
        link, timeout_s = host.link, self.config.timeouts.control_s
        path, episode_id = f"/v1/episodes/{ticket.episode_id}", ticket.episode_id
        body = ObserveRequest(ticket.lease)
        look = HostCall(
            method="POST",
            path=f"{path}/observe",
            body=body,
            timeout_s=timeout_s,
            episode_id=episode_id,
            record=True,
        )
        seen = await link.call(look)
        shown = seen.message(StepAnswer)
        observation = shown.observation
        if observation is None:
            raise ProtocolError("no observation", host=link.url)
        found = await link.call(HostCall(method="GET", path=path, timeout_s=timeout_s, lease=ticket.lease))
        state = found.message(EpisodeState)
        answer = CreateAnswer(
            episode_id=episode_id,
            lease=ticket.lease,
            replica_id=state.replica_id,
            generation=state.generation,
            screen=observation.frame.screen,
            observation=observation,
            timing_ms=shown.timing_ms,
            step=state.step,
            last_seq=state.last_seq,
            parent=state.parent,
            image_digest=state.image_digest,
        )
        return Placement(host, self.keeper(link), answer, seen.blob, seen.transfer_s)

    async def _pause(self, rounds: int, end_s: float) -> bool:
        """Wait before all hosts are tried again; False when there is no time left."""
        left_s = end_s - self.config.clock()
        if left_s <= 0:
            return False
        await self.fleet.wait_for_host(min(left_s, _ROUND_BACKOFF.delay_s(rounds, self.config.rng)))
        return True

    async def _create(self, host: FleetHost, request: CreateRequest) -> Placement:
        link, timeouts = host.link, self.config.timeouts
        host.creating += 1
        got = False
        refused = False
        call = HostCall(
            method="POST",
            path="/v1/episodes",
            body=request,
            timeout_s=request.wait_s + timeouts.setup_s,
            retry_s=min(timeouts.retry_s, max(1.0, request.wait_s)),
            kind=ConnectionKind.LONG,
            record=True,
        )
        try:
            answer = await link.call(call)
            created = answer.message(CreateAnswer)
            if host.dropped:  # meanwhile; what it gave is given back below
                raise HostUnreachable("the host was removed from this client", host=link.url)
            got = True
            host.created += 1
            self.fleet.mark_up(host)
            return Placement(host, self.keeper(link), created, answer.blob, answer.transfer_s)
        except OSGymError as exc:
            # With any other error the host itself says that it gave us nothing.
            refused = not isinstance(exc, (HostUnreachable, Timeout, ProtocolError))
            if refused and not isinstance(exc, AuthError):
                self.fleet.mark_up(host)
            if isinstance(exc, HostUnreachable) and not exc.maybe_sent:
                refused = True
            raise
        finally:
            host.creating -= 1
            if not got and not refused:
                self.undo(link, request.request_id)

    def undo(self, link: HostLink, request_id: str) -> None:
        """Undo a request whose answer we never saw, in the background."""

        call = HostCall(
            method="DELETE", path=f"/v1/requests/{request_id}", timeout_s=_UNDO_S, retry_s=_UNDO_S
        )
        self.background.spawn(link.call(call), f"undo request {request_id} on {link.url}")
