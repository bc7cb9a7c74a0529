"""What Google Cloud refuses: each rule by a request that breaks it; our own requests break none."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.provider.experimental.provider import CheckRequest
from tests.support.cloud_requests import refusals, rules_of, table

from osgym_infra.catalogue.load import load
from osgym_infra.catalogue.shapes import Kvm, Market
from osgym_infra.preview.fake_cloud import LATER, FakeCloud

ROOT = Path(__file__).resolve().parents[2]
RULES = {rule.name: rule for rule in rules_of("gcp")}

GOOD: dict[str, dict[str, Any]] = {
    "InstanceTemplate": {
        "namePrefix": "osgym-test-n2-",
        "machineType": "n2-highmem-80",
        "disks": [
            {
                "boot": True,
                "diskType": "pd-balanced",
                "diskSizeGb": 30,
                "sourceImage": "projects/debian-cloud/global/images/family/debian-12",
            },
            {"boot": False, "diskType": "pd-balanced", "diskSizeGb": 500},
        ],
        "networkInterfaces": [{"nicType": "GVNIC"}],
        "scheduling": {
            "provisioningModel": "STANDARD",
            "automaticRestart": True,
            "onHostMaintenance": "TERMINATE",
        },
        "advancedMachineFeatures": {"enableNestedVirtualization": True},
        "metadata": {"enable-oslogin": "TRUE"},
        "metadataStartupScript": "#!/bin/bash",
        "labels": {"owner": "lab"},
        "tags": ["osgym-test-host"],
    },
    "RegionInstanceGroupManager": {
        "baseInstanceName": "osgym-test-n2",
        "region": "us-central1",
        "distributionPolicyZones": ["us-central1-a", "us-central1-b", "us-central1-f"],
        "distributionPolicyTargetShape": "BALANCED",
        "targetSize": 4,
        "versions": [{"instanceTemplate": "t"}],
        "autoHealingPolicies": {"healthCheck": "h", "initialDelaySec": 900},
        "updatePolicy": {
            "type": "PROACTIVE",
            "minimalAction": "REPLACE",
            "instanceRedistributionType": "NONE",
            "maxSurgeFixed": 3,
            "maxUnavailableFixed": 0,
            "replacementMethod": "SUBSTITUTE",
        },
        "instanceFlexibilityPolicy": {
            "instanceSelections": [{"name": "a", "machineTypes": ["n2-highmem-80"]}]
        },
    },
    "RegionAutoscaler": {
        "autoscalingPolicy": {
            "minReplicas": 1,
            "maxReplicas": 4,
            "metrics": [
                {"name": "custom.googleapis.com/x", "target": 80, "filter": 'metric.labels.fleet = "a"'}
            ],
        }
    },
    "HealthCheck": {"checkIntervalSec": 10, "timeoutSec": 5, "httpsHealthCheck": {"port": 20000}},
    "Firewall": {"sourceRanges": ["10.0.0.0/8"], "targetTags": ["osgym-test-host"], "name": "osgym-agent"},
    "Subnetwork": {"ipCidrRange": "10.64.0.0/20"},
    "RouterNat": {
        "natIpAllocateOption": "AUTO_ONLY",
        "sourceSubnetworkIpRangesToNat": "LIST_OF_SUBNETWORKS",
        "subnetworks": [{"name": "s"}],
        "enableDynamicPortAllocation": True,
        "minPortsPerVm": 64,
    },
    "Account": {"accountId": "osgym-test-host"},
    "Secret": {"secretId": "osgym-test-token"},
    "Bucket": {"name": "my-bucket"},
    "BucketIAMMember": {"member": "serviceAccount:a@b", "condition": {"title": "t", "expression": "true"}},
    "Budget": {
        "billingAccount": "01AB23-45CD67-89EF01",
        "budgetFilter": {"labels": {"stack": "test"}},
        "allUpdatesRule": {"monitoringNotificationChannels": ["c"]},
    },
}
"""Requests that are taken."""

SPOT = {"scheduling.provisioningModel": "SPOT", "scheduling.preemptible": True,
        "scheduling.automaticRestart": False, "scheduling.instanceTerminationAction": "DELETE"}  # fmt: skip
METAL = {"machineType": "c3-highmem-192-metal", "networkInterfaces.0.nicType": "IDPF",
         "disks.0.diskType": "hyperdisk-balanced", "disks.1.diskType": "hyperdisk-balanced",
         "disks.0.sourceImage": "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64",
         "advancedMachineFeatures": None}  # fmt: skip
SSD = {"disks.1.type": "SCRATCH", "disks.1.diskType": "local-ssd", "disks.1.diskSizeGb": 375}
FAST = {"machineType": "c3-highmem-176", "disks.1.diskType": "hyperdisk-balanced"}
BROKEN: dict[str, tuple[str, dict[str, Any]]] = {
    "boot-disk-first": ("InstanceTemplate", {"disks.1.boot": True}),
    "scratch-is-local-ssd": ("InstanceTemplate", {"disks.1.type": "SCRATCH", "disks.1.diskSizeGb": 375}),
    "local-ssd-size": ("InstanceTemplate", {**SSD, "disks.1.diskSizeGb": 300}),
    "large-local-ssd-is-nvme": ("InstanceTemplate", {**SSD, "disks.1.diskSizeGb": 3000}),
    "disk-of-the-series": ("InstanceTemplate", {"machineType": "n4-highmem-80"}),
    "disk-of-10-gb": ("InstanceTemplate", {"disks.1.diskSizeGb": 5}),
    "speed-of-hyperdisk-only": ("InstanceTemplate", {"disks.1.provisionedIops": 4000}),
    "speed-of-hyperdisk-balanced": ("InstanceTemplate", {**FAST, "disks.1.provisionedIops": 4000}),
    "card-of-metal": ("InstanceTemplate", {**METAL, "networkInterfaces.0.nicType": "GVNIC"}),
    "one-card-of-metal": (
        "InstanceTemplate",
        {**METAL, "networkInterfaces": [{"nicType": "IDPF"}, {"nicType": "IDPF"}]},
    ),
    "image-with-idpf": (
        "InstanceTemplate",
        {**METAL, "disks.0.sourceImage": "projects/debian-cloud/global/images/family/debian-12"},
    ),
    "metal-ends-at-maintenance": ("InstanceTemplate", {**METAL, "scheduling.onHostMaintenance": "MIGRATE"}),
    "e2-migrates": ("InstanceTemplate", {"machineType": "e2-standard-8", "advancedMachineFeatures": None}),
    "nesting-of-the-series": ("InstanceTemplate", {"machineType": "n2d-highmem-80"}),
    "spot-of-the-series": ("InstanceTemplate", {**METAL, **SPOT}),
    "spot-is-preemptible": ("InstanceTemplate", {**SPOT, "scheduling.preemptible": False}),
    "spot-does-not-restart": ("InstanceTemplate", {**SPOT, "scheduling.automaticRestart": True}),
    "spot-ends-at-maintenance": ("InstanceTemplate", {**SPOT, "scheduling.onHostMaintenance": "MIGRATE"}),
    "standard-has-no-end": ("InstanceTemplate", {"scheduling.instanceTerminationAction": "DELETE"}),
    "end-has-an-action": ("InstanceTemplate", {"scheduling.maxRunDuration": {"seconds": 3600}}),
    "one-end": (
        "InstanceTemplate",
        {
            "scheduling.instanceTerminationAction": "DELETE",
            "scheduling.maxRunDuration": {"seconds": 3600},
            "scheduling.terminationTime": "2026-12-01T00:00:00Z",
        },
    ),
    "end-is-a-time": (
        "InstanceTemplate",
        {"scheduling.instanceTerminationAction": "DELETE", "scheduling.terminationTime": "tomorrow"},
    ),
    "one-name": ("InstanceTemplate", {"name": "osgym-test"}),
    "short-prefix": ("InstanceTemplate", {"namePrefix": "a" * 55}),
    "one-start-script": ("InstanceTemplate", {"metadata.startup-script": "#!/bin/bash"}),
    "metadata-of-256-kib": ("InstanceTemplate", {"metadataStartupScript": "x" * 300_000}),
    "labels": ("InstanceTemplate", {"labels.owner": "My Lab"}),
    "tags": ("InstanceTemplate", {"tags": ["Host"]}),
    "base-name": ("RegionInstanceGroupManager", {"baseInstanceName": "a" * 59}),
    "surge-or-unavailable": ("RegionInstanceGroupManager", {"updatePolicy.maxSurgeFixed": 0}),
    "surge-of-zones": ("RegionInstanceGroupManager", {"updatePolicy.maxSurgeFixed": 2}),
    "unavailable-of-zones": ("RegionInstanceGroupManager", {"updatePolicy.maxUnavailableFixed": 1}),
    "fixed-or-percent": (
        "RegionInstanceGroupManager",
        {"updatePolicy.maxSurgePercent": 20, "targetSize": 40},
    ),
    "percent-of-ten": (
        "RegionInstanceGroupManager",
        {"updatePolicy.maxSurgePercent": 20, "updatePolicy.maxSurgeFixed": None},
    ),
    "recreate-without-surge": ("RegionInstanceGroupManager", {"updatePolicy.replacementMethod": "RECREATE"}),
    "healing-delay": ("RegionInstanceGroupManager", {"autoHealingPolicies.initialDelaySec": 4000}),
    "shape-without-redistribution": (
        "RegionInstanceGroupManager",
        {"updatePolicy.instanceRedistributionType": "PROACTIVE"},
    ),
    "flexible-is-not-even": ("RegionInstanceGroupManager", {"distributionPolicyTargetShape": "EVEN"}),
    "zones-of-the-region": ("RegionInstanceGroupManager", {"distributionPolicyZones.0": "us-east1-b"}),
    "one-version-has-no-target": ("RegionInstanceGroupManager", {"versions.0.targetSize": {"fixed": 1}}),
    "bounds": ("RegionAutoscaler", {"autoscalingPolicy.minReplicas": 5}),
    "positive-target": ("RegionAutoscaler", {"autoscalingPolicy.metrics.0.target": 0}),
    "plain-filter": ("RegionAutoscaler", {"autoscalingPolicy.metrics.0.filter": 'fleet = one_of("a")'}),
    "timeout-in-interval": ("HealthCheck", {"timeoutSec": 11}),
    "one-protocol": ("HealthCheck", {"httpHealthCheck": {"port": 1}}),
    "port": ("HealthCheck", {"httpsHealthCheck.port": 70000}),
    "name": ("Firewall", {"name": "Agent"}),
    "firewall-source": ("Firewall", {"sourceRanges": []}),
    "one-family-of-addresses": ("Firewall", {"sourceRanges": ["10.0.0.0/8", "2001:db8::/32"]}),
    "tags-or-accounts": ("Firewall", {"targetServiceAccounts": ["a@b"]}),
    "subnet-range": ("Subnetwork", {"ipCidrRange": "10.64.0.1/20"}),
    "nat-addresses": ("RouterNat", {"natIps": ["a"]}),
    "nat-subnets": ("RouterNat", {"subnetworks": []}),
    "nat-ports": ("RouterNat", {"minPortsPerVm": 100}),
    "account-id": ("Account", {"accountId": "short"}),
    "secret-id": ("Secret", {"secretId": "a/b"}),
    "bucket-name": ("Bucket", {"name": "My_Bucket"}),
    "condition-has-a-title": ("BucketIAMMember", {"condition": {"expression": "true"}}),
    "no-condition-for-everybody": ("BucketIAMMember", {"member": "allUsers"}),
    "billing-account": ("Budget", {"billingAccount": "mine"}),
    "budget-of-one-label": ("Budget", {"budgetFilter.labels.owner": "lab"}),
    "five-channels": ("Budget", {"allUpdatesRule.monitoringNotificationChannels": list("abcdef")}),
}
"""For each rule a request that is taken, changed so that it breaks this rule and no other."""


def changed(kind: str, changes: dict[str, Any]) -> dict[str, Any]:
    """A request that is taken, with other values at some paths; `None` takes a value away."""
    found: Any = copy.deepcopy(GOOD[kind])
    for path, value in changes.items():
        *way, last = path.split(".")
        place = found
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place[step]
        if isinstance(place, list):
            place[int(last)] = value
        elif value is None:
            del place[last]
        else:
            place[last] = value
    result: dict[str, Any] = found
    return result


def test_every_rule_has_a_request_that_breaks_it() -> None:
    """And a message, a source and a day; a rule without one would be an opinion."""
    assert set(BROKEN) == set(RULES)
    assert len(RULES) == len(rules_of("gcp"))
    for rule in RULES.values():
        assert rule.message, rule.name
        assert rule.source.startswith(("https://", "terraform-provider-", "Compute Engine ")), rule.name
        assert rule.read.year >= 2026, rule.name


@pytest.mark.parametrize("kind", GOOD)
def test_a_request_that_is_taken_breaks_no_rule(kind: str) -> None:
    """What the other test changes is right before."""
    assert refusals(f"gcp:x/y:{kind}", GOOD[kind]) == []


@pytest.mark.parametrize("name", BROKEN)
def test_the_stand_in_refuses_what_the_cloud_refuses(name: str) -> None:
    """Each rule alone, with the cloud's sentence."""
    kind, changes = BROKEN[name]
    assert refusals(f"gcp:x/y:{kind}", changed(kind, changes)) == [f"{RULES[name].message} [{name}]"]


@pytest.mark.parametrize("kind", GOOD)
def test_what_is_not_known_yet_is_not_refused(kind: str) -> None:
    """In a preview much is unknown; a rule must neither fail nor speak then."""
    for key in GOOD[kind]:
        assert refusals(f"gcp:x/y:{kind}", {**GOOD[kind], key: None}) == [], key


def test_the_document_holds_the_rules() -> None:
    """docs/design/cloud-requests.md, written from the data."""
    text = (ROOT / "docs" / "design" / "cloud-requests.md").read_text("utf-8")
    assert table(rules_of("gcp")) in text, (
        f"docs/design/cloud-requests.md has to hold:\n{table(rules_of('gcp'))}"
    )


def test_the_catalogue_asks_for_nothing_that_is_refused() -> None:
    """Each type with its first disk, card and maintenance, in each market that it has a price in. The rules
    do not read the catalogue, so that a mistake in it is found."""
    catalogue = load(folder=Path("/nowhere"))
    rows = [row for row in catalogue.hosts if row.provider == "gcp"]
    assert len(rows) > 15
    for row in rows:
        machine = catalogue.machine("gcp", row.type)
        assert machine is not None
        for market in row.prices:
            spot = SPOT if market is Market.SPOT else {}
            nested = row.kvm in (Kvm.NESTED, Kvm.UNKNOWN)
            image = machine.image or "projects/debian-cloud/global/images/family/debian-12"
            request = changed(
                "InstanceTemplate",
                {
                    "machineType": row.type,
                    "disks.0.diskType": machine.disks[0],
                    "disks.1.diskType": machine.disks[0],
                    "disks.0.sourceImage": image,
                    "networkInterfaces.0.nicType": machine.cards[0],
                    "scheduling.onHostMaintenance": "TERMINATE" if spot else machine.maintenance[0],
                    **({} if nested else {"advancedMachineFeatures": None}),
                    **spot,
                },
            )
            assert refusals("gcp:x/y:InstanceTemplate", request) == [], (row.type, market)


def test_the_stand_in_says_it_before_anything_exists() -> None:
    """The provider that plays the cloud fails the check of such a resource, in a preview already."""
    kind, changes = BROKEN["disk-of-the-series"]
    inputs = {key: valued(value) for key, value in changed(kind, changes).items()}
    inputs["metadataStartupScript"] = LATER
    urn = f"urn:pulumi:test::p::osgym:gcp:ReplicaHosts$gcp:compute/instanceTemplate:{kind}::one"
    answer = asyncio.run(FakeCloud("gcp", "1", refusals).check(CheckRequest(urn, {}, inputs, b"")))
    assert [failure.reason for failure in answer.failures or []] == [
        f"{RULES['disk-of-the-series'].message} [disk-of-the-series]"
    ]


def valued(value: Any) -> PropertyValue:
    """As the engine sends it."""
    if isinstance(value, dict):
        return PropertyValue({key: valued(item) for key, item in value.items()})
    if isinstance(value, list):
        return PropertyValue([valued(item) for item in value])
    return PropertyValue(float(value) if isinstance(value, int) and not isinstance(value, bool) else value)
