"""The program of AWS under the real engine: a fleet of groups comes up, changes, and goes.

The provider is a stand-in, which refuses what AWS refuses (docs/design/cloud-requests.md). Skips without the
`pulumi` CLI on PATH.
"""

from __future__ import annotations

import base64
import gzip
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_infra_engine import Stack, assert_nowhere_in_clear
from tests.support import cloud_requests
from tests.support.fleet_configs import AWS

from osgym_infra.preview import run as preview
from osgym_infra.providers.aws.preview import EXISTING_VPC

pytestmark = [
    pytest.mark.skipif(shutil.which("pulumi") is None, reason="missing: the pulumi CLI on PATH"),
    pytest.mark.timeout(900),
]

BASE: dict[str, object] = {**AWS, "market": "spot"}


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    """An empty stack of our programs, with a stand-in for AWS."""
    preview.copy_project(tmp_path, refusals=cloud_requests.__name__)
    made = Stack(tmp_path)
    made.configure({})
    made.run("stack", "init")
    return made


def all_of(stack: Stack, kind: str) -> list[dict[str, Any]]:
    """The resources of a type in the state: their inputs. A plan may have a group of each machine type."""
    found = [r["inputs"] for r in stack.resources() if r["type"].endswith(f":{kind}")]
    assert found
    return found


def test_a_fleet_comes_up_is_upgraded_rotated_and_goes(stack: Stack) -> None:
    """Preview, up, nothing to do; a new agent: templates only, then a refresh on purpose; a new secret brings
    new templates; protection; destroy."""
    stack.configure(BASE)
    planned = stack.steps()
    assert set(planned) == {"create"}
    assert "Instance" not in planned["create"]
    assert planned["create"]["LaunchTemplate"] >= 2

    stack.run("up", "--yes", "--skip-preview")
    first, secret, groups = stack.outputs(), stack.bundle(), all_of(stack, "Group")
    assert len(first["hosts"]) == sum(group["desiredCapacity"] for group in groups) >= 2
    assert first["discover"].startswith("aws-tag://osgym-fleet=test?region=us-east-1&")
    assert {host["url"].split("//")[1].split(".")[0] for host in first["hosts"]} == {"198"}
    assert len({host["zone"] for host in first["hosts"]}) >= 2
    assert first["capacity"] == sum(host["capacity"] for host in first["hosts"]) >= 1024
    assert first["ca"] == secret["ca"]
    assert_nowhere_in_clear(stack, secret)
    stack.run("up", "--yes", "--skip-preview", "--expect-no-changes")

    # Another agent: new templates; the group knows their numbers and replaces nothing by itself.
    upgraded = {**BASE, "agent_sha256": "12" * 32}
    stack.configure(upgraded)
    waiting = stack.steps()
    assert waiting["update"]["LaunchTemplate"] == planned["create"]["LaunchTemplate"]
    assert waiting["update"]["Group"] == len(groups)
    assert "replace" not in waiting
    stack.configure({**upgraded, "roll": True, "max_unavailable": 1})
    stack.run("up", "--yes", "--skip-preview")
    for refreshed in all_of(stack, "Group"):
        assert refreshed["instanceRefresh"]["preferences"]["minHealthyPercentage"] < 100
        versions = [
            found["launchTemplateSpecification"]["version"]
            for found in refreshed["mixedInstancesPolicy"]["launchTemplate"]["overrides"]
        ]
        assert set(versions) == {"2"}

    # Another secret: other templates, for hosts read it at their first start.
    stack.run("up", "--yes", "--skip-preview", "--replace", "**:SecretVersion::**")
    rotated = stack.bundle()
    assert (rotated["token"] != secret["token"], stack.outputs()["ca"]) == (True, rotated["ca"])
    script = gzip.decompress(base64.b64decode(_templates(stack)[0]["userData"])).decode()
    assert "# secret " in script
    templates = [group["mixedInstancesPolicy"]["launchTemplate"] for group in all_of(stack, "Group")]
    assert {template["launchTemplateSpecification"]["version"] for template in templates} == {"3"}
    assert_nowhere_in_clear(stack, rotated)

    stack.configure({**upgraded, "roll": True, "protect": True})
    stack.run("up", "--yes", "--skip-preview")
    assert "protect" in stack.run("destroy", "--yes", "--skip-preview", ok=False)
    stack.run("state", "unprotect", "--all", "--yes")
    stack.run("destroy", "--yes", "--skip-preview")
    assert [r for r in stack.resources() if not r["type"].startswith("pulumi:")] == []


def test_a_private_fleet_that_grows_and_ends_by_itself(stack: Stack) -> None:
    """Private addresses, a policy and an end; then inside a network that is there already."""
    private = {**BASE, "private": True, "allowed_cidrs": '["10.0.0.0/8"]', "min_hosts": 1, "max_hosts": 4}
    stack.configure({**private, "ttl_hours": 12})
    stack.run("up", "--yes", "--skip-preview")
    found = stack.outputs()
    assert found["hosts"]
    assert all("//10.64." in host["url"] for host in found["hosts"])
    kinds = {r["type"].rpartition(":")[2] for r in stack.resources()}
    assert {"NatGateway", "Eip", "Policy", "Schedule", "LifecycleHook"} <= kinds

    stack.configure({**private, "network_id": EXISTING_VPC, "subnet_id": "subnet-1,subnet-2"})
    stack.run("up", "--yes", "--skip-preview")
    assert all(group["vpcZoneIdentifiers"] == ["subnet-1", "subnet-2"] for group in all_of(stack, "Group"))
    kinds = {r["type"].rpartition(":")[2] for r in stack.resources()}
    assert not {"Vpc", "NatGateway", "Schedule"} & kinds
    stack.configure({**private, "network_id": "vpc-other", "subnet_id": "subnet-1"})
    printed = stack.run("preview", ok=False)
    assert f"osgym:subnet_id: subnet-1 stands in {EXISTING_VPC}, not in vpc-other" in printed
    assert "Traceback" not in printed
    stack.run("destroy", "--yes", "--skip-preview")


def test_what_aws_does_not_have_is_said_in_the_preview(stack: Stack) -> None:
    """A zone without the type, a type without nested virtualisation; by key, no traceback, nothing made."""
    for values, sentence in (
        ({"host_type": "r8i.24xlarge", "zone": "us-east-1c"}, "osgym:zone: us-east-1c does not have"),
        (
            {"host_type": "r8id.48xlarge", "market": "on-demand", "allow_unknown_kvm": True},
            "osgym:host_type: EC2 offers no nested virtualisation on r8id.48xlarge",
        ),
        ({"token_secret": "osgym-token"}, "osgym:token_secret: the hosts' role"),
    ):
        stack.configure({**BASE, **values})
        printed = stack.run("preview", ok=False)
        assert sentence in printed
        assert "Traceback" not in printed
    assert stack.resources() == []


def _templates(stack: Stack) -> list[dict[str, Any]]:
    return [r["inputs"] for r in stack.resources() if r["type"].endswith(":LaunchTemplate")]
