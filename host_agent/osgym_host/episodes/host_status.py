"""State of this host for `GET /v1/host`, `/v1/replicas` and the metrics."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osgym_host.core.disk_pressure import DiskRoom
from osgym_host.core.plan import Blocked, lease_pressure_percent
from osgym_host.core.rest import RestStage
from osgym_host.episodes.draining import DrainController
from osgym_host.episodes.episode import HostEpisode
from osgym_host.episodes.service import EpisodeService
from osgym_host.replicas.pool import Pool
from osgym_protocol.host_api import HostCapacity, HostImage, HostLoad, HostState, ServedImage
from osgym_protocol.reach import ReachKind

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """Attributes of a host that do not change while the service runs."""

    host_id: str
    version: str
    runtime: str
    images: tuple[HostImage, ...]
    screen: tuple[int, int]


class HostStatus:
    """Reads the state of the host and changes nothing."""

    def __init__(
        self,
        identity: HostIdentity,
        pool: Pool,
        episodes: EpisodeService,
        drain: DrainController,
        watched: Callable[[], str],
    ) -> None:
        self.identity = identity
        self.stopping = False
        self._drain = drain
        self._watched = watched
        self._offered: frozenset[ReachKind] | None = None
        self._pool = pool
        self._episodes = episodes

    @property
    def draining(self) -> bool:
        """True if the host takes no new episodes: it stops or drains."""
        return self.stopping or self._drain.notice is not None

    @property
    def full(self) -> bool:
        """True if a client waits and gets nothing before a leased replica ends."""
        return self._pool.full

    def health(self) -> dict[str, Any]:
        """Return the answer of `GET /v1/health`, which needs no token."""
        return {
            "status": "ok",
            "version": self.identity.version,
            "draining": self.draining,
            "notices": self._watched(),
        }

    def state(self) -> HostState:
        view, stages = self._pool.view(), self._pool.rest_stages()
        total_mib, available_mib = memory_mib()
        me = self.identity
        return HostState(
            host_id=me.host_id,
            version=me.version,
            runtime=me.runtime,
            image=me.images[0],
            screen=me.screen,
            capacity=HostCapacity(
                max_replicas=self._pool.capacity,
                ready=view.ready,
                leased=view.leased,
                starting=view.starting,
                waiting=view.waiting,
                paused=stages[RestStage.PAUSED],
                reclaimed=stages[RestStage.RECLAIMED],
            ),
            load=HostLoad(
                cpu_count=os.cpu_count() or 1,
                load1=os.getloadavg()[0],
                ram_total_mib=round(total_mib, 1),
                ram_available_mib=round(available_mib, 1),
                disk_free_mib=round(self._pool.admission.disk_room().free_mib, 1),
            ),
            draining=self.draining,
            branching=self._pool.replicas.runtime.capabilities().branching,
            reach=tuple(kind.value for kind in ReachKind if kind in self.offered()),
            notice=self._drain.notice,
            notices=self._watched(),
            images=tuple(self._served()),
        )

    def _served(self) -> Iterator[ServedImage]:
        views = self._pool.views()
        for image in self.identity.images:
            view = views[image.digest]
            yield ServedImage(
                image.digest,
                image.flavor,
                view.ready,
                view.leased,
                view.starting,
                view.waiting,
                self._pool.targets.get(image.digest, 0),
            )

    def offered(self) -> frozenset[ReachKind]:
        """Return the ways to reach into the desktops of this host."""
        if self._offered is None:
            self._offered = self._pool.replicas.runtime.capabilities().reach
        return self._offered

    @property
    def blocked(self) -> Blocked:
        """Cause that keeps the pool from growing."""
        return self._pool.blocked

    def lease_pressure_percent(self) -> float | None:
        """Return the demand for this host's replicas; None if it says nothing about the fleet."""
        view = self._pool.view()
        return lease_pressure_percent(
            leased=view.leased,
            waiting=view.waiting,
            admitted=self._pool.capacity,
            draining=self.draining,
        )

    def pool(self) -> dict[str, Any]:
        """Return the state of the pool and the cause that keeps it from growing."""
        view = self._pool.view()
        return {
            "ready": view.ready,
            "starting": view.starting,
            "leased": view.leased,
            "retiring": view.retiring,
            "waiting": view.waiting,
            "warm_target": self._pool.spec.warm,
            "blocked": self._pool.blocked.value,
            "last_failure": self._pool.last_failure,
            "replica_ram_mib": round(self._pool.admission.now.replica_ram_mib, 1),
            "admission": self._admission(),
        }

    def _admission(self) -> dict[str, Any]:
        """Return what the last measurement of RAM, CPU and disk admits, with its numbers."""
        now, budget = self._pool.admission.now, self._pool.admission.budget
        existing = len(self._pool.replicas)
        return {
            "room": max(0, min(now.room, budget.max_replicas - existing)),
            "limit": now.limit.value,
            "existing": existing,
            "cores": len(os.sched_getaffinity(0)),
            "max_replicas": budget.max_replicas,
            "ram_reserve_mib": budget.ram_reserve_mib,
            "cpu_per_replica": budget.cpu_per_replica,
            "disk_reserve_mib": budget.disk_reserve_mib,
            "disk_per_replica_mib": budget.disk_per_replica_mib,
        }

    def replicas(self) -> list[dict[str, Any]]:
        """Return one object for each replica that is not gone."""
        held = {episode.replica.replica_id: episode for episode in self._episodes.active()}
        flavors = {image.digest: image.flavor for image in self.identity.images}
        now = time.monotonic()
        rows = []
        for manager in self._pool.replicas.managers():
            episode = held.get(manager.replica_id)
            rows.append(
                {
                    "replica_id": manager.replica_id,
                    "generation": manager.generation,
                    "state": manager.state.value,
                    "image": flavors.get(manager.spec.image.digest),
                    "reason": manager.reason.value if manager.reason is not None else None,
                    "episode_id": episode.episode_id if episode is not None else None,
                    "task_id": episode.task_id if episode is not None else None,
                    "step": episode.steps.progress.step if episode is not None else None,
                    "reward": _reward(episode),
                    "idle_s": round(episode.lease.idle_s(), 1) if episode is not None else None,
                    "age_s": round(now - manager.created_at, 1),
                    "pss_mib": _round(manager.pss_mib),
                    "cpu_s": _round(manager.cpu_s),
                    "overlay_mib": _round(manager.overlay_mib),
                    "rest": None if manager.rest is None else manager.rest.stage.value,
                    "resting_mib": None if manager.rest is None else _round(manager.rest.resting_mib),
                    "pid": manager.clone.pid if manager.clone is not None else None,
                }
            )
        return rows

    def episodes(self, limit: int) -> Iterator[dict[str, Any]]:
        """Yield one object for each of the latest episodes, active ones first, each with the newest first."""
        return (_episode_row(episode) for episode in self._episodes.latest(limit))

    async def events(self, after: int, wait_s: float, replica_id: str | None = None) -> dict[str, Any]:
        """Return the events newer than `after`, of one replica or all; wait up to `wait_s` for the first."""
        found = await self._episodes.events.after(after, wait_s, replica_id=replica_id)
        return {"events": found, "last_id": self._episodes.events.last_id}

    def wakes(self) -> Counter[RestStage]:
        """Return the numbers of wakes by the stage before; empty where replicas never rest."""
        rest = self._pool.rest
        return Counter() if rest is None else rest.wakes

    def rest_stages(self) -> Counter[RestStage]:
        """Return the numbers of replicas by their stage of rest; empty where replicas never rest."""
        return self._pool.rest_stages()

    def retired(self) -> dict[str, int]:
        """Return the numbers of retired replicas by reason."""
        return {reason.value: count for reason, count in self._pool.retired.items()}


def _episode_row(episode: HostEpisode) -> dict[str, Any]:
    state, score = episode.state().to_dict(), episode.evaluation
    return {
        "reward": None if score is None else score.reward,
        "evaluation_error": None if score is None or score.error is None else score.error.to_dict(),
        "began_at": round(episode.began_at, 3),
        "ended_at": None if episode.ended_at is None else round(episode.ended_at, 3),
        "run": episode.terms.run,
        **state,
    }


def _reward(episode: HostEpisode | None) -> float | None:
    return None if episode is None or episode.evaluation is None else episode.evaluation.reward


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def memory_mib() -> tuple[float, float]:
    """Return total and available memory of the host in MiB.

    Raises:
        OSError: The kernel does not say.
    """
    found: dict[str, float] = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            found[name] = float(value.split()[0]) / 1024
    return found["MemTotal"], found["MemAvailable"]


def load_probe(data_dir: Path) -> tuple[float, int, DiskRoom]:
    """Return available RAM in MiB, cores this process may use, free disk."""
    return memory_mib()[1], len(os.sched_getaffinity(0)), DiskRoom.of(os.statvfs(data_dir))
