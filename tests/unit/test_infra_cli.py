"""`osgym fleet plan`, `catalogue` and `fit`: answers, exit codes, and what wrong input is told."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from osgym_cli.main import main as osgym
from osgym_infra.cli.main import main as alone

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


@pytest.fixture(autouse=True)
def steady(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The built-in catalogue only, a wide terminal, and a day that does not move on."""
    monkeypatch.setenv("OSGYM_CATALOGUE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("OSGYM_CATALOGUE", raising=False)
    monkeypatch.setenv("OSGYM_TODAY", "2026-08-10")
    monkeypatch.setenv("COLUMNS", "200")


SPOT_OF_A_LARGE_TYPE_ONLY = """
schema = 1
[sources.me]
title = "my contract"
as_of = 2026-08-01
[[host]]
provider = "own"
region = "here"
type = "small"
vcpu = 32
ram_gib = 64
kvm = "nested"
on_demand = { per_hour = 1.5, source = "me" }
[[host]]
provider = "own"
region = "here"
type = "large"
vcpu = 96
ram_gib = 768
kvm = "nested"
on_demand = { per_hour = 6.67, source = "me" }
spot = { low = 1.75, high = 2.48, source = "me" }
"""


def run(*arguments: str, command: click.Command = alone) -> Result:
    """Runs a command line."""
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False)


def plan(*arguments: str) -> dict[str, Any]:
    """A plan as JSON, which must have been found."""
    result = run("fleet", "plan", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_goal_is_met_with_measured_parameters() -> None:
    """1,024 replicas at 0.10 USD per replica-day or less on spot, with pessimistic ends and prices; the
    on-demand figure stands beside it and is higher."""
    found = plan("--replicas", "1024", "--egress", "zone")
    by_market = {}
    for fleet in found["fleets"]:
        by_market.setdefault(fleet["market"], fleet["usd_per_replica_day"])
    assert by_market["spot"] <= 0.10 < by_market["on_demand"]
    assert found["best"]["capacity"] >= 1024
    assert found["workload"]["id"] == "desktop-local"


def test_an_answer_has_everything_that_was_asked_for() -> None:
    """Candidates per provider and market, K, what binds, mixes, references, dates."""
    text = run("fleet", "plan", "--replicas", "1024").output
    for word in (
        "PROVIDER",
        "aws",
        "gcp",
        "latitude",
        "on-demand",
        "spot",
        "dedicated",
        "BINDS",
        "cheapest mix",
    ):
        assert word in text
    assert "hosted sandbox" in text
    assert "2.100" in text
    assert "as of 2026-07-20, 21 days old" in text
    assert "AX162-R is priced in EUR" in text
    assert re.search(r"Cheapest: 0\.\d+ USD per replica-day", text)


def test_old_prices_are_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """After 30 days, and always for undated ones; on stderr, so that output stays parseable."""
    assert "Karpenter" not in run("fleet", "plan", "-n", "8").stderr
    assert "undated" in run("fleet", "plan", "-n", "8", "--provider", "aws").stderr
    monkeypatch.setenv("OSGYM_TODAY", "2026-12-01")
    assert "134 days old" in run("fleet", "plan", "-n", "8").stderr


@pytest.mark.parametrize(
    ("arguments", "code", "field", "fits"),
    [
        (
            ["--budget-usd-per-day", "20"],
            1,
            "budget_usd_per_day",
            r"\d+\.\d\d USD a day would do, or \d+ replicas",
        ),
        (["--p95-ms", "50"], 1, "p95_ms", r"\d+ ms or more would do"),
        (["--type", "r8i.24xlarge", "--max-hosts", "r8i.24xlarge=1"], 1, "replicas", r"\d+ would fit"),
        (["--replica-ram-gib", "9000"], 2, "replica_ram_gib", r"At most 3887\.2 GiB fits \(x2iedn\.metal"),
        (["--region", "mars"], 2, "region", r"It has .*us-central1, us-east-1"),
        (["--type", "r9.huge"], 2, "type", r"It has .*r8i\.24xlarge"),
        (["--runtime", "qemu", "--type", "m1-megamem-96"], 2, "type", r"runtime local"),
        (["--runtime", "qemu", "--type", "c3-highmem-176"], 2, "type", r"allow_unknown_kvm"),
        (["--provider", "aws", "--market", "dedicated"], 2, "market", r"Known: on_demand, spot"),
        (["--profile", "nope"], 2, "profile", r"desktop-local"),
        (["--shared", "1"], 2, "shared_fraction", r"s < 1"),
        (["--rate", "EUR"], 2, "--rate", r"EUR=1\.10"),
        (["--max-hosts", "r8i"], 2, "--max-hosts", r"TYPE=NUMBER"),
        (["--availability", "0"], 2, "availability", r"0 < value"),
        (["--max-replicas-per-host", "0"], 2, "max_replicas", r"1 or more"),
        (["--catalogue", "/nowhere.toml"], 2, "catalogue", r""),
    ],
)
def test_what_cannot_be_is_told_with_what_can(arguments: list[str], code: int, field: str, fits: str) -> None:
    """The field's name and what would fit, as text and as JSON, with its exit code."""
    text = run("fleet", "plan", "--replicas", "1024", *arguments)
    assert text.exit_code == code, text.output
    assert field in text.stderr
    assert re.search(fits, text.stderr), text.stderr
    data = json.loads(run("fleet", "plan", "--replicas", "1024", *arguments, "--json").stdout)["error"]
    assert (data["code"], data["field"]) == ("cannot_meet" if code == 1 else "bad_input", field)


def test_the_sum_that_would_do_does() -> None:
    """The named budget is accepted, and so are the named replicas within the one that was too small."""
    refused = json.loads(run("fleet", "plan", "-n", "1024", "--budget-usd-per-day", "20", "--json").stdout)[
        "error"
    ]
    enough = re.search(r"([\d.]+) USD a day would do", refused["fits"])
    assert enough
    plan("-n", "1024", "--budget-usd-per-day", enough.group(1))
    plan("-n", str(refused["details"]["affordable_replicas"]), "--budget-usd-per-day", "20")


def test_nesting_metal_and_unknown_types_for_machines() -> None:
    """qemu plans with metal and nested types, and with unconfirmed ones when told to."""
    found = plan("-n", "64", "--runtime", "qemu")
    kvm = {c["kvm"] for c in found["candidates"]}
    assert kvm == {"metal", "nested"}
    more = {c["kvm"] for c in plan("-n", "64", "--runtime", "qemu", "--allow-unknown-kvm")["candidates"]}
    assert more == {"metal", "nested", "unknown"}
    assert "none" in {c["kvm"] for c in plan("-n", "64")["candidates"]}


def test_the_profile_follows_the_runtime_and_says_what_is_assumed() -> None:
    """Namespaces and machines have profiles of their own; that for KVM names the numbers it rests on,
    emulation is said to be so and needs no KVM on the hosts."""
    local, kvm, tcg = (
        plan("-n", "64", *more) for more in ((), ("--runtime", "qemu"), ("--runtime", "qemu", "--emulated"))
    )
    names = [found["workload"]["id"] for found in (local, kvm, tcg)]
    assert names == ["desktop-local", "desktop-qemu-kvm", "desktop-qemu-tcg"]
    assert not any("assumed, not measured under KVM" in note for note in local["notes"])
    words = next(note for note in kvm["notes"] if "assumed, not measured under KVM" in note)
    assert "desktop-qemu-tcg" in words
    assert "desktop-local" in words
    assert any("measured under emulation (TCG, no KVM)" in note for note in tcg["notes"])
    steps = [found["replica"]["step_cpu_s"] for found in (local, kvm, tcg)]
    assert steps[2] > 5 * steps[1] > 5 * steps[0]
    assert "none" in {c["kvm"] for c in tcg["candidates"]}
    other = plan("-n", "64", "--runtime", "qemu", "--profile", "desktop-local")
    assert any("measured with the local runtime" in note for note in other["notes"])
    assert run("fleet", "plan", "-n", "8", "--runtime", "local", "--emulated").exit_code == 2


def test_rest_is_planned_by_its_measured_figures() -> None:
    """A host that is short of RAM carries more replicas, and the answer says how often it reclaims."""
    options = ("-n", "1024", "--think-s", "20", "--egress", "zone", "--type", "m8i.4xlarge")
    awake, rested = plan(*options), plan(*options, "--rest")
    assert awake["rest"] is None
    assert rested["rest"]["wake_cpu_s"] > rested["replica"]["step_cpu_s"]
    assert 0 < rested["candidates"][0]["reclaimed_share"] <= 1
    assert rested["candidates"][0]["replicas_per_host"] > awake["candidates"][0]["replicas_per_host"]
    assert rested["best"]["usd_per_replica_day"] <= 1.001 * awake["best"]["usd_per_replica_day"]  # disk
    text = run("fleet", "plan", *options, "--rest").output
    assert re.search(r"at rest \d+ MiB, and \d\.\d+ CPU-s more per step after a reclaim", text)
    assert run("fleet", "plan", *options, "--rest", "--plot", "x.png").exit_code == 2


def test_a_step_may_be_shorter_than_a_reset() -> None:
    """Steps and resets have percentiles of their own, and one of 500 ms for steps can be met."""
    found = plan("-n", "64", "--p95-ms", "500")["candidates"][0]
    assert found["step_p95_ms"] <= 500 < found["reset_p95_ms"]
    shown = run("fleet", "plan", "-n", "64").stdout
    assert "STEP p95 ms" in shown
    assert "RESET p95 ms" in shown


def test_all_markets_are_compared_and_a_dearer_one_is_warned_about(tmp_path: Path) -> None:
    """As it was: spot known of a large type only. Both prices are there, and a warning names the cheaper."""
    path = tmp_path / "mine.toml"
    path.write_text(SPOT_OF_A_LARGE_TYPE_ONLY)
    wish = ["-n", "64", "--provider", "own", "--catalogue", str(path), "--market", "spot"]
    found = plan(*wish)
    assert [fleet["market"] for fleet in found["markets"]] == ["on_demand", "spot"]
    assert found["best"]["market"] == "spot"
    assert "spot is dearer than on-demand" in found["warnings"][0]
    shown = run("fleet", "plan", *wish)
    assert "markets in own here" in shown.stdout
    assert "warning: spot is dearer than on-demand" in shown.stderr
    assert "no spot price is known of 1 of 2 types (small)" in shown.stdout


def test_frames_can_cost_more_than_the_host() -> None:
    """Nothing to a trainer in the same zone, 2 cents a GB within the region, 9 to the internet."""
    common = ["-n", "64", "--provider", "aws", "--region", "us-east-1", "--market", "on-demand"]
    common += ["--think-s", "10", "--step-cpu-s", "0", "--private"]
    free, near, far = (plan(*common, "--egress", to) for to in ("zone", "region", "internet"))
    gb = far["replica"]["egress_gb_per_day"]
    for found, usd in ((near, 0.02), (far, 0.09)):
        added = found["best"]["usd_per_replica_day"] - free["best"]["usd_per_replica_day"]
        assert added == pytest.approx(gb * usd / 0.99)
    assert any("go in the region to public addresses or another zone" in note for note in near["notes"])
    address = plan("-n", "64", "--provider", "aws", "--region", "us-east-1", "--egress", "region")
    assert address["best"]["usd_per_replica_day"] > 0


def test_unshared_memory_costs_what_the_paper_says_it_does() -> None:
    """4 GiB each, nothing shared: RAM binds, and no on-demand type comes near 0.30 USD."""
    found = plan("-n", "1024", "--replica-ram-gib", "4", "--shared", "0", "--market", "on-demand")
    small = [c for c in found["candidates"] if c["ram_gib"] < 2048]
    assert {c["binding"] for c in small} == {"ram"}
    assert found["best"]["usd_per_replica_day"] > 0.5


def test_a_latency_wish_limits_the_replicas_and_is_kept() -> None:
    """Fewer replicas per host than without, latency binds somewhere, and every p95 is below the wish."""
    wish = ["-n", "64", "--type", "n2-highmem-16", "--market", "spot"]
    free = plan(*wish)["candidates"][0]
    p95_ms = free["step_p95_ms"] * 0.995
    tight = plan(*wish, "--p95-ms", str(p95_ms))["candidates"][0]
    assert tight["replicas_per_host"] < free["replicas_per_host"]
    assert tight["binding"] == "latency"
    assert tight["step_p95_ms"] <= p95_ms * 1.0001


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    """A PNG of some size; a suffix that is none is bad input."""
    path = tmp_path / "out.png"
    result = run("fleet", "plan", "-n", "512", "--type", "r8i.24xlarge", "--plot", str(path))
    assert result.exit_code == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 20_000
    assert run("fleet", "plan", "-n", "512", "--plot", str(tmp_path / "out.xyz")).exit_code == 2


def test_the_catalogue_is_shown_with_what_is_unknown() -> None:
    """Prices, KVM, notes, question marks, and the dates of the sources."""
    result = run("fleet", "catalogue", "show", "--provider", "aws")
    assert result.exit_code == 0
    row = next(line for line in result.stdout.splitlines() if "r6i.metal" in line)
    assert re.search(r"128\s+1024\s+-\s+metal\s+8\.064\s+\?", row)
    assert "as of 2026-07-20" in result.stdout
    assert "n2-highmem" not in result.stdout
    data = json.loads(run("fleet", "catalogue", "show", "--json").stdout)
    assert {h["provider"] for h in data["hosts"]} == {"aws", "gcp", "hetzner", "latitude"}


def test_a_refresh_that_fails_says_that_and_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Exit code 1, a typed error, nothing written."""
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    monkeypatch.delenv("GOOGLE_OAUTH_ACCESS_TOKEN", raising=False)
    result = run("fleet", "catalogue", "refresh", "--provider", "gcp", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"]["code"] == "refresh_failed"
    assert not (tmp_path / "cache").exists()


def test_the_benchmark_of_costs_meets_its_goal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It plans at all ends of the intervals, keeps the answer, and ends with 0 when the goal is met."""
    from benchmarks import cost_per_replica_day

    kept = tmp_path / "cost.json"
    monkeypatch.setattr(sys, "argv", ["cost_per_replica_day.py", "--out", str(kept)])
    assert cost_per_replica_day.main() == 0
    data = json.loads(kept.read_text())
    assert {row["market"] for row in data["rows"]} == {"spot", "on_demand", "dedicated"}
    assert data["runtime"] == "local"


def test_a_calibrated_profile_can_be_planned_with(tmp_path: Path) -> None:
    """From the kept series to a file to a plan."""
    path = tmp_path / "office.json"
    result = run(
        "fleet",
        "fit",
        str(RESULTS / "load_curve.json"),
        "--workload",
        "office",
        "--think-s",
        "10",
        "--out",
        str(path),
    )
    assert result.exit_code == 0, result.output
    assert "step_cpu_s" in result.stdout
    found = plan("-n", "100", "--profile", str(path))
    assert found["workload"]["id"] == "office"
    assert found["replica"]["think_s"] == 10


def test_files_that_are_no_results_are_refused(tmp_path: Path) -> None:
    """Exit code 2 and the file's name."""
    path = tmp_path / "r.json"
    path.write_text("{}")
    result = run("fleet", "fit", str(path))
    assert result.exit_code == 2
    assert "r.json" in result.stderr


@pytest.mark.parametrize("name", ["plan", "fit"])
def test_help_teaches_with_examples_that_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every example of the help is a command that works."""
    monkeypatch.chdir(RESULTS.parents[1])
    text = run("fleet", name, "--help").output.replace("\\\n", " ")
    examples = re.findall(r"^ +osgym (.+)$", text, re.MULTILINE)
    assert len(examples) >= 3
    for example in examples:
        words = [str(tmp_path / w) if w in ("out.png", "office.json") else w for w in example.split()]
        result = run(*words)
        assert result.exit_code in (0, 1), f"{example}: {result.output}"


def test_osgym_itself_has_the_commands() -> None:
    """They join the host's command, and are listed with their first line."""
    listed = run("fleet", "--help", command=osgym).output
    for name in ("plan", "catalogue", "fit"):
        assert re.search(rf"^  {name} +\w", listed, re.MULTILINE)
    assert run("fleet", "plan", "-n", "8", "--json", command=osgym).exit_code == 0
    assert run("nonsense", command=osgym).exit_code == 2


def test_it_runs_without_the_host_and_without_its_extras() -> None:
    """`python -m osgym_infra plan` imports neither the host nor a cloud SDK, matplotlib or Pulumi."""
    code = (
        "import sys; from osgym_infra.cli.main import main; "
        "main(['fleet', 'plan', '-n', '8', '--json'], standalone_mode=False); "
        "bad = {'osgym_host', 'osgym_sdk', 'boto3', 'matplotlib', 'pulumi', 'httpx'} & set(sys.modules); "
        "sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
