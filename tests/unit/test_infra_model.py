"""The cost model's formulas: how many replicas fit, what binds, what a day costs."""

from __future__ import annotations

import ast
import dataclasses
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import osgym_infra
from osgym_infra.catalogue.shapes import HostShape, Kvm, Market
from osgym_infra.cost.model import LOCAL, QEMU, ReplicaNeeds, Resource, Rest, Rules, balanced, fit
from osgym_infra.cost.price import (
    CostAssumptions,
    Interruptions,
    host_day,
    per_thousand_trajectories,
    replica_day,
)
from osgym_infra.errors import BadInput

EASY = Rules(ram_usable=1.0, reserve_gib=0.0, cpu_target=1.0, max_replicas=100_000)

hosts = st.builds(
    HostShape,
    name=st.just("host"),
    vcpu=st.floats(1, 400),
    ram_gib=st.floats(1, 4096),
    kvm=st.sampled_from(Kvm),
    disk_gib=st.none() | st.floats(10, 30000),
    threads_per_core=st.sampled_from((1, 2)),
)
replicas = st.builds(
    ReplicaNeeds,
    working_set_gib=st.floats(0.05, 16),
    shared_fraction=st.floats(0, 0.95),
    overhead_gib=st.floats(0, 1),
    idle_cores=st.floats(0, 0.5),
    step_cpu_s=st.floats(0, 5),
    think_s=st.floats(0, 60),
    overlay_gib=st.floats(0, 10),
    frame_mb=st.floats(0, 3),
    reset_cpu_s=st.floats(0, 20),
)
rules = st.builds(
    Rules, ram_usable=st.floats(0.5, 1), reserve_gib=st.floats(0, 16), max_replicas=st.integers(1, 4096)
)
runtimes = st.sampled_from([LOCAL, QEMU])


def test_unshared_4_gib_is_bound_by_ram() -> None:
    """768 GiB and 4 GiB each: 192, and the cores that no replica uses are stranded."""
    found = fit(HostShape("r", 96, 768, Kvm.METAL), ReplicaNeeds(4.0, idle_cores=0.12), QEMU, EASY)
    assert (found.replicas, found.binding) == (192, Resource.RAM)
    assert found.stranded[Resource.CPU] == pytest.approx(1 - 192 * 0.12 / 96)
    assert found.stranded[Resource.RAM] == 0


def test_what_is_shared_is_there_once_for_each_image() -> None:
    """64 GiB, replicas of 2 GiB half of it shared: each further image takes the place of one replica."""
    replica = ReplicaNeeds(2.0, shared_fraction=0.5)
    shape = HostShape("r", 96, 64, Kvm.METAL)
    rules = [dataclasses.replace(EASY, images=count) for count in (1, 3)]
    assert [fit(shape, replica, LOCAL, rule).replicas for rule in rules] == [63, 61]
    with pytest.raises(BadInput, match="images"):
        Rules(images=0)


def test_sharing_raises_the_number_until_the_cpu_binds() -> None:
    """With nine tenths shared RAM would carry 1,913; 96 cores at 0.12 carry 800."""
    shared = ReplicaNeeds(4.0, shared_fraction=0.9, idle_cores=0.12)
    found = fit(HostShape("r", 96, 768, Kvm.METAL), shared, QEMU, EASY)
    assert (found.replicas, found.binding) == (800, Resource.CPU)
    assert found.limits[Resource.RAM] == pytest.approx((768 - 3.6) / 0.4)


def test_the_duty_cycle_is_cpu_per_step_over_the_cycle() -> None:
    """0.2 CPU-s every 10 s of thinking, and 0.01 cores while idle."""
    assert ReplicaNeeds(1, idle_cores=0.01, step_cpu_s=0.2, think_s=9.8).cores == pytest.approx(0.03)
    assert ReplicaNeeds(1, step_cpu_s=0.2).cores == 1.0


@pytest.mark.parametrize(
    ("kvm", "runtime", "vcpu"),
    [
        (Kvm.METAL, QEMU, 10.0),
        (Kvm.NESTED, QEMU, 9.0),
        (Kvm.UNKNOWN, QEMU, 9.0),
        (Kvm.NESTED, LOCAL, 10.0),
    ],
)
def test_nesting_costs_only_machines_inside_machines(kvm: Kvm, runtime: str, vcpu: float) -> None:
    """A tenth is lost for qemu on a host that is itself a virtual machine; nothing elsewhere."""
    found = fit(HostShape("h", 10, 10_000, kvm), ReplicaNeeds(0.001, idle_cores=0.1), runtime, EASY)
    assert found.limits[Resource.CPU] == pytest.approx(vcpu / 0.1)


def test_threads_are_not_cores() -> None:
    """Two to a core, each is 0.6 of one, whatever runs on it; nesting takes its tenth of the rest."""
    small = ReplicaNeeds(0.001, idle_cores=0.1)
    for threads, runtime, kvm, cores in (
        (1, LOCAL, Kvm.NESTED, 10.0),
        (2, LOCAL, Kvm.NESTED, 6.0),
        (2, QEMU, Kvm.METAL, 6.0),
        (2, QEMU, Kvm.NESTED, 5.4),
    ):
        host = HostShape("h", 10, 10_000, kvm, threads_per_core=threads)
        assert fit(host, small, runtime, EASY).limits[Resource.CPU] == pytest.approx(cores / 0.1)
    measured = Rules(cpu_target=1.0, thread_efficiency=0.8)
    assert fit(HostShape("h", 10, 10_000, threads_per_core=2), small, LOCAL, measured).limits[
        Resource.CPU
    ] == pytest.approx(80)


def test_a_reset_costs_cores_but_is_no_step() -> None:
    """0.1 CPU-s a step and 0.6 after every 6 of them, with 1.8 s of thinking: a tenth of a core, half of it
    the reset's; the step itself stays as short as it is."""
    replica = ReplicaNeeds(1, step_cpu_s=0.1, think_s=1.8, reset_cpu_s=0.6, steps_per_episode=6)
    assert replica.cores == pytest.approx(0.2 / 2.0)
    assert replica.cycle_s == pytest.approx(2.0)
    assert (replica.work.step_s, replica.work.reset_s) == (0.1, 0.6)


def test_frames_of_a_day() -> None:
    """Half a megabyte every 10 s."""
    assert ReplicaNeeds(0.01, think_s=10, frame_mb=0.5).egress_gb_per_day == pytest.approx(4.32)


def test_a_host_that_is_too_small_carries_none() -> None:
    """Zero, and RAM is named."""
    found = fit(HostShape("h", 1000, 4), ReplicaNeeds(8), LOCAL, Rules())
    assert (found.replicas, found.binding) == (0, Resource.RAM)


@given(hosts, replicas, runtimes, rules)
def test_what_fits_fits(host: HostShape, replica: ReplicaNeeds, runtime: str, how: Rules) -> None:
    """K replicas stay within every limit and K + 1 break the binding one; nothing is stranded below 0."""
    found = fit(host, replica, runtime, how)
    assert found.replicas <= how.max_replicas
    assert all(found.replicas <= limit * (1 + 1e-9) + 1e-6 for limit in found.limits.values())
    assert found.replicas + 1 > found.limits[found.binding] * (1 - 1e-9)
    ram = found.replicas * replica.private_gib + (replica.shared_gib if found.replicas else 0)
    assert ram <= how.ram_usable * host.ram_gib - how.reserve_gib + 1e-6 or found.replicas == 0
    assert all(0 <= left <= 1 for left in found.stranded.values())


@given(hosts, replicas, runtimes, rules, st.floats(1, 4))
def test_a_larger_host_never_carries_less(
    host: HostShape, replica: ReplicaNeeds, runtime: str, how: Rules, times: float
) -> None:
    """More cores and more RAM only help."""
    larger = HostShape("l", host.vcpu * times, host.ram_gib * times, host.kvm, host.disk_gib)
    assert fit(larger, replica, runtime, how).replicas >= fit(host, replica, runtime, how).replicas


RESTING = ReplicaNeeds(
    1.0, idle_cores=0.01, step_cpu_s=0.1, think_s=9.9, rest=Rest(0.25, wake_cpu_s=0.4, after_s=2.0)
)


def test_a_replica_at_rest_is_awake_for_a_part_of_its_cycle() -> None:
    """2.5 of 10.4 s: it idles and keeps its memory for that part, and each step has a wake's CPU in it."""
    assert RESTING.awake_share == pytest.approx(2.5 / 10.4)
    assert RESTING.cores == pytest.approx(0.01 * 2.5 / 10.4 + 0.5 / 10.4)
    assert RESTING.mean_gib == pytest.approx(0.25 + 0.75 * 2.5 / 10.4)
    assert RESTING.work.step_s == pytest.approx(0.5)


def test_a_host_reclaims_as_much_as_its_memory_makes_necessary() -> None:
    """None with RAM for all, everything with hardly any; in between RAM and CPU bind alike."""
    shares = []
    for ram_gib in (10_000, 100, 1):
        found = balanced(HostShape("h", 2, ram_gib), RESTING, LOCAL, EASY)
        assert found.rest is not None
        shares.append(found.rest.reclaimed_share)
        if 0 < shares[-1] < 1:
            limits = fit(HostShape("h", 2, ram_gib), found, LOCAL, EASY).limits
            assert limits[Resource.RAM] == pytest.approx(limits[Resource.CPU], rel=1e-3)
    assert shares[0] == 0 < shares[1] < shares[2] == 1


def test_without_swap_replicas_are_only_paused() -> None:
    """They save their idle CPU and no memory; a policy that thinks less than 2 s leaves them awake."""
    host = HostShape("h", 2, 30, swap_gib=0.0)
    paused = balanced(host, RESTING, LOCAL, EASY)
    assert paused.mean_gib == RESTING.private_gib
    assert paused.cores < dataclasses.replace(RESTING, rest=None).cores
    assert balanced(host, dataclasses.replace(RESTING, think_s=1.5), LOCAL, EASY).rest is None


def test_swap_and_pids_limit_too() -> None:
    """50 GiB of swap hold the pages of 50 replicas; 4,048 pids less 2,048 are enough for 40 of 50 threads."""
    many = dataclasses.replace(RESTING, threads=50.0)
    host = HostShape("h", 1000, 10, swap_gib=50.0, pid_max=4048)
    limits = fit(host, many, LOCAL, EASY).limits
    assert (limits[Resource.SWAP], limits[Resource.PIDS]) == (50, 40)


@given(hosts, replicas, runtimes, rules, st.floats(0.001, 1), st.floats(0, 2))
def test_rest_never_makes_a_host_carry_less(
    host: HostShape, replica: ReplicaNeeds, runtime: str, how: Rules, resting_gib: float, wake_cpu_s: float
) -> None:
    """Since a host that has the memory only pauses."""
    rested = dataclasses.replace(replica, rest=Rest(resting_gib, wake_cpu_s))
    with_rest = fit(host, balanced(host, rested, runtime, how), runtime, how)
    assert with_rest.replicas >= fit(host, replica, runtime, how).replicas


@pytest.mark.parametrize(
    ("field", "value"),
    [("shared_fraction", 1.0), ("working_set_gib", 0), ("think_s", -1), ("step_cpu_s", math.inf)],
)
def test_impossible_replicas_are_refused_by_field(field: str, value: float) -> None:
    """The error names the field."""
    values = {"working_set_gib": 1.0, field: value}
    with pytest.raises(BadInput) as refused:
        ReplicaNeeds(**values)
    assert refused.value.field == field
    assert refused.value.fits


def test_the_price_of_a_replica_day_is_the_formula() -> None:
    """24·2·(1 + 0.5/24) + 2.4 + 0.12 over 50 replicas, 0.1 of egress, available 0.9 of the time."""
    terms = CostAssumptions(spot=Interruptions(1.0, 0.25, 0.25))
    day = host_day(2.0, Market.SPOT, terms, 2.4, 0.005)
    assert day.total == pytest.approx(48 * (1 + 0.5 / 24) + 2.4 + 0.12)
    assert replica_day(day.total, 50, 0.1, 0.9) == pytest.approx((day.total / 50 + 0.1) / 0.9)
    assert host_day(2.0, Market.ON_DEMAND, terms).waste == 0
    assert host_day(2.0, Market.ON_DEMAND, CostAssumptions(private=True), 0.0, 0.005).ip == 0


def test_a_thousand_trajectories_are_their_part_of_a_replica_day() -> None:
    """At 86.4 s each a replica makes a thousand a day."""
    assert per_thousand_trajectories(0.07, 86.4) == pytest.approx(0.07)


def test_the_cost_model_is_pure() -> None:
    """It imports nothing but arithmetic and data types: no Pulumi, no files, no network, no clock."""
    allowed = {
        "__future__", "collections", "collections.abc", "dataclasses", "enum", "functools", "math", "typing",
        "base64", "contextlib", "datetime", "difflib", "fnmatch", "gzip", "hashlib", "io", "ipaddress",
        "json", "re", "shlex", "tarfile", "urllib.parse",
    }  # fmt: skip
    pure = [
        "cost.model", "cost.queueing", "cost.price", "cost.mix", "cost.planner", "cost.compare", "cost.curve",
        "catalogue.shapes", "config.keys",
        "config.ssh_hosts",
        "fleet.boot_status",
        "config.providers", "config.readers", "fleet.boot", "fleet.policy",
        "providers.aws.facts", "providers.aws.policy", "providers.gcp.facts", "providers.gcp.policy",
        "providers.ssh.facts",
    ]  # fmt: skip
    # What imports a provider's modules.
    registry = {"importlib", "importlib.util", "osgym_protocol.plugins", "types"}
    more = ("osgym_infra.errors", "osgym_infra.catalogue.rows", "osgym_infra.fleet.blueprint", *registry)
    protocol = ("osgym_protocol.codes",)  # pure, too
    allowed |= {"osgym_infra.cost", *more, *protocol, *(f"osgym_infra.{name}" for name in pure)}
    folder = Path(osgym_infra.__file__).parent
    for name in pure:
        for node in ast.walk(ast.parse((folder / f"{name.replace('.', '/')}.py").read_text())):
            if isinstance(node, ast.Import):
                assert {alias.name for alias in node.names} <= allowed, name
            elif isinstance(node, ast.ImportFrom):
                assert node.module in allowed, f"{name} imports {node.module}"
