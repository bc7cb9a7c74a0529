"""The client for code without ``async``: scripts, threads, and where a loop runs already (Jupyter)."""

from __future__ import annotations

import atexit
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, Unpack

from osgym_sdk import _sigterm
from osgym_sdk._batch.policy import Policy, PolicyObject, check_policy
from osgym_sdk._client import AsyncClient
from osgym_sdk._config import ClientSettings
from osgym_sdk._episode.episode import AsyncEpisode, AsyncObservation
from osgym_sdk._episode.plan import EpisodeArguments
from osgym_sdk._exceptions import ConfigError, OSGymError
from osgym_sdk._fleet.discovery.open import FleetSource
from osgym_sdk._inputs.actions import Actions
from osgym_sdk._inputs.decision import Decision
from osgym_sdk._inputs.options import Observe, Settle
from osgym_sdk._inputs.tasks import Tasks
from osgym_sdk._sync.episode import Checkpoint, Episode, SyncObservation
from osgym_sdk._sync.portal import Portal, calls, in_loop, same, waits

Outcome = SyncObservation | OSGymError


class Client:
    """The client for code without ``async``; arguments as for :class:`AsyncClient`.

    Use it with ``with``, or call :meth:`close`; what is left at exit of the process is closed then.
    Several threads may share it; after a fork the child makes its own. Pickled, it becomes a client with the
    same arguments (its token among them) in the process that reads it.
    """

    def __init__(
        self, hosts: str | Sequence[str] | FleetSource | None = None, **settings: Unpack[ClientSettings]
    ) -> None:
        self._inner = AsyncClient(hosts, **settings)
        self._outer: dict[AsyncEpisode, Episode] = {}
        """Episodes with a start or step under way."""
        self._portal = portal = Portal()
        self._inner._adapt_policy = lambda policy: _SyncPolicy(policy, portal)
        _OPEN.add(self)
        portal.call(self._inner.__aenter__())

    def __reduce__(self) -> tuple[Any, ...]:
        return self._inner._reduced(type(self))

    @classmethod
    def from_fleet(
        cls, source: str | Path, *, poll_s: float | None = None, **settings: Unpack[ClientSettings]
    ) -> Self:
        """See :meth:`AsyncClient.from_fleet`."""
        return cls(FleetSource(source, poll_s), **settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
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

    add_host = waits(AsyncClient.add_host, same)
    remove_host = waits(AsyncClient.remove_host, same)
    host_states = waits(AsyncClient.host_states, same)
    ask_host = waits(AsyncClient.ask_host, same)
    episode = calls(AsyncClient.episode, Episode)
    attach = calls(AsyncClient.attach, Episode)
    restore = waits(AsyncClient.restore, Episode)
    resume = waits(AsyncClient.resume, Episode)
    checkpoints = waits(
        AsyncClient.checkpoints, lambda found, portal: [Checkpoint(one, portal) for one in found]
    )
    import_checkpoint = waits(AsyncClient.import_checkpoint, Checkpoint)
    run = calls(AsyncClient.run, lambda batch, portal: portal.drain(aiter(batch)))
    rollouts = calls(AsyncClient.rollouts, lambda groups, portal: portal.drain(aiter(groups)))
    _reset_many = in_loop(
        AsyncClient.reset_many, lambda begun, portal: [Episode(inner, portal) for inner in begun]
    )
    _step_async = in_loop(AsyncClient.step_async, same)

    def reset_many(self, tasks: Tasks, **options: Unpack[EpisodeArguments]) -> list[Episode]:
        """See :meth:`AsyncClient.reset_many`."""
        episodes = self._reset_many(tasks, **options)
        self._outer |= {episode._inner: episode for episode in episodes}
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
        self._step_async(episode._inner, actions, settle=settle, observe=observe)
        self._outer[episode._inner] = episode

    def ready(self, n: int | None = None) -> Iterator[tuple[Episode, Outcome]]:
        """See :meth:`AsyncClient.ready`."""
        for inner, outcome in self._portal.drain(self._inner.ready(n)):
            yield self._outer.pop(inner), self._converted(outcome)

    def step_many(
        self,
        steps: Iterable[tuple[Episode, Actions | Decision]],
        *,
        settle: Settle | None = None,
        observe: Observe | None = None,
        timeout_s: float | None = None,
    ) -> Iterator[tuple[Episode, Outcome]]:
        """See :meth:`AsyncClient.step_many`."""
        listed = list(steps)
        outer = {episode._inner: episode for episode, _ in listed}
        inner = [(episode._inner, actions) for episode, actions in listed]
        answers = self._inner.step_many(inner, settle=settle, observe=observe, timeout_s=timeout_s)
        for one, outcome in self._portal.drain(answers):
            yield outer[one], self._converted(outcome)

    def _converted(self, outcome: AsyncObservation | OSGymError) -> Outcome:
        return outcome if isinstance(outcome, OSGymError) else SyncObservation(outcome, self._portal)


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


_OPEN: set[Client] = set()


@atexit.register
def _close_all() -> None:
    for client in list(_OPEN):
        client.close()
