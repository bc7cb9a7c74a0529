"""`osgym fleet plan --this-machine`: how many replicas fit here, by the facts of the machine."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from click.testing import CliRunner

from osgym_infra.cli.main import main
from osgym_infra.cli.this_machine import Machine, command, remarks, rows
from osgym_infra.cost.model import Rules
from osgym_infra.workloads import profile as profiles
from osgym_infra.workloads.profile import Bound

LAPTOP = Machine(
    cores=8, threads_per_core=1, ram_mib=32_000, available_mib=24_000, swap_mib=128_000,
    swap_is_compressed=True, disk_free_mib=100_000, pid_max=4_194_304, images=("full",),
    ram_reserve_mib=1024, disk_reserve_mib=1024, awake=128, woken_mib=32.0,
)  # fmt: skip


def planned(machine: Machine, think_s: float | None = 20.0, usd: float | None = None) -> list[dict[str, Any]]:
    measured = profiles.load("desktop-local")
    return rows(machine, measured, measured.replica(), Bound.PESSIMISTIC, Rules(), think_s, usd)


def test_desktops_that_nobody_steps_are_bound_by_ram() -> None:
    """Those measured: 70 MiB awake, 12.4 at rest, of what is available less reserve and headroom."""
    unused = planned(LAPTOP)[0]
    assert unused["awake"]["replicas"] == int((24_000 - 1024) / 69.7682)
    assert unused["reclaimed"]["replicas"] == pytest.approx((24_000 - 1024 - 128 * 32) / 12.3634, rel=0.01)
    assert {unused[kind]["limit"] for kind in ("awake", "paused", "reclaimed")} == {"ram"}
    assert unused["reclaimed"]["steps_per_s"] < 1


def test_pausing_saves_cpu_and_swap_saves_memory() -> None:
    """With a think time each row has steps a second, and no kind of rest carries fewer than none."""
    for row in planned(LAPTOP, None)[1:]:
        assert row["awake"]["replicas"] <= row["paused"]["replicas"]
        assert row["reclaimed"]["steps_per_s"] > 0
        assert row["paused"]["reclaimed_share"] == 0


@pytest.mark.parametrize(
    ("changed", "limit"),
    [
        ({"disk_free_mib": 1050.0}, "disk"),
        ({"pid_max": 4096}, "pids"),
        ({"available_mib": 3000.0}, "ram"),
        ({"available_mib": 400_000.0}, "cpu"),
    ],
)
def test_the_limit_is_named(changed: dict[str, Any], limit: str) -> None:
    """What is scarce is what binds."""
    assert planned(dataclasses.replace(LAPTOP, **changed))[1]["awake"]["limit"] == limit


def test_a_price_becomes_the_price_of_a_replica_day() -> None:
    """24 hours over the number that fits."""
    row = planned(LAPTOP, usd=0.5)[1]["paused"]
    assert row["usd_per_replica_day"] == pytest.approx(12 / row["replicas"])


def test_what_is_missing_is_said() -> None:
    """An image that is not here, an image without figures, and no compressed swap."""
    measured = profiles.load("desktop-local")
    plain = dataclasses.replace(LAPTOP, swap_is_compressed=False, swap_mib=0.0)
    said = " ".join(remarks(plain, "small", measured))
    for words in (
        "osgym image build --flavor small",
        "no figures are known of the image small",
        "osgym doctor",
    ):
        assert words in said
    assert len(remarks(LAPTOP, "full", measured)) == 1


def test_it_reads_this_machine() -> None:
    """As JSON with the facts, and as a table with a command that runs them."""
    found = CliRunner().invoke(main, ["fleet", "plan", "--this-machine", "--think-s", "20", "--json"])
    assert found.exit_code == 0, found.output
    said = json.loads(found.stdout)
    assert 0 < said["machine"]["available_mib"] < said["machine"]["ram_mib"]
    assert said["machine"]["cores"] >= 1
    assert [row["think_s"] for row in said["rows"]] == [None, 20.0]
    text = CliRunner().invoke(main, ["fleet", "plan", "--this-machine"]).output
    assert "osgym host serve --set image=full --set max_replicas=" in text
    assert "IN COMPRESSED SWAP" in text


def test_the_command_fits_the_machine() -> None:
    """With compressed swap memory is moved only where it is short; without it replicas are only paused."""
    found = planned(LAPTOP)
    with_swap = command(LAPTOP, "full", found)
    assert f"max_replicas={found[1]['reclaimed']['replicas']} " in with_swap
    assert "reclaim_after_s=3600" in with_swap
    plain = dataclasses.replace(LAPTOP, swap_is_compressed=False, swap_mib=0.0)
    assert f"max_replicas={found[1]['paused']['replicas']} " in command(plain, "small", found)
    assert "rest=pause" in command(plain, "small", found)


def test_options_of_fleets_are_refused() -> None:
    """Each by its name; and a plan of a fleet needs a number."""
    refused = CliRunner().invoke(main, ["fleet", "plan", "--this-machine", "--provider", "aws"])
    assert (refused.exit_code, "--provider" in refused.stderr) == (2, True)
    assert CliRunner().invoke(main, ["fleet", "plan"]).exit_code == 2
