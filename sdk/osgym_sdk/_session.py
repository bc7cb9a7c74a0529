"""The line of one episode to its host: every call of it, and the word that it is lost."""

from __future__ import annotations

import asyncio
import logging

from osgym_sdk._config import Config
from osgym_sdk._exceptions import (
    EpisodeEnded,
    EpisodeLost,
    HostUnreachable,
    OSGymError,
    ProtocolError,
    Timeout,
)
from osgym_sdk._fleet import Fleet
from osgym_sdk._host import Answer, Pool
from osgym_sdk._placing import Placed
from osgym_sdk.wire import LEASE_HEADER, Message, Notice, Record, StepAnswer, WireFormatError

_LOG = logging.getLogger("osgym.sdk")


class Session:
    """A lease that is held. Once ``lost`` is set, running and later calls raise it."""

    def __init__(self, config: Config, fleet: Fleet, placed: Placed, lease_ttl_s: float) -> None:
        self.placed = placed
        self.lease_ttl_s = lease_ttl_s
        self.lost: EpisodeLost | None = None
        self.notice: Notice | None = None
        self._config = config
        self._fleet = fleet
        self._scopes: set[asyncio.Timeout] = set()

    @property
    def lease(self) -> str:
        return self.placed.answer.lease

    @property
    def episode_id(self) -> str:
        return self.placed.answer.episode_id

    @property
    def host(self) -> str:
        return self.placed.view.link.url

    def told(self, notice: Notice | None) -> None:
        """Takes what the host last said about being taken away."""
        if notice is not None and self.notice is None:
            _LOG.info("episode %s: %s will be taken away (%s)", self.episode_id, self.host, notice.kind)
            self.placed.view.mark_draining()
        self.notice = notice

    def mark_lost(self, error: EpisodeLost) -> None:
        """Ends the episode at once."""
        self.placed.keeper.remove(self)
        if self.lost is None:
            self.lost = error
            now = asyncio.get_running_loop().time()
            for scope in self._scopes:
                scope.reschedule(now)

    async def call(
        self,
        method: str,
        suffix: str,
        body: Message | None,
        *,
        timeout_s: float,
        pool: Pool = Pool.LONG,
        want_record: bool = False,
    ) -> Answer:
        """One call about this episode.

        Raises:
            EpisodeLost: the host said so, cannot be reached, or the lease went while we waited.
            OSGymError: as for any call.
        """
        if self.lost is not None:
            raise self.lost
        try:
            async with asyncio.timeout(None) as scope:
                self._scopes.add(scope)
                try:
                    return await self.placed.view.link.call(
                        method,
                        f"/v1/episodes/{self.episode_id}{suffix}",
                        body,
                        timeout_s=timeout_s,
                        pool=pool,
                        headers={LEASE_HEADER: self.lease} if body is None else None,
                        episode_id=self.episode_id,
                        want_record=want_record,
                    )
                finally:
                    self._scopes.discard(scope)
        except TimeoutError as exc:
            if isinstance(exc, Timeout) or self.lost is None:
                raise
            raise self.lost from exc
        except EpisodeLost as exc:
            self.mark_lost(exc)
            raise
        except HostUnreachable as exc:
            self._fleet.mark_down(self.placed.view, exc)
            self.mark_lost(self._unreachable(exc))
            assert self.lost is not None
            raise self.lost from exc

    async def delete(self) -> None:
        """Gives the replica back; a host that does not answer lets the lease run out."""
        try:
            await self.placed.view.link.call(
                "DELETE",
                f"/v1/episodes/{self.episode_id}",
                timeout_s=self._config.timeouts.control_s,
                retry_s=2.0,
                headers={LEASE_HEADER: self.lease},
                episode_id=self.episode_id,
            )
        except (EpisodeLost, EpisodeEnded):
            return  # gone already, which is what we wanted
        except OSGymError as exc:
            _LOG.warning("closing: %s; the lease runs out by itself in %g s", exc, self.lease_ttl_s)

    def parse(self, record: Record | None) -> tuple[StepAnswer, bytes]:
        """The answer of a step, observe or final, and its image.

        Raises:
            ProtocolError: it is none.
        """
        assert record is not None
        try:
            step = StepAnswer.from_dict(record.meta)
        except WireFormatError as exc:
            raise self.protocol_error(exc) from exc
        if step.observation is None:
            raise self.protocol_error("no observation")
        self.told(step.notice)
        return step, record.blob

    def protocol_error(self, what: object) -> ProtocolError:
        """An answer that is not v1."""
        return ProtocolError(str(what), host=self.host, episode_id=self.episode_id)

    def _unreachable(self, exc: HostUnreachable) -> EpisodeLost:
        return EpisodeLost(
            f"the host cannot be reached: {exc.message}",
            details={"cause": exc.code},
            host=self.host,
            episode_id=self.episode_id,
        )
