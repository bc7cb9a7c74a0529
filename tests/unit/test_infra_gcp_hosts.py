"""Hosts at Google Cloud under Pulumi's mocks: groups, network, rights, end and alarm."""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.cloud_requests import refusals
from tests.support.fleet_configs import GCP
from tests.unit.test_infra_components import Recorder, blueprint, deploy, script

from osgym_infra.config.parse import parse
from osgym_infra.errors import BadInput
from osgym_infra.fleet.bounds import HostGroup
from osgym_infra.providers.gcp.disks import DataDisk, data_disk
from osgym_infra.providers.gcp.ending import end_of

# The generated SDKs warn about names of their own when they are imported.
pytestmark = pytest.mark.filterwarnings("ignore:.*has been deprecated:DeprecationWarning")

N2: dict[str, object] = {**GCP, "host_type": "n2-highmem-80"}
N4: dict[str, object] = {**GCP, "host_type": "n4-highmem-80", "allow_unknown_kvm": True}


def group(values: dict[str, object]) -> dict[str, Any]:
    """The inputs of the only group of a configuration."""
    return made(values).one("RegionInstanceGroupManager")


def made(values: dict[str, object]) -> Recorder:
    """What a configuration makes, none of which the cloud refuses."""
    recorder, _ = deploy(values)
    for resource in recorder.resources:
        assert refusals(resource.typ, resource.inputs) == [], resource.name
    return recorder


def test_a_group_keeps_its_hosts_alive_in_several_zones() -> None:
    """Where there is capacity, healed by the agent's own answer, in another zone if need be; nothing kept."""
    recorder = made(N2)
    found = recorder.one("RegionInstanceGroupManager")
    assert found["distributionPolicyZones"] == [f"us-central1-{letter}" for letter in "abcf"]
    assert found["distributionPolicyTargetShape"] == "BALANCED"
    assert found["instanceLifecyclePolicy"] == {
        "defaultActionOnFailure": "REPAIR",
        "forceUpdateOnRepair": "YES",
        "onRepair": {"allowChangingZone": "YES"},
    }
    assert found["autoHealingPolicies"] == {"healthCheck": "fleet-agent-id", "initialDelaySec": 1800}
    check = recorder.one("HealthCheck")
    assert check["httpsHealthCheck"] == {"port": 20000, "requestPath": "/v1/health"}
    assert check["checkIntervalSec"] * check["unhealthyThreshold"] == 300
    assert not {"statefulDisks", "statefulInternalIps", "statefulExternalIps"} & set(found)
    assert not recorder.of("Instance")


def test_hosts_with_a_secret_of_ones_own_are_asked_without_encryption() -> None:
    """They speak HTTP, also to the health check."""
    check = made({**N2, "token_secret": "projects/p/secrets/s/versions/2"}).one("HealthCheck")
    assert (check["httpHealthCheck"]["port"], "httpsHealthCheck" in check) == (20000, False)


def test_zones_are_those_that_have_the_type() -> None:
    """Asked of the cloud; a configured zone without it is refused by its key."""
    assert group(N4)["distributionPolicyZones"] == [f"us-central1-{letter}" for letter in "abc"]
    assert group({**N2, "zone": "us-central1-f"})["distributionPolicyZones"] == ["us-central1-f"]
    two = {**N2, "zones": '["us-central1-a", "us-central1-c"]'}
    assert group(two)["distributionPolicyZones"] == ["us-central1-a", "us-central1-c"]
    with pytest.raises(BadInput, match="osgym:zone: us-central1-f does not have n4-highmem-80"):
        deploy({**N4, "zone": "us-central1-f"})


@pytest.mark.parametrize(
    ("more", "kind", "unavailable", "surge"),
    [
        ({}, "OPPORTUNISTIC", 0, 4),
        ({"roll": "true"}, "PROACTIVE", 0, 4),
        ({"roll": "true", "zone": "us-central1-a"}, "PROACTIVE", 1, 0),
        ({"roll": "true", "max_unavailable": "100%", "zones": '["us-central1-a"]'}, "PROACTIVE", 2, 0),
    ],
)
def test_hosts_are_replaced_as_the_keys_say(
    more: dict[str, object], kind: str, unavailable: int, surge: int
) -> None:
    """Only with `roll`; the cloud takes 0 or as many as there are zones, so new hosts come first."""
    policy = group({**N2, **more})["updatePolicy"]
    assert (policy["type"], policy["maxSurgeFixed"]) == (kind, surge)
    assert policy["maxUnavailableFixed"] >= unavailable
    assert (policy["maxUnavailableFixed"] == 0) == (unavailable == 0)


def test_the_number_of_hosts_follows_the_load_between_bounds() -> None:
    """By what hosts publish of their leases, of this fleet only; without bounds there is no autoscaler."""
    assert not made(N2).of("RegionAutoscaler")
    recorder = made({**N2, "min_hosts": "2", "max_hosts": "40"})
    policy = recorder.one("RegionAutoscaler")["autoscalingPolicy"]
    assert (policy["minReplicas"], policy["maxReplicas"]) == (2, 40)
    (metric,) = policy["metrics"]
    assert metric["name"] == "custom.googleapis.com/osgym/lease_pressure_percent"
    assert (metric["target"], metric["type"]) == (80, "GAUGE")
    assert metric["filter"] == 'resource.type = "gce_instance" AND metric.labels.fleet = "test"'
    role = [r.inputs["role"] for r in recorder.resources if r.name == "fleet-metrics"]
    assert role == ["roles/monitoring.metricWriter"]


def test_other_types_stand_in_where_their_template_is_the_same() -> None:
    """In the order of the plan; a type with another disk or card would need another template."""
    plan = blueprint({**GCP, "market": "spot", "allow_unknown_kvm": True})
    assert any(one.stand_ins for one in plan.groups)
    recorder = made({**GCP, "market": "spot", "allow_unknown_kvm": True})
    policies = [one.get("instanceFlexibilityPolicy") for one in recorder.of("RegionInstanceGroupManager")]
    assert len(policies) == len(plan.groups)
    selections = [(policy or {}).get("instanceSelections", []) for policy in policies]
    allowed = {
        types[0]: types for types in ([kind["machineTypes"][0] for kind in s] for s in selections) if types
    }
    assert allowed.keys() <= {one.type for one in plan.groups}  # the engine asks for groups in any order
    for one in plan.groups:
        machine, types = one.machine, allowed.get(one.type, [])
        assert machine is not None
        for other in one.stand_ins:
            alike = other.machine is not None and other.machine.disks[0] == machine.disks[0]
            assert (other.type in types) == (alike and other.nested == one.nested), other.type


def test_hosts_without_addresses_get_out_by_nat_and_are_entered_by_iap() -> None:
    """And stand in fleet.json with their private addresses; a network of one's own has its own NAT."""
    values = {**N2, "private": "true", "allowed_cidrs": '["10.0.0.0/8"]'}
    recorder, outputs = deploy(values)
    (card,) = recorder.one("InstanceTemplate")["networkInterfaces"]
    assert "accessConfigs" not in card
    assert recorder.one("RouterNat")["natIpAllocateOption"] == "AUTO_ONLY"
    assert recorder.one("Subnetwork")["privateIpGoogleAccess"] is True
    assert all(re.match(r"https://10\.64\.\d+\.\d+:20000$", host["url"]) for host in outputs["hosts"])
    iap = recorder.named("fleet-iap")
    assert (iap["sourceRanges"], iap["allows"]) == (
        ["35.235.240.0/20"],
        [{"protocol": "tcp", "ports": ["22"]}],
    )
    there = made({**values, "network_id": "net-1", "subnet_id": "sub-1"})
    assert not there.of("RouterNat")
    assert not there.of("Router")
    public = made(N2).one("InstanceTemplate")["networkInterfaces"]
    assert public[0]["accessConfigs"] == [{}]


def test_the_two_families_of_addresses_have_rules_of_their_own() -> None:
    """One rule with both is refused; health checks come through, the host's own firewall included."""
    recorder = made({**N2, "allowed_cidrs": '["203.0.113.0/24", "2001:db8:1::/48"]'})
    assert recorder.named("fleet-agent")["sourceRanges"] == ["203.0.113.0/24"]
    assert recorder.named("fleet-agent6")["sourceRanges"] == ["2001:db8:1::/48"]
    assert recorder.named("fleet-health")["sourceRanges"] == ["35.191.0.0/16", "130.211.0.0/22"]
    for wall in recorder.of("Firewall"):
        assert wall["targetTags"] == ["fleet-host"]
    allowed = re.search(r"OSGYM_ALLOWED_CIDRS='([^']+)'", script(recorder))
    assert allowed is not None
    assert allowed[1].split() == ["203.0.113.0/24", "2001:db8:1::/48", "35.191.0.0/16", "130.211.0.0/22"]
    assert len(made(N2).of("Firewall")) == 3


def test_hosts_read_this_fleets_objects_only() -> None:
    """Those that are named exactly; of a bucket that others use too the folder of the stack."""
    recorder = made({**N2, "agent_uri": "gs://wheels/a/agent.tar"})
    grants = {one["bucket"]: one for one in recorder.of("BucketIAMMember")}
    named = {name: one["condition"]["expression"] for name, one in grants.items()}
    made_here = [expression for name, expression in named.items() if name not in ("golden", "wheels")]
    assert all("/objects/osgym/test/" in expression for expression in made_here)
    assert {name: named[name] for name in ("golden", "wheels")} == {
        "golden": 'resource.name == "projects/_/buckets/golden/objects/full.tar"',
        "wheels": 'resource.name == "projects/_/buckets/wheels/objects/a/agent.tar"',
    }
    unnamed = {key: value for key, value in N2.items() if not key.startswith("agent_")}
    shared = made({**unnamed, "bucket": "ours"})
    below = 'resource.name.startsWith("projects/_/buckets/ours/objects/osgym/test/'
    found = {
        (one["role"], one["condition"]["expression"])
        for one in shared.of("BucketIAMMember")
        if one["bucket"] == "ours"
    }
    assert found == {
        ("roles/storage.objectViewer", f'{below}")'),
        ("roles/storage.objectUser", f'{below}status/")'),
    }


def test_a_forgotten_fleet_ends_by_itself() -> None:
    """Cloud Scheduler takes all hosts away; where the load decides, that is turned off before."""
    assert not made(N2).of("Job")
    now = datetime.now(UTC)
    recorder = made({**N2, "ttl_hours": "48", "min_hosts": "2", "max_hosts": "40"})
    jobs = {job["httpTarget"]["httpMethod"]: job for job in recorder.of("Job")}
    place = "https://compute.googleapis.com/compute/v1/projects/my-project/regions/us-central1/"
    assert jobs["POST"]["httpTarget"]["uri"] == (
        f"{place}instanceGroupManagers/fleet-n2-highmem-80/resize?size=0"
    )
    assert jobs["PATCH"]["httpTarget"]["uri"] == f"{place}autoscalers?autoscaler=fleet-n2-highmem-80"
    body = json.loads(base64.b64decode(jobs["PATCH"]["httpTarget"]["body"]))
    assert body == {"autoscalingPolicy": {"mode": "OFF"}}
    minute, hour, day, month, _ = jobs["PATCH"]["schedule"].split()
    at = datetime(now.year, int(month), int(day), int(hour), int(minute), tzinfo=UTC)
    assert abs((at - now - timedelta(hours=48)).total_seconds()) % (365 * 86400) < 120
    rights = recorder.one("IAMCustomRole")["permissions"]
    assert all(one.startswith(("compute.instanceGroupManagers.", "compute.autoscalers.")) for one in rights)


def test_an_end_is_never_over_before_it_is_asked_for() -> None:
    """A minute that is over would come again in a year."""
    now = datetime(2026, 11, 22, 12, 0, 30, tzinfo=UTC)
    assert end_of(now, 0.001) == datetime(2026, 11, 22, 12, 3, tzinfo=UTC)
    assert end_of(now, 24) == datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


def test_somebody_is_told_what_the_fleet_costs() -> None:
    """A month's budget of what carries the fleet's label; it belongs to a billing account."""
    mail = {"alert_email": "ops@example.org", "billing_account": "01AB23-45CD67-89EF01"}
    recorder = made({**N2, **mail, "budget_usd_per_day": "2000"})
    budget = recorder.one("Budget")
    assert budget["amount"] == {"specifiedAmount": {"currencyCode": "USD", "units": "60834"}}
    assert budget["budgetFilter"] == {"labels": {"osgym-fleet": "test"}, "projects": ["projects/my-project"]}
    assert budget["allUpdatesRule"]["monitoringNotificationChannels"] == ["fleet-alarm-id"]
    assert recorder.one("NotificationChannel")["labels"] == {"email_address": "ops@example.org"}
    assert not made(N2).of("Budget")
    with pytest.raises(BadInput, match="osgym:billing_account: is required with alert_email"):
        deploy({**N2, "alert_email": "ops@example.org"})


def planned(values: dict[str, object]) -> HostGroup:
    """The only group of a plan."""
    (only,) = blueprint(values).groups
    return only


def test_the_data_disk_is_as_large_and_fast_as_the_keys_say() -> None:
    """Both speeds or none are asked for; what is not said is the least that goes with the other."""
    disk = made({**N4, "data_disk_gib": "4000", "data_disk_iops": "40000"}).one("InstanceTemplate")["disks"][
        1
    ]
    assert (disk["diskSizeGb"], disk["provisionedIops"], disk["provisionedThroughput"]) == (4000, 40000, 157)
    fast = {**N4, "data_disk_gib": "4000", "data_disk_mib_per_s": "1000"}
    assert data_disk(planned(fast), parse(fast)) == DataDisk("hyperdisk-balanced", 4000, 4000, 1000)
    plain = made(N4).one("InstanceTemplate")["disks"][1]
    assert not {"provisionedIops", "provisionedThroughput"} & set(plain)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({**N2, "data_disk_iops": "4000"}, "osgym:data_disk_iops: the speed of a pd-balanced disk comes"),
        ({**N4, "data_disk_iops": "200000"}, "osgym:data_disk_iops: 200000 is not offered"),
        (
            {**N4, "data_disk_iops": "3000", "data_disk_mib_per_s": "1000"},
            "osgym:data_disk_mib_per_s: 1000 is not offered. Accepted: 140 to 750 MiB/s with 3000 IOPS",
        ),
        ({**N4, "data_disk_gib": "31"}, "osgym:data_disk_gib: 31 GiB are less than"),
    ],
)
def test_a_disk_that_cannot_be_is_refused_by_its_key(values: dict[str, object], says: str) -> None:
    """Before anything is made, with what would do."""
    with pytest.raises(BadInput, match=re.escape(says)):
        data_disk(planned(values), parse(values))
