"""AWS under Pulumi's mocks: groups that keep hosts alive, private networks, rights, and zones."""

from __future__ import annotations

import base64
import gzip
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.cloud_requests import refusals
from tests.support.fleet_configs import AWS
from tests.unit.test_infra_components import SECRETS, Recorder, blueprint, deploy

from osgym_infra.errors import BadInput
from osgym_infra.providers.aws.group import DRAIN_HOOK, heartbeat_s
from osgym_sdk._fleet.discovery.address import parse_source

# The generated SDKs warn about names of their own when they are imported.
pytestmark = pytest.mark.filterwarnings("ignore:.*has been deprecated:DeprecationWarning")

TYPE = {**AWS, "host_type": "r8i.24xlarge", "replicas": "512", "max_replicas_per_host": "256"}
"""Two hosts, well below what one carries."""
SPOT = {**AWS, "market": "spot", "replicas": "230"}
EXISTING = {"network_id": "net-1", "subnet_id": "subnet-1, subnet-2"}


def script(template: dict[str, Any]) -> str:
    """What a host of a template runs."""
    return gzip.decompress(base64.b64decode(template["userData"])).decode()


def test_the_interface_holds_groups_and_address_and_the_group_the_subnets() -> None:
    """Nothing of it stands beside the interface, where EC2 refuses it; no single instance is made."""
    recorder, _ = deploy(TYPE)
    template = recorder.one("LaunchTemplate")
    assert template["networkInterfaces"] == [
        {
            "deviceIndex": 0,
            "associatePublicIpAddress": "true",
            "securityGroups": ["fleet-agent-id"],
            "deleteOnTermination": "true",
        }
    ]
    assert "vpcSecurityGroupIds" not in template
    assert recorder.one("Group")["vpcZoneIdentifiers"] == [
        f"fleet-subnet-us-east-1{zone}-id" for zone in ("a", "b", "d")
    ]
    assert not recorder.of("Instance")


def test_hosts_are_spread_over_the_zones_that_have_the_type() -> None:
    """A subnet in each, none in a local zone; a zone without the type is refused by its key."""
    recorder, _ = deploy(TYPE)
    zones = [one["availabilityZone"] for one in recorder.of("Subnet")]
    assert zones == ["us-east-1a", "us-east-1b", "us-east-1d"]
    assert len({one["cidrBlock"] for one in recorder.of("Subnet")}) == 3
    one, _ = deploy({**TYPE, "zone": "us-east-1d"})
    assert [subnet["availabilityZone"] for subnet in one.of("Subnet")] == ["us-east-1d"]
    two, _ = deploy({**TYPE, "zones": ["us-east-1d", "us-east-1a"]})
    assert len(two.one("Group")["vpcZoneIdentifiers"]) == 2
    with pytest.raises(BadInput, match=r"osgym:zone: us-east-1c does not have r8i\.24xlarge"):
        deploy({**TYPE, "zone": "us-east-1c"})


def test_spot_comes_back_from_wherever_there_is_some() -> None:
    """Several types, each with a template of its own; the best of price and capacity; none on demand."""
    recorder, outputs = deploy(SPOT)
    (group,) = recorder.of("Group")
    policy = group["mixedInstancesPolicy"]
    assert policy["instancesDistribution"] == {
        "onDemandBaseCapacity": 0,
        "onDemandPercentageAboveBaseCapacity": 0,
        "onDemandAllocationStrategy": "prioritized",
        "spotAllocationStrategy": "price-capacity-optimized",
    }
    overrides = policy["launchTemplate"]["overrides"]
    (planned,) = blueprint(SPOT).groups
    assert [one["instanceType"] for one in overrides] == [kind.type for kind in planned.kinds]
    assert len(overrides) >= 2
    ids = [one["launchTemplateSpecification"]["launchTemplateId"] for one in overrides]
    assert len(set(ids)) == len(ids)
    assert {one["launchTemplateSpecification"]["version"] for one in overrides} == {"3"}
    assert group["capacityRebalance"] is True
    assert (group["minSize"], group["desiredCapacity"], group["maxSize"]) == (planned.count,) * 3
    assert outputs["hosts"]
    templates = {template["instanceType"]: template for template in recorder.of("LaunchTemplate")}
    assert len(templates) == len(planned.kinds)
    for kind in planned.kinds:
        template = templates[kind.type]
        assert f"OSGYM_MAX={kind.replicas}\n" in script(template)
        assert ("cpuOptions" in template) == kind.nested


def test_on_demand_takes_no_spot() -> None:
    """Also where a type stands in."""
    recorder, _ = deploy(AWS)
    for group in recorder.of("Group"):
        shares = group["mixedInstancesPolicy"]["instancesDistribution"]
        assert shares["onDemandPercentageAboveBaseCapacity"] == 100
        assert group["capacityRebalance"] is False


def test_a_host_that_is_to_end_drains_first() -> None:
    """A hook of its own, so that its time can be changed in place; the host knows how to say it is done."""
    recorder, _ = deploy({**TYPE, "drain_timeout_s": "600"})
    hook = recorder.one("LifecycleHook")
    assert hook["lifecycleTransition"] == "autoscaling:EC2_INSTANCE_TERMINATING"
    assert (hook["heartbeatTimeout"], hook["defaultResult"]) == (720, "CONTINUE")
    group = recorder.one("Group")
    assert "initialLifecycleHooks" not in group
    text = script(recorder.one("LaunchTemplate"))
    assert f"OSGYM_LIFECYCLE='us-east-1 {group['name']} {DRAIN_HOOK}'" in text
    assert "OSGYM_DRAIN_TIMEOUT_S=600" in text
    assert [heartbeat_s(one) for one in (0, 600, 172_800)] == [120, 720, 7200]


def test_an_upgrade_replaces_hosts_a_few_at_a_time_when_asked() -> None:
    """Without `roll` new hosts only get a new template."""
    plain, _ = deploy(TYPE)
    assert "instanceRefresh" not in plain.one("Group")
    values = {**TYPE, "replicas": "1024", "roll": "true"}
    for away, healthy in (("1", 75), ("2", 50), ("50%", 50)):
        recorder, _ = deploy({**values, "max_unavailable": away})
        group = recorder.one("Group")
        assert group["desiredCapacity"] == 4
        refresh = group["instanceRefresh"]
        assert refresh["strategy"] == "Rolling"
        assert refresh["preferences"]["minHealthyPercentage"] == healthy
        assert refresh["preferences"]["maxHealthyPercentage"] == 100
        assert refresh["preferences"]["skipMatching"] is True
    alone, _ = deploy({**values, "replicas": "100"})
    assert alone.one("Group")["instanceRefresh"]["preferences"]["minHealthyPercentage"] == 0


def test_a_group_with_bounds_follows_the_load() -> None:
    """By the hosts' own number, which their role may publish under that name only."""
    recorder, _ = deploy({**TYPE, "min_hosts": "1", "max_hosts": "6"})
    group, policy = recorder.one("Group"), recorder.one("Policy")
    assert (group["minSize"], group["desiredCapacity"], group["maxSize"]) == (1, 2, 6)
    tracked = policy["targetTrackingConfiguration"]
    assert (policy["policyType"], tracked["targetValue"]) == ("TargetTrackingScaling", 80)
    assert tracked["customizedMetricSpecification"] == {
        "namespace": "OSGym",
        "metricName": "lease_pressure_percent",
        "statistic": "Average",
        "metricDimensions": [{"name": "fleet", "value": "test"}],
    }
    assert "OSGYM_METRICS_TO=cloudwatch:us-east-1\n" in script(recorder.one("LaunchTemplate"))
    assert "OSGYM_METRICS_FLEET=test\n" in script(recorder.one("LaunchTemplate"))
    plain, _ = deploy(TYPE)
    assert not plain.of("Policy")
    assert "METRICS" not in script(plain.one("LaunchTemplate")).split("SETTINGS")[1]


def test_a_forgotten_fleet_ends() -> None:
    """The cloud itself takes all hosts, so long after the last `pulumi up`."""
    before = datetime.now(UTC).replace(second=0, microsecond=0)
    recorder, _ = deploy({**TYPE, "ttl_hours": "36"})
    end = recorder.one("Schedule")
    assert (end["minSize"], end["maxSize"], end["desiredCapacity"]) == (0, 0, 0)
    left = datetime.fromisoformat(end["startTime"]) - before
    assert timedelta(hours=36) <= left <= timedelta(hours=36, minutes=2)
    plain, _ = deploy(TYPE)
    assert not plain.of("Schedule")


def test_private_hosts_have_no_public_address_and_a_way_out() -> None:
    """Their subnets go out by a gateway with an address; fleet.json names private addresses."""
    recorder, outputs = deploy({**TYPE, "private": "true", "allowed_cidrs": ["10.0.0.0/8"]})
    (card,) = recorder.one("LaunchTemplate")["networkInterfaces"]
    assert card["associatePublicIpAddress"] == "false"
    assert {host["url"].split("//")[1].rsplit(".", 1)[0] for host in outputs["hosts"]} == {"10.64.0"}
    gateway = recorder.one("NatGateway")
    assert (gateway["allocationId"], gateway["subnetId"]) == ("fleet-nat-id", "fleet-nat-id")
    tables = {r.name: r.inputs["routes"] for r in recorder.resources if r.typ.endswith(":RouteTable")}
    assert tables["fleet-private-routes"] == [{"cidrBlock": "0.0.0.0/0", "natGatewayId": "fleet-nat-id"}]
    joined = {one["subnetId"]: one["routeTableId"] for one in recorder.of("RouteTableAssociation")}
    for subnet in recorder.one("Group")["vpcZoneIdentifiers"]:
        assert joined[subnet] == "fleet-private-routes-id"
    assert joined["fleet-nat-id"] == "fleet-routes-id"
    assert not any(one["mapPublicIpOnLaunch"] for one in recorder.of("Subnet"))


def test_a_network_of_ones_own_is_used_as_it_is() -> None:
    """Its subnets, all of them; nothing is made in it but the security group. One that cannot do is named."""
    recorder, outputs = deploy({**TYPE, **EXISTING})
    assert recorder.one("Group")["vpcZoneIdentifiers"] == ["subnet-1", "subnet-2"]
    for kind in ("Vpc", "Subnet", "RouteTable", "NatGateway", "InternetGateway", "VpcEndpoint"):
        assert not recorder.of(kind), kind
    assert recorder.one("SecurityGroup")["vpcId"] == "net-1"
    assert all("198.51.100" in host["url"] for host in outputs["hosts"])
    private, found = deploy({**TYPE, **EXISTING, "private": "true"})
    assert not private.of("NatGateway")
    assert all("10.64.0" in host["url"] for host in found["hosts"])
    with pytest.raises(BadInput, match="osgym:subnet_id: subnet-1 is in net-1, not in net-2"):
        deploy({**TYPE, **EXISTING, "network_id": "net-2"})
    with pytest.raises(BadInput, match="osgym:subnet_id: subnet-1 is in us-east-1a, which does not have"):
        deploy({**TYPE, **EXISTING, "zones": ["us-east-1b"]})


def test_clients_find_the_hosts_that_there_are_now() -> None:
    """By the tag that each host gets from its template; address, port and name are in the URL."""
    recorder, outputs = deploy({**TYPE, "agent_port": "20100"})
    found = parse_source(outputs["discover"])
    assert (found.kind, found.pairs, found.region) == ("aws-tag", (("osgym-fleet", "test"),), "us-east-1")
    assert (found.scheme, found.port, found.server_name) == ("https", 20100, "test.osgym.internal")
    assert found.address == "public"
    (tags,) = [
        one["tags"]
        for one in recorder.one("LaunchTemplate")["tagSpecifications"]
        if one["resourceType"] == "instance"
    ]
    assert tags["osgym-fleet"] == "test"
    _, private = deploy({**TYPE, "private": "true", "token_secret": SECRETS["aws"]})
    found = parse_source(private["discover"])
    assert (found.scheme, found.server_name, found.address) == ("http", "", "private")


def statements(recorder: Recorder) -> dict[str, dict[str, Any]]:
    """The role's statements, by their first action."""
    found = json.loads(recorder.one("RolePolicy")["policy"])["Statement"]
    return {one["Action"] if isinstance(one["Action"], str) else one["Action"][0]: one for one in found}


def test_hosts_may_do_what_they_need_and_no_more() -> None:
    """One secret, the archives by name, their own group, their own metric, and to be entered."""
    recorder, _ = deploy({**TYPE, "agent_uri": "s3://wheels/sub/agent.tar"})
    found = statements(recorder)
    assert found["secretsmanager:GetSecretValue"]["Resource"] == "arn:aws:made:::fleet-token"
    assert found["s3:GetObject"]["Resource"] == [
        "arn:aws:s3:::golden/full.tar",
        "arn:aws:s3:::wheels/sub/agent.tar",
        "arn:aws:s3:::fleet-archives-id/osgym/test/*",
    ]
    assert found["autoscaling:CompleteLifecycleAction"]["Resource"] == [
        f"arn:aws:autoscaling:us-east-1:*:autoScalingGroup:*:autoScalingGroupName/{group['name']}"
        for group in recorder.of("Group")
    ]
    assert found["cloudwatch:PutMetricData"]["Condition"] == {
        "StringEquals": {"cloudwatch:namespace": "OSGym"}
    }
    assert found["ssm:UpdateInstanceInformation"]["Action"][1].startswith("ssmmessages:")
    everything = json.dumps(list(found.values()))
    for never in ("iam:", "ec2:", "ssm:GetParameter", "s3:*", "s3:List"):
        assert never not in everything


def test_a_bucket_of_others_is_read_below_the_fleets_folder_only() -> None:
    """Whatever else lies there; and hosts write where they stand, nothing else."""
    named = ("agent_uri", "agent_sha256")
    values = {name: value for name, value in TYPE.items() if name not in named}
    recorder, _ = deploy({**values, "bucket": "everybodys"})
    found = statements(recorder)
    assert found["s3:GetObject"]["Resource"] == [
        "arn:aws:s3:::golden/full.tar",
        "arn:aws:s3:::everybodys/osgym/test/*",
    ]
    assert found["s3:PutObject"]["Resource"] == "arn:aws:s3:::everybodys/osgym/test/status/*"


def test_a_secret_is_named_by_its_arn() -> None:
    """A name would make a policy that IAM refuses."""
    with pytest.raises(BadInput, match="osgym:token_secret: must be an ARN"):
        deploy({**TYPE, "token_secret": "osgym-token"})
    recorder, _ = deploy({**TYPE, "token_secret": SECRETS["aws"]})
    assert statements(recorder)["secretsmanager:GetSecretValue"]["Resource"] == SECRETS["aws"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"market": "spot"},
        {"market": "spot", "min_hosts": "1", "max_hosts": "9", "ttl_hours": "2", "roll": "true"},
        {"private": "true"},
        EXISTING,
        {"runtime": "local"},
    ],
    ids=lambda changes: "+".join(changes) or "plain",
)
def test_nothing_that_a_fleet_asks_for_is_refused(changes: dict[str, object]) -> None:
    """By the rules of AWS, with what was made before beside each request."""
    recorder, _ = deploy({**AWS, **changes})
    made: dict[str, dict[str, Any]] = {}
    for resource in recorder.resources:
        assert refusals(resource.typ, resource.inputs, lambda id_: made.get(id_, {})) == [], resource.name
        made[f"{resource.name}-id"] = dict(resource.inputs)
    assert any(resource.typ.endswith(":Group") for resource in recorder.resources)


def test_the_data_disk_is_as_large_and_fast_as_the_keys_say() -> None:
    """The throughput brings the operations it takes; nothing is asked for beyond what gp3 has."""

    def data(**keys: str) -> dict[str, Any]:
        recorder, _ = deploy({**TYPE, "data_disk_gib": "4000", **keys})
        (disk,) = (
            one["ebs"]
            for one in recorder.one("LaunchTemplate")["blockDeviceMappings"]
            if one["deviceName"] == "/dev/sdf"
        )
        return {name: disk.get(name) for name in ("volumeSize", "iops", "throughput")}

    assert data() == {"volumeSize": 4000, "iops": None, "throughput": None}
    assert data(data_disk_iops="40000") == {"volumeSize": 4000, "iops": 40000, "throughput": None}
    assert data(data_disk_mib_per_s="1000") == {"volumeSize": 4000, "iops": 4000, "throughput": 1000}
    for keys, said in (
        (
            {"data_disk_iops": "81000"},
            "osgym:data_disk_iops: 81000 is not offered. Accepted: 3000 to 80000 IOPS",
        ),
        ({"data_disk_iops": "3000", "data_disk_mib_per_s": "1000"}, "osgym:data_disk_mib_per_s: 1000 is not"),
    ):
        with pytest.raises(BadInput, match=said):
            data(**keys)


def test_somebody_is_told_what_the_fleet_costs() -> None:
    """A month's budget of what carries the fleet's tag, at three parts of it; none unless asked for."""
    recorder, _ = deploy({**TYPE, "alert_email": "ops@example.org", "budget_usd_per_day": "2000"})
    budget = recorder.one("Budget")
    assert (budget["limitAmount"], budget["limitUnit"], budget["timeUnit"]) == ("60834", "USD", "MONTHLY")
    assert budget["costFilters"] == [{"name": "TagKeyValue", "values": ["user:osgym-fleet$test"]}]
    told = [(one["threshold"], one["subscriberEmailAddresses"]) for one in budget["notifications"]]
    assert told == [(part, ["ops@example.org"]) for part in (50, 90, 100)]
    assert refusals("aws:budgets/budget:Budget", budget, lambda _: {}) == []
    assert not deploy(TYPE)[0].of("Budget")
