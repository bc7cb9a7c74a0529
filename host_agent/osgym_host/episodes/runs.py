"""Episodes of each named run, for the dashboard."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from osgym_host.core.reasons import Reason
from osgym_host.episodes.episode import HostEpisode
from osgym_host.episodes.service import EpisodeService

KEPT = 20_000
"""Number of ended episodes of all runs; about 6 MiB."""

Row = dict[str, Any]


class RunLog:
    """Runs since this host agent started. For one event loop."""

    def __init__(self, episodes: EpisodeService) -> None:
        self._episodes = episodes
        self._ended: deque[tuple[str, Row]] = deque(maxlen=KEPT)
        episodes.on_end.append(self._note)

    def names(self) -> list[Row]:
        """Return one object for each run, the most recently active first."""
        rows: dict[str, list[Row]] = {}
        for run, row in [*self._ended, *self._living()]:
            rows.setdefault(run, []).append(row)
        found = [summary(run, of_run) for run, of_run in rows.items()]
        return sorted(found, key=lambda one: (one["active"] > 0, one["last_at"]), reverse=True)

    def episodes(self, run: str, limit: int) -> list[Row]:
        """Return the latest episodes of a run in the order of their ends; active ones come last."""
        every = [row for name, row in [*self._ended, *self._living()] if name == run]
        return every[-limit:]

    def _living(self) -> Iterable[tuple[str, Row]]:
        for episode in self._episodes.active():
            if episode.terms.run is not None:
                yield episode.terms.run, _row(episode)

    def _note(self, episode: HostEpisode) -> None:
        if episode.terms.run is not None and not _is_start(episode):
            self._ended.append((episode.terms.run, _row(episode)))


def _is_start(episode: HostEpisode) -> bool:
    """Return whether an episode was only set up for others to branch from, and attempted nothing."""
    closed = episode.over is not None and episode.over.reason is Reason.CLOSED
    return closed and episode.steps.progress.step == 0 and not episode.scored


def _row(episode: HostEpisode) -> Row:
    score, over = episode.evaluation, episode.over
    error = None if score is None or score.error is None else score.error.code
    if over is not None and over.reason is not Reason.CLOSED and not (over.by_policy and score is not None):
        error = over.code  # an episode that its policy ended shows its reward of 0 instead
    return {
        "episode_id": episode.episode_id,
        "task_id": episode.task_id,
        "began_at": round(episode.began_at, 3),
        "ended_at": None if episode.ended_at is None else round(episode.ended_at, 3),
        "steps": episode.steps.progress.step,
        "reward": None if score is None else score.reward,
        "error": None if error is None else str(error),
        "termination_reason": episode.termination_reason(),
    }


def summary(run: str, rows: Iterable[Row]) -> Row:
    """Return the state of a run. Pure.

    `mean_reward` is of the scored episodes, None where there are none; `solved` had a reward of 1 or more.
    """
    found = list(rows)
    rewards = [row["reward"] for row in found if row["reward"] is not None]
    return {
        "run": run,
        "episodes": len(found),
        "active": sum(row["ended_at"] is None for row in found),
        "tasks": len({row["task_id"] for row in found}),
        "steps": sum(row["steps"] for row in found),
        "scored": len(rewards),
        "solved": sum(reward >= 1 for reward in rewards),
        "mean_reward": round(sum(rewards) / len(rewards), 4) if rewards else None,
        "lost": sum(row["error"] is not None for row in found),
        "began_at": min(row["began_at"] for row in found),
        "last_at": max(row["ended_at"] or row["began_at"] for row in found),
    }
