"""State of one episode in the client, and the properties that both clients show of it."""

from __future__ import annotations

from dataclasses import dataclass

from osgym_sdk._episode.plan import EpisodePlan
from osgym_sdk._exceptions import EpisodeEnded, EpisodeLost
from osgym_sdk._fleet.scheduler import Ticket
from osgym_sdk._fleet.session import EpisodeSession
from osgym_sdk._models.evaluation import Evaluation, Failure, termination_of
from osgym_sdk._models.observation import Observation
from osgym_sdk._models.recorder import EpisodeOutcome, EpisodeRecording
from osgym_sdk._models.trajectory import Trajectory
from osgym_sdk.wire import Done, Notice, SetupWarning, TerminationReason


@dataclass(slots=True)
class EpisodeContext:
    """Plan of an episode, its lease once it has one, and its course so far; shared by its collaborators."""

    plan: EpisodePlan
    trajectory: Trajectory
    session: EpisodeSession | None = None
    done: Done | None = None
    closed: bool = False
    """True: closed by this client, or left to the holder of its ticket."""
    base_step: int = 0
    """Number of steps of the episodes that this one was branched from."""
    recording: EpisodeRecording | None = None
    ends_recording: bool = True
    """True: the end of the episode ends the recording; False: a batch does."""

    def leased(self) -> EpisodeSession:
        """Return the lease. Raises EpisodeEnded if the episode was never started."""
        if self.session is None:
            raise EpisodeEnded("the episode has not been started: use 'with' or 'async with'")
        return self.session

    def running(self) -> EpisodeSession:
        """Return the lease of an episode that goes on.

        Raises:
            EpisodeEnded: The episode was closed, or never started.
            EpisodeLost: Its replica, host or lease is gone.
        """
        if self.closed:
            raise EpisodeEnded("the episode is closed", episode_id=self.trajectory.episode_id)
        session = self.leased()
        if session.lost is not None:
            raise session.lost
        return session

    def take_recording(self) -> EpisodeRecording | None:
        """Return the recording; from now on the caller ends it."""
        self.ends_recording = False
        return self.recording

    def begin_recording(self, first: Observation) -> None:
        """Tell the recorder the first desktop."""
        if self.recording is not None:
            self.recording.begin(self.trajectory, first, self.leased().placement.host.state)

    def end_recording(self, closed: TerminationReason = TerminationReason.CLOSED) -> None:
        """Tell the recorder how an episode ended that no batch plays."""
        if self.recording is None or not self.ends_recording:
            return
        self.ends_recording = False
        lost, trajectory = self.leased().lost, self.trajectory
        if lost is not None and lost.by_policy and self.plan.task is not None:
            zero = Evaluation.lost_by_policy(lost, trajectory.interventions)
            trajectory.evaluation = trajectory.evaluation or zero
        scored = trajectory.evaluation is not None and trajectory.evaluation.loss is not None
        failure = None if lost is None or scored else Failure.of(lost)
        reason = str(self.done or closed) if lost is None else termination_of(lost)
        self.recording.end(trajectory, EpisodeOutcome.by_hand(trajectory.evaluation, failure, reason))


class EpisodeInfo:
    """Base of :class:`AsyncEpisode` and :class:`Episode`: what is known without a call to the host."""

    def __init__(self, context: EpisodeContext) -> None:
        self._context = context

    @property
    def trajectory(self) -> Trajectory:
        """The episode as the client saw it; grows while it runs."""
        return self._context.trajectory

    @property
    def setup_warnings(self) -> tuple[SetupWarning, ...]:
        """Commands of the task's setup that failed; with ``strict_setup`` there are none."""
        return self.trajectory.setup_warnings

    @property
    def template(self) -> str | None:
        """Use of a task template in place of the set-up: ``hit``, ``made`` or ``no (reason)``.

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
        """Number of the clone, new for each: proof that no episode used this desktop before."""
        return self._session.placement.answer.generation

    @property
    def host(self) -> str:
        """URL of the host that runs the replica."""
        return self._session.host

    @property
    def lease_ttl_s(self) -> float:
        return self._context.plan.options.lease_ttl_s

    @property
    def done(self) -> Done | None:
        """Reason why the last step was the last; None while the episode goes on."""
        return self._context.done

    @property
    def lost(self) -> EpisodeLost | None:
        """Error of a lost episode, set as soon as the loss of replica, host or lease is known."""
        return self._context.session.lost if self._context.session else None

    @property
    def notice(self) -> Notice | None:
        """Announcement that the host will be taken away: end the episode before ``notice.deadline``.

        Read from each answer, and between calls from each renewal of the lease.
        """
        return self._context.session.notice if self._context.session else None

    @property
    def ticket(self) -> Ticket:
        """Ticket with which another client or process goes on with this episode (``attach``)."""
        session = self._session
        return Ticket(session.host, session.episode_id, session.lease, self.lease_ttl_s)

    @property
    def _session(self) -> EpisodeSession:
        return self._context.leased()
