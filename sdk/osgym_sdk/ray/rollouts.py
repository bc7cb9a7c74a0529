"""Rollouts of a whole fleet, as they finish: actors are begun, watched, replaced, and stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import ray

from osgym_sdk._batch.policy import Policy
from osgym_sdk._client import AsyncClient
from osgym_sdk._exceptions import ConfigError, HostUnreachable, OSGymError
from osgym_sdk._fleet.scheduler import Ticket
from osgym_sdk._inputs.tasks import Tasks, as_tasks
from osgym_sdk._models.results import Result
from osgym_sdk._sync.client import Client
from osgym_sdk.ray.actor import RolloutActor
from osgym_sdk.ray.buffer import RolloutBuffer
from osgym_sdk.ray.plan import ActorPlan, missing_resources, resource_of, spread
from osgym_sdk.wire import HostState

_LOG = logging.getLogger("osgym.sdk")

MAX_DEATHS = 3
"""An actor that dies so often in a row without a result is not replaced any more."""
_STOP_S = 20.0
_GIVE_BACK_S = 10.0


class Rollouts:
    """Iterate over it for a :class:`Result` of each task, as they finish; close it at the end.

    Actors are spread over the hosts: each host is a custom resource of Ray (``osgym:desk1:20000``) with as
    many units as it holds replicas, and an actor takes as many as it plays with. Results wait in a buffer;
    while that is full, actors begin no episodes. An actor that dies is replaced, its tasks are played again,
    and the leases that it held are given back.

    Args:
        tasks: as for :meth:`AsyncClient.run`, but no generators without an end: see ``repeat``.
        make_policy: makes the policy, once in each actor.
        hosts: as for :class:`Client`.
        replicas: episodes at a time in all; as many as the hosts hold by default.
        replicas_per_actor: of these, how many one actor has.
        capacity: results that may wait in the buffer.
        replay: how many of the newest results :meth:`sample` knows.
        repeat: whether the tasks begin anew after the last.
        address: of a Ray cluster; by default the one that this process is connected to, or ``RAY_ADDRESS``,
            else Ray is begun here, and ended by ``close``.
        resources: whether actors take the custom resources; a cluster has to have them.
        actor_options: more of Ray's options for the actors (``num_cpus``, 0 by default, ``num_gpus``, ...).
        client: arguments of :class:`AsyncClient` (``token``, ``verify``, ...).
        run_options: arguments of :meth:`AsyncClient.run` (``max_steps``, ``observe``, ``keep_frames``, ...).

    Raises:
        ConfigError: an argument is wrong, or the cluster lacks a resource; the message says which.
        HostUnreachable: no host says what it holds.
    """

    def __init__(
        self,
        tasks: Tasks,
        make_policy: Callable[[], Policy],
        *,
        hosts: str | Sequence[str] | None = None,
        replicas: int | None = None,
        replicas_per_actor: int = 8,
        capacity: int = 64,
        replay: int = 1000,
        repeat: bool = False,
        address: str | None = None,
        resources: bool = True,
        actor_options: Mapping[str, Any] | None = None,
        client: Mapping[str, Any] | None = None,
        **run_options: Any,
    ) -> None:
        listed = as_tasks(tasks)
        if not isinstance(listed, Iterable):
            raise ConfigError("tasks must be a list; pass repeat=True to repeat it without end")
        if capacity < 1 or replay < 0:
            raise ConfigError("capacity must be 1 or more, replay 0 or more")
        self._client = dict(client or {})
        self._make = (make_policy, run_options, dict(actor_options or {}), resources)
        room = _room(hosts, self._client)
        self._plans = spread(room, replicas_per_actor, replicas)
        self._begun = _connect(address, {resource_of(host): float(count) for host, count in room.items()})
        self._closed = False
        self._actors: dict[Any, tuple[str, Any, int]] = {}
        """Name, handle and index of the plan of each actor, by the reference of its return value."""
        self._deaths = [0] * len(self._plans)
        self.replaced = 0
        """Actors that died and were replaced."""
        try:
            lacking = missing_resources(self._plans, room, _resources()) if resources else ""
            if lacking:
                raise ConfigError(lacking)
            made = ray.remote(RolloutBuffer).options(num_cpus=0)
            self.buffer: Any = made.remote(list(listed), repeat, capacity, replay)
            for index in range(len(self._plans)):
                self._start(index)
        except BaseException:
            self.close()
            raise

    @property
    def plans(self) -> tuple[ActorPlan, ...]:
        """The actors."""
        return tuple(self._plans)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Result]:
        """Yield results as they finish.

        Raises:
            HostUnreachable: no actor is left; each died several times without a result in between.
            Exception: an actor's own fault: it could not make its policy, an option of the run is wrong.
        """
        taking = self.buffer.take.remote()
        while True:
            ready, _ = ray.wait([taking, *self._actors], num_returns=1)
            if ready[0] != taking:
                self._ended(ready[0])
                continue
            result = ray.get(taking)
            if result is None:
                return
            yield result
            taking = self.buffer.take.remote()

    def sample(self, count: int) -> list[Result]:
        """Return results of those that were yielded, at random and different."""
        found: list[Result] = ray.get(self.buffer.sample.remote(count))
        return found

    def stats(self) -> dict[str, int]:
        """Return how many results wait, waited at most, are played, and are in the replay."""
        found: dict[str, int] = ray.get(self.buffer.stats.remote())
        return found

    def close(self) -> None:
        """Stop the actors, give their replicas back, and end Ray if it was begun here. Idempotent."""
        if self._closed:
            return
        self._closed = True
        actors = list(self._actors.values())
        self._actors.clear()
        if actors:
            stops = [handle.stop.remote() for _, handle, _ in actors]
            ray.wait(stops, num_returns=len(stops), timeout=_STOP_S)
        for name, handle, _ in actors:
            ray.kill(handle)
            self._give_back(name)
        if hasattr(self, "buffer"):
            ray.kill(self.buffer)
        if self._begun:
            ray.shutdown()

    def _start(self, index: int) -> None:
        plan = self._plans[index]
        make_policy, run_options, actor_options, resources = self._make
        name = f"rollout-{uuid.uuid4().hex[:8]}"
        options: dict[str, Any] = {"num_cpus": 0, **actor_options}
        if resources:
            options["resources"] = {**options.get("resources", {}), resource_of(plan.host): plan.replicas}
        made = ray.remote(RolloutActor).options(**options)
        handle: Any = made.remote(
            name, plan.host, plan.replicas, self.buffer, make_policy, self._client, run_options
        )
        self._actors[handle.run.remote()] = (name, handle, index)

    def _ended(self, reference: Any) -> None:
        """Handle the end of an actor; replace it when it died."""
        name, handle, index = self._actors.pop(reference)
        try:
            ray.get(reference)
        except (ray.exceptions.RayActorError, HostUnreachable) as exc:
            ray.kill(handle)
            results = self._give_back(name)
            deaths = self._deaths[index] = 1 if results else self._deaths[index] + 1
            host = self._plans[index].host
            if deaths < MAX_DEATHS:
                _LOG.warning("actor %s on %s died and is replaced: %s", name, host, exc)
                self.replaced += 1
                self._start(index)
                return
            _LOG.warning("actors on %s die without a result and are no longer replaced: %s", host, exc)
            if not self._actors:
                raise HostUnreachable(f"every actor died: {exc}") from exc
        else:
            ray.kill(handle)

    def _give_back(self, name: str) -> int:
        """Give the leases of an actor back that is no more; return how many results it had put."""
        tickets, results = ray.get(self.buffer.died.remote(name), timeout=_GIVE_BACK_S)
        if tickets:
            asyncio.run(_close(tickets, self._client))
        return int(results)


async def _close(tickets: Sequence[Ticket], client: Mapping[str, Any]) -> None:
    """Give leases back that an actor held; one that cannot be runs out by itself."""
    hosts = sorted({ticket.host for ticket in tickets})
    async with AsyncClient(hosts, handle_sigterm=False, **client) as opened:

        async def close(ticket: Ticket) -> None:
            try:
                async with asyncio.timeout(_GIVE_BACK_S):
                    async with opened.attach(ticket):
                        pass
            except (OSGymError, TimeoutError) as exc:
                _LOG.info("the lease of episode %s could not be released: %s", ticket.episode_id, exc)

        await asyncio.gather(*(close(ticket) for ticket in tickets))


def _room(hosts: str | Sequence[str] | None, client: Mapping[str, Any]) -> dict[str, int]:
    """Return how many replicas each host holds. Raises HostUnreachable if none answers."""
    with Client(hosts, **client) as opened:
        states = opened.host_states()
    room = {url: one.capacity.max_replicas for url, one in states.items() if isinstance(one, HostState)}
    if not room:
        raise next(
            (one for one in states.values() if isinstance(one, OSGymError)),
            HostUnreachable("none of the hosts accepts new episodes"),
        )
    return room


def _resources() -> dict[str, float]:
    found: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call] # theirs
    return found


def _connect(address: str | None, resources: Mapping[str, float]) -> bool:
    """Connect to a cluster, or begin Ray here with these resources; return whether we did either."""
    if ray.is_initialized():
        return False
    if address or os.environ.get("RAY_ADDRESS"):
        ray.init(address=address, log_to_driver=False)
    else:
        ray.init(resources=dict(resources), include_dashboard=False, log_to_driver=False)
    return True
