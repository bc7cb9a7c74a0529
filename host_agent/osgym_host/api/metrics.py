"""`GET /metrics`: gauges that are read when they are asked for, beside the counters of episodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from osgym_host.core.reasons import Reason
from osgym_host.core.states import ReplicaState
from osgym_host.episodes.host_status import HostStatus


class HostCollector(Collector):
    """Reads the pool's state at each scrape."""

    def __init__(self, host: HostStatus) -> None:
        """Keep what it reads from."""
        self._host = host

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges."""
        rows = self._host.replicas()
        states = Counter(row["state"] for row in rows)
        replicas = GaugeMetricFamily("osgym_replicas", "Replicas by state.", labels=["state"])
        for state in ReplicaState:
            if state is not ReplicaState.GONE:
                replicas.add_metric([state.value], states[state.value])
        yield replicas
        memory = GaugeMetricFamily("osgym_replicas_pss_mib", "Measured memory of all replicas.")
        memory.add_metric([], sum(row["pss_mib"] or 0 for row in rows))
        yield memory
        host = self._host.state()
        for name, text, value in (
            ("osgym_waiting_clients", "Clients that wait for a replica.", host.capacity.waiting),
            ("osgym_max_replicas", "Replicas that could exist now.", host.capacity.max_replicas),
            ("osgym_draining", "Whether no new episodes are taken.", float(host.draining)),
            ("osgym_ram_available_mib", "Available memory of the host.", host.load.ram_available_mib),
        ):
            gauge = GaugeMetricFamily(name, text)
            gauge.add_metric([], value)
            yield gauge
        retired = CounterMetricFamily("osgym_replicas_retired", "Replicas retired.", labels=["reason"])
        for reason, count in self._host.retired().items():
            retired.add_metric([Reason(reason).value], count)
        yield retired


def make_router(registry: CollectorRegistry) -> APIRouter:
    """Return the route."""
    router = APIRouter(tags=["host"])

    @router.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """All metrics in Prometheus' text format."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return router
