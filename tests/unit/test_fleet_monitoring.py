"""`osgym fleet prometheus`: what it writes is taken by Prometheus' own tools, and alerts when it should."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.support.fleet_files import TOKEN, authority, write_fleet

from osgym_host.core.plan import Blocked
from osgym_host.core.reasons import Reason, Recovery, consequence
from osgym_infra.cli.fleet import fleet as command
from osgym_infra.fleet.monitoring.dashboard import PANELS, dashboard
from osgym_infra.fleet.monitoring.rules import FAULTS, NOT_MADE, rules
from osgym_infra.fleet.monitoring.scrape import ScrapeOptions, duration

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="missing: promtool (prometheus)")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The files for two hosts with addresses in their certificates, and one with a name of its own."""
    rows = [
        {"id": "a", "url": "https://10.0.0.5:20000", "zone": "z"},
        {"id": "b", "url": "https://10.0.0.6:20000"},
        {"id": "c", "url": "https://203.0.113.7:20000", "server_name": "prod.osgym.internal"},
    ]
    path = write_fleet(tmp_path / "fleet.json", rows, authority(tmp_path / "tls").pem)
    done = write(path, tmp_path / "out", "--alertmanager", "127.0.0.1:9093")
    assert done.exit_code == 0, done.output
    return tmp_path / "out"


def write(path: Path, out: Path, *arguments: str) -> Result:
    return CliRunner().invoke(command, ["prometheus", "--fleet", str(path), "--out", str(out), *arguments])


def promtool(*arguments: str) -> str:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_targets_name_their_host(out: Path) -> None:
    """Hosts whose certificates hold another name are another job."""
    first, second = (json.loads((out / f"targets-{job}.json").read_text()) for job in ("osgym", "osgym-2"))
    assert [group["targets"] for group in first] == [["10.0.0.5:20000"], ["10.0.0.6:20000"]]
    assert first[0]["labels"] == {"fleet": "test", "host": "a", "zone": "z", "provider": "ssh"}
    assert second[0]["labels"]["host"] == "c"
    jobs = yaml.safe_load((out / "prometheus.yml").read_text())["scrape_configs"]
    assert [job["tls_config"] for job in jobs] == [
        {"ca_file": "ca.pem"}, {"ca_file": "ca.pem", "server_name": "prod.osgym.internal"},
    ]  # fmt: skip


def test_the_token_is_in_one_file_for_its_owner(out: Path) -> None:
    """And nowhere else; where it is a cloud's secret, somebody else has to put it there."""
    holders = [path.name for path in out.iterdir() if TOKEN in path.read_text()]
    assert holders == ["token"]
    assert stat.S_IMODE((out / "token").stat().st_mode) == 0o600
    rows = [{"id": "a", "url": "https://10.0.0.5:20000"}]
    path = write_fleet(out / "fleet.json", rows, token_secret="aws:arn:x")
    done = write(path, out / "cloud")
    assert done.exit_code == 0
    assert "token could not be written" in done.stderr
    assert not (out / "cloud" / "token").exists()
    assert "credentials_file: token" in (out / "cloud" / "prometheus.yml").read_text()


def test_wrong_arguments_are_named(out: Path) -> None:
    """Before anything is written."""
    path = write_fleet(out / "fleet.json", [{"id": "a", "url": "http://10.0.0.5:20000"}])
    done = write(path, out / "new", "--alertmanager", "http://x")
    assert (done.exit_code, "--alertmanager" in done.output) == (2, True)
    assert not (out / "new").exists()


@needs_promtool
def test_prometheus_takes_what_is_written(out: Path) -> None:
    """Its own tool reads the configuration with token, authority and rules, and the targets."""
    said = promtool("check", "config", str(out / "prometheus.yml"))
    assert "is valid prometheus config file syntax" in said
    assert f"{len(rules(ScrapeOptions())['groups'][0]['rules'])} rules found" in said


def test_rules_name_the_reasons_of_the_host() -> None:
    """A reason that is new in the host needs its place here."""
    by = {way: [reason.value for reason in Reason if consequence(reason).recovery is way] for way in Recovery}
    assert sorted(FAULTS) == sorted(by[Recovery.REPLACE_AND_COUNT])
    assert sorted(NOT_MADE) == sorted(by[Recovery.BACK_OFF])
    text = json.dumps(rules(ScrapeOptions()))
    named = {one for group in re.findall(r'by=~\\"([a-z|]+)\\"', text) for one in group.split("|")}
    assert named
    assert named <= {blocked.value for blocked in Blocked}


A, B = '{fleet="f",host="a"}', '{fleet="f",host="b"}'
RETIRED = 'osgym_replicas_retired_total{fleet="f",host="a",reason="%s"}'
OPENED = f"osgym_episodes_opened_total{A}"
BLOCKED = 'osgym_pool_blocked{fleet="f",host="a",by="%s"}'
NOTICE = 'osgym_notice{fleet="f",host="a",kind="%s"}'
UP = 'up{job="osgym",fleet="f",host="%s"}'
CASES: list[tuple[dict[str, str], str, str]] = [
    ({UP % "a": "1x10 0x40", UP % "b": "1x50"}, "5m", "OsgymHostDown"),
    ({UP % "a": "1x10 0x5 1x40"}, "5m", ""),  # an agent that was restarted
    ({UP % "a": "1x10 0x40"}, "5m", "OsgymHostDown OsgymFleetDown"),
    ({f"osgym_waiting_clients{A}": "3x80"}, "12m", "OsgymClientsWait"),
    ({f"osgym_waiting_clients{A}": "3x10 0x70"}, "12m", ""),
    (
        {BLOCKED % "ram": "1x80", f"osgym_waiting_clients{A}": "1x80"},
        "12m",
        "OsgymPoolBlocked OsgymClientsWait",
    ),
    ({BLOCKED % "ram": "1x80", f"osgym_waiting_clients{B}": "1x80"}, "12m", "OsgymClientsWait"),
    ({BLOCKED % "max_replicas": "1x80"}, "12m", ""),
    (
        {f"osgym_ram_available_mib{A}": "900x80", f"osgym_ram_total_mib{A}": "24000x80"},
        "7m",
        "OsgymMemoryLow",
    ),
    ({f"osgym_disk_free_mib{A}": "3000x80"}, "7m", "OsgymDiskLow"),
    ({f"osgym_disk_free_mib{A}": "90000-100x400"}, "90m", "OsgymDiskFills"),
    ({f"osgym_disk_free_mib{A}": "90000-1x400"}, "90m", ""),
    ({RETIRED % "guest_dead": "0x20 10x60", OPENED: "0+1x80"}, "10m", "OsgymReplicaFaults"),
    ({RETIRED % "guest_dead": "0x20 10x60", OPENED: "0+50x80"}, "10m", ""),  # few of very many
    ({RETIRED % "closed": "0+5x80", OPENED: "0+5x80"}, "10m", ""),
    ({RETIRED % "boot_failed": "0x20 5x60"}, "10m", "OsgymReplicasNotMade"),
    ({BLOCKED % "backoff": "1x80"}, "12m", "OsgymRecoveryFails"),
    ({NOTICE % "preempted": "1x80"}, "1m", "OsgymHostGoing"),
    ({NOTICE % "operator": "1x80"}, "1m", ""),
    ({f"osgym_notices_failing{A}": "1x80"}, "12m", "OsgymNoticesFail"),
]
"""Series at 15 s, as Prometheus' unit tests write them; when is looked; the alerts that then fire."""
KEPT = {
    "OsgymHostDown": "job",
    "OsgymPoolBlocked": "by",
    "OsgymRecoveryFails": "by",
    "OsgymHostGoing": "kind",
}
"""Labels that an alert has beside fleet and host."""


@needs_promtool
def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    """By Prometheus' own unit tests of rules: in each case these alerts fire, and no other."""
    written = rules(ScrapeOptions())
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in written["groups"][0]["rules"]}
    for rule in written["groups"][0]["rules"]:
        rule.pop("annotations")  # whether it fires is compared, not how it says so
    tests: list[dict[str, Any]] = []
    for at in sorted({case[1] for case in CASES}):  # a fleet for each case: starting costs more than looking
        given = []
        expected: dict[str, list[dict[str, object]]] = {name: [] for name in severities}
        for number, (series, when, fired) in enumerate(CASES):
            if when != at:
                continue
            mine = {
                name.replace('fleet="f"', f'fleet="f{number}"'): values for name, values in series.items()
            }
            given += [{"series": name, "values": values} for name, values in mine.items()]
            for name in fired.split():
                labels = {**alert_labels(name, next(iter(mine))), "severity": severities[name]}
                expected[name].append({"exp_labels": labels})
        checks = [
            {"eval_time": at, "alertname": name, "exp_alerts": alerts} for name, alerts in expected.items()
        ]
        tests.append({"interval": "15s", "input_series": given, "alert_rule_test": checks})
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(written))
    content = {"rule_files": ["rules.yml"], "evaluation_interval": "15s", "tests": tests}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(content))
    promtool("test", "rules", str(tmp_path / "test.yml"))
    for test in tests:  # and it does compare
        test["alert_rule_test"] = [{**check, "exp_alerts": []} for check in test["alert_rule_test"]]
    (tmp_path / "test.yml").write_text(yaml.safe_dump({**content, "tests": tests[:1]}))
    with pytest.raises(AssertionError, match="Osgym"):
        promtool("test", "rules", str(tmp_path / "test.yml"))


def test_every_alert_has_a_case_above() -> None:
    """A new rule needs series by which it fires."""
    named = {rule["alert"] for rule in rules(ScrapeOptions())["groups"][0]["rules"]}
    assert {name for _, _, fired in CASES for name in fired.split()} == named


@needs_promtool
def test_every_query_of_the_dashboard_is_one(tmp_path: Path) -> None:
    """Read by Prometheus' own parser, with Grafana's variables filled in."""
    exprs = [filled(expr) for panel in PANELS for expr in panel.exprs.values()]
    recorded = [{"record": f"query:{n}", "expr": expr} for n, expr in enumerate(exprs)]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "q", "rules": recorded}]}))
    assert f"{len(exprs)} rules found" in promtool("check", "rules", str(tmp_path / "queries.yml"))


def test_the_dashboard_is_what_grafana_imports() -> None:
    """Ids, places and variables: no two panels lie over each other, no variable is used that is not there."""
    found = dashboard()
    assert json.loads(json.dumps(found)) == found
    assert len({panel["id"] for panel in found["panels"]}) == len(found["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in found["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["targets"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    names = {variable["name"] for variable in found["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z_]+)", json.dumps(found))) - {"__rate_interval", "__all"}
    assert used == names


@pytest.mark.parametrize(("seconds", "text"), [(15, "15s"), (120, "2m"), (1.5, "1500ms"), (90, "90s")])
def test_durations_are_as_prometheus_reads_them(seconds: float, text: str) -> None:
    """Never a fraction."""
    assert duration(seconds) == text


def filled(expr: str) -> str:
    """A query with Grafana's variables filled in."""
    return expr.replace("$__rate_interval", "1m").replace("$fleet", ".*").replace("$host", ".*")


def alert_labels(alert: str, series: str) -> dict[str, str]:
    """Those that an alert over this series has."""
    labels = dict(re.findall(r'(\w+)="([^"]*)"', series))
    if alert in ("OsgymClientsWait", "OsgymFleetDown"):
        return {"fleet": labels["fleet"]}
    return {name: labels[name] for name in ("fleet", "host", KEPT.get(alert, "")) if name in labels}
