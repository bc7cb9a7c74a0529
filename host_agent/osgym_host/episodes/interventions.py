"""Interventions: actions of a person on a leased desktop between two steps of its policy.

The caller is an operator, who names the replica and has no lease of the episode. Each person who takes over
has a session with numbers of its own, so that a repeated call acts only once.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field, replace

from osgym_host.episodes.episode import HostEpisode
from osgym_host.episodes.errors import bad_sequence
from osgym_host.episodes.service import EpisodeService
from osgym_host.errors import ServiceError
from osgym_protocol.codes import ErrorCode
from osgym_protocol.host_api import InterveneRequest, StepAnswer
from osgym_protocol.records import Record

KEEP_SESSIONS = 256
"""Number of sessions of all episodes; the one that acted longest ago is forgotten first."""


@dataclass(slots=True)
class _Sessions:
    """Last number of each session, by episode and session."""

    last: OrderedDict[tuple[str, str], int] = field(default_factory=OrderedDict)

    def of(self, key: tuple[str, str]) -> int:
        return self.last.get(key, 0)

    def enter(self, key: tuple[str, str], seq: int) -> None:
        self.last[key] = seq
        self.last.move_to_end(key)
        while len(self.last) > KEEP_SESSIONS:
            self.last.popitem(last=False)


class Interventions:
    """Interventions on desktops whose leases others hold. For one event loop."""

    def __init__(self, service: EpisodeService) -> None:
        self._service = service
        self._sessions = _Sessions()

    def episode_on(self, replica_id: str) -> HostEpisode:
        """Return the episode that a replica is leased for.

        Raises:
            ServiceError: `not_found`: nobody leases it, or there is no such replica.
        """
        for episode in self._service.active():
            if episode.replica.replica_id == replica_id:
                return episode
        raise ServiceError(ErrorCode.NOT_FOUND, "This host has no leased replica with that id.")

    async def act(self, replica_id: str, request: InterveneRequest, by: str | None = None) -> Record:
        """Carry out a person's actions, record them, and return a frame, as a step does.

        Waits for a running step of the policy. The repetition of a session's last number gives the screen as
        it is now.

        Args:
            by: Name of the token that the request comes with, for trajectory and event.

        Raises:
            ServiceError: `not_found`, `bad_sequence`; as a step of the episode.
        """
        episode = self.episode_on(replica_id)
        seq, key = request.seq, (episode.episode_id, request.session)
        last = self._sessions.of(key)
        if seq == last:
            return await self._repeat(episode, key, request)
        if seq != last + 1:
            raise bad_sequence(seq, last)
        self._sessions.enter(key, seq)
        before = episode.steps.progress.interventions
        began = time.perf_counter()
        try:
            result = await episode.intervene(request)
        except ServiceError:
            if episode.steps.progress.interventions == before:  # nothing was done, no number used up
                self._sessions.enter(key, last)
            raise
        meta = result.answer.to_dict()
        who = {} if by is None else {"by": by}
        when = round(time.time(), 3)
        line = {"kind": "intervention", "time": when, "session": request.session, **who, **meta}
        self._service.recorder.add(episode.episode_id, line)
        if seq == 1:
            self._service.events.add("takeover", episode_id=episode.episode_id, replica_id=replica_id, **who)
        meta["timing_ms"] = {"host": round((time.perf_counter() - began) * 1000, 3)}
        return Record(meta, result.image)

    async def _repeat(self, episode: HostEpisode, key: tuple[str, str], request: InterveneRequest) -> Record:
        async with episode.lock:  # the call itself may still run
            if self._sessions.of(key) != request.seq:
                raise bad_sequence(request.seq, self._sessions.of(key))
        frame = await episode.observe(request.observe)
        progress = episode.steps.progress
        answer = StepAnswer(
            observation=replace(frame.observation, seq=progress.seq, previous=None),
            step=progress.step,
            interventions=progress.interventions or None,
        )
        return Record(answer.to_dict(), frame.image)
