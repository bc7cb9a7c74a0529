"""A trainer's desktop, for threads and for event loops of others: one client for each process and its hosts.

Frameworks make environments by the dozen, in threads, in loops of their own and after forks. All of a process
share a client, whose loop runs in a thread of its own and which is closed at exit.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from osgym_sdk._environment import EnvironmentOptions
from osgym_sdk._episode.episode import AsyncEpisode
from osgym_sdk._inputs.actions import Actions
from osgym_sdk._models.evaluation import Failure
from osgym_sdk._models.observation import Observation
from osgym_sdk._sync.client import Client
from osgym_sdk.integrations._rollouts import Rollout, shown

T = TypeVar("T")
Hosts = str | Sequence[str] | None

_CLIENTS: dict[tuple[int, str | tuple[str, ...] | None], Client] = {}
_LOCK = threading.Lock()


def shared_client(hosts: Hosts = None) -> Client:
    """Return the client of this process for some hosts; as :class:`Client` reads them.

    Raises:
        ConfigError: one of them is no host.
    """
    key = (os.getpid(), hosts if hosts is None or isinstance(hosts, str) else tuple(hosts))
    with _LOCK:
        client = _CLIENTS.get(key)
        if client is None or not client._portal.open:
            client = _CLIENTS[key] = Client(hosts)
        return client


class Desktop:
    """A :class:`Rollout` for threads (``act``) and for any event loop (``await act_async``)."""

    def __init__(self, hosts: Hosts = None, client: Client | None = None, **options: Any) -> None:
        """Lease nothing yet.

        Args:
            hosts: as for :class:`Client`; unless there is a
            client: that is not closed with the desktop.
            options: ``retries``, ``on_invalid``, and those of :class:`osgym_sdk.EpisodeArguments`.

        Raises:
            ConfigError: an argument is wrong.
        """
        checked = EnvironmentOptions.read(options)
        self._client = client or shared_client(hosts)
        self.rollout = Rollout(self._client._inner, checked)
        """The rollout; its coroutines run in the client's loop by :meth:`call` and :meth:`wait`."""

    @property
    def observation(self) -> Observation | None:
        """The newest; None before the first desktop."""
        return self.rollout.observation

    @property
    def reward(self) -> float | None:
        """The score; None until the end, and where there is none."""
        return self.rollout.reward

    @property
    def failure(self) -> Failure | None:
        """Reason why an ended rollout has no reward."""
        return self.rollout.failure

    @property
    def ended(self) -> bool:
        """True: it takes no more actions."""
        return self.rollout.ended

    @property
    def steps(self) -> int:
        """Number of actions so far."""
        return self.rollout.steps

    @property
    def episode(self) -> AsyncEpisode:
        """The open episode; its coroutines are run by :meth:`wait` and :meth:`call`.

        Raises:
            EpisodeEnded: there is none.
        """
        return self.rollout.episode

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the client's loop, and wait for it in this thread."""
        return self._client._portal.call(work)

    async def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the client's loop, and wait for it in this one; cancelling cancels it there."""
        return await asyncio.wrap_future(self._client._portal.start(work))

    def begin_soon(self, task: Any) -> concurrent.futures.Future[None]:
        """Begin without waiting; what is returned is done when the desktop is there."""
        return self._client._portal.start(self.rollout.begin(task))

    def begin(self, task: Any) -> None:
        self.call(self.rollout.begin(task))

    def act(self, actions: Actions) -> str:
        return self.call(self.rollout.act(actions))

    def elements(self, max_lines: int = 200) -> str:
        return self.call(self.rollout.elements(max_lines))

    def finish(self) -> float | None:
        """Score it where nobody has, and return the reward; None where there is none."""
        self.call(self.rollout.finish())
        return self.reward

    def close(self) -> None:
        """Give the desktop back. Idempotent."""
        if self._client._portal.open:
            self.call(self.rollout.aclose())

    async def shown_async(self, sees: str, words: str = "") -> list[dict[str, Any]]:
        return await self.wait(shown(self.rollout, sees, words))

    def shown(self, sees: str, words: str = "") -> list[dict[str, Any]]:
        return self.call(shown(self.rollout, sees, words))

    async def begin_async(self, task: Any) -> None:
        await self.wait(self.rollout.begin(task))

    async def act_async(self, actions: Actions) -> str:
        return await self.wait(self.rollout.act(actions))

    async def finish_async(self, feasible: bool = True) -> float | None:
        await self.wait(self.rollout.finish(feasible))
        return self.reward

    async def aclose(self) -> None:
        """Give the desktop back, also where the caller is cancelled meanwhile. Idempotent."""
        if self._client._portal.open:
            await asyncio.shield(asyncio.wrap_future(self._client._portal.start(self.rollout.aclose())))
