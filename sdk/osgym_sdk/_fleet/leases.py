"""Keeps the leases of one host alive: one request for all of them, in connections of its own."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from osgym_sdk._config import ClientConfig
from osgym_sdk._exceptions import EpisodeLost, OSGymError
from osgym_sdk._transport.calls import ConnectionKind, HostCall
from osgym_sdk._transport.link import HostLink
from osgym_sdk.wire import Notice, RenewAnswer, RenewRequest

_LOG = logging.getLogger("osgym.sdk")


class LeasedEpisode(Protocol):
    """The view that a lease keeper has of an episode."""

    lease_ttl_s: float

    @property
    def lease(self) -> str: ...

    @property
    def episode_id(self) -> str: ...

    def update_notice(self, notice: Notice | None) -> None:
        """Store the newest notice that the host will be taken away; None withdraws it."""

    def mark_lost(self, error: EpisodeLost) -> None:
        """End the episode at once."""

    def lose(self, message: str, cause: str) -> EpisodeLost:
        """End the episode at once for a cause of the client's."""

    async def delete(self) -> None:
        """Give the replica back."""


class LeaseKeeper:
    """Renews leases while there are episodes, and marks those as lost whose lease is gone."""

    def __init__(self, link: HostLink, config: ClientConfig) -> None:
        self._link = link
        self._config = config
        self._sessions: dict[str, LeasedEpisode] = {}
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._answered_s = 0.0

    @property
    def count(self) -> int:
        """Number of leases that are held here."""
        return len(self._sessions)

    def sessions(self) -> list[LeasedEpisode]:
        """Return the episodes whose leases are renewed here."""
        return list(self._sessions.values())

    def add(self, session: LeasedEpisode) -> None:
        """Start to renew this episode's lease."""
        self._sessions[session.lease] = session
        self._wake.set()
        if self._task is None or self._task.done():
            self._answered_s = self._config.clock()
            self._task = asyncio.create_task(self._run(), name=f"osgym-leases {self._link.url}")

    def remove(self, session: LeasedEpisode) -> None:
        """Stop renewing it."""
        self._sessions.pop(session.lease, None)

    async def aclose(self) -> None:
        """Stop renewing and give back what is still held. Idempotent."""
        sessions, self._sessions = list(self._sessions.values()), {}
        await asyncio.gather(*(session.delete() for session in sessions))
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        clock = self._config.clock
        due_s = float("inf")
        while self._sessions:
            self._wake.clear()
            interval = min(session.lease_ttl_s for session in self._sessions.values()) / 3
            due_s = min(due_s, clock() + interval * self._config.rng.uniform(0.8, 1.0))
            try:
                # A new lease, perhaps with a shorter life, wakes us up; it cannot put off what is due.
                async with asyncio.timeout(max(0.0, due_s - clock())):
                    await self._wake.wait()
            except TimeoutError:
                due_s = float("inf")
                await self._renew(interval)

    async def _renew(self, interval_s: float) -> None:
        leases = tuple(self._sessions)
        if not leases:
            return
        call = HostCall(
            method="POST",
            path="/v1/leases/renew",
            body=RenewRequest(leases),
            timeout_s=max(interval_s, 1.0),
            retry_s=interval_s / 2,
            kind=ConnectionKind.HEARTBEAT,
        )
        try:
            renewed = (await self._link.call(call)).message(RenewAnswer)
        except OSGymError as exc:
            self._mark_unrenewed_lost(exc)
            return
        self._answered_s = self._config.clock()
        for lease in renewed.renewed:
            if lease in self._sessions:
                self._sessions[lease].update_notice(renewed.notice)
        for lost in renewed.lost:
            session = self._sessions.pop(lost.lease, None)
            if session is not None:
                session.mark_lost(
                    EpisodeLost(
                        lost.error.message,
                        code=lost.error.code,
                        details=lost.error.details,
                        host=self._link.url,
                        episode_id=session.episode_id,
                    )
                )

    def _mark_unrenewed_lost(self, error: OSGymError) -> None:
        """Mark as lost what a host that does not answer had for longer than the life of its lease."""
        silent_s = self._config.clock() - self._answered_s
        _LOG.info("the leases on %s have not been renewed for %.1f s: %s", self._link.url, silent_s, error)
        for lease, session in list(self._sessions.items()):
            if silent_s >= session.lease_ttl_s:
                del self._sessions[lease]
                session.lose(f"the host did not answer for {silent_s:.0f} s: {error.message}", error.code)
