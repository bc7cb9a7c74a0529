"""The part of the client that steps many episodes: together, as they are ready, and by a policy."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any, Unpack

from osgym_protocol.limits import DEFAULT_LEASE_TTL_S
from osgym_sdk._batch.batch import Batch, BatchPlan
from osgym_sdk._batch.host_steps import step_many
from osgym_sdk._batch.policy import Policy, check_policy
from osgym_sdk._batch.progress import OnProgress, ProgressLine, terminal_line
from osgym_sdk._batch.ready import ReadyQueue
from osgym_sdk._batch.rollouts import EpisodeArguments, RolloutArguments, Rollouts
from osgym_sdk._batch.task_run import DEFAULT_MAX_INVALID, BatchOptions, OnInvalid
from osgym_sdk._batch.verifier import DEFAULT_REWARD_S, Reward, check_reward
from osgym_sdk._client_episodes import EpisodeCalls
from osgym_sdk._episode.episode import AsyncEpisode
from osgym_sdk._episode.steps import AsyncObservation
from osgym_sdk._exceptions import ConfigError, OSGymError
from osgym_sdk._inputs.actions import Actions
from osgym_sdk._inputs.decision import Decision
from osgym_sdk._inputs.options import Clock, Observe, Settle, as_choice, as_run
from osgym_sdk._inputs.reading import as_reading
from osgym_sdk._inputs.tasks import Tasks, as_tasks
from osgym_sdk._models.recorder import Recorder

if TYPE_CHECKING:
    from osgym_protocol.grammars import Coordinates


class BatchCalls(EpisodeCalls):
    """Base of :class:`AsyncClient`, which says what the attributes are."""

    _ready: ReadyQueue
    _adapt_policy: Callable[[Policy], Policy]
    _batches: weakref.WeakSet[Batch | Rollouts]

    def step_many(
        self,
        steps: Iterable[tuple[AsyncEpisode, Actions | Decision]],
        *,
        settle: Settle | None = None,
        observe: Observe | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[tuple[AsyncEpisode, AsyncObservation | OSGymError]]:
        """Step many episodes, one request per host, and yield each answer as soon as it is there.

        Each episode is answered once, with its observation or with its error; an error of one does not
        touch the others. Leave the loop early and the rest is cleared up by each episode's next step.
        """
        return step_many(steps, settle, observe, timeout_s or self._config.timeouts.step_s)

    def reset_many(self, tasks: Tasks, **options: Unpack[EpisodeArguments]) -> list[AsyncEpisode]:
        """Begin an episode of each task, all at the same time; :meth:`ready` gives their first desktops.

        Close them, or leave it to the client. A start that fails is an error that :meth:`ready` gives.

        Args:
            tasks: as for :meth:`run`, and finite; None stands for a clean desktop.
            options: as for :meth:`episode`.

        Raises:
            ConfigError: a task file cannot be read, or an option is wrong.
        """
        listed = as_tasks(tasks)
        if not isinstance(listed, Iterable):
            raise ConfigError("reset_many() takes tasks that are there, not an asynchronous iterator")
        episodes = [self.episode(task, **options) for task in listed]
        self._ready.start(episodes)
        return episodes

    def step_async(
        self,
        episode: AsyncEpisode,
        actions: Actions | Decision,
        *,
        settle: Settle | None = None,
        observe: Observe | None = None,
    ) -> None:
        """Begin a step and return at once; :meth:`ready` gives its outcome.

        Steps that are begun without an ``await`` between them go to each host in one request, whose answers
        come one by one as they are ready.

        Args:
            episode: one of this client that has started, with no step under way.
            actions, settle, observe: as for :meth:`AsyncEpisode.step`.

        Raises:
            ConfigError: a step of this episode is under way.
            EpisodeEnded: it was never started.
        """
        self._ready.step(episode, actions, settle, observe)

    def ready(
        self, n: int | None = None
    ) -> AsyncIterator[tuple[AsyncEpisode, AsyncObservation | OSGymError]]:
        """Yield the first ``n`` outcomes of what was begun, of any host, as they are ready.

        None: as long as anything is under way, what is begun meanwhile included.
        Fewer come where fewer are under way. Each episode is given with its observation or its error; it may
        be stepped again at once, however long others take.
        """
        return self._ready.ready(n)

    def run(
        self,
        tasks: Tasks,
        policy: Policy,
        *,
        concurrency: int = 8,
        max_steps: int = 100,
        evaluate: bool = True,
        retries: int = 1,
        on_invalid: OnInvalid | str = OnInvalid.ERROR,
        max_invalid: int | None = None,
        episode_timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        progress: bool = False,
        wait_s: float = 600.0,
        lease_ttl_s: float = DEFAULT_LEASE_TTL_S,
        settle: Settle | None = None,
        observe: Observe | None = None,
        keep_frames: bool = False,
        strict_setup: bool = False,
        clock: Clock | None = None,
        actions: str | None = None,
        coordinates: Coordinates | None = None,
        record: Recorder | None = None,
        run: str | None = None,
        reward: Reward | None = None,
        reward_timeout_s: float = DEFAULT_REWARD_S,
    ) -> Batch:
        """Run the policy on every task and yield a :class:`Result` for each, as they finish.

        What goes wrong in an episode is in its result (``failure``, with ``reward`` None) and does
        not stop the others, whatever a policy returns or raises.

        Args:
            tasks: task objects or paths, finite or not, taken one by one as there is room; or the path of a
                task file, of a folder, or a pattern (``"tasks/*/*.json"``).
            policy: ``policy(obs, task, step)`` giving an action, several, a :class:`Decision`, or None to
                stop; a coroutine function, a plain function (run in a thread), or an object with ``act`` and
                ``reset``.
                It may raise InvalidAction itself, where its model's output is none.
            concurrency: how many episodes at a time.
            max_steps: steps before an episode is cut off and scored as it stands.
            evaluate: score the episodes.
            retries: how often a task is tried again, on a fresh replica, when the infrastructure failed under
                it. Never after a reward, never when policy or task were at fault, and not when no host or no
                replica was to be had within ``wait_s`` or ``episode_timeout_s`` was over.
            on_invalid: what follows when the policy returns what is no action, or one that the host refuses.
                ``"error"``: a failure of the class ``model``, so no reward. ``"noop"``: nothing is done, it
                counts as a step, and the policy is asked again (``obs.refused`` says why). ``"end"``: the
                acting ends and the desktop is scored as it stands.
            max_invalid: with ``"noop"``, how many of them an episode may have, 5 by default; one more is a
                failure as with ``"error"``.
            episode_timeout_s: deadline of one episode, waiting and scoring included.
            reward: ``async def reward(episode, task)``, a verifier of one's own in the place of the task's
                check: called when the acting has ended, it gives the reward, or None where nothing can be
                scored. What it raises is a failure of that episode.
            reward_timeout_s: its deadline.
            on_progress: called with a :class:`Progress` whenever something changed.
            progress: show it on stderr.
            wait_s: how long an episode waits for a replica.
            lease_ttl_s, settle, observe, keep_frames, strict_setup, clock, actions, coordinates, run: as
                for :meth:`episode`.
            record: where every attempt is recorded as it goes, as for :meth:`episode`. What cannot be kept
                costs no episode: the iteration ends with the recorder's error after the last result.
        """
        if concurrency < 1 or max_steps < 1 or retries < 0:
            raise ConfigError("concurrency and max_steps are 1 or more, retries 0 or more")
        if max_invalid is not None and (max_invalid < 0 or on_invalid != OnInvalid.NOOP):
            raise ConfigError('max_invalid is 0 or more, and for on_invalid="noop" only')
        if reward is not None:
            check_reward(reward, reward_timeout_s)
        as_run(run)
        as_reading(actions, coordinates)  # a name that is wrong is the caller's fault, not each episode's
        check_policy(policy)
        invalid = as_choice(OnInvalid, on_invalid, "on_invalid")
        listed = as_tasks(tasks)
        if progress and on_progress is None:
            on_progress = ProgressLine()

        def open_episode(task: Any) -> AsyncEpisode:
            return self.episode(
                task,
                wait_s=wait_s,
                lease_ttl_s=lease_ttl_s,
                max_steps=max_steps,
                settle=settle,
                observe=observe,
                keep_frames=keep_frames,
                strict_setup=strict_setup,
                clock=clock,
                actions=actions,
                coordinates=coordinates,
                record=record,
                run=run,
            )

        options = BatchOptions(
            concurrency,
            max_steps,
            evaluate,
            retries,
            episode_timeout_s,
            on_progress,
            invalid,
            DEFAULT_MAX_INVALID if max_invalid is None else max_invalid,
            record,
            reward,
            reward_timeout_s,
        )
        adapted, timer = self._adapt_policy(policy), self._config.clock
        batch = Batch(BatchPlan(listed, adapted, options, open_episode, timer))
        self._batches.add(batch)
        return batch

    def rollouts(
        self,
        tasks: Tasks,
        policy: Policy,
        *,
        group: int = 8,
        concurrency: int = 16,
        retries: int = 2,
        progress: bool = True,
        **options: Unpack[RolloutArguments],
    ) -> Rollouts:
        """Run the policy several times on every task from the same start; yield a :class:`Group` for each.

        Where hosts branch (``runtime=qemu``), a task is set up once and all members are children of that
        moment, on its host. Elsewhere each member is set up itself, on any host. ``group.branched`` and
        ``group.same_start`` say how it was. Members of the first tasks go first, and groups come as they
        finish: one that is slow holds up no other. Leaving the loop stops the rest.

        Args:
            tasks, policy: as for :meth:`run`.
            group: how many members each group has.
            concurrency: how many episodes at a time, of all groups together.
            retries: how often a set-up that the infrastructure lost is tried again, and a member is refilled
                from the same start. What is lost all the same is in ``group.lost``, and the group is not
                ``complete``.
            progress: show how far it is on one line of stderr, where that is a terminal.
            options: as for :meth:`run`; ``episode_timeout_s`` also bounds the set-up.
        """
        if type(group) is not int or group < 1:
            raise ConfigError("group is a whole number, 1 or more")
        if unknown := options.keys() - RolloutArguments.__optional_keys__:
            raise ConfigError(f"rollouts() has no argument {sorted(unknown)[0]!r}")
        if progress and options.get("on_progress") is None:
            options["on_progress"] = terminal_line()
        batch = self.run(tasks, policy, concurrency=concurrency, retries=retries, **options)
        self._batches.discard(batch)
        rollouts = Rollouts(batch.plan, group, self._scheduler.background)
        self._batches.add(rollouts)
        return rollouts
