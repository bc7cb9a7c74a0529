"""From raw series to a profile: known truths are found again, within their intervals."""

from __future__ import annotations

import json
import random
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from tests.support.kvm_profile import under_kvm

from osgym_infra.cost.model import LOCAL, QEMU
from osgym_infra.errors import BadInput
from osgym_infra.workloads import profile as profiles
from osgym_infra.workloads import stats
from osgym_infra.workloads.fit import fit_profile
from osgym_infra.workloads.observations import Observations, observe, read
from osgym_infra.workloads.profile import Bound, Parameter, from_json

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
MACHINE = {"cpu": "CPU", "cores": 2, "ram_mib": 24000, "date": "2026-11-21T10:00:00+00:00"}


def synthetic(seed: int = 1, **over: Any) -> dict[str, Any]:
    """Series of a workload with R_ws 400, s 0.75, b 0.01, D 0.2, Z 4.8, and a knee at 40 replicas."""
    rng = random.Random(seed)
    rows = []
    for replicas in (1, 2, 4, 8, 16, 32, 48, 64):
        noise = [rng.gauss(1, 0.02) for _ in range(4)]
        steps = replicas * 12 * 3
        seconds = steps / replicas * 5.0
        rows.append(
            {"replicas": replicas, "window": "idle", "seconds": 30.0, "cpu_s": 0.3 * replicas * noise[0]}
        )
        rows.append(
            {
                "replicas": replicas,
                "window": "busy",
                "seconds": seconds,
                "cpu_s": 0.01 * replicas * seconds + 0.2 * steps * noise[1],
                "pss_mib": (300 + 100 * replicas) * noise[2],
                "steps": steps,
                "episodes": replicas * 3,
                "steps_per_episode": [12] * 3,
                "step_ms": [(80 + 10 * max(0, replicas - 40)) * noise[3] for _ in range(5)],
                "frame_bytes": [150_000, 170_000],
            }
        )
    return {"benchmark": "x", "machine": MACHINE, "runtime": "qemu", "image": "full", "series": rows, **over}


def test_the_cpu_of_wakes_is_the_difference_that_rest_makes() -> None:
    """Windows with and without rest, in turns: 0.1 CPU-s a step, 0.3 more with a wake; what idles is off."""
    idle = {"replicas": 4, "window": "idle", "seconds": 100.0, "cpu_s": 4.0}
    row = {"replicas": 4, "window": "busy", "seconds": 100.0, "steps": 40, "episodes": 0, "pss_mib": 400}
    awake = row | {"rest": "off", "cpu_s": 4.0 + 40 * 0.1, "resting_mib": [], "threads": 160}
    resting = row | {"rest": "reclaim", "cpu_s": 40 * 0.4, "resting_mib": [30.0, 50.0], "threads": 160}
    data = {"benchmark": "x", "machine": MACHINE, "runtime": "local", "image": "full"}
    data["series"] = [
        idle,
        row | {"cpu_s": 8.0},
        {"replicas": 1, "pss_mib": 150},
        awake,
        resting,
        awake,
        resting,
    ]
    found = fit_profile(observe(data, "x.json"), "w")
    assert found.parameters[Parameter.WAKE_CPU_S].value == pytest.approx(0.3)
    assert found.rest(Bound.MEAN).resting_gib * 1024 == pytest.approx(40)
    assert found.replica(Bound.MEAN).threads == 40
    assert found.parameters[Parameter.STEP_CPU_S].value == pytest.approx(0.1)
    assert from_json(found.to_json(), "x").parameters.keys() == found.parameters.keys()


def test_memory_at_rest_is_the_slope_of_its_curve() -> None:
    """Desktops that nobody steps rest without a figure of wakes; a profile without rest is told from it."""
    curve = [{"replicas": n, "lost_mib": 100.0 + 12 * n} for n in (1, 100, 400)]
    series = [{"replicas": n, "host_mib": 70.0 * n} for n in (1, 100)]
    data = {"benchmark": "x", "machine": MACHINE, "image": "full", "curve": curve, "series": series}
    found = fit_profile(observe(data, "x.json"), "w")
    assert found.rest().resting_gib * 1024 == pytest.approx(12)
    assert found.replica().private_gib * 1024 == pytest.approx(70)
    with pytest.raises(BadInput, match="no figures of rest"):
        fit_profile(observe(synthetic(), "x.json"), "w").rest()


def test_known_parameters_are_found_again() -> None:
    """Each within its own interval or 5 %, and the plan's end is the costlier one."""
    found = fit_profile(observe(synthetic(), "x.json"), "w")
    truth = {
        Parameter.IDLE_CORES: 0.01,
        Parameter.STEP_CPU_S: 0.2,
        Parameter.THINK_S: 4.8,
        Parameter.KNEE_REPLICAS: 40,
        Parameter.STEPS_PER_EPISODE: 12,
        Parameter.FRAME_KB: 160,
    }
    for parameter, value in truth.items():
        row = found.parameters[parameter]
        assert row.low * 0.97 <= value <= row.high * 1.03, parameter
        assert row.low <= row.value <= row.high
    replica = found.replica(Bound.MEAN)
    assert replica.private_gib * 1024 == pytest.approx(100, rel=0.05)
    assert replica.shared_fraction == pytest.approx(0.75, abs=0.02)
    worst, best = found.replica(Bound.PESSIMISTIC), found.replica(Bound.OPTIMISTIC)
    assert worst.private_gib >= replica.private_gib >= best.private_gib
    assert worst.cores >= replica.cores >= best.cores
    assert (found.runtime, found.measured_on, found.sources) == (
        QEMU,
        date(2026, 11, 21),
        ("x.json",),
    )


def test_a_profile_is_read_back_as_it_was_written() -> None:
    """Six digits are kept."""
    found = fit_profile(observe(synthetic(), "x.json"), "w")
    again = from_json(found.to_json(), "again")
    assert again.to_json() == found.to_json()
    assert again.replica().cores == pytest.approx(found.replica().cores, rel=1e-4)


def test_memory_of_a_lone_replica_and_a_curve_come_from_different_files() -> None:
    """R_ws from one benchmark, the slope from another: s = 1 − 70/105."""
    alone = {"machine": MACHINE, "desktops": [{"pss_mib": 105.0, "overlay_mib": 0.0625}] * 4}
    curve = {"machine": MACHINE, "curve": [{"replicas": n, "host_mib": 40 + 70.0 * n} for n in (10, 20, 40)]}
    seen = Observations()
    for name, data in (("alone", alone), ("curve", curve)):
        seen.add(observe(data, name))
    found = fit_profile(seen, "w")
    assert found.value(Parameter.SHARED_FRACTION, Bound.MEAN) == pytest.approx(1 - 70 / 105)
    assert found.replica().private_gib * 1024 == pytest.approx(70)
    assert found.runtime == LOCAL
    assert found.value(Parameter.OVERLAY_MIB, Bound.MEAN) == 0.0625


def test_without_a_lone_replica_nothing_is_taken_as_shared() -> None:
    """The slope is the working set, s is 0, and a note says why."""
    curve = {"machine": MACHINE, "curve": [{"replicas": n, "host_mib": 70.0 * n} for n in (10, 20, 40)]}
    found = fit_profile(observe(curve, "curve"), "w")
    assert found.replica().shared_fraction == 0
    assert found.value(Parameter.WORKING_SET_MIB, Bound.MEAN) == pytest.approx(70)
    assert "unknown" in found.notes[0]


def test_thinking_can_be_given() -> None:
    """Then it has no interval, and says so."""
    row = fit_profile(observe(synthetic(), "x"), "w", think_s=10).parameters[Parameter.THINK_S]
    assert (row.value, row.low, row.high, row.how) == (10, 10, 10, "given, not measured")


@pytest.mark.parametrize("name", ["density", "replica_cost", "step_path", "throughput_local_full"])
def test_the_kept_series_are_understood(name: str) -> None:
    """Each benchmark's own file gives at least one kind of observation."""
    seen = read(RESULTS / f"{name}.json")
    assert seen.dates
    assert seen.host_mib or seen.alone_mib or seen.frame_kb or seen.steps_per_episode


def test_runtimes_are_not_mixed() -> None:
    """A virtual machine's memory says nothing of a namespace's."""
    seen = observe(synthetic(), "a.json")
    with pytest.raises(BadInput, match=r"b\.json was measured with the runtime local"):
        seen.add(observe(synthetic(runtime="local"), "b.json"))


WRONG = '{"series": [{"replicas": 1, "cpu_s": "x", "seconds": 1}]}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "cannot be read"),
        ("[]", "is not a JSON object"),
        ("{}", "no series"),
        (WRONG, "does not have the form"),
    ],
)
def test_files_that_are_no_results_are_named(tmp_path: Path, text: str, says: str) -> None:
    """With what is wrong."""
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=says):
        read(path)


def test_falling_memory_is_refused() -> None:
    """That was a busy machine, not a workload."""
    curve = {"machine": MACHINE, "curve": [{"replicas": n, "host_mib": 1000.0 - n} for n in (10, 20, 40)]}
    with pytest.raises(BadInput, match="falls"):
        fit_profile(observe(curve, "c"), "w")


@pytest.mark.parametrize(
    "change",
    [{"schema": 2}, {"parameters": {}}, {"runtime": "Docker!"}, {"parameters": {"colour": {}}},
     {"parameters": {"working_set_mib": {"value": 5, "low": 6, "high": 7, "n": 1, "how": ""}}}],
)  # fmt: skip
def test_files_that_are_no_profile_are_refused(change: dict[str, Any]) -> None:
    """Schema, a missing parameter, an unknown one, a value outside its interval."""
    data = json.loads(fit_profile(observe(synthetic(), "x"), "w").to_json()) | change
    with pytest.raises(BadInput) as refused:
        from_json(json.dumps(data), "p.json")
    assert refused.value.field == "profile"
    assert "p.json" in str(refused.value)


def test_the_profile_that_comes_along_is_complete() -> None:
    """All that a plan of CPU, RAM and egress needs was measured."""
    assert profiles.DEFAULT in profiles.names()
    found = profiles.load(profiles.DEFAULT)
    wanted = {
        Parameter.WORKING_SET_MIB, Parameter.SHARED_FRACTION, Parameter.IDLE_CORES, Parameter.STEP_CPU_S,
        Parameter.THINK_S, Parameter.FRAME_KB, Parameter.STEPS_PER_EPISODE, Parameter.TRAJECTORY_S,
    }  # fmt: skip
    assert wanted <= set(found.parameters)
    assert all(found.parameters[p].n >= 3 for p in wanted - {Parameter.THINK_S})
    private = found.parameters[Parameter.PRIVATE_MIB]
    assert found.replica().private_gib * 1024 == pytest.approx(private.high, rel=1e-4)


def test_an_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """Means of 30 normal values: 95 % intervals cover it in at least 85 of 100 runs."""
    rng = random.Random(3)
    covered = 0
    for _ in range(100):
        found = stats.mean([rng.gauss(10, 3) for _ in range(30)])
        covered += found.low <= 10 <= found.high
    assert covered >= 85


def test_a_hinge_is_found_between_the_points() -> None:
    """Flat to 20, then rising."""
    points = [(float(x), 50.0 + 4 * max(0, x - 20)) for x in (1, 8, 16, 24, 32, 40)]
    assert stats.hinge(points) == pytest.approx(20, abs=0.3)
    with pytest.raises(ValueError, match="three"):
        stats.hinge(points[:2])
    with pytest.raises(ValueError, match="rise"):
        stats.hinge([(1, 5), (2, 4), (3, 3)])


def test_the_profile_under_kvm_is_put_together_from_what_was_measured() -> None:
    """The shipped one follows from those of namespaces and of emulation, and says so of each parameter."""
    shipped = profiles.load("desktop-qemu-kvm")
    made = under_kvm(profiles.load("desktop-local"), profiles.load("desktop-qemu-tcg"))
    assert shipped.parameters.keys() == made.parameters.keys()
    for name, row in made.parameters.items():
        found = shipped.parameters[name]
        assert found.how == row.how and row.how.startswith("assumed: ")
        assert (found.value, found.low, found.high) == pytest.approx((row.value, row.low, row.high), rel=1e-5)
    assert (shipped.sources, shipped.measured_on) == (made.sources, made.measured_on)
