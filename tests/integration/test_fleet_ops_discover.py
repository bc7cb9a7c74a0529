"""`osgym fleet status` where fleet.json names a source of hosts instead of hosts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from dnslib import A
from tests.integration.test_sdk_discovery import Zone, name_server, port_of
from tests.support.fake_v1_host import FakeV1Host, serving
from tests.support.fleet_files import TOKEN, write_fleet

from osgym_infra.cli.fleet import fleet as command
from osgym_infra.cli.fleet_ops import discover


def test_hosts_that_come_and_go_are_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are there now; a source without any says so."""
    monkeypatch.setattr(discover, "LOOK_S", 3.0)
    zone = Zone()
    zone.records = [("hosts.lab", A("127.0.0.1"))]
    with name_server(zone) as resolver, serving(FakeV1Host(3, token=TOKEN)) as host:
        source = f"dns://hosts.lab:{port_of(host)}?scheme=http&resolver={resolver}"
        path = write_fleet(tmp_path / "fleet.json", [], discover=source)
        done = CliRunner().invoke(command, ["status", "--json", "--fleet", str(path)])
        assert done.exit_code == 0, done.output
        (found,) = json.loads(done.stdout)["hosts"]
        assert (found["host"], found["agent"]["capacity"]["ready"]) == (f"127.0.0.1:{port_of(host)}", 3)
        zone.records.clear()
        empty = CliRunner().invoke(command, ["status", "--fleet", str(path)])
        assert empty.exit_code == 1
        assert "names no hosts within" in empty.stderr
