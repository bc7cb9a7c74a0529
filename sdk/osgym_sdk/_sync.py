"""The synchronous client: the asynchronous one on an event loop in a thread of its own.

So it works in scripts, in threads, and where a loop runs already (Jupyter).
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import functools
import inspect
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from osgym_sdk import _sigterm
from osgym_sdk._batch.policy import Policy, PolicyObject, check_policy
from osgym_sdk._batch.rollouts import EpisodeArguments
from osgym_sdk._client import AsyncClient
from osgym_sdk._config import ClientSettings
from osgym_sdk._episode.checkpoints import AsyncCheckpoint, CheckpointHandle
from osgym_sdk._episode.episode import AsyncEpisode
from osgym_sdk._episode.info import EpisodeInfo
from osgym_sdk._episode.steps import AsyncObservation
from osgym_sdk._episode.tunnel import Exposed, Exposure
from osgym_sdk._exceptions import ConfigError, OSGymError
from osgym_sdk._fleet.discovery.open import OpenedFleet, open_fleet
from osgym_sdk._inputs.actions import Actions
from osgym_sdk._inputs.decision import Decision
from osgym_sdk._inputs.options import Observe, Settle
from osgym_sdk._inputs.tasks import Tasks
from osgym_sdk._models.observation import Observation

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_JOIN_S = 15.0
_SIGNAL_S = 0.5
"""How long the main thread sleeps at most while it waits. Python runs a signal's handler when that thread
wakes; but the kernel may give the signal to a thread that is just starting, and that wakes nobody."""


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

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Begin ``work``, and return what will hold its outcome.

        Raises:
            ConfigError: the client is closed, or belongs to the process before a fork.
        """
        if os.getpid() != self._pid or not self.open:
            work.close()
            raise ConfigError("this Client is closed" if not self.open else "make a new Client after fork")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` to its end. An interrupt here cancels it there, and waits until it has let go.

        Raises:
            ConfigError: as for :meth:`start`.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise ConfigError("a sync call inside the client's own event loop would never end")
        future = self.start(work)
        try:
            with _sigterm.waiting_here():
                return _outcome(future)
        except BaseException:
            if not future.done():
                future.cancel()
                concurrent.futures.wait([future], timeout=1.0)
            raise

    def close(self) -> None:
        """Stop the loop and its thread. Idempotent."""
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

    _origin: tuple[AsyncObservation, Portal] | None = None
    """None in a copy."""

    def __init__(self, inner: AsyncObservation, portal: Portal) -> None:
        super().__init__(inner.answer, inner.data, inner.timing)
        self._take_marks(inner)
        self._origin = (inner, portal)

    def final(self, timeout_s: float = 3.0) -> SyncObservation:
        """Return the frame of this step when the screen has come to rest; see :class:`AsyncObservation`."""
        if self._origin is None:
            raise ValueError("this observation belongs to no episode")
        inner, portal = self._origin
        return SyncObservation(portal.call(inner.final(timeout_s)), portal)


def _outcome(future: concurrent.futures.Future[T]) -> T:
    while True:
        try:
            return future.result(_SIGNAL_S)
        except TimeoutError:  # ours, or what the work itself raised
            if future.done():
                return future.result()


def _calls(
    method: Callable[Concatenate[Any, P], T], convert: Callable[[T, Portal], R]
) -> Callable[Concatenate[Any, P], R]:
    """Return a method with the arguments and the docstring of one of the asynchronous client's.

    Args:
        method: the method of ``self._inner`` to call.
        convert: from what it gives to what a caller without ``await`` can use.
    """

    @functools.wraps(method, assigned=("__name__", "__qualname__", "__doc__"))
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return convert(method(self._inner, *args, **kwargs), self._portal)

    return call


def _waits(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]], convert: Callable[[T, Portal], R]
) -> Callable[Concatenate[Any, P], R]:
    """Return the same for a coroutine function, which is waited for."""
    return _calls(method, lambda work, portal: convert(portal.call(work), portal))


def _same(value: T, portal: Portal) -> T:
    return value


@contextlib.contextmanager
def _within(block: contextlib.AbstractAsyncContextManager[T], portal: Portal) -> Iterator[T]:
    """Enter and leave an asynchronous block from here."""
    inside = portal.call(_enter(block))
    error: BaseException | None = None
    try:
        yield inside
    except BaseException as exc:
        error = exc
        raise
    finally:
        portal.call(_leave(block, error))


async def _enter(block: contextlib.AbstractAsyncContextManager[T]) -> T:
    return await block.__aenter__()


async def _leave(block: contextlib.AbstractAsyncContextManager[Any], error: BaseException | None) -> None:
    await block.__aexit__(None if error is None else type(error), error, None)


class Episode(EpisodeInfo):
    """Made by :meth:`Client.episode`; use it with ``with``. The same as :class:`AsyncEpisode`, waiting."""

    def __init__(self, inner: AsyncEpisode, portal: Portal) -> None:
        super().__init__(inner._record)
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
    def observation(self) -> SyncObservation:
        """The newest observation; the first desktop after start."""
        return SyncObservation(self._inner.observation, self._portal)

    start = _waits(AsyncEpisode.start, _same)
    step = _waits(AsyncEpisode.step, SyncObservation)
    observe = _waits(AsyncEpisode.observe, SyncObservation)
    zoom = _waits(AsyncEpisode.zoom, SyncObservation)
    evaluate = _waits(AsyncEpisode.evaluate, _same)
    detach = _calls(AsyncEpisode.detach, _same)
    fork = _waits(AsyncEpisode.fork, lambda children, portal: [Episode(child, portal) for child in children])
    checkpoint = _waits(AsyncEpisode.checkpoint, lambda made, portal: Checkpoint(made, portal))
    execute = _waits(AsyncEpisode.execute, _same)
    read_file = _waits(AsyncEpisode.read_file, _same)
    write_file = _waits(AsyncEpisode.write_file, _same)
    a11y = _waits(AsyncEpisode.a11y, _same)
    windows = _waits(AsyncEpisode.windows, _same)
    record = _calls(AsyncEpisode.record, _within)
    expose = _waits(AsyncEpisode.expose, lambda made, portal: SyncExposure(made, portal))

    def close(self) -> None:
        """Give the replica back. Idempotent."""
        if self._portal.open:
            self._portal.call(self._inner.close())


class SyncExposure(Exposed):
    """Made by :meth:`Episode.expose`. The same as :class:`Exposure`, waiting."""

    def __init__(self, inner: Exposure, portal: Portal) -> None:
        super().__init__(inner.host, inner.port)
        self._inner = inner
        self._portal = portal

    @property
    def failure(self) -> OSGymError | None:
        """Why the last connection could not be made; None after one that could."""
        return self._inner.failure

    def close(self) -> None:
        """Listen no more, and close what is connected. Idempotent."""
        if self._portal.open:
            self._portal.call(self._inner.aclose())


class Checkpoint(CheckpointHandle):
    """Made by :meth:`Episode.checkpoint`. The same as :class:`AsyncCheckpoint`, waiting."""

    def __init__(self, inner: AsyncCheckpoint, portal: Portal) -> None:
        super().__init__(inner.info, inner.host)
        self._inner = inner
        self._portal = portal

    delete = _waits(AsyncCheckpoint.delete, _same)
    export = _waits(AsyncCheckpoint.export, _same)


def _drain(items: AsyncIterator[T], portal: Portal) -> Iterator[T]:
    """Yield what comes out of an asynchronous iterator, waiting for it here."""
    try:
        while True:
            try:
                yield portal.call(_next(items))
            except StopAsyncIteration:
                return
    finally:
        if portal.open:
            portal.call(_close(items))


class Client:
    """The client for code without ``async``; arguments as for :class:`AsyncClient`.

    Use it with ``with``, or call :meth:`close`; what is left at exit of the process is closed then.
    Several threads may share it; after a fork the child makes its own.
    """

    def __init__(
        self, hosts: str | Sequence[str] | OpenedFleet | None = None, **settings: Unpack[ClientSettings]
    ) -> None:
        self._inner = AsyncClient(hosts, **settings)
        self._under_way: dict[AsyncEpisode, Episode] = {}
        self._portal = portal = Portal()
        self._inner._adapt_policy = lambda policy: _SyncPolicy(policy, portal)
        _OPEN.add(self)
        portal.call(self._inner.__aenter__())

    @classmethod
    def from_fleet(
        cls, source: str | Path, *, poll_s: float | None = None, **settings: Unpack[ClientSettings]
    ) -> Self:
        """See :meth:`AsyncClient.from_fleet`."""
        return cls(open_fleet(source, poll_s, settings), **settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End background work, connections and the thread. Idempotent."""
        _OPEN.discard(self)
        if self._portal.open:
            with contextlib.suppress(ConfigError):
                self._portal.call(self._inner.aclose())
            self._portal.close()
        _sigterm.forget(self._inner)  # here: the client's own thread may not touch signals

    @property
    def hosts(self) -> tuple[str, ...]:
        return self._inner.hosts

    add_host = _waits(AsyncClient.add_host, _same)
    remove_host = _waits(AsyncClient.remove_host, _same)
    host_states = _waits(AsyncClient.host_states, _same)
    ask_host = _waits(AsyncClient.ask_host, _same)
    episode = _calls(AsyncClient.episode, Episode)
    attach = _calls(AsyncClient.attach, Episode)
    restore = _waits(AsyncClient.restore, Episode)
    checkpoints = _waits(
        AsyncClient.checkpoints, lambda found, portal: [Checkpoint(one, portal) for one in found]
    )
    import_checkpoint = _waits(AsyncClient.import_checkpoint, Checkpoint)
    run = _calls(AsyncClient.run, lambda batch, portal: _drain(aiter(batch), portal))
    rollouts = _calls(AsyncClient.rollouts, lambda groups, portal: _drain(aiter(groups), portal))

    def reset_many(self, tasks: Tasks, **options: Unpack[EpisodeArguments]) -> list[Episode]:
        """See :meth:`AsyncClient.reset_many`."""

        async def begin() -> list[AsyncEpisode]:
            return self._inner.reset_many(tasks, **options)

        episodes = [Episode(inner, self._portal) for inner in self._portal.call(begin())]
        self._under_way.update({episode._inner: episode for episode in episodes})
        return episodes

    def step_async(
        self,
        episode: Episode,
        actions: Actions | Decision,
        *,
        settle: Settle | None = None,
        observe: Observe | None = None,
    ) -> None:
        """See :meth:`AsyncClient.step_async`."""

        async def begin() -> None:
            self._inner.step_async(episode._inner, actions, settle=settle, observe=observe)

        self._portal.call(begin())
        self._under_way[episode._inner] = episode

    def ready(self, n: int | None = None) -> Iterator[tuple[Episode, SyncObservation | OSGymError]]:
        """See :meth:`AsyncClient.ready`."""
        for inner, outcome in _drain(self._inner.ready(n), self._portal):
            episode = self._under_way.pop(inner)
            if isinstance(outcome, AsyncObservation):
                yield episode, SyncObservation(outcome, self._portal)
            else:
                yield episode, outcome

    def step_many(
        self,
        steps: Iterable[tuple[Episode, Actions | Decision]],
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
        for episode, outcome in _drain(answers, self._portal):
            if isinstance(outcome, AsyncObservation):
                yield outer[id(episode)], SyncObservation(outcome, self._portal)
            else:
                yield outer[id(episode)], outcome


class _SyncPolicy:
    """Gives the policy observations that can be used without ``await``."""

    def __init__(self, policy: Policy, portal: Portal) -> None:
        self._policy = policy
        self._portal = portal

    def reset(self, task: Any) -> Any:
        reset: Callable[[Any], Any] | None = getattr(self._policy, "reset", None)
        own = None if reset is None else reset(task)
        return self._later(own) if inspect.isawaitable(own) else self._wrapped(own)

    async def _later(self, own: Awaitable[Any]) -> _SyncPolicy | None:
        return self._wrapped(await own)

    def _wrapped(self, own: Any) -> _SyncPolicy | None:
        if own is None:
            return None
        check_policy(own)
        return _SyncPolicy(own, self._portal)

    def act(self, obs: AsyncObservation, task: Any, step: int) -> Any:
        policy = self._policy
        act = policy.act if isinstance(policy, PolicyObject) else policy
        return act(SyncObservation(obs, self._portal), task, step)


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
