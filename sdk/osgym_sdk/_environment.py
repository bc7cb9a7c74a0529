"""An environment of reinforcement learning over episodes: reset, step, and losses as data.

What the forms of others (Gymnasium, OSGym's data server) are thin files over. It never gives a reward that
nobody found out: what we lost is a failure, and the next reset takes a fresh replica.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never, cast

from osgym_sdk._batch.options import BATCH_DEFAULTS, OnInvalid
from osgym_sdk._batch.ready import StepTicks
from osgym_sdk._client import AsyncClient
from osgym_sdk._episode.episode import AsyncEpisode, AsyncObservation
from osgym_sdk._episode.plan import EpisodeArguments, plan_episode
from osgym_sdk._exceptions import (
    ConfigError,
    EpisodeEnded,
    EpisodeLost,
    HostUnreachable,
    InvalidAction,
    NoCapacity,
    OSGymError,
)
from osgym_sdk._inputs.actions import Actions
from osgym_sdk._inputs.options import Task, as_choice
from osgym_sdk._models.evaluation import Evaluation, Failure
from osgym_sdk.wire import Done, ErrorClass

_LOG = logging.getLogger("osgym.sdk")
_LOOK: Mapping[str, Any] = {"op": "screenshot"}
"""Action in place of a refused one; it does nothing."""


@dataclass(frozen=True, slots=True)
class EnvironmentOptions:
    """Options of an environment: what follows from faults, and how its episodes are opened."""

    retries: int = 2
    """Number of further replicas that a reset may try when the infrastructure failed under it."""
    on_invalid: OnInvalid = OnInvalid.NOOP
    episode: EpisodeArguments = field(default_factory=BATCH_DEFAULTS.copy)
    """Options of episodes."""

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> EnvironmentOptions:
        """Return the options that keyword arguments stand for.

        Raises:
            ConfigError: there is no such option, or one is wrong.
        """
        own = {name: given[name] for name in ("retries", "on_invalid") if name in given}
        episode: EpisodeArguments = BATCH_DEFAULTS.copy()
        episode.update(cast(EpisodeArguments, {name: given[name] for name in given.keys() - own}))
        known = EpisodeArguments.__optional_keys__
        if unknown := sorted(episode.keys() - known):
            names = ", ".join(sorted((*known, "retries", "on_invalid")))
            raise ConfigError(f"unknown argument {unknown[0]!r}; valid arguments: {names}")
        if own.get("retries", 0) < 0:
            raise ConfigError("retries must be 0 or more")
        own["on_invalid"] = as_choice(OnInvalid, own.get("on_invalid", OnInvalid.NOOP), "on_invalid")
        plan_episode(None, episode)  # what is wrong is told now, not at the first reset
        return cls(**own, episode=episode)


@dataclass(frozen=True, slots=True)
class Transition:
    """Result of one step. At most one of ``terminated`` and ``truncated`` is set."""

    observation: AsyncObservation
    """The newest observation; that of the step before where this one was lost."""
    terminated: bool = False
    """True: the agent ended the episode (``finish()``, ``call_user()``)."""
    truncated: bool = False
    """True: the episode was cut off, out of steps or lost."""
    reward: float | None = None
    """Score at the end; None where there is none, which is not 0."""
    failure: Failure | None = None
    """Reason why an ended episode has no reward."""
    refused: str | None = None
    """Reason why the action was refused; nothing was done."""
    loss: Failure | None = None
    """Error of an episode that ended since the agent broke its desktop; ``reward`` is then 0."""

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated

    @property
    def lost(self) -> bool:
        """True: the infrastructure failed, and the episode is no training data."""
        return self.failure is not None and self.failure.error_class is ErrorClass.INFRA


@dataclass(slots=True)
class Environment:
    """An environment with one episode at a time, whose calls follow one another; close it at the end."""

    client: AsyncClient
    options: EnvironmentOptions = field(default_factory=EnvironmentOptions)
    ticks: StepTicks | None = None
    """Collector that sends its steps together with those of other environments."""
    episode: AsyncEpisode | None = None
    """The open episode; None before a reset and after an end."""
    _scored: bool = False

    async def reset(self, task: Task | None) -> AsyncObservation:
        """Give the replica back and begin an episode on a fresh one. Returns the first desktop.

        Raises:
            NoCapacity, HostUnreachable: none was to be had within ``wait_s``.
            TaskError: the task is wrong.
            OSGymError: the infrastructure failed ``retries`` times and once more.
        """
        await self.aclose()
        options = self.options
        tries = 0
        while True:
            tries += 1
            episode = self.client.episode(task, **options.episode)
            try:
                await episode.start()
            except (NoCapacity, HostUnreachable):
                raise  # the waiting has its own deadline
            except OSGymError as exc:
                if exc.error_class is not ErrorClass.INFRA or tries > options.retries:
                    raise
                _LOG.info("a reset failed (%s); it is tried again on a fresh replica", exc)
                continue
            self.episode = episode
            self._scored = task is not None
            return episode.observation

    async def step(self, actions: Actions) -> Transition:
        """Act; at the end of the episode score it and give the replica back.

        Raises:
            EpisodeEnded: there is no open episode.
            InvalidAction: refused, with ``on_invalid="error"``; nothing was done and the episode goes on.
        """
        episode = self.episode
        if episode is None:
            raise EpisodeEnded("the episode has ended: reset the environment")
        refused = None
        try:
            try:
                obs = await self._acted(episode, actions)
            except InvalidAction as exc:
                refused = exc.message
                match self.options.on_invalid:
                    case OnInvalid.ERROR:
                        raise
                    case OnInvalid.NOOP:
                        obs = await episode.step(_LOOK, grammar="osgym")
                    case OnInvalid.END:
                        return await self._end(episode, True, refused)
                    case _ as never:
                        assert_never(never)
            if obs.done is None:
                return Transition(obs, refused=refused)
            return await self._end(episode, obs.done is not Done.MAX_STEPS, refused)
        except InvalidAction:
            raise
        except OSGymError as exc:
            return await self._lost(episode, exc, refused)

    async def _acted(self, episode: AsyncEpisode, actions: Actions) -> AsyncObservation:
        if self.ticks is None:
            return await episode.step(actions)
        return await self.ticks.step(episode, actions)

    async def finish(self, feasible: bool = True) -> Transition:
        """End the episode for an agent that stopped without an action: score it and give the replica back.

        Args:
            feasible: False: it said, in words of its own, that the task cannot be done.

        Raises:
            EpisodeEnded: there is no open episode.
        """
        episode = self.episode
        if episode is None:
            raise EpisodeEnded("the episode has ended: reset the environment")
        try:
            if not feasible:
                await episode.step({"op": "fail"}, grammar="osgym")
            return await self._end(episode, True, None)
        except OSGymError as exc:
            return await self._lost(episode, exc, None)

    async def aclose(self) -> None:
        """Give the replica back. Idempotent."""
        episode, self.episode = self.episode, None
        if episode is not None:
            await episode.aclose()

    async def _end(self, episode: AsyncEpisode, terminated: bool, refused: str | None) -> Transition:
        evaluation: Evaluation | None = await episode.evaluate() if self._scored else None
        if evaluation is not None and evaluation.failure is not None:
            return await self._failed(episode, evaluation.failure)
        reward = None if evaluation is None else evaluation.reward
        loss = None if evaluation is None else evaluation.loss
        await self._release(episode)
        return Transition(episode.observation, terminated, not terminated, reward, refused=refused, loss=loss)

    async def _lost(self, episode: AsyncEpisode, error: OSGymError, refused: str | None) -> Transition:
        """End after an error: with a reward of 0 if the policy broke its desktop, else without a reward."""
        if self._scored and isinstance(error, EpisodeLost) and error.by_policy:
            return await self._end(episode, True, refused)
        return await self._failed(episode, Failure.of(error))

    async def _failed(self, episode: AsyncEpisode, failure: Failure) -> Transition:
        _LOG.info("episode %s has no reward: %s", episode.trajectory.episode_id, failure.message)
        await self._release(episode)
        return Transition(episode.observation, truncated=True, failure=failure)

    async def _release(self, episode: AsyncEpisode) -> None:
        self.episode = None
        try:
            await episode.aclose()
        except OSGymError as exc:  # its lease runs out by itself
            _LOG.info("episode %s could not be closed: %s", episode.trajectory.episode_id, exc)
