"""What is known of an episode without asking its host: the same for both clients."""

from __future__ import annotations

from dataclasses import dataclass

from osgym_sdk._episode.types import EpisodeOptions
from osgym_sdk._exceptions import EpisodeEnded, EpisodeLost
from osgym_sdk._fleet.scheduler import Ticket
from osgym_sdk._fleet.session import EpisodeSession
from osgym_sdk._models.results import Trajectory
from osgym_sdk.wire import Done, Notice, SetupWarning


@dataclass(slots=True)
class EpisodeRecord:
    """The options of an episode, what came of them, and its lease once it has one."""

    options: EpisodeOptions
    trajectory: Trajectory
    session: EpisodeSession | None = None
    done: Done | None = None
    closed: bool = False
    """By us, or left to whoever has the ticket."""


class EpisodeInfo:
    """What :class:`AsyncEpisode` and :class:`Episode` show alike."""

    def __init__(self, record: EpisodeRecord) -> None:
        self._record = record

    @property
    def trajectory(self) -> Trajectory:
        """The episode as the client saw it; grows while it runs."""
        return self._record.trajectory

    @property
    def setup_warnings(self) -> tuple[SetupWarning, ...]:
        """Commands of the task's setup that failed; with ``strict_setup`` there are none."""
        return self.trajectory.setup_warnings

    @property
    def template(self) -> str | None:
        """Whether a task template was cloned instead of the set-up: ``hit``, ``made`` or ``no (reason)``.

        None where templates are off.
        """
        return self._session.placement.answer.template

    @property
    def warm_apps(self) -> tuple[str, ...] | None:
        """Programs that ran before the set-up and that it used instead of starting them.

        None where none ran in its replica.
        """
        return self._session.placement.answer.warm_apps

    @property
    def lease(self) -> str:
        return self._session.lease

    @property
    def episode_id(self) -> str:
        return self._session.episode_id

    @property
    def replica_id(self) -> str:
        return self._session.placement.answer.replica_id

    @property
    def generation(self) -> int:
        """New for every clone: proof that this desktop was nobody's before."""
        return self._session.placement.answer.generation

    @property
    def host(self) -> str:
        """URL of the host that runs the replica."""
        return self._session.host

    @property
    def lease_ttl_s(self) -> float:
        return self._record.options.request.lease_ttl_s

    @property
    def done(self) -> Done | None:
        """Why the last step was the last; None while the episode goes on."""
        return self._record.done

    @property
    def lost(self) -> EpisodeLost | None:
        """Set as soon as it is known that the replica, its host or the lease is gone."""
        return self._record.session.lost if self._record.session else None

    @property
    def notice(self) -> Notice | None:
        """Set when the host said that it will be taken away: come to an end before ``notice.deadline``.

        Learned with each answer, and while nothing is asked with each renewal of the lease.
        """
        return self._record.session.notice if self._record.session else None

    @property
    def ticket(self) -> Ticket:
        """What another client or process needs to go on with this episode (``attach``)."""
        session = self._session
        return Ticket(session.host, session.episode_id, session.lease, self.lease_ttl_s)

    @property
    def _session(self) -> EpisodeSession:
        session = self._record.session
        if session is None:
            raise EpisodeEnded("the episode has not been started: use 'with' or 'async with'")
        return session

    def _open(self) -> EpisodeSession:
        """Return the session of an episode that goes on.

        Raises:
            EpisodeEnded: We closed it.
            EpisodeLost: Its replica, host or lease is gone.
        """
        if self._record.closed:
            raise EpisodeEnded("the episode is closed", episode_id=self.trajectory.episode_id)
        session = self._session
        if session.lost is not None:
            raise session.lost
        return session
