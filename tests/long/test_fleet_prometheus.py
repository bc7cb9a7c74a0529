"""`osgym fleet prometheus` with the real Prometheus: it scrapes real host agents over TLS, and alerts."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.fleet_files import TOKEN, authority, write_fleet
from tests.support.host_process import OSGYM, osgym, running_host, wait_until

from osgym_host.images.store import Image, default_data_dir
from osgym_infra.fleet.monitoring.dashboard import PANELS
from osgym_sdk import Client

pytestmark = [
    pytest.mark.desktop,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="missing: prometheus"),
    pytest.mark.timeout(240),
]

ONLY_SOMETIMES = {"Notices", "What blocks pools", "Hosts that drain", "Alerts", "Evaluations"}
"""Panels that are empty while nothing is wrong, or nothing was scored."""


@contextlib.contextmanager
def prometheus(folder: Path) -> Iterator[httpx.Client]:
    """The real one with this configuration; answers its API."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{sock.getsockname()[1]}"
    argv = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--web.listen-address={address}",
            f"--storage.tsdb.path={folder / 'data'}"]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://{address}", timeout=10, trust_env=False) as client:

            def ready() -> bool:
                assert process.poll() is None, (folder / "log").read_text()
                with contextlib.suppress(httpx.TransportError):
                    return client.get("/-/ready").status_code == 200
                return False

            wait_until(ready, 60, "Prometheus to be ready")
            yield client
    finally:
        process.terminate()
        process.wait(30)


def queried(client: httpx.Client, expr: str) -> list[dict[str, Any]]:
    """The result of an instant query."""
    answer = client.get("/api/v1/query", params={"query": expr}).json()
    assert answer["status"] == "success", (expr, answer)
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


@pytest.fixture
def instance() -> Iterator[str]:
    """A name that no other agent has; its (empty) folders go afterwards."""
    name = f"watched-{secrets.token_hex(4)}"
    yield name
    for folder in ("run", "state"):
        for path in (default_data_dir() / folder).glob(f"*{name}*"):
            shutil.rmtree(path)


def test_prometheus_scrapes_real_agents_over_tls_and_alerts(
    small_image: Image, instance: str, tmp_path: Path
) -> None:
    """All targets are up, every query of the dashboard works, and an alert fires when a host is killed."""
    ca = authority(tmp_path / "tls")
    files = ca.certificate("host")
    settings = [f"tls_cert={files['ssl_certfile']}", f"tls_key={files['ssl_keyfile']}"]
    with contextlib.ExitStack() as stack:
        options: dict[str, Any] = {"log_dir": tmp_path, "warm": 1, "max_replicas": 2, "settings": settings}
        options |= {"wait": False, "env": {"OSGYM_TOKEN": TOKEN}}
        hosts = [stack.enter_context(running_host(f"{instance}{name}", **options)) for name in "ab"]
        stack.callback(osgym, "host", "clean", "--instance", f"{instance}b")  # what a killed one leaves
        rows = [{"id": name, "url": host.url} for name, host in zip("ab", hosts, strict=True)]
        path = write_fleet(tmp_path / "fleet.json", rows, ca.pem)
        argv = [OSGYM, "fleet", "prometheus", "--fleet", str(path), "--out", str(tmp_path / "watch")]
        subprocess.run([*argv, "--every-s", "1"], check=True, capture_output=True, timeout=60)
        with prometheus(tmp_path / "watch") as client:
            wait_until(lambda: len(queried(client, "up == 1")) == 2, 30, "both targets to be up")
            targets = client.get("/api/v1/targets").json()["data"]["activeTargets"]
            assert [target["lastError"] for target in targets] == ["", ""]
            assert {target["labels"]["host"] for target in targets} == {"a", "b"}
            with Client.from_fleet(path) as sdk, sdk.episode(wait_s=100) as episode:
                for _ in range(20):
                    episode.step("wait()")
            still = {panel.title for panel in PANELS} - ONLY_SOMETIMES

            def all_seen() -> bool:
                still.difference_update(with_data(client))
                return not still

            wait_until(all_seen, 30, f"data for all of {still}")
            alerts = {alert["labels"]["alertname"] for alert in firing(client)}
            assert "OsgymHostDown" not in alerts
            hosts[1].process.send_signal(signal.SIGKILL)
            down = wait_until(
                lambda: [one for one in firing(client) if one["labels"]["alertname"] == "OsgymHostDown"], 60,
                "the alert to fire",
            )  # fmt: skip
            assert [one["labels"]["host"] for one in down] == ["b"]
            assert "osgym fleet status --host b" in down[0]["annotations"]["description"]
            if where := os.environ.get("OSGYM_TEST_KEEP_SERIES"):
                Path(where).write_text(json.dumps(drawn(client)))


def with_data(client: httpx.Client) -> set[str]:
    """Panels whose queries all find something."""
    found = set()
    for panel in PANELS:
        exprs = [expr.replace("$__rate_interval", "10s") for expr in panel.exprs.values()]
        exprs = [expr.replace("$fleet", ".*").replace("$host", ".*") for expr in exprs]
        if all(queried(client, expr) for expr in exprs):
            found.add(panel.title)
    return found


def firing(client: httpx.Client) -> list[dict[str, Any]]:
    """Alerts that fire."""
    alerts = client.get("/api/v1/alerts").json()["data"]["alerts"]
    return [alert for alert in alerts if alert["state"] == "firing"]


def drawn(client: httpx.Client) -> dict[str, Any]:
    """Every panel's series of the last two minutes, for a picture."""
    now = time.time()
    found = {}
    for panel in PANELS:
        rows = []
        for legend, expr in panel.exprs.items():
            expr = expr.replace("$__rate_interval", "10s").replace("$fleet", ".*").replace("$host", ".*")
            times = {"query": expr, "start": now - 120, "end": now, "step": 1}
            rows.append([legend, client.get("/api/v1/query_range", params=times).json()["data"]["result"]])
        found[panel.title] = rows
    return found
