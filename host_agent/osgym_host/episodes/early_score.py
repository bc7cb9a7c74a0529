"""Scores of a running episode, by the same check as at its end. They end nothing and are no reward."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from osgym_host.episodes.episode import HostEpisode
from osgym_host.episodes.errors import already_scored
from osgym_host.episodes.evaluation import evaluate_episode, no_task
from osgym_protocol.host_api import EvaluationAnswer


async def early_score(
    episode: HostEpisode, request_id: str, *, prepare: bool, timeout_s: float
) -> EvaluationAnswer:
    """Score the desktop as it is; the episode goes on. A repeated request gets the same answer.

    The check continues if its client disconnects.

    Args:
        prepare: See `osgym_host.tasks.evaluate.evaluate`.

    Raises:
        ServiceError: The episode has no task or is scored, or its replica is lost.
    """
    if episode.task is None:
        raise no_task()
    known = episode.reach.score
    if known is None or known[0] != request_id:
        work = asyncio.create_task(_score(episode, prepare, timeout_s), name=f"score:{episode.episode_id}")
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        known = episode.reach.score = request_id, work
    return await asyncio.shield(known[1])


async def _score(episode: HostEpisode, prepare: bool, timeout_s: float) -> EvaluationAnswer:
    with episode.in_use():
        async with episode.lock:
            if episode.scored:
                raise already_scored()
            if episode.context is None:
                raise no_task()
            # A check leaves files in its folder, and an episode can be scored many times.
            with tempfile.TemporaryDirectory(dir=episode.context.episode_dir) as folder:
                return await evaluate_episode(episode, timeout_s, prepare=prepare, folder=Path(folder))
