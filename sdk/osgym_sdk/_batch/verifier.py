"""Rewards by the trainer's own function: what it gives, raises or leaves undone stays with its episode."""

from __future__ import annotations

import asyncio
import inspect
import math
import traceback
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from osgym_sdk._batch.policy import MAX_TRACEBACK_CHARS
from osgym_sdk._exceptions import ConfigError, EpisodeLost, OSGymError
from osgym_sdk._models.evaluation import Evaluation, Failure, termination_of
from osgym_sdk.wire import ErrorClass, TerminationReason

if TYPE_CHECKING:
    from osgym_sdk._episode.episode import AsyncEpisode

Reward = Callable[[Any, Any], Awaitable[float | None]]
"""``async def reward(episode, task)``: the reward, or None where nothing can be scored."""
DEFAULT_REWARD_S = 300.0
REWARD_ERROR = "reward_error"
REWARD_TIMEOUT = "reward_timeout"
_left: set[asyncio.Task[Any]] = set()
"""Verifiers that ran out of time and have not ended yet."""


def check_reward(reward: Any, timeout_s: float) -> None:
    """Check that something can be called as a verifier.

    Raises:
        ConfigError: it is no coroutine function, or has no time.
    """
    called = getattr(reward, "__call__", None)  # noqa: B004 - asks whether an instance is awaited
    if not inspect.iscoroutinefunction(reward) and not inspect.iscoroutinefunction(called):
        raise ConfigError("reward must be an async function of (episode, task)")
    if not timeout_s > 0:
        raise ConfigError("reward_timeout_s must be more than 0")


async def verified(
    reward: Reward, episode: AsyncEpisode, task: Any, reason: str, timeout_s: float
) -> Evaluation | None:
    """Return the score of the verifier; None where it scores nothing. Raises only CancelledError.

    Args:
        reason: how the acting ended.
    """
    work = asyncio.create_task(_called(reward, episode, task), name="osgym-reward")
    try:
        await asyncio.wait((work,), timeout=timeout_s)
    finally:
        if not work.done():  # it is not waited for: it may never end
            work.cancel()
            _left.add(work)
            work.add_done_callback(_left.discard)
    if not work.done():
        text = f"the verifier took longer than {timeout_s:g} s"
        return _failed(Failure(REWARD_TIMEOUT, text, ErrorClass.TASK))
    found = work.result()
    if isinstance(found, EpisodeLost) and found.by_policy:
        return Evaluation.lost_by_policy(found, episode.trajectory.interventions)
    if isinstance(found, OSGymError) and found.error_class is ErrorClass.INFRA:
        return Evaluation(None, termination_of(found), ErrorClass.INFRA, False, (), Failure.of(found))
    if isinstance(found, BaseException):
        trace = "".join(traceback.format_exception(found))[-MAX_TRACEBACK_CHARS:]
        text = f"{type(found).__name__} in the verifier"
        return _failed(Failure(REWARD_ERROR, text, ErrorClass.TASK, {"traceback": trace}, found))
    if found is None:
        return None
    if not isinstance(found, (int, float)) or not math.isfinite(found):
        text = (
            f"the verifier returned {type(found).__name__} {str(found)[:50]!r}, which is not a finite number"
        )
        return _failed(Failure(REWARD_ERROR, text, ErrorClass.TASK))
    return Evaluation(float(found), reason, None, True)


async def _called(reward: Reward, episode: AsyncEpisode, task: Any) -> Any:
    """Return its result or its exception."""
    try:
        return await reward(episode, task)
    except KeyboardInterrupt:
        raise
    except BaseException as exc:  # noqa: BLE001 - the user's code: its fault is data here
        return exc


def _failed(failure: Failure) -> Evaluation:
    return Evaluation(None, TerminationReason.EVALUATOR_ERROR, failure.error_class, False, (), failure)
