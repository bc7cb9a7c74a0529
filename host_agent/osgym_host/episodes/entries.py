"""Between an episode and what the journal keeps of it."""

from __future__ import annotations

import time

from osgym_host.core.reasons import Reason
from osgym_host.episodes.episode import Episode
from osgym_host.episodes.errors import EpisodeOver
from osgym_host.episodes.hold import Hold
from osgym_host.episodes.journal import Entry, Left, LostEpisode, RequestMark


def entry_of(episode: Episode, mark: RequestMark | None) -> Entry:
    """Returns what the journal keeps of an episode."""
    return Entry(
        episode_id=episode.episode_id,
        lease=episode.lease,
        replica_id=episode.replica_id,
        generation=episode.generation,
        began_at=episode.began_at,
        moment=episode.moment(),
        request=mark,
        parent=episode.parent,
    )


def lost_of(episode: Episode, reason: Reason) -> LostEpisode:
    """Returns what is remembered of an episode that is taken from its client."""
    return LostEpisode(
        episode_id=episode.episode_id,
        lease=episode.lease,
        replica_id=episode.replica_id,
        generation=episode.generation,
        task_id=episode.task_id,
        step=episode.step_no,
        last_seq=episode.last_seq,
        reason=reason.value,
        at=time.time(),
    )


def lost_episode(lost: LostEpisode) -> Episode:
    """Returns an ended episode that says what became of it."""
    try:
        reason = Reason(lost.reason)
    except ValueError:  # of another version
        reason = Reason.HOST_RESTARTED
    return Episode(
        episode_id=lost.episode_id,
        lease=lost.lease,
        hold=Hold(),
        task=None,
        context=None,
        screen=(0, 0),
        lease_ttl_s=0.0,
        max_steps=None,
        settle=None,
        observe=None,
        task_id=lost.task_id,
        replica_id=lost.replica_id,
        generation=lost.generation,
        last_seq=lost.last_seq,
        step_no=lost.step,
        over=EpisodeOver(reason, episode_id=lost.episode_id),
    )


def lost_of_left(left: Left) -> LostEpisode:
    """Returns what is remembered of an episode that could not go on after a restart."""
    entry = left.entry
    task_id = entry.moment.task.get("id") if entry.moment.task is not None else None
    return LostEpisode(
        episode_id=entry.episode_id,
        lease=entry.lease,
        replica_id=entry.replica_id,
        generation=entry.generation,
        task_id=task_id if isinstance(task_id, str) else None,
        step=left.progress.step,
        last_seq=left.progress.seq,
        reason=Reason.HOST_RESTARTED.value,
        at=time.time(),
    )
