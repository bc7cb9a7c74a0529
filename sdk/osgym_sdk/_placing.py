"""Gets one episode onto one host of the fleet, and leaks none when that is cancelled or breaks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from osgym_sdk._background import Background
from osgym_sdk._config import Config
from osgym_sdk._exceptions import AuthError, HostUnreachable, NoCapacity, OSGymError, ProtocolError, Timeout
from osgym_sdk._fleet import Fleet, HostView
from osgym_sdk._host import HostLink, Pool
from osgym_sdk._leases import LeaseKeeper
from osgym_sdk._retry import Backoff
from osgym_sdk.wire import CreateAnswer, CreateRequest, Record, WireFormatError

_SLICE_S = 5.0
"""With several hosts: how long to queue at one of them before looking at the others again."""
_UNDO_S = 10.0
_ROUND_BACKOFF = Backoff(first_s=0.25, factor=1.6, most_s=2.0)


@dataclass(frozen=True, slots=True)
class Placed:
    """A lease that was got."""

    view: HostView
    keeper: LeaseKeeper
    shard: int
    answer: CreateAnswer
    record: Record
    transfer_s: float


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
            wait_s = left_s if len(self._fleet.views) == 1 else min(left_s, _SLICE_S)
            attempts += 1
            request_id = f"{request.request_id}.{attempts}"
            try:
                return await self._create(view, replace(request, request_id=request_id, wait_s=wait_s))
            except NoCapacity as exc:
                full = exc
                if clock() >= end_s:
                    raise
                tried.add(view.link.url)
            except AuthError as exc:
                if len(self._fleet.views) == 1:
                    raise
                self._fleet.mark_down(view, exc)
            except HostUnreachable as exc:
                self._fleet.mark_down(view, exc)

    async def _pause(self, rounds: int, end_s: float) -> bool:
        """Waits before all hosts are tried again; False when there is no time left."""
        left_s = end_s - self._config.clock()
        if left_s <= 0:
            return False
        await asyncio.sleep(min(left_s, _ROUND_BACKOFF.delay_s(rounds, self._config.rng)))
        return True

    async def _create(self, view: HostView, request: CreateRequest) -> Placed:
        link, timeouts = view.link, self._config.timeouts
        shard = link.next_shard()
        view.placed += 1
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
                shard=shard,
                want_record=True,
            )
            assert answer.record is not None
            try:
                created = CreateAnswer.from_dict(answer.record.meta)
            except WireFormatError as exc:
                raise ProtocolError(str(exc), host=link.url) from exc
            got = True
            self._fleet.mark_up(view)
            return Placed(view, self.keeper(link), shard, created, answer.record, answer.transfer_s)
        except OSGymError as exc:
            # Anything else is the host's own word that it gave us nothing.
            refused = not isinstance(exc, (HostUnreachable, Timeout, ProtocolError))
            if refused and not isinstance(exc, AuthError):
                self._fleet.mark_up(view)
            if isinstance(exc, HostUnreachable) and not exc.maybe_sent:
                refused = True
            raise
        finally:
            if not got:
                view.placed = max(0, view.placed - 1)
                if not refused:
                    self._undo(link, request.request_id)

    def _undo(self, link: HostLink, request_id: str) -> None:
        async def undo() -> None:
            await link.call("DELETE", f"/v1/requests/{request_id}", timeout_s=_UNDO_S, retry_s=_UNDO_S)

        self._background.spawn(undo(), f"undo create {request_id} on {link.url}")
