"""The lease of one episode: every call of it, and whether it is lost."""

from __future__ import annotations

import asyncio
import logging
from typing import TypeVar

from osgym_sdk._exceptions import (
    EpisodeEnded,
    EpisodeLost,
    HostUnreachable,
    OSGymError,
    ProtocolError,
    Timeout,
)
from osgym_sdk._fleet.scheduler import Placement, Scheduler
from osgym_sdk._transport.calls import ConnectionKind, HostAnswer, HostCall
from osgym_sdk.wire import CheckpointRequest, ForkRequest, Message, Notice

_LOG = logging.getLogger("osgym.sdk")

M = TypeVar("M", bound=Message)


class EpisodeSession:
    """A lease that is held. Once ``lost`` is set, running and later calls raise it."""

    def __init__(self, scheduler: Scheduler, placement: Placement, lease_ttl_s: float) -> None:
        self.placement = placement
        self.lease_ttl_s = lease_ttl_s
        self.lost: EpisodeLost | None = None
        self.notice: Notice | None = None
        self._scheduler = scheduler
        self._timeouts: set[asyncio.Timeout] = set()

    @property
    def lease(self) -> str:
        return self.placement.answer.lease

    @property
    def episode_id(self) -> str:
        return self.placement.answer.episode_id

    @property
    def host(self) -> str:
        return self.placement.host.link.url

    def update_notice(self, notice: Notice | None) -> None:
        """Store the newest notice that the host will be taken away; None withdraws it."""
        if notice is not None and self.notice is None:
            _LOG.info(
                "the host of episode %s, %s, will be reclaimed (%s)", self.episode_id, self.host, notice.kind
            )
            self.placement.host.mark_draining()
        self.notice = notice

    def mark_lost(self, error: EpisodeLost) -> None:
        """End the episode at once."""
        self.placement.keeper.remove(self)
        if self.lost is None:
            self.lost = error
            now = asyncio.get_running_loop().time()
            for timeout in self._timeouts:
                timeout.reschedule(now)

    def lose(self, message: str, cause: str) -> EpisodeLost:
        """End the episode at once for a cause of the client's; return the error of its first loss."""
        error = EpisodeLost(message, details={"cause": cause}, host=self.host, episode_id=self.episode_id)
        self.mark_lost(error)
        return self.lost or error

    async def call(
        self,
        method: str,
        suffix: str,
        body: Message | None,
        timeout_s: float,
        *,
        record: bool = False,
        content: bytes | None = None,
        after_loss: bool = False,
    ) -> HostAnswer:
        """Make one call about this episode.

        Args:
            after_loss: True: call the host even if the episode is known to be lost.

        Raises:
            EpisodeLost: The host said so, cannot be reached, or the lease was lost while we waited.
            OSGymError: As for any call.
        """
        if self.lost is not None and not after_loss:
            raise self.lost
        call = HostCall(
            method=method,
            path=f"/v1/episodes/{self.episode_id}{suffix}",
            timeout_s=timeout_s,
            body=body,
            content=content,
            kind=ConnectionKind.CONTROL if body is None and content is None else ConnectionKind.LONG,
            lease=self.lease if body is None else None,
            episode_id=self.episode_id,
            record=record,
        )
        host = self.placement.host
        try:
            async with asyncio.timeout(None) as timeout:
                self._timeouts.add(timeout)
                try:
                    return await host.link.call(call)
                finally:
                    self._timeouts.discard(timeout)
        except TimeoutError as exc:
            if isinstance(exc, Timeout) or self.lost is None:
                raise
            raise self.lost from exc
        except EpisodeLost as exc:
            self.mark_lost(exc)
            raise
        except HostUnreachable as exc:
            self._scheduler.fleet.mark_down(host, exc)
            raise self.lose(f"the host cannot be reached: {exc.message}", exc.code) from exc

    async def branch(
        self, suffix: str, body: ForkRequest | CheckpointRequest, answer: type[M], timeout_s: float
    ) -> M:
        """Request children or a checkpoint; the request is undone when no answer comes.

        Raises:
            OSGymError: As for any call of the episode.
        """
        answered = False
        try:
            made = await self.call("POST", suffix, body, timeout_s)
            answered = True
        except OSGymError as exc:
            # With any other error the host itself says that it made nothing.
            answered = not isinstance(exc, (HostUnreachable, EpisodeLost, Timeout, ProtocolError))
            raise
        finally:
            if not answered:
                self._scheduler.undo(self.placement.host.link, body.request_id)
        return made.message(answer)

    async def delete(self) -> None:
        """Give the replica back; a host that does not answer lets the lease run out."""
        call = HostCall(
            method="DELETE",
            path=f"/v1/episodes/{self.episode_id}",
            timeout_s=self._scheduler.config.timeouts.control_s,
            retry_s=2.0,
            lease=self.lease,
            episode_id=self.episode_id,
        )
        try:
            await self.placement.host.link.call(call)
        except (EpisodeLost, EpisodeEnded):
            return  # gone already, which is what we wanted
        except OSGymError as exc:
            _LOG.warning(
                "an episode could not be closed: %s; its lease expires by itself in %g s",
                exc,
                self.lease_ttl_s,
            )
