"""The simulated fleet, held to what can be worked out by hand, and to what was measured."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from benchmarks.common import RESULTS
from benchmarks.fleet_simulation import Fleet, Shape, as_measured, checked

ALONE = Shape(1, 1, 1, 1, 0.002, 0.008, 0.0, (0.09,), 100.0)


def test_one_replica_waits_for_nobody() -> None:
    """A step takes its own wait and CPU, and not more."""
    outcome = Fleet(ALONE).run()
    assert outcome.steps == pytest.approx(1000, abs=1)
    assert max(outcome.added_ms) < 1e-6


def rate(shape: Shape) -> float:
    """Steps a second once the queues are full."""
    return sum(end > 15 for end in Fleet(shape).run().ends_s) / 15


def test_the_slowest_part_bounds_all() -> None:
    """The hosts' cores, the client's one thread, or both on the same cores."""
    many = replace(ALONE, replicas=200, seconds=30.0)
    assert rate(many) == pytest.approx(1 / 0.008, rel=0.08)
    wide = replace(many, hosts=8, cores=4)
    assert rate(wide) == pytest.approx(1 / 0.002, rel=0.08)
    assert rate(replace(wide, clients=2, replicas=800)) == pytest.approx(2 / 0.002, rel=0.08)
    shared = replace(many, hosts=8, cores=1, clients_on_hosts=True)
    assert rate(shared) == pytest.approx(1 / 0.010, rel=0.08)
    assert rate(replace(shared, speed=0.5)) == pytest.approx(0.5 / 0.010, rel=0.08)


def test_a_dead_host_takes_its_own_replicas_only() -> None:
    """A quarter of the steps, where nothing else is short."""
    shape = replace(ALONE, replicas=40, hosts=4, cores=100, think_s=1.0, seconds=400.0, killed_at_s=200.0)
    ends = Fleet(shape).run().ends_s
    before, after = sum(20 < end < 200 for end in ends) / 180, sum(end > 220 for end in ends) / 180
    assert after / before == pytest.approx(0.75, abs=0.04)


def test_a_seed_gives_the_same_run() -> None:
    """And another seed another one."""
    shape = replace(ALONE, replicas=5, think_s=0.5)
    assert Fleet(shape).run().ends_s == Fleet(shape).run().ends_s
    assert Fleet(shape).run().ends_s != Fleet(replace(shape, seed=2)).run().ends_s


def test_it_agrees_with_the_measured_eight_hosts() -> None:
    """Throughput of every measured round within 15 %: else the fleets that it tells of are worth nothing."""
    rows = checked(10.0, ["osgym_sdk"])  # in a shorter time the first turn of all of them weighs
    kept = json.loads((RESULTS / "client_scale.json").read_text())["throughput"]["rows"]
    assert len(rows) == sum(row["client"] == "osgym_sdk" for row in kept)
    for row in rows:
        assert 0.85 < row["simulated_to_measured"] < 1.15, row
    assert as_measured(
        {"client_cpu_ms_per_step": 1, "servers_cpu_ms_per_step": 1, "cores_of_others": 1.0}, 1
    ).speed == pytest.approx(0.5)
