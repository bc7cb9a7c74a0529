"""The program of Google Cloud under the real engine, against a stand-in that refuses what the cloud refuses.

Skips without the `pulumi` CLI on PATH.
"""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from tests.integration.test_infra_engine import Stack, assert_nowhere_in_clear
from tests.support import cloud_requests
from tests.support.fleet_configs import GCP

from osgym_infra.preview import run as preview

pytestmark = [
    pytest.mark.skipif(shutil.which("pulumi") is None, reason="missing: the pulumi CLI on PATH"),
    pytest.mark.timeout(900),
]

BASE: dict[str, object] = {**GCP, "host_type": "n2-highmem-80", "market": "spot"}
GROUP, TEMPLATE = "RegionInstanceGroupManager", "InstanceTemplate"


@pytest.fixture
def stack(tmp_path: Any) -> Stack:
    """An empty stack of our programs, with stand-ins."""
    preview.copy_project(tmp_path, refusals=cloud_requests.__name__)
    made = Stack(tmp_path)
    made.configure({})
    made.run("stack", "init")
    return made


def touched(stack: Stack) -> dict[str, set[str]]:
    """What a preview would do, without what stays."""
    return {op: set(kinds) for op, kinds in stack.steps().items() if op != "same"}


def test_a_fleet_comes_up_changes_in_place_and_goes(stack: Stack) -> None:
    """A new template reaches the group without another group; bounds bring an autoscaler, and the number of
    hosts is the cloud's from then on; a later end or other replicas touch nothing else."""
    stack.configure(BASE)
    assert set(touched(stack)) == {"create"}
    stack.run("up", "--yes", "--skip-preview")
    first, secret = stack.outputs(), stack.bundle()
    hosts = first["hosts"]
    assert len(hosts) >= 2
    assert first["capacity"] == sum(host["capacity"] for host in hosts) >= 1024
    assert len({host["zone"] for host in hosts}) == min(4, len(hosts))
    assert len({host["url"] for host in hosts}) == len(hosts)
    assert first["discover"].startswith("gcp-label://osgym-fleet=test?project=my-project&address=public")
    assert first["ca"] == secret["ca"]
    assert_nowhere_in_clear(stack, secret)
    stack.run("up", "--yes", "--skip-preview", "--expect-no-changes")

    # Token and certificate are made anew with the hosts that read them, as docs/fleet.md says.
    stack.run(
        "up", "--yes", "--skip-preview", *(f"--replace=**:{kind}::**" for kind in ("SecretVersion", GROUP))
    )
    assert stack.bundle()["token"] != secret["token"]
    secret = stack.bundle()
    assert stack.outputs()["ca"] == secret["ca"]

    changed = {**BASE, "agent_sha256": "12" * 32}
    stack.configure(changed)
    steps = touched(stack)
    assert steps["update"] == {GROUP}
    assert all(kinds == {TEMPLATE} for op, kinds in steps.items() if op != "update")
    stack.configure({**changed, "roll": True, "replicas": 2000})
    stack.run("up", "--yes", "--skip-preview")
    assert len(stack.outputs()["hosts"]) > len(hosts)
    (group,) = [r["inputs"] for r in stack.resources() if r["type"].endswith(f":{GROUP}")]
    assert group["updatePolicy"]["type"] == "PROACTIVE"

    bounded = {**changed, "min_hosts": 2, "max_hosts": 60, "ttl_hours": 24, "protect": True}
    stack.configure(bounded)
    stack.run("up", "--yes", "--skip-preview")
    kinds = {r["type"].rpartition(":")[2] for r in stack.resources()}
    assert {"RegionAutoscaler", "Job", "IAMCustomRole"} <= kinds
    stack.configure({**bounded, "replicas": 1500, "ttl_hours": 72})
    assert touched(stack) == {"update": {"Job"}}

    assert stack.bundle() == secret
    assert "protect" in stack.run("destroy", "--yes", "--skip-preview", ok=False)
    stack.run("state", "unprotect", "--all", "--yes")
    stack.run("destroy", "--yes", "--skip-preview")
    assert [r for r in stack.resources() if not r["type"].startswith("pulumi:")] == []


REFUSED = """
import pulumi_gcp as gcp

disk = gcp.compute.InstanceTemplateDiskArgs(boot=True, disk_type="pd-balanced", disk_size_gb=30)
card = gcp.compute.InstanceTemplateNetworkInterfaceArgs(network="default", nic_type="GVNIC")
gcp.compute.InstanceTemplate(
    "wrong", machine_type="n4-highmem-80", disks=[disk], network_interfaces=[card], project="p"
)
"""


def test_what_the_cloud_refuses_fails_the_preview(stack: Stack) -> None:
    """With the cloud's sentence, whatever program asks for it."""
    (stack.folder / "infra").unlink()
    (stack.folder / "infra").mkdir()
    (stack.folder / "infra" / "__main__.py").write_text(REFUSED)
    printed = stack.run("preview", ok=False)
    assert "features are not compatible for creating instance" in printed
    assert stack.resources() == []


def test_wrong_zones_and_speeds_are_named_before_anything_is_made(stack: Stack) -> None:
    """By their keys, with what would do; no traceback."""
    new = {**BASE, "host_type": "n4-highmem-80", "allow_unknown_kvm": True}
    for values, sentence in (
        ({**new, "zone": "us-central1-f"}, "osgym:zone: us-central1-f does not have n4-highmem-80"),
        ({**BASE, "data_disk_iops": 9000}, "osgym:data_disk_iops: the speed of a pd-balanced disk"),
        ({**BASE, "alert_email": "a@b.org"}, "osgym:billing_account: is required with alert_email"),
    ):
        stack.configure(values)
        printed = stack.run("preview", ok=False)
        assert sentence in printed
        assert "Traceback" not in printed
    assert stack.resources() == []
