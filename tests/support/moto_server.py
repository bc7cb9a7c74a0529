"""moto's server in a process of its own: AWS over HTTP, for boto3 as users have it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pytest

REGION = "us-east-1"
IMAGE = "ami-12c6146b"
"""One of those that moto has."""
START_S = 60.0


@dataclass
class FakeAws:
    """A running server."""

    url: str

    def client(self, service: str) -> Any:
        """A client of boto3."""
        return boto3.session.Session(region_name=REGION).client(service, endpoint_url=self.url)

    def run_instance(self, subnet: str, address: str, **tags: str) -> str:
        """Starts an instance with that address, and returns its id."""
        ec2 = self.client("ec2")
        made = ec2.run_instances(
            ImageId=IMAGE,
            MinCount=1,
            MaxCount=1,
            SubnetId=subnet,
            PrivateIpAddress=address,
            TagSpecifications=[
                {
                    "ResourceType": "instance",
                    "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
                }
            ],
        )
        return str(made["Instances"][0]["InstanceId"])

    def loopback_subnet(self) -> str:
        """A subnet whose addresses are those of this machine's loopback."""
        ec2 = self.client("ec2")
        vpc = ec2.create_vpc(CidrBlock="127.0.0.0/16")["Vpc"]["VpcId"]
        return str(ec2.create_subnet(VpcId=vpc, CidrBlock="127.0.0.0/24")["Subnet"]["SubnetId"])


@contextlib.contextmanager
def fake_aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAws]:
    """Runs it, and has boto3 find it and credentials by its own environment variables."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end_s = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None and time.monotonic() < end_s, "moto's server did not start"
            time.sleep(0.1)
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        yield FakeAws(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(20)
