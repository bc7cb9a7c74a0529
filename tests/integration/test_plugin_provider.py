"""A provider of a stranger's distribution: installed, planned with, its program run under Pulumi's mocks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet_configs import COMMON
from tests.support.plugin_packages import ROOT, install_plugin

CONFIG: dict[str, object] = {
    **COMMON,
    "provider": "shelf",
    "replicas": "30",
    "runtime": "local",
    "allowed_cidrs": '["203.0.113.0/24"]',
    "image_uri": "https://files.lab/full.tar",
    "agent_uri": "https://files.lab/agent.tar",
    "boards": '["board-1", "board-2", "board-3"]',
}
PROGRAM = """
import json, sys
from tests.unit.test_infra_programs import run
recorder, outputs = run(json.load(sys.stdin))
made = [{"type": one.typ, "name": one.name, "inputs": dict(one.inputs)} for one in recorder.resources]
print(json.dumps({"made": made, "outputs": outputs}, default=str))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The shelf, installed; no prices that were refreshed on this machine."""
    folder = tmp_path_factory.mktemp("shelf")
    more = {"XDG_DATA_HOME": str(folder), "XDG_CACHE_HOME": str(folder), "PATH": "/usr/bin:/bin"}
    return {**install_plugin("shelf_provider", folder), **more, "PYTHONWARNINGS": "ignore"}


def python(environment: dict[str, str], code: str, given: Any = None) -> subprocess.CompletedProcess[str]:
    """Runs a program where the shelf is installed."""
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, input=json.dumps(given),
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_plan_takes_hosts_of_an_extension(environment: dict[str, str]) -> None:
    """By the catalogue in its package."""
    code = "from osgym_infra.cli.main import main; main(prog_name='osgym')"
    argv = ["fleet", "plan", "--replicas", "30", "--provider", "shelf", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "shelf-board" in done.stdout


def test_the_program_of_an_extension_runs(environment: dict[str, str]) -> None:
    """From its configuration, with a key of its own, to hosts in fleet.json; nothing of a cloud is made."""
    done = python(environment, PROGRAM, CONFIG)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    boards = [one["inputs"] for one in found["made"] if one["type"] == "shelf:index:Board"]
    hosts = found["outputs"]["hosts"]
    assert [board["board"] for board in boards] == [host["id"] for host in hosts]
    assert all("OSGYM_NOTICES=shelf" in board["userData"] for board in boards)
    assert found["outputs"]["discover"] == "shelf://board-1,board-2,board-3?port=20000"
    assert not [one for one in found["made"] if one["type"].startswith(("aws:", "gcp:"))]


def test_what_the_configuration_lacks_is_said_by_key(environment: dict[str, str]) -> None:
    """Its own keys are checked as ours are, and mean nothing elsewhere."""
    code = "import json, sys; from osgym_infra.config.parse import parse; parse(json.load(sys.stdin))"
    done = python(environment, code, {**CONFIG, "boards": '["shoe-1"]'})
    assert "osgym:boards[0]" in done.stderr
    done = python(environment, code, {**CONFIG, "provider": "aws"})
    assert "osgym:boards: has no effect for provider aws" in done.stderr
    done = python(environment, code, {**CONFIG, "provider": "azure"})
    assert "aws | gcp | shelf | ssh" in done.stderr


def test_its_hosts_are_entered_watched_and_found(environment: dict[str, str], tmp_path: Path) -> None:
    """By its command, by its source of notices, and by its URL."""
    fleet = {"schema_version": 1, "provider": "shelf", "hosts": [{"id": "board-7", "url": "https://x:1"}]}
    (tmp_path / "fleet.json").write_text(json.dumps(fleet))
    code = f"""
import asyncio
from pathlib import Path
from osgym_host.notices.sources import sources_of
from osgym_host.settings import load
from osgym_infra.fleet.managed import read_fleet
from osgym_sdk import Client
(host,) = read_fleet(Path({str(tmp_path / "fleet.json")!r})).hosts
print(" ".join(host.access.shell_argv()))
print([source.name for source in sources_of(load(flags={{"notices": "shelf"}}).notices)])
from osgym_sdk._fleet.discovery.open import source_of
print(asyncio.run(source_of("shelf://board-7?port=9").look()).hosts[0].url)
"""
    done = python(environment, code)
    assert done.stdout.splitlines() == ["shelf enter board-7", "['file']", "https://board-7.shelf.lab:9"], (
        done.stderr
    )
