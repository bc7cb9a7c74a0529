"""What AWS refuses: each rule by a request that breaks it; our own requests break none."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.provider.experimental.provider import CheckRequest, CreateRequest
from tests.support.cloud_requests import refusals, rules_of, table

from osgym_infra.preview.fake_cloud import LATER, FakeCloud

ROOT = Path(__file__).resolve().parents[2]
RULES = {rule.name: rule for rule in rules_of("aws")}
PLAIN, WITH_GROUPS, SPOT, BARE = "lt-plain", "lt-groups", "lt-spot", "lt-bare"
INTERFACE = {"deviceIndex": 0, "associatePublicIpAddress": "true", "securityGroups": ["sg-1"]}
MADE: dict[str, dict[str, Any]] = {
    PLAIN: {"networkInterfaces": [INTERFACE]},
    WITH_GROUPS: {"vpcSecurityGroupIds": ["sg-1"]},
    SPOT: {"networkInterfaces": [INTERFACE], "instanceMarketOptions": {"marketType": "spot"}},
    BARE: {"networkInterfaces": [{"deviceIndex": 0, "subnetId": "subnet-1"}]},
    "vpc-1": {"cidrBlock": "10.64.0.0/16"},
}
"""Other resources, by id."""

GOOD: dict[str, dict[str, Any]] = {
    "LaunchTemplate": {
        "instanceType": "r8i.24xlarge",
        "imageId": "ami-1",
        "iamInstanceProfile": {"arn": "arn:aws:iam::123456789012:instance-profile/x"},
        "networkInterfaces": [INTERFACE],
        "metadataOptions": {
            "httpEndpoint": "enabled",
            "httpTokens": "required",
            "httpPutResponseHopLimit": 1,
        },
        "cpuOptions": {"nestedVirtualization": "enabled"},
        "blockDeviceMappings": [
            {"deviceName": "/dev/xvda", "ebs": {"volumeSize": 30, "volumeType": "gp3"}},
            {"deviceName": "/dev/sdf", "ebs": {"volumeSize": 500, "volumeType": "gp3", "iops": 4000}},
        ],
        "userData": base64.b64encode(b"#!/bin/bash").decode(),
        "tagSpecifications": [{"resourceType": "instance"}, {"resourceType": "volume"}],
        "tags": {"owner": "lab"},
    },
    "Instance": {"launchTemplate": {"id": PLAIN, "version": "3"}},
    "Budget": {
        "budgetType": "COST",
        "limitAmount": "10",
        "limitUnit": "USD",
        "timeUnit": "MONTHLY",
        "notifications": [
            {
                "comparisonOperator": "GREATER_THAN",
                "notificationType": "ACTUAL",
                "threshold": 50,
                "thresholdType": "PERCENTAGE",
                "subscriberEmailAddresses": ["ops@example.org"],
            }
        ],
    },
    "Group": {
        "name": "osgym-test-r8i",
        "minSize": 2,
        "maxSize": 4,
        "desiredCapacity": 3,
        "vpcZoneIdentifiers": ["subnet-1", "subnet-2"],
        "mixedInstancesPolicy": {
            "instancesDistribution": {
                "onDemandPercentageAboveBaseCapacity": 0,
                "onDemandAllocationStrategy": "prioritized",
                "spotAllocationStrategy": "price-capacity-optimized",
            },
            "launchTemplate": {
                "launchTemplateSpecification": {"launchTemplateId": PLAIN, "version": "3"},
                "overrides": [
                    {
                        "instanceType": "r8i.24xlarge",
                        "launchTemplateSpecification": {"launchTemplateId": PLAIN, "version": "3"},
                    },
                    {"instanceType": "r8i.48xlarge"},
                ],
            },
        },
        "instanceRefresh": {
            "strategy": "Rolling",
            "preferences": {"minHealthyPercentage": 66, "maxHealthyPercentage": 100},
        },
        "tags": [{"key": "owner", "value": "lab", "propagateAtLaunch": False}],
    },
    "LifecycleHook": {
        "name": "osgym-drain",
        "lifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
        "heartbeatTimeout": 1920,
        "defaultResult": "CONTINUE",
    },
    "Policy": {
        "policyType": "TargetTrackingScaling",
        "targetTrackingConfiguration": {
            "targetValue": 80,
            "customizedMetricSpecification": {
                "metricName": "m",
                "namespace": "OSGym",
                "statistic": "Average",
            },
        },
    },
    "Schedule": {"startTime": "2099-01-01T00:00:00Z", "minSize": 0, "maxSize": 0, "desiredCapacity": 0},
    "SecurityGroup": {"description": "OSGym", "ingress": [{"description": "OSGym agent"}]},
    "Subnet": {"vpcId": "vpc-1", "cidrBlock": "10.64.16.0/20"},
    "NatGateway": {"allocationId": "eipalloc-1", "subnetId": "subnet-1"},
    "RolePolicy": {
        "policy": json.dumps(
            {
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Allow",
                        "Action": "s3:GetObject",
                        "Resource": ["arn:aws:s3:::golden/full.tar"],
                    }
                ],
            }
        )
    },
    "Role": {"name": "osgym-test-host"},
    "Bucket": {"bucket": "osgym-archives"},
}
"""Requests that are taken."""

POLICY = "mixedInstancesPolicy.launchTemplate"
SPOT_OPTIONS = {"marketType": "spot", "spotOptions": {"instanceInterruptionBehavior": "stop"}}
BROKEN: dict[str, tuple[str, dict[str, Any]]] = {
    "template-groups-beside-interfaces": ("LaunchTemplate", {"vpcSecurityGroupIds": ["sg-1"]}),
    "public-address-of-one-interface": (
        "LaunchTemplate",
        {"networkInterfaces": [INTERFACE, {"deviceIndex": 1, "securityGroups": ["sg-1"]}]},
    ),
    "public-address-of-the-first": ("LaunchTemplate", {"networkInterfaces.0.deviceIndex": 1}),
    "user-data-of-16-kib": ("LaunchTemplate", {"userData": base64.b64encode(b"x" * 16_385).decode()}),
    "user-data-in-base64": ("LaunchTemplate", {"userData": "#!/bin/bash"}),
    "nesting-of-the-family": ("LaunchTemplate", {"instanceType": "r7i.24xlarge"}),
    "one-time-spot-ends": ("LaunchTemplate", {"instanceMarketOptions": SPOT_OPTIONS}),
    "hop-limit": ("LaunchTemplate", {"metadataOptions.httpPutResponseHopLimit": 65}),
    "metadata-switched-on": ("LaunchTemplate", {"metadataOptions.httpEndpoint": None}),
    "gp3-within-bounds": ("LaunchTemplate", {"blockDeviceMappings.1.ebs.iops": 2000}),
    "gp3-ratio": ("LaunchTemplate", {"blockDeviceMappings.1.ebs.throughput": 1001}),
    "throughput-of-gp3-only": (
        "LaunchTemplate",
        {"blockDeviceMappings.1.ebs": {"volumeSize": 500, "volumeType": "gp2", "throughput": 200}},
    ),
    "root-holds-the-image": ("LaunchTemplate", {"blockDeviceMappings.0.ebs.volumeSize": 4}),
    "device-once": ("LaunchTemplate", {"blockDeviceMappings.1.deviceName": "/dev/xvda"}),
    "tagged-kinds": ("LaunchTemplate", {"tagSpecifications.0.resourceType": "vpc"}),
    "profile-by-arn-or-name": ("LaunchTemplate", {"iamInstanceProfile.name": "x"}),
    "template-name-or-prefix": ("LaunchTemplate", {"name": "one", "namePrefix": "one-"}),
    "template-name": ("LaunchTemplate", {"name": "a b"}),
    "template-prefix": ("LaunchTemplate", {"namePrefix": "a" * 100}),
    "instance-image": ("Instance", {"launchTemplate": None}),
    "instance-template-by-id-or-name": ("Instance", {"launchTemplate.name": "one"}),
    "instance-interfaces-alone": (
        "Instance",
        {"networkInterfaces": [{"deviceIndex": 0}], "securityGroups": ["default"]},
    ),
    "instance-subnet-beside-template-groups": (
        "Instance",
        {"launchTemplate.id": WITH_GROUPS, "subnetId": "subnet-1", "associatePublicIpAddress": True},
    ),
    "instance-subnet-beside-template-interfaces": ("Instance", {"subnetId": "subnet-1"}),
    "instance-groups-beside-template-interfaces": ("Instance", {"vpcSecurityGroupIds": ["sg-1"]}),
    "group-of-one-source": ("Group", {"launchTemplate": {"id": PLAIN, "version": "3"}}),
    "group-zones-or-subnets": ("Group", {"availabilityZones": ["us-east-1a"]}),
    "group-stands-somewhere": ("Group", {"vpcZoneIdentifiers": []}),
    "group-sizes": ("Group", {"desiredCapacity": 5}),
    "group-without-market-in-template": (
        "Group",
        {f"{POLICY}.launchTemplateSpecification.launchTemplateId": SPOT},
    ),
    "group-interface-holds-groups": (
        "Group",
        {f"{POLICY}.overrides.0.launchTemplateSpecification.launchTemplateId": BARE},
    ),
    "refresh-of-a-number": ("Group", {f"{POLICY}.launchTemplateSpecification.version": "$Latest"}),
    "refresh-percentages": ("Group", {"instanceRefresh.preferences.maxHealthyPercentage": 201}),
    "overrides": ("Group", {f"{POLICY}.overrides.1.weightedCapacity": "2"}),
    "distribution": ("Group", {"mixedInstancesPolicy.instancesDistribution.spotInstancePools": 2}),
    "lifetime": ("Group", {"maxInstanceLifetime": 3600}),
    "hook": ("LifecycleHook", {"heartbeatTimeout": 7201}),
    "target-tracking": ("Policy", {"adjustmentType": "ChangeInCapacity"}),
    "schedule": ("Schedule", {"startTime": "2020-01-01T00:00:00Z"}),
    "budget": ("Budget", {"notifications.0.subscriberEmailAddresses": []}),
    "tags": ("LaunchTemplate", {"tags": {"aws:owner": "lab"}}),
    "security-group-descriptions": ("SecurityGroup", {"description": "The OSGym agent's port"}),
    "subnet-in-its-network": ("Subnet", {"vpcId": "vpc-2", "cidrBlock": "10.0.0.0/29"}),
    "subnet-inside-its-network": ("Subnet", {"cidrBlock": "10.65.0.0/20"}),
    "nat-address": ("NatGateway", {"allocationId": None}),
    "policy-document": ("RolePolicy", {"policy": '{"Version": "2012-10-17", "Statement": []}'}),
    "role-name": ("Role", {"name": "a" * 65}),
    "bucket-name": ("Bucket", {"bucket": "My_Bucket"}),
}
"""For each rule a request that is taken, changed so that it breaks this rule and no other."""


def made(id_: str) -> dict[str, Any]:
    """What stands beside a request."""
    return MADE.get(id_, {})


def changed(kind: str, changes: dict[str, Any]) -> dict[str, Any]:
    """A request that is taken, with other values at some paths; `None` takes a value away."""
    found: Any = copy.deepcopy(GOOD[kind])
    for path, value in changes.items():
        *way, last = path.split(".")
        place = found
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place[step]
        if value is None:
            del place[last]
        else:
            place[last] = value
    result: dict[str, Any] = found
    return result


def test_every_rule_has_a_request_that_breaks_it() -> None:
    """And a message, a source and a day; a rule without one would be an opinion."""
    assert set(BROKEN) == set(RULES)
    assert len(RULES) == len(rules_of("aws"))
    for rule in RULES.values():
        assert rule.message, rule.name
        assert rule.source, rule.name
        assert rule.read.year >= 2026, rule.name


@pytest.mark.parametrize("kind", GOOD)
def test_a_request_that_is_taken_breaks_no_rule(kind: str) -> None:
    """What the other test changes is right before."""
    assert refusals(f"aws:x/y:{kind}", GOOD[kind], made) == []


@pytest.mark.parametrize("name", BROKEN)
def test_the_stand_in_refuses_what_the_cloud_refuses(name: str) -> None:
    """Each rule alone, with the cloud's sentence."""
    kind, changes = BROKEN[name]
    assert refusals(f"aws:x/y:{kind}", changed(kind, changes), made) == [f"{RULES[name].message} [{name}]"]


@pytest.mark.parametrize("kind", GOOD)
def test_what_is_not_known_yet_is_not_refused(kind: str) -> None:
    """In a preview much is unknown; a rule must neither fail nor speak then."""
    for key in GOOD[kind]:
        assert refusals(f"aws:x/y:{kind}", {**GOOD[kind], key: None}, made) == [], key


def test_the_document_holds_the_rules() -> None:
    """docs/design/cloud-requests.md, written from the data."""
    text = (ROOT / "docs" / "design" / "cloud-requests.md").read_text("utf-8")
    rules = table(rules_of("aws"))
    assert rules in text, f"docs/design/cloud-requests.md has to hold:\n{rules}"


def test_the_stand_in_says_it_with_what_it_made_before() -> None:
    """The provider that plays the cloud knows the template that an instance starts from."""
    cloud = FakeCloud("aws", "1", refusals)
    parent = "urn:pulumi:test::p::osgym:aws:ReplicaHosts"
    template = {"vpcSecurityGroupIds": valued(["sg-1"]), "instanceType": valued("r8i.24xlarge")}
    request = CreateRequest(f"{parent}$aws:ec2/launchTemplate:LaunchTemplate::one", template, 60, False)
    id_ = asyncio.run(cloud.create(request)).resource_id
    inputs = {
        "launchTemplate": valued({"id": id_, "version": "1"}),
        "subnetId": valued("subnet-1"),
        "userData": LATER,
    }
    answer = asyncio.run(
        cloud.check(CheckRequest(f"{parent}$aws:ec2/instance:Instance::two", {}, inputs, b""))
    )
    name = "instance-subnet-beside-template-groups"
    assert [one.reason for one in answer.failures or []] == [f"{RULES[name].message} [{name}]"]


def valued(value: Any) -> PropertyValue:
    """As the engine sends it."""
    if isinstance(value, dict):
        return PropertyValue({key: valued(item) for key, item in value.items()})
    if isinstance(value, list):
        return PropertyValue([valued(item) for item in value])
    return PropertyValue(float(value) if isinstance(value, int) and not isinstance(value, bool) else value)
