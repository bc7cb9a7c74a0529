"""The figure's data: through the paper's points, and what the model says of a plan."""

from __future__ import annotations

import pytest
from tests.support.fleet_configs import shipped_catalogue

from osgym_infra.catalogue.shapes import HostShape, Kvm
from osgym_infra.cost.curve import (
    PAPER,
    CostCurve,
    CurvePoint,
    needed_cores,
    of_candidate,
    of_paper,
    sized_by,
)
from osgym_infra.cost.model import QEMU, ReplicaNeeds, Resource, cpu_capacity, fit
from osgym_infra.cost.planner import Candidate, PlanRequest, plan_fleet
from osgym_infra.workloads import profile as profiles


def at(curve: CostCurve, replicas: int) -> CurvePoint:
    """The point of a K."""
    return next(point for point in curve.points if point.replicas == replicas)


def candidate(request: PlanRequest) -> Candidate:
    """The best of the shipped catalogue for a request."""
    return plan_fleet(request, shipped_catalogue()).candidates[0]


def test_the_papers_curve_goes_through_what_the_paper_says() -> None:
    """2.10 USD alone, 0.23 with 128 on a server of 29.44; 128 alone are nearly 300 a day, together 30."""
    curve = of_paper()
    assert at(curve, 1).usd == pytest.approx(2.10, abs=0.005)
    assert at(curve, 128).usd == pytest.approx(0.23, abs=0.005)
    assert 128 * at(curve, 1).usd == pytest.approx(300, rel=0.15)
    assert 128 * at(curve, 128).usd == pytest.approx(30, rel=0.05)
    assert curve.known == ((1, PAPER.lone_usd), (128, PAPER.usd_per_day / 128))
    assert all(0.2 <= point.usd <= 0.3 for point in curve.points if point.replicas >= 64)


def test_the_paper_crosses_from_cpu_to_ram_on_its_server() -> None:
    """CPU sizes the machine of few replicas, RAM that of many; 128 fill the server's RAM."""
    curve = of_paper()
    assert [what for what, _, _ in sized_by(curve.points)] == [Resource.CPU, Resource.RAM]
    assert curve.crossing is not None
    assert 64 < curve.crossing < 128 == curve.most
    before, after = at(curve, curve.crossing - 1), at(curve, curve.crossing)
    assert before.cpu_usd > before.ram_usd
    assert after.ram_usd >= after.cpu_usd
    assert all(a.usd >= b.usd - 1e-12 for a, b in zip(curve.points, curve.points[1:], strict=False))


def test_the_model_agrees_with_the_papers_server() -> None:
    """768 GB carry 128 replicas of 6 GB nearly: the model keeps a twentieth of the RAM and 4 GiB back."""
    gib = PAPER.ram_gb / 1.073741824
    server = HostShape("paper", PAPER.cores, gib, Kvm.METAL)
    replica = ReplicaNeeds(6 / 1.073741824, idle_cores=0.1)
    found = fit(server, replica, QEMU, PlanRequest(1, replica).rules)
    assert found.binding is Resource.RAM
    assert found.replicas == pytest.approx(128, rel=0.1)


def test_a_plans_curve_is_the_models() -> None:
    """At the K that the host carries it costs what the plan says, and a machine cut for K no more."""
    request = PlanRequest(replicas=178, replica=profiles.load("desktop-local").replica())
    one = candidate(request)
    curve = of_candidate(request, one)
    assert (curve.most, curve.crossing) == (one.fit.replicas, None)
    assert curve.most_usd == pytest.approx(one.day.total / 0.99 / one.fit.replicas)
    last = at(curve, one.fit.replicas)
    assert last.type_usd == pytest.approx(curve.most_usd)
    assert last.usd <= curve.most_usd * 1.1
    beyond = [point for point in curve.points if point.replicas > one.fit.replicas]
    assert beyond
    assert all(point.type_usd is None for point in beyond)
    cores = needed_cores(request, one.fit.replicas)
    assert cores <= cpu_capacity(one.shape, request.runtime, request.rules) + 1
    assert sized_by(curve.points)[-1][0] is Resource.CPU


def test_memory_that_is_not_shared_crosses_as_in_the_paper() -> None:
    """4 GiB each, nothing shared, on a host of 8 GiB to a vCPU: CPU on the left, RAM on the right."""
    replica = ReplicaNeeds(4.0, idle_cores=0.005, step_cpu_s=0.2, think_s=10)
    request = PlanRequest(replicas=256, replica=replica, types=("r8i.24xlarge",), regions=("us-east-1",))
    curve = of_candidate(request, candidate(request))
    assert curve.crossing is not None
    assert 1 <= curve.crossing < curve.most
    last = at(curve, 512)
    assert last.ram_usd > 2 * last.cpu_usd
    assert curve.why == "RAM is used up"
