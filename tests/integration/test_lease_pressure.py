"""The number that a fleet is scaled by, from a running host agent to CloudWatch and Cloud Monitoring."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from tests.support import ROOT
from tests.support.fake_compute import fake_google
from tests.support.host_process import HostProcess, start_host, wait_until
from tests.support.moto_server import REGION, fake_aws

from osgym_host.scaling.cloud_monitoring import CloudMonitoring
from osgym_host.scaling.cloudwatch import CloudWatch
from osgym_host.scaling.publishers import PressureFile, PublishFailed
from osgym_sdk import Client

FAKE_HOST = (sys.executable, "-m", "tests.support.fake_runtime_host")
GAUGE = "osgym_lease_pressure_percent"


@contextlib.contextmanager
def host(tmp_path: Path, name: str, *settings: str, **env: str) -> Iterator[HostProcess]:
    """A real host agent whose replicas are processes, room for four."""
    data_dir = Path(tempfile.mkdtemp(prefix="osgym-"))  # a socket's path is short
    plain = ("cpu_per_replica=0", "ram_reserve_mib=0", "replica_ram_mib=64", "disk_reserve_mib=0")
    started = start_host(
        f"{name}-{os.getpid()}", max_replicas=4, warm=2, data_dir=data_dir, command=FAKE_HOST, cwd=ROOT,
        log_dir=tmp_path, settings=(*plain, *settings), env=env,
    )  # fmt: skip
    try:
        yield started
    finally:
        started.stop()
        shutil.rmtree(data_dir)


def gauge(url: str) -> float | None:
    """What Prometheus would read."""
    lines = httpx.get(f"{url}/metrics", timeout=20).raise_for_status().text.splitlines()
    found = [line for line in lines if line.startswith(f"{GAUGE} ")]
    return float(found[0].split()[1]) if found else None


def test_a_host_agent_publishes_it_to_cloudwatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its namespace, dimension and unit are those that the scaling policy reads; leases are seen in it."""
    with fake_aws(monkeypatch) as aws:
        watch = aws.client("cloudwatch")

        def seen() -> list[float]:
            now = datetime.now(UTC)
            found = watch.get_metric_statistics(
                Namespace="OSGym", MetricName="lease_pressure_percent", Period=60, Statistics=["Maximum"],
                Dimensions=[{"Name": "fleet", "Value": "prod"}],
                StartTime=now - timedelta(minutes=5), EndTime=now + timedelta(minutes=5),
            )["Datapoints"]  # fmt: skip
            assert {point["Unit"] for point in found} <= {"Percent"}
            return [point["Maximum"] for point in found]

        given = (f"metrics_to=cloudwatch:{REGION}", "metrics_fleet=prod", "metrics_every_s=5")
        with host(tmp_path, "cloudwatch", *given) as agent:
            assert gauge(agent.url) == 0
            with Client(agent.url) as client, client.episode(), client.episode():
                assert gauge(agent.url) == 50
                wait_until(lambda: 50.0 in seen(), 20, "the number at CloudWatch")
            wait_until(lambda: gauge(agent.url) == 0, 10, "leases given back")
            httpx.post(f"{agent.url}/v1/drain", json={}, timeout=10).raise_for_status()
            assert gauge(agent.url) is None
        metrics = watch.list_metrics(Namespace="OSGym")["Metrics"]
        assert metrics == [
            {
                "Namespace": "OSGym",
                "MetricName": "lease_pressure_percent",
                "Dimensions": [{"Name": "fleet", "Value": "prod"}],
            }
        ]


def test_cloudwatch_that_refuses_or_is_away_is_a_failure_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within the deadlines of a call, and nothing else is raised."""
    with fake_aws(monkeypatch):
        with pytest.raises(PublishFailed, match="region"):
            CloudWatch("prod").put(1.0)
        monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
        publisher = CloudWatch("prod")
        publisher.put(None)
        publisher.put(1.0)
        with pytest.raises(PublishFailed):
            publisher.put(float("nan"))
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        with pytest.raises(PublishFailed, match=r"127\.0\.0\.1:9"):
            CloudWatch("prod").put(1.0)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(PublishFailed, match="credentials"):
        CloudWatch("prod").put(1.0)


def test_the_process_beside_the_agent_publishes_what_the_agent_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on cloud hosts: the agent has no credentials and writes a file, the other process sends that."""
    path = tmp_path / "pressure"
    with fake_google() as google:
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_MONITORING", google.url)
        environ = {
            **os.environ,
            "GOOGLE_APPLICATION_CREDENTIALS": str(google.credentials(tmp_path / "key.json")),
            "OSGYM_TEST_METADATA": google.url,
        }
        argv = [sys.executable, "-m", "osgym_host.scaling", "gcp", str(path), "prod", "0.5"]
        with host(tmp_path, "beside", f"metrics_to=file:{path}", "metrics_every_s=5") as agent:
            wait_until(path.exists, 10, "the file")
            # The stand-in refuses a second point within 5 s, as Google does.
            beside = subprocess.Popen(argv, env=environ, stderr=subprocess.PIPE, text=True)
            try:
                wait_until(lambda: google.series, 20, "a point")
                with Client(agent.url) as client, client.episode():
                    wait_until(
                        lambda: google.series[-1]["points"][0]["value"]["doubleValue"] == 25, 30, "25 %"
                    )
            finally:
                beside.send_signal(signal.SIGTERM)
                _, said = beside.communicate(timeout=20)
        assert beside.returncode == 0, said
        first = google.series[0]
        assert first["metric"] == {
            "type": "custom.googleapis.com/osgym/lease_pressure_percent", "labels": {"fleet": "prod"},
        }  # fmt: skip
        labels = {"project_id": "lab-project", "instance_id": "5551234", "zone": "us-central1-a"}
        assert first["resource"] == {"type": "gce_instance", "labels": labels}
        assert "more frequently" in said and "again" in said


def test_google_that_refuses_is_a_failure_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No instance, an outage, no credentials."""
    with fake_google() as google:
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_MONITORING", google.url)
        key = google.credentials(tmp_path / "key.json")
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
        with pytest.raises(PublishFailed, match="Connect"):
            CloudMonitoring("prod", "http://127.0.0.1:9").put(1.0)
        publisher = CloudMonitoring("prod", google.url)
        google.broken = 503
        with pytest.raises(PublishFailed, match="HTTP 503"):
            publisher.put(1.0)
        google.broken = 0
        publisher.put(1.0)
        with pytest.raises(PublishFailed, match="more frequently"):
            publisher.put(1.0)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent.json")
        with pytest.raises(PublishFailed, match="nonexistent"):
            CloudMonitoring("prod", google.url).put(1.0)


def test_a_file_that_cannot_be_written_is_a_failure(tmp_path: Path) -> None:
    """And the agent goes on: see the unit tests of publishing."""
    with pytest.raises(PublishFailed, match="No such file"):
        PressureFile(tmp_path / "none" / "pressure").put(1.0)
