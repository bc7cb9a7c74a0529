"""The actor that plays: a batch of the SDK on one host, told of its leases, held up by a full buffer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from osgym_sdk._batch.policy import Policy
from osgym_sdk._client import AsyncClient
from osgym_sdk._episode.episode import AsyncObservation
from osgym_sdk._exceptions import HostUnreachable
from osgym_sdk._models.observation import Observation
from osgym_sdk._models.recorder import EpisodeOutcome
from osgym_sdk._models.trajectory import StepRecord, Trajectory
from osgym_sdk.wire import HostState


class RolloutActor:
    """Plays tasks of a buffer until there are none.

    Args:
        name: its own, for the buffer.
        host: URL of the host agent that it plays on.
        replicas: episodes at a time.
        buffer: handle of the :class:`RolloutBuffer`.
        make_policy: called once, here.
        client: arguments of :class:`AsyncClient`.
        options: arguments of :meth:`AsyncClient.run`.
    """

    def __init__(
        self,
        name: str,
        host: str,
        replicas: int,
        buffer: Any,
        make_policy: Callable[[], Policy],
        client: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        self._name = name
        self._host = host
        self._replicas = replicas
        self._buffer = buffer
        self._make_policy = make_policy
        self._client = client
        self._options = options
        self._numbers: dict[int, int] = {}
        self._running: asyncio.Task[Any] | None = None

    async def run(self) -> int:
        """Play; give how many results were put into the buffer.

        Raises:
            HostUnreachable: the host does not answer; its tasks are for others.
        """
        self._running = asyncio.current_task()
        count = 0
        async with AsyncClient(self._host, handle_sigterm=False, **self._client) as client:
            results = client.run(
                self._tasks(),
                self._make_policy(),
                concurrency=self._replicas,
                record=_Leases(self._buffer, self._name),
                **self._options,
            )
            async for result in results:
                failure = result.failure
                if failure is not None and failure.code == HostUnreachable.default_code:
                    raise HostUnreachable(failure.message, host=self._host)
                number = self._numbers.pop(result.index)
                count += await self._buffer.put.remote(self._name, number, result)
        return count

    async def stop(self) -> None:
        """End at once and give all replicas back."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.wait((running,))

    async def _tasks(self) -> AsyncIterator[Any]:
        index = 0
        while (given := await self._buffer.next.remote(self._name)) is not None:
            self._numbers[index], task = given
            index += 1
            yield task


class _Leases:
    """Tells the buffer which leases are held, so that somebody can give them back when we are killed."""

    def __init__(self, buffer: Any, name: str) -> None:
        self._buffer = buffer
        self._name = name

    def record(self, task: Mapping[str, Any] | None) -> _Lease:
        """See :class:`osgym_sdk.Recorder`."""
        return _Lease(self._buffer, self._name)

    async def flush(self) -> None:
        """Do nothing: this recorder has no queue."""


class _Lease:
    def __init__(self, buffer: Any, name: str) -> None:
        self._buffer = buffer
        self._name = name

    async def room(self) -> None:
        """There always is."""

    def begin(self, trajectory: Trajectory, obs: Observation, host: HostState | None) -> None:
        if isinstance(obs, AsyncObservation) and obs.episode is not None:
            self._buffer.opened.remote(self._name, obs.episode.ticket)

    def step(self, record: StepRecord, obs: Observation) -> None:
        """Nothing changes."""

    def end(self, trajectory: Trajectory, outcome: EpisodeOutcome) -> None:
        self._buffer.closed.remote(self._name, trajectory.episode_id)
