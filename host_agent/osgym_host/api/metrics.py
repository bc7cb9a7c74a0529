"""`GET /metrics`: gauges that are read at each scrape, beside the counters of episodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from osgym_host.core.plan import Blocked
from osgym_host.core.reasons import Reason
from osgym_host.core.rest import RestStage
from osgym_host.core.states import ReplicaState
from osgym_host.episodes.host_status import HostStatus
from osgym_protocol.host_api import HostState


class HostCollector(Collector):
    """Reads the pool's state at each scrape."""

    def __init__(self, host: HostStatus) -> None:
        self._host = host

    def collect(self) -> Iterator[Metric]:
        rows = self._host.replicas()
        states = Counter(row["state"] for row in rows)
        replicas = GaugeMetricFamily("osgym_replicas", "Replicas by state.", labels=["state"])
        for state in ReplicaState:
            if state is not ReplicaState.GONE:
                replicas.add_metric([state.value], states[state.value])
        yield replicas
        stages = self._host.rest_stages()
        resting = GaugeMetricFamily("osgym_replicas_resting", "Replicas by rest.", labels=["stage"])
        for stage in RestStage:
            resting.add_metric([stage.value], stages[stage])
        yield resting
        wakes = CounterMetricFamily("osgym_wakes", "Calls that woke a replica.", labels=["stage"])
        for stage in (RestStage.PAUSED, RestStage.RECLAIMED):
            wakes.add_metric([stage.value], self._host.wakes()[stage])
        yield wakes
        memory = GaugeMetricFamily("osgym_replicas_pss_mib", "Measured memory of all replicas.")
        memory.add_metric([], sum(row["pss_mib"] or 0 for row in rows))
        yield memory
        host = self._host.state()
        for name, text, value in (
            ("osgym_waiting_clients", "Clients that wait for a replica.", host.capacity.waiting),
            ("osgym_max_replicas", "Replicas that could exist now.", host.capacity.max_replicas),
            ("osgym_draining", "Whether no new episodes are taken.", float(host.draining)),
            ("osgym_ram_available_mib", "Available memory of the host.", host.load.ram_available_mib),
            ("osgym_ram_total_mib", "Memory of the host.", host.load.ram_total_mib),
            ("osgym_disk_free_mib", "Free space where replicas write.", host.load.disk_free_mib or 0.0),
            ("osgym_notices_failing", "Notices cannot be watched for.", float(host.notices == "failing")),
        ):
            gauge = GaugeMetricFamily(name, text)
            gauge.add_metric([], value)
            yield gauge
        yield from _of_images(host)
        yield from self._why(host)
        pressure = GaugeMetricFamily(
            "osgym_lease_pressure_percent",
            "Leases held and waited for per replica that may exist; absent while the host drains.",
        )
        if (percent := self._host.lease_pressure_percent()) is not None:
            pressure.add_metric([], percent)
        yield pressure
        retired = CounterMetricFamily("osgym_replicas_retired", "Replicas retired.", labels=["reason"])
        counts = self._host.retired()
        for reason in Reason:  # also those that are still 0: a series that begins with 1 has no increase
            retired.add_metric([reason.value], counts.get(reason.value, 0))
        yield retired

    def _why(self, host: HostState) -> Iterator[Metric]:
        """Yield one series for each cause that keeps the host from giving out replicas."""
        blocked = GaugeMetricFamily("osgym_pool_blocked", "What keeps the pool from growing.", labels=["by"])
        for cause in Blocked:
            if cause is not Blocked.NOTHING:
                blocked.add_metric([cause.value], float(cause is self._host.blocked))
        yield blocked
        notice = GaugeMetricFamily("osgym_notice", "The host will be taken away.", labels=["kind"])
        if host.notice is not None:
            notice.add_metric([host.notice.kind], 1.0)
        yield notice


def _of_images(host: HostState) -> Iterator[Metric]:
    """Yield replicas and waiting clients by golden image."""
    labels = ["image", "digest"]
    replicas = GaugeMetricFamily(
        "osgym_image_replicas", "Replicas by golden image and state.", labels=[*labels, "state"]
    )
    waiting = GaugeMetricFamily(
        "osgym_image_waiting_clients", "Clients by the image they ask for.", labels=labels
    )
    warm = GaugeMetricFamily("osgym_image_warm_target", "Ready replicas that are aimed at.", labels=labels)
    for image in host.images:
        named = [image.flavor, image.digest[:16]]
        for state, count in (("starting", image.starting), ("ready", image.ready), ("leased", image.leased)):
            replicas.add_metric([*named, state], count)
        waiting.add_metric(named, image.waiting)
        warm.add_metric(named, image.warm)
    yield replicas
    yield waiting
    yield warm


def make_router(registry: CollectorRegistry) -> APIRouter:
    router = APIRouter(tags=["host"])

    @router.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """All metrics in Prometheus' text format."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return router
