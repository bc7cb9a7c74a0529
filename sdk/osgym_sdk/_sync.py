"""The synchronous client: the asynchronous one on an event loop in a thread of its own.

So it works in scripts, in threads, and where a loop runs already (Jupyter).
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from osgym_sdk._batch import Policy, PolicyObject
from osgym_sdk._checkpoints import AsyncCheckpoint
from osgym_sdk._client import (
    AsyncClient,
    AttachSettings,
    ClientSettings,
    EpisodeSettings,
    RestoreSettings,
    RunSettings,
    fleet_settings,
)
from osgym_sdk._episode import AsyncEpisode
from osgym_sdk._exceptions import ConfigError, EpisodeLost, OSGymError
from osgym_sdk._fleet_file import read_fleet
from osgym_sdk._observation import AsyncObservation, Observation
from osgym_sdk._options import Actions, Observe, Settle, Task
from osgym_sdk._placing import Ticket
from osgym_sdk._records import Evaluation, Result, Trajectory
from osgym_sdk.wire import CheckpointInfo, Done, HostState, Notice

T = TypeVar("T")
_JOIN_S = 15.0


class Portal:
    """An event loop in a daemon thread; ``call`` runs a coroutine there and waits for it here."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="osgym-sdk", daemon=True)
        self._thread.start()

    @property
    def open(self) -> bool:
        return not self._loop.is_closed()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs ``work`` to its end. An interrupt here cancels it there, and waits until it has let go.

        Raises:
            ConfigError: the client is closed, or belongs to the process before a fork.
        """
        if os.getpid() != self._pid or not self.open:
            work.close()
            raise ConfigError("this Client is closed" if not self.open else "make a new Client after fork")
        if threading.current_thread() is self._thread:
            work.close()
            raise ConfigError("a sync call inside the client's own event loop would never end")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                future.cancel()
                concurrent.futures.wait([future], timeout=1.0)
            raise

    def close(self) -> None:
        """Stops the loop and its thread. Idempotent."""
        if not self.open or os.getpid() != self._pid:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


class SyncObservation(Observation):
    """An observation of an :class:`Episode`."""

    _inner: AsyncObservation
    _portal: Portal

    @classmethod
    def wrap(cls, inner: AsyncObservation, portal: Portal) -> SyncObservation:
        obs = cls(
            inner.meta,
            inner.data,
            step=inner.step,
            actions=inner.actions,
            done=inner.done,
            timing=inner.timing,
        )
        obs._inner, obs._portal = inner, portal
        return obs

    def final(self, timeout_s: float = 3.0) -> SyncObservation:
        """The frame of this step when the screen has come to rest; see :meth:`AsyncObservation.final`."""
        return SyncObservation.wrap(self._portal.call(self._inner.final(timeout_s)), self._portal)


class Episode:
    """Made by :meth:`Client.episode`; use it with ``with``. The same as :class:`AsyncEpisode`, waiting."""

    def __init__(self, inner: AsyncEpisode, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal

    def __enter__(self) -> Self:
        self._portal.call(self._inner.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def episode_id(self) -> str:
        return self._inner.episode_id

    @property
    def replica_id(self) -> str:
        return self._inner.replica_id

    @property
    def generation(self) -> int:
        """New for every clone: proof that this desktop was nobody's before."""
        return self._inner.generation

    @property
    def host(self) -> str:
        """URL of the host that runs the replica."""
        return self._inner.host

    @property
    def observation(self) -> SyncObservation:
        """The newest observation; the first desktop after start."""
        return SyncObservation.wrap(self._inner.observation, self._portal)

    @property
    def done(self) -> Done | None:
        """Why the last step was the last; None while the episode goes on."""
        return self._inner.done

    @property
    def lost(self) -> EpisodeLost | None:
        """Set as soon as it is known that the replica, its host or the lease is gone."""
        return self._inner.lost

    @property
    def notice(self) -> Notice | None:
        """See :attr:`AsyncEpisode.notice`."""
        return self._inner.notice

    @property
    def trajectory(self) -> Trajectory:
        return self._inner.trajectory

    @property
    def ticket(self) -> Ticket:
        """See :attr:`AsyncEpisode.ticket`."""
        return self._inner.ticket

    def detach(self) -> Ticket:
        """See :meth:`AsyncEpisode.detach`."""
        return self._inner.detach()

    def start(self) -> None:
        """Leases a replica and sets the task up; done by ``with``."""
        self._portal.call(self._inner.start())

    def step(
        self,
        actions: Actions,
        *,
        settle: Settle | None = None,
        observe: Observe | None = None,
        timeout_s: float | None = None,
    ) -> SyncObservation:
        """See :meth:`AsyncEpisode.step`."""
        work = self._inner.step(actions, settle=settle, observe=observe, timeout_s=timeout_s)
        return SyncObservation.wrap(self._portal.call(work), self._portal)

    def observe(self, observe: Observe | None = None) -> SyncObservation:
        """See :meth:`AsyncEpisode.observe`."""
        return SyncObservation.wrap(self._portal.call(self._inner.observe(observe)), self._portal)

    def evaluate(self, *, timeout_s: float | None = None) -> Evaluation:
        """See :meth:`AsyncEpisode.evaluate`."""
        return self._portal.call(self._inner.evaluate(timeout_s=timeout_s))

    def fork(
        self,
        count: int = 1,
        *,
        lease_ttl_s: float | None = None,
        max_steps: int | None = None,
        wait_s: float = 10.0,
        timeout_s: float | None = None,
    ) -> list[Episode]:
        """See :meth:`AsyncEpisode.fork`."""
        work = self._inner.fork(
            count, lease_ttl_s=lease_ttl_s, max_steps=max_steps, wait_s=wait_s, timeout_s=timeout_s
        )
        return [Episode(child, self._portal) for child in self._portal.call(work)]

    def checkpoint(
        self, *, keep: bool = False, ttl_s: float | None = None, timeout_s: float | None = None
    ) -> Checkpoint:
        """See :meth:`AsyncEpisode.checkpoint`."""
        work = self._inner.checkpoint(keep=keep, ttl_s=ttl_s, timeout_s=timeout_s)
        return Checkpoint(self._portal.call(work), self._portal)

    def close(self) -> None:
        """Gives the replica back. Idempotent."""
        if self._portal.open:
            self._portal.call(self._inner.close())


class Checkpoint:
    """Made by :meth:`Episode.checkpoint`. The same as :class:`AsyncCheckpoint`, waiting."""

    def __init__(self, inner: AsyncCheckpoint, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal

    @property
    def info(self) -> CheckpointInfo:
        """Id, episode and step, whether and how long it is kept, size."""
        return self._inner.info

    @property
    def checkpoint_id(self) -> str:
        return self._inner.checkpoint_id

    @property
    def host(self) -> str:
        """URL of the host that has it."""
        return self._inner.host

    def delete(self) -> None:
        """See :meth:`AsyncCheckpoint.delete`."""
        self._portal.call(self._inner.delete())

    def export(self, path: str | Path, *, timeout_s: float = 600.0) -> Path:
        """See :meth:`AsyncCheckpoint.export`."""
        return self._portal.call(self._inner.export(path, timeout_s=timeout_s))

    def __repr__(self) -> str:
        return repr(self._inner).replace(type(self._inner).__name__, type(self).__name__)


class Client:
    """The client for code without ``async``; arguments as for :class:`AsyncClient`.

    Use it with ``with``, or call :meth:`close`; what is left at exit of the process is closed then.
    Several threads may share it; after a fork the child makes its own.
    """

    def __init__(self, hosts: str | Sequence[str] | None = None, **settings: Unpack[ClientSettings]) -> None:
        self._inner = AsyncClient(hosts, **settings)
        self._portal = Portal()
        _OPEN.add(self)

    @classmethod
    def from_fleet(cls, path: str | Path, **settings: Unpack[ClientSettings]) -> Self:
        """See :meth:`AsyncClient.from_fleet`."""
        fleet = read_fleet(path)
        return cls(list(fleet.hosts), **fleet_settings(fleet, settings))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends background work, connections and the thread. Idempotent."""
        _OPEN.discard(self)
        if self._portal.open:
            with contextlib.suppress(ConfigError):
                self._portal.call(self._inner.aclose())
            self._portal.close()

    @property
    def hosts(self) -> tuple[str, ...]:
        return self._inner.hosts

    def host_states(self) -> dict[str, HostState | OSGymError]:
        """See :meth:`AsyncClient.host_states`."""
        return self._portal.call(self._inner.host_states())

    def episode(self, task: Task | None = None, **options: Unpack[EpisodeSettings]) -> Episode:
        """An episode; arguments as for :meth:`AsyncClient.episode`."""
        return Episode(self._inner.episode(task, **options), self._portal)

    def attach(self, ticket: Ticket, **options: Unpack[AttachSettings]) -> Episode:
        """See :meth:`AsyncClient.attach`."""
        return Episode(self._inner.attach(ticket, **options), self._portal)

    def restore(self, checkpoint: Checkpoint | str, **options: Unpack[RestoreSettings]) -> Episode:
        """See :meth:`AsyncClient.restore`."""
        inner = checkpoint if isinstance(checkpoint, str) else checkpoint._inner
        return Episode(self._portal.call(self._inner.restore(inner, **options)), self._portal)

    def checkpoints(self) -> list[Checkpoint]:
        """See :meth:`AsyncClient.checkpoints`."""
        found = self._portal.call(self._inner.checkpoints())
        return [Checkpoint(one, self._portal) for one in found]

    def import_checkpoint(
        self, path: str | Path, *, host: str | None = None, timeout_s: float = 600.0
    ) -> Checkpoint:
        """See :meth:`AsyncClient.import_checkpoint`."""
        work = self._inner.import_checkpoint(path, host=host, timeout_s=timeout_s)
        return Checkpoint(self._portal.call(work), self._portal)

    def step_many(
        self,
        steps: Iterable[tuple[Episode, Actions]],
        *,
        settle: Settle | None = None,
        observe: Observe | None = None,
        timeout_s: float | None = None,
    ) -> Iterator[tuple[Episode, SyncObservation | OSGymError]]:
        """See :meth:`AsyncClient.step_many`."""
        listed = list(steps)
        outer = {id(episode._inner): episode for episode, _ in listed}
        inner = [(episode._inner, actions) for episode, actions in listed]
        answers = self._inner.step_many(inner, settle=settle, observe=observe, timeout_s=timeout_s)
        for episode, outcome in self._drain(answers):
            if isinstance(outcome, AsyncObservation):
                yield outer[id(episode)], SyncObservation.wrap(outcome, self._portal)
            else:
                yield outer[id(episode)], outcome

    def run(self, tasks: Iterable[Any], policy: Policy, **options: Unpack[RunSettings]) -> Iterator[Result]:
        """Results as they finish; arguments as for :meth:`AsyncClient.run`.

        The policy is called in threads of its own, several at a time, and sees observations whose
        ``final()`` waits. Leaving the loop stops the rest.
        """
        batch = self._inner.run(tasks, _SyncPolicy(policy, self._portal), **options)
        yield from self._drain(aiter(batch))

    def _drain(self, items: AsyncIterator[T]) -> Iterator[T]:
        """What comes out of an asynchronous iterator, waited for here."""
        try:
            while True:
                try:
                    yield self._portal.call(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            if self._portal.open:
                self._portal.call(_close(items))


class _SyncPolicy:
    """Gives the policy observations that can be used without ``await``."""

    def __init__(self, policy: Policy, portal: Portal) -> None:
        self._policy = policy
        self._portal = portal

    def reset(self, task: Any) -> _SyncPolicy | None:
        reset: Callable[[Any], Any] | None = getattr(self._policy, "reset", None)
        own = None if reset is None else reset(task)
        return None if own is None else _SyncPolicy(own, self._portal)

    def act(self, obs: AsyncObservation, task: Any, step: int) -> Any:
        policy = self._policy
        act = policy.act if isinstance(policy, PolicyObject) else policy
        return act(SyncObservation.wrap(obs, self._portal), task, step)


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


async def _close(items: AsyncIterator[Any]) -> None:
    aclose = getattr(items, "aclose", None)
    if aclose is not None:
        await aclose()


_OPEN: set[Client] = set()


@atexit.register
def _close_all() -> None:
    for client in list(_OPEN):
        client.close()
