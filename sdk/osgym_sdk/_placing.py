"""Gets one episode onto one host of the fleet, and leaks none when that is cancelled or breaks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from osgym_sdk._background import Background
from osgym_sdk._config import Config
from osgym_sdk._exceptions import (
    AuthError,
    ConfigError,
    EpisodeLost,
    HostUnreachable,
    NoCapacity,
    OSGymError,
    ProtocolError,
    Timeout,
)
from osgym_sdk._fleet import Fleet, HostView
from osgym_sdk._host import Answer, HostLink, Pool
from osgym_sdk._leases import LeaseKeeper
from osgym_sdk._retry import Backoff
from osgym_sdk.wire import (
    LEASE_HEADER,
    CreateAnswer,
    CreateRequest,
    EpisodeState,
    ErrorCode,
    Message,
    ObserveRequest,
    Record,
    StepAnswer,
    WireFormatError,
)

if TYPE_CHECKING:
    from osgym_sdk._session import Session

_SLICE_S = 5.0
"""With several hosts, all full: how long to queue at one of them before looking at the others again."""
_READY_SLICE_S = 1.0
"""The same where one should be ready, so that a state which has just become old costs little."""
_UNDO_S = 10.0
_CLOSED = (ErrorCode.DRAINING, ErrorCode.SHUTTING_DOWN)
_ROUND_BACKOFF = Backoff(first_s=0.25, factor=1.6, most_s=2.0)


@dataclass(frozen=True, slots=True)
class Placed:
    """A lease that was got."""

    view: HostView
    keeper: LeaseKeeper
    answer: CreateAnswer
    record: Record
    transfer_s: float


@dataclass(frozen=True, slots=True)
class Ticket:
    """All that is needed to go on with an episode elsewhere. Whoever has it controls the replica."""

    host: str
    episode_id: str
    lease: str = field(repr=False)
    lease_ttl_s: float


class Placer:
    """Creates episodes on the least-loaded host that is up."""

    def __init__(self, config: Config, fleet: Fleet, background: Background) -> None:
        self._config = config
        self._fleet = fleet
        self._background = background
        self._keepers: dict[str, LeaseKeeper] = {}

    def keeper(self, link: HostLink) -> LeaseKeeper:
        """The lease keeper of a host."""
        found = self._keepers.get(link.url)
        if found is None:
            found = self._keepers[link.url] = LeaseKeeper(link, self._config)
        return found

    async def aclose(self) -> None:
        """Gives back every lease that is still held."""
        await asyncio.gather(*(keeper.aclose() for keeper in self._keepers.values()))

    async def place(self, request: CreateRequest) -> Placed:
        """Gets a replica within ``request.wait_s`` and sets it up.

        Raises:
            NoCapacity: no host had a free replica in time.
            HostUnreachable: no host could be reached.
            TaskError: the task is wrong, or its setup failed.
            Timeout: setup took longer than ``setup_s``.
        """
        clock = self._config.clock
        end_s = clock() + request.wait_s
        tried: set[str] = set()
        full: NoCapacity | None = None
        rounds = attempts = 0
        while True:
            try:
                view = await self._fleet.pick(exclude=tried)
            except HostUnreachable as exc:
                never = not self._fleet.ever_reached and full is None
                if not tried and (never or clock() >= end_s):
                    raise full or exc from None
                tried.clear()
                rounds += 1
                if not await self._pause(rounds, end_s):
                    raise full or exc from None
                continue
            left_s = max(0.0, end_s - clock())
            slice_s = _READY_SLICE_S if view.believed_free > 0 else _SLICE_S
            wait_s = left_s if len(self._fleet.views) == 1 else min(left_s, slice_s)
            attempts += 1
            request_id = f"{request.request_id}.{attempts}"
            try:
                return await self._create(view, replace(request, request_id=request_id, wait_s=wait_s))
            except NoCapacity as exc:
                full = exc
                tried.add(view.link.url)
                if exc.code in _CLOSED:  # at once, so there may be time for another
                    view.mark_draining()
                elif clock() >= end_s:
                    raise
            except AuthError as exc:
                if len(self._fleet.views) == 1:
                    raise
                self._fleet.mark_down(view, exc)
            except HostUnreachable as exc:
                self._fleet.mark_down(view, exc)

    async def place_on(self, host: str, request: CreateRequest) -> Placed:
        """Gets a replica on a certain host within ``request.wait_s``.

        Raises:
            ConfigError: it is none of our hosts.
            OSGymError: as :meth:`place`, and what the host says of the checkpoint.
        """
        view = self.view_of(host)
        try:
            return await self._create(view, request)
        except HostUnreachable as exc:
            self._fleet.mark_down(view, exc)
            raise

    def view_of(self, host: str) -> HostView:
        """The host with that URL.

        Raises:
            ConfigError: it is none of ours.
        """
        view = next((view for view in self._fleet.views if view.link.url == host), None)
        if view is None:
            raise ConfigError(f"{host} is not among the hosts of this client")
        return view

    async def attach(self, ticket: Ticket) -> tuple[Placed, int]:
        """The lease of a ticket, and the last sequence number that its host accepted.

        Raises:
            ConfigError: the ticket's host is none of ours.
            EpisodeLost, EpisodeEnded: there is nothing to go on with.
        """
        view = self.view_of(ticket.host)
        link, path = view.link, f"/v1/episodes/{ticket.episode_id}"
        control_s, headers = self._config.timeouts.control_s, {LEASE_HEADER: ticket.lease}
        seen = await link.call(
            "POST",
            f"{path}/observe",
            ObserveRequest(ticket.lease),
            timeout_s=control_s,
            episode_id=ticket.episode_id,
            want_record=True,
        )
        told = await link.call("GET", path, timeout_s=control_s, headers=headers)
        assert seen.record is not None
        try:
            state = EpisodeState.from_dict(told.json())
            look = StepAnswer.from_dict(seen.record.meta)
        except WireFormatError as exc:
            raise ProtocolError(str(exc), host=link.url) from exc
        if look.observation is None:
            raise ProtocolError("no observation", host=link.url)
        answer = CreateAnswer(
            episode_id=ticket.episode_id,
            lease=ticket.lease,
            replica_id=state.replica_id,
            generation=state.generation,
            screen=look.observation.frame.screen,
            observation=look.observation,
            timing_ms=look.timing_ms,
            step=state.step,
            last_seq=state.last_seq,
            parent=state.parent,
        )
        placed = Placed(view, self.keeper(link), answer, seen.record, seen.transfer_s)
        return placed, state.last_seq

    async def _pause(self, rounds: int, end_s: float) -> bool:
        """Waits before all hosts are tried again; False when there is no time left."""
        left_s = end_s - self._config.clock()
        if left_s <= 0:
            return False
        await asyncio.sleep(min(left_s, _ROUND_BACKOFF.delay_s(rounds, self._config.rng)))
        return True

    async def _create(self, view: HostView, request: CreateRequest) -> Placed:
        link, timeouts = view.link, self._config.timeouts
        view.creating += 1
        got = False
        refused = False
        try:
            answer = await link.call(
                "POST",
                "/v1/episodes",
                request,
                timeout_s=request.wait_s + timeouts.setup_s,
                retry_s=min(timeouts.retry_s, max(1.0, request.wait_s)),
                pool=Pool.LONG,
                want_record=True,
            )
            assert answer.record is not None
            try:
                created = CreateAnswer.from_dict(answer.record.meta)
            except WireFormatError as exc:
                raise ProtocolError(str(exc), host=link.url) from exc
            got = True
            view.created += 1
            self._fleet.mark_up(view)
            return Placed(view, self.keeper(link), created, answer.record, answer.transfer_s)
        except OSGymError as exc:
            # Anything else is the host's own word that it gave us nothing.
            refused = not isinstance(exc, (HostUnreachable, Timeout, ProtocolError))
            if refused and not isinstance(exc, AuthError):
                self._fleet.mark_up(view)
            if isinstance(exc, HostUnreachable) and not exc.maybe_sent:
                refused = True
            raise
        finally:
            view.creating -= 1
            if not got and not refused:
                self.undo(link, request.request_id)

    async def request(
        self, session: Session, suffix: str, request_id: str, body: Message, timeout_s: float
    ) -> Answer:
        """A call of an episode that makes something; undone when its answer never comes.

        Raises:
            OSGymError: as for any call of the episode.
        """
        answered = False
        try:
            answer = await session.call("POST", suffix, body, timeout_s=timeout_s)
            answered = True
            return answer
        except OSGymError as exc:
            # Anything else is the host's own word that it made nothing.
            answered = not isinstance(exc, (HostUnreachable, EpisodeLost, Timeout, ProtocolError))
            raise
        finally:
            if not answered:
                self.undo(session.placed.view.link, request_id)

    def undo(self, link: HostLink, request_id: str) -> None:
        """Undoes a request whose answer we never saw, in the background."""

        async def undo() -> None:
            await link.call("DELETE", f"/v1/requests/{request_id}", timeout_s=_UNDO_S, retry_s=_UNDO_S)

        self._background.spawn(undo(), f"undo request {request_id} on {link.url}")
