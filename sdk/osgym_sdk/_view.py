"""What is known of an episode without asking its host."""

from __future__ import annotations

from osgym_sdk._exceptions import EpisodeEnded, EpisodeLost
from osgym_sdk._observation import AsyncObservation
from osgym_sdk._parts import EpisodeOptions
from osgym_sdk._placing import Ticket
from osgym_sdk._records import Trajectory
from osgym_sdk._session import Session
from osgym_sdk.wire import Done, Notice


class EpisodeView:
    """The reading side of :class:`AsyncEpisode`."""

    def __init__(self, options: EpisodeOptions) -> None:
        self._options = options
        self._session: Session | None = None
        self._observation: AsyncObservation | None = None
        self.trajectory = Trajectory(options.task_id)

    @property
    def lease(self) -> str:
        return self._where().lease

    @property
    def episode_id(self) -> str:
        return self._where().episode_id

    @property
    def replica_id(self) -> str:
        return self._where().placed.answer.replica_id

    @property
    def generation(self) -> int:
        """New for every clone: proof that this desktop was nobody's before."""
        return self._where().placed.answer.generation

    @property
    def host(self) -> str:
        """URL of the host that runs the replica."""
        return self._where().host

    @property
    def lease_ttl_s(self) -> float:
        return self._options.request.lease_ttl_s

    @property
    def observation(self) -> AsyncObservation:
        """The newest observation; the first desktop after start.

        Raises:
            EpisodeEnded: the episode was never started.
        """
        if self._observation is None:
            raise EpisodeEnded("the episode has not been started: use 'async with'")
        return self._observation

    @property
    def done(self) -> Done | None:
        """Why the last step was the last; None while the episode goes on."""
        return self._observation.done if self._observation else None

    @property
    def lost(self) -> EpisodeLost | None:
        """Set as soon as it is known that the replica, its host or the lease is gone."""
        return self._session.lost if self._session else None

    @property
    def notice(self) -> Notice | None:
        """Set when the host said that it will be taken away: come to an end before ``notice.deadline``.

        Learned with each answer, and while nothing is asked with each renewal of the lease.
        """
        return self._session.notice if self._session else None

    @property
    def ticket(self) -> Ticket:
        """What another client or process needs to go on with this episode (:meth:`AsyncClient.attach`)."""
        session = self._where()
        return Ticket(session.host, session.episode_id, session.lease, self.lease_ttl_s)

    def _where(self) -> Session:
        if self._session is None:
            raise EpisodeEnded("the episode has not been started: use 'async with'")
        return self._session
