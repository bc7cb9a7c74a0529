"""The components of AWS and Google Cloud under Pulumi's mocks: what they would create, and how."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pulumi
import pytest
from pulumi.runtime import mocks as pulumi_mocks
from pulumi.runtime import resource as pulumi_resource
from pulumi.runtime.proto.source_pb2 import StackTrace
from tests.support.cloud_requests import refusals
from tests.support.fleet_configs import AWS, GCP, blueprint, shipped_catalogue

from osgym_infra.catalogue.shapes import Kvm
from osgym_infra.components.common import HostsArgs
from osgym_infra.components.golden import place_golden_image
from osgym_infra.errors import BadInput
from osgym_infra.fleet import policy
from osgym_infra.fleet.boot import STUB, ec2_user_data
from osgym_infra.providers.aws.preview import NESTS
from osgym_infra.providers.gcp import preview as gcp_preview

# The generated SDKs warn about names of their own when they are imported.
pytestmark = pytest.mark.filterwarnings("ignore:.*has been deprecated:DeprecationWarning")

SECRETS = {
    "aws": "arn:aws:secretsmanager:us-east-1:123456789012:secret:osgym-AbCdEf",
    "gcp": "projects/p/secrets/s/versions/2",
}
SECRET = re.compile(r"[A-Za-z0-9_-]{43}")


class Recorder(pulumi.runtime.Mocks):
    """Answers like the providers, and keeps what was asked for."""

    def __init__(self) -> None:
        self.resources: list[pulumi_mocks.MockResourceArgs] = []

    def new_resource(self, args: pulumi_mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        """The inputs come back, with what a provider adds."""
        self.resources.append(args)
        made = dict(args.inputs)
        made |= {"arn": f"arn:aws:made:::{args.name}", "latestVersion": 3, "email": f"{args.name}@made"}
        if args.typ == "gcp:compute/instanceTemplate:InstanceTemplate":
            made["selfLinkUnique"] = f"templates/{args.name}"
        if args.typ == gcp_preview.GROUP:
            made |= gcp_preview.Answers().outputs(args.typ, args.name, args.inputs, "")
        if args.typ.endswith("Archive"):
            made |= {"archive": f"/made/{args.name}.tar", "sha256": "12" * 32, "digest": "ab" * 32}
        return f"{args.name}-id", made

    def call(self, args: pulumi_mocks.MockCallArgs) -> dict[str, Any]:
        """What is asked for: the image, zones that have a type, hosts of a group, one host."""
        if args.token.startswith("gcp:"):
            return {**args.args, **gcp_preview.Answers().lookup(args.token, args.args)}
        match args.token.rpartition(":")[2]:
            case "getAmi":
                assert args.args["owners"] == ["136693071363"]
                return {**args.args, "id": "ami-debian", "architecture": "x86_64"}
            case "getInstanceTypeOfferings":
                (asked,) = args.args["filters"]
                pairs = [(one, zone) for one in asked["values"] for zone in self.zones]
                types, zones = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
                return {**args.args, "id": "x", "instanceTypes": types, "locations": zones}
            case "getInstanceTypes":
                types = args.args["filters"][0]["values"]
                return {**args.args, "id": "x", "instanceTypes": [t for t in types if NESTS.fullmatch(t)]}
            case "getSubnet":
                return {**args.args, "vpcId": "net-1", "availabilityZone": "us-east-1a"}
            case "getInstances":
                (name,) = args.args["filters"][0]["values"]
                return {**args.args, "id": "x", "ids": [f"i-{name}-{n}" for n in range(self.size(name))]}
            case "getInstance":
                kind = self.group(args.args["instanceId"][2:].rpartition("-")[0])
                overrides = kind["mixedInstancesPolicy"]["launchTemplate"]["overrides"]
                number = int(hashlib.sha256(args.args["instanceId"].encode()).hexdigest(), 16) % 250
                return {
                    **args.args,
                    "id": args.args["instanceId"],
                    "availabilityZone": "us-east-1a",
                    "instanceType": overrides[0]["instanceType"],
                    "publicIp": f"198.51.100.{number}",
                    "privateIp": f"10.64.0.{number}",
                }
        raise AssertionError(args.token)

    zones = ("us-east-1a", "us-east-1b", "us-east-1d", "us-east-1-bos-1a")
    """Where all types are; the last is a local zone."""

    def group(self, name: str) -> dict[str, Any]:
        """An Auto Scaling group by its name."""
        (found,) = [group for group in self.of("Group") if group["name"] == name]
        return found

    def size(self, name: str) -> int:
        """How many hosts a group was asked for."""
        return int(self.group(name)["desiredCapacity"])

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The inputs of all resources of a type."""
        return [r.inputs for r in self.resources if r.typ.endswith(f":{kind}")]

    def named(self, name: str) -> dict[str, Any]:
        """The inputs of the only firewall of a name."""
        (only,) = [r.inputs for r in self.resources if r.name == name and r.typ.endswith(":Firewall")]
        return only

    def one(self, kind: str) -> dict[str, Any]:
        """The inputs of the only resource of a type."""
        (only,) = self.of(kind)
        return only


@contextlib.contextmanager
def own_event_loops() -> Iterator[None]:
    """An event loop for the program; those that Pulumi makes in its threads and forgets are closed too.

    Resources have no stack traces, which take a fifth of the time and are for the engine's messages only.
    """
    made: list[asyncio.AbstractEventLoop] = []
    original = asyncio.new_event_loop
    traces, pulumi_resource._get_stack_trace = pulumi_resource._get_stack_trace, StackTrace

    def new() -> asyncio.AbstractEventLoop:
        made.append(original())
        return made[-1]

    asyncio.new_event_loop = new
    asyncio.set_event_loop(asyncio.new_event_loop())
    try:
        yield
    finally:
        pulumi_resource._get_stack_trace = traces
        asyncio.new_event_loop = original
        asyncio.set_event_loop(None)
        for loop in made:
            loop.close()


def deploy(values: dict[str, object]) -> tuple[Recorder, Any]:
    """Runs the provider's component to its end; returns what was created, and the component's outputs."""
    recorder = Recorder()
    outputs: dict[str, Any] = {}
    plan = blueprint(values)

    @pulumi.runtime.test
    def program() -> pulumi.Output[Any]:
        provider = plan.config.provider
        made = provider.part("hosts").ReplicaHosts(
            "fleet", place_golden_image("fleet", HostsArgs(plan, "test"))
        )
        found = pulumi.Output.all(
            hosts=made.hosts, token_secret=made.token_source, ca=made.ca, discover=made.discover
        )
        return found.apply(outputs.update)

    with own_event_loops():
        pulumi.runtime.set_mocks(recorder, preview=False)
        program()
    return recorder, outputs


def script(recorder: Recorder) -> str:
    """The start script of the first template."""
    if templates := recorder.of("LaunchTemplate"):
        return gzip.decompress(base64.b64decode(templates[0]["userData"])).decode()
    return str(recorder.of("InstanceTemplate")[0]["metadataStartupScript"])


both = pytest.mark.parametrize("base", [AWS, GCP], ids=["aws", "gcp"])


@both
def test_the_hosts_are_those_of_the_plan(base: dict[str, object]) -> None:
    """As many instances as the blueprint has, and one output for each, as fleet.json wants it."""
    plan = blueprint(base)
    recorder, outputs = deploy(base)
    count = sum(group.count for group in plan.groups)
    groups = recorder.of("Group") + recorder.of("RegionInstanceGroupManager")
    assert sum(int(one.get("desiredCapacity") or one["targetSize"]) for one in groups) == count
    assert not recorder.of("Instance")
    assert len(outputs["hosts"]) == count
    first = outputs["hosts"][0]
    assert set(first) == {"id", "zone", "url", "server_name", "capacity", "market", "image_digest"}
    assert first["server_name"] == "test.osgym.internal"
    assert re.fullmatch(r"https://(198\.51\.100|203\.0\.113)\.\d+:20000", first["url"])
    assert sum(host["capacity"] for host in outputs["hosts"]) == plan.capacity >= 1024
    assert len({host["id"] for host in outputs["hosts"]}) == count


@both
def test_everything_says_who_pays_and_for_which_stack(base: dict[str, object]) -> None:
    """All resources that can carry tags or labels do."""
    recorder, _ = deploy(base)
    tagged = [
        r
        for r in recorder.resources
        if {"tags", "labels"} & set(r.inputs)
        and r.inputs.get("tags") != ["fleet-host"]
        and not r.typ.endswith(":Group")
    ]
    tagged += [
        r for r in recorder.resources if r.typ.endswith((":Secret", ":LaunchTemplate", ":InstanceTemplate"))
    ]
    assert len(tagged) >= 3
    for resource in tagged:
        tags = resource.inputs.get("labels") or resource.inputs["tags"]
        assert (tags["owner"], tags["stack"]) == ("lab", "test"), resource.name
    for group in recorder.of("Group"):
        assert {"key": "osgym-fleet", "value": "test", "propagateAtLaunch": False} in group["tags"]


@both
def test_no_secret_stands_where_it_could_be_read(base: dict[str, object]) -> None:
    """The token is an input of the secret's version only; start scripts and outputs name where it is."""
    recorder, outputs = deploy(base)
    version = recorder.one("SecretVersion")
    kept = version.get("secretString") or version["secretData"]
    bundle = json.loads(kept["value"] if isinstance(kept, dict) else kept)
    token, key = bundle["token"], bundle["key"].splitlines()[1]
    assert SECRET.fullmatch(token)
    assert outputs["ca"] == bundle["ca"]
    everything = json.dumps(
        [r.inputs for r in recorder.resources if r.typ.rpartition(":")[2] != "SecretVersion"], default=str
    )
    for secret in (token, key):
        assert secret not in everything
        assert secret not in json.dumps(outputs)
        assert secret not in script(recorder)
    source = "aws:arn:aws:made:::fleet-token" if base is AWS else "gcp:fleet-token-id/versions/latest"
    assert f"OSGYM_TOKEN_SOURCE={source}" in script(recorder)


@both
def test_an_existing_secret_and_network_are_used(base: dict[str, object]) -> None:
    """Then none is made."""
    recorder, outputs = deploy(
        {
            **base,
            "token_secret": SECRETS[str(base["provider"])],
            "network_id": "net-1",
            "subnet_id": "sub-1",
        }
    )
    assert not recorder.of("Secret")
    assert not recorder.of("SecretVersion")
    assert not recorder.of("Vpc")
    assert not recorder.of("Network")
    assert outputs["token_secret"] == f"{base['provider']}:{SECRETS[str(base['provider'])]}"
    assert outputs["ca"] == ""
    assert {urlsplit(host["url"]).scheme for host in outputs["hosts"]} == {"http"}
    everything = json.dumps([r.inputs for r in recorder.resources], default=str)
    assert "net-1" in everything
    assert "sub-1" in everything


@both
def test_the_policy_holds_for_every_resource(base: dict[str, object]) -> None:
    """No open port, no public bucket, disks encrypted, IMDSv2, nothing secret in a start script."""
    for market in ("on-demand", "spot"):
        recorder, _ = deploy({**base, "market": market})
        for resource in recorder.resources:
            assert policy.violations(resource.typ, resource.inputs) == [], resource.name


@both
def test_nothing_that_is_asked_for_is_refused(base: dict[str, object]) -> None:
    """By the rules of the cloud, for all types of both markets (docs/design/cloud-requests.md)."""
    hosts = shipped_catalogue().hosts
    rows = [row for row in hosts if row.provider == base["provider"] and row.kvm is not Kvm.NONE]
    for row in rows:
        for market in row.prices:
            values = {**base, "host_type": row.type, "market": market.value, "allow_unknown_kvm": True}
            try:
                recorder, _ = deploy(values)
            except BadInput as error:
                assert (error.field, row.kvm) == ("osgym:host_type", Kvm.UNKNOWN), row.type
                continue
            for resource in recorder.resources:
                assert refusals(resource.typ, resource.inputs) == [], (row.type, market, resource.name)


@both
def test_only_the_allowed_networks_reach_the_agent(base: dict[str, object]) -> None:
    """One rule, one port, those networks."""
    recorder, _ = deploy({**base, "allowed_cidrs": ["198.51.100.0/24"], "agent_port": "20100"})
    if base is AWS:
        (rule,) = recorder.one("SecurityGroup")["ingress"]
        assert (rule["cidrBlocks"], rule["fromPort"], rule["toPort"]) == (["198.51.100.0/24"], 20100, 20100)
    else:
        wall = recorder.named("fleet-agent")
        assert (wall["sourceRanges"], wall["allows"]) == (
            ["198.51.100.0/24"],
            [{"protocol": "tcp", "ports": ["20100"]}],
        )


def test_nesting_is_switched_on_where_it_must_be() -> None:
    """AWS: cpuOptions on a nested type, none on metal. Google Cloud: the machine's advanced features."""
    nested, _ = deploy({**AWS, "host_type": "r8i.24xlarge"})
    assert nested.one("LaunchTemplate")["cpuOptions"] == {"nestedVirtualization": "enabled"}
    metal, _ = deploy({**AWS, "host_type": "r6i.metal"})
    assert "cpuOptions" not in metal.one("LaunchTemplate")
    google, _ = deploy({**GCP, "host_type": "n2-highmem-80"})
    features = google.one("InstanceTemplate")["advancedMachineFeatures"]
    assert features == {"enableNestedVirtualization": True}
    plain, _ = deploy({**GCP, "host_type": "n2-highmem-80", "runtime": "local"})
    assert "advancedMachineFeatures" not in plain.one("InstanceTemplate")


@pytest.mark.parametrize(
    ("kind", "disk", "card", "maintenance", "image"),
    [
        ("n2-highmem-80", "pd-balanced", "GVNIC", "TERMINATE", "debian-12"),
        ("n4-highmem-80", "hyperdisk-balanced", "GVNIC", "TERMINATE", "debian-12"),
        ("c3-highmem-176", "pd-balanced", "GVNIC", "TERMINATE", "debian-12"),
        ("c3-highmem-192-metal", "hyperdisk-balanced", "IDPF", "TERMINATE", "ubuntu-2404"),
    ],
)
def test_a_type_is_asked_for_with_what_it_takes(
    kind: str, disk: str, card: str, maintenance: str, image: str
) -> None:
    """Google Cloud refuses a type with another disk or card; all disks of a host are of one kind."""
    recorder, _ = deploy({**GCP, "host_type": kind, "allow_unknown_kvm": True})
    template = recorder.one("InstanceTemplate")
    assert {one["diskType"] for one in template["disks"]} == {disk}
    assert [one["nicType"] for one in template["networkInterfaces"]] == [card]
    assert template["scheduling"]["onHostMaintenance"] == maintenance
    assert image in template["disks"][0]["sourceImage"]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"host_type": "c3-highmem-192-metal", "market": "spot"}, "osgym:market: no price is known for spot"),
        ({"host_type": "m3-megamem-128", "market": "spot", "runtime": "local"}, "no price is known for spot"),
    ],
)
def test_what_cannot_be_bought_is_refused_by_its_key(values: dict[str, object], says: str) -> None:
    """Price lists have spot prices of these types; the cloud does not sell them."""
    with pytest.raises(BadInput, match=re.escape(says)):
        blueprint({**GCP, **values})


def test_spot_is_one_time_and_leaves_nothing_behind() -> None:
    """AWS: the group asks for it, each time anew; Google Cloud: a stopped host would be paid for."""
    recorder, outputs = deploy({**AWS, "market": "spot", "host_type": "r8i.24xlarge"})
    assert "instanceMarketOptions" not in recorder.one("LaunchTemplate")
    assert {host["market"] for host in outputs["hosts"]} == {"spot"}
    google, _ = deploy({**GCP, "market": "spot", "host_type": "n2-highmem-80"})
    scheduling = google.one("InstanceTemplate")["scheduling"]
    assert (scheduling["provisioningModel"], scheduling["instanceTerminationAction"]) == ("SPOT", "DELETE")
    assert scheduling["automaticRestart"] is False


def test_hosts_may_read_one_secret_and_their_buckets_only() -> None:
    """A grant for each."""
    google, _ = deploy({**GCP, "agent_uri": "gs://wheels/agent.tar"})
    reads = [one for one in google.of("BucketIAMMember") if one["role"] == "roles/storage.objectViewer"]
    assert sorted(one["bucket"] for one in reads) == ["fleet-archives-id", "golden", "wheels"]
    assert google.one("SecretIamMember")["role"] == "roles/secretmanager.secretAccessor"


@both
def test_the_start_script_fits_and_fetches_the_bootstrap(base: dict[str, object]) -> None:
    """Below EC2's limit; it unpacks what fetches the bootstrap, with the settings of the configuration."""
    recorder, _ = deploy({**base, "egress": "allowlist", "egress_allowlist": ["*.example.org", "a.org"]})
    text = script(recorder)
    if templates := recorder.of("LaunchTemplate"):
        assert len(base64.b64decode(templates[0]["userData"])) <= 16384
    packed = text.split("<<'PACKED'")[1].split("\n", 1)[1].split("PACKED")[0]
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(base64.b64decode(packed)))) as tar:
        assert sorted(tar.getnames()) == sorted(STUB)
        assert all(member.mode == 0o755 for member in tar)
    assert "OSGYM_POLICY_ALLOW='*.example.org, a.org'" in text
    assert f"OSGYM_IMAGE_SHA256={base['image_sha256']}" in text


OPEN: list[tuple[str, dict[str, Any], str]] = [
    (
        "aws:ec2/securityGroup:SecurityGroup",
        {"ingress": [{"fromPort": 22, "cidrBlocks": ["0.0.0.0/0"]}]},
        "22 is open",
    ),
    (
        "aws:ec2/securityGroup:SecurityGroup",
        {"ingress": [{"fromPort": 1, "ipv6CidrBlocks": ["::/0"]}]},
        "::/0",
    ),
    (
        "aws:ec2/securityGroup:SecurityGroup",
        {"ingress": [{"fromPort": 1, "cidrBlocks": ["128.0.0.0/1"]}]},
        "128",
    ),
    (
        "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
        {"fromPort": 5, "cidrIpv4": "0.0.0.0/0"},
        "open",
    ),
    ("gcp:compute/firewall:Firewall", {"allows": [{}], "sourceRanges": ["0.0.0.0/0"]}, "open"),
    ("gcp:compute/firewall:Firewall", {"allows": [{}]}, "no source"),
    ("aws:s3/bucket:Bucket", {"acl": "public-read"}, "public"),
    (
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        {"blockPublicAcls": True},
        "blockPublicPolicy",
    ),
    ("gcp:storage/bucketIAMMember:BucketIAMMember", {"member": "allUsers"}, "allUsers"),
    ("gcp:secretmanager/secretIamMember:SecretIamMember", {"member": "allUsers"}, "allUsers"),
    ("aws:ec2/launchTemplate:LaunchTemplate", {"metadataOptions": {"httpTokens": "optional"}}, "IMDSv2"),
    (
        "aws:ec2/launchTemplate:LaunchTemplate",
        {"metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 2}},
        "HopLimit",
    ),
    (
        "aws:ec2/launchTemplate:LaunchTemplate",
        {"blockDeviceMappings": [{"deviceName": "/dev/sda", "ebs": {"encrypted": "false"}}]},
        "/dev/sda is not encrypted",
    ),
    (
        "aws:ec2/launchTemplate:LaunchTemplate",
        {"blockDeviceMappings": [], "userData": ec2_user_data("export OSGYM_TOKEN=abc")},
        "contains a secret",
    ),
    (
        "aws:ec2/launchTemplate:LaunchTemplate",
        {"blockDeviceMappings": [], "userData": base64.b64encode(b"export OSGYM_TOKEN=abc").decode()},
        "contains a secret",
    ),
    ("aws:ec2/instance:Instance", {}, "IMDSv2"),
    ("aws:ebs/volume:Volume", {}, "not encrypted"),
    (
        "gcp:compute/instanceTemplate:InstanceTemplate",
        {"metadataStartupScript": "PASSWORD=hunter2"},
        "contains a secret",
    ),
]


@pytest.mark.parametrize(("kind", "properties", "says"), OPEN)
def test_the_policy_finds_what_must_not_be(kind: str, properties: dict[str, Any], says: str) -> None:
    """Each rule, by a resource that breaks it; `enforce` raises with the resource's name."""
    assert any(says in problem for problem in policy.violations(kind, properties))
    with pytest.raises(policy.PolicyViolated, match="thing"):
        policy.enforce(kind, "thing", properties)


def test_the_policy_lets_outbound_and_unknown_values_pass() -> None:
    """Egress to the world is not ingress; what is known only later cannot be judged now."""
    assert (
        policy.violations("aws:ec2/securityGroup:SecurityGroup", {"egress": [{"cidrBlocks": ["0.0.0.0/0"]}]})
        == []
    )
    assert policy.violations("aws:ec2/securityGroup:SecurityGroup", {"ingress": None}) == []
    assert policy.violations("gcp:compute/firewall:Firewall", {"direction": "EGRESS", "allows": [{}]}) == []
    assert policy.violations("some:other/thing:Thing", {"acl": "public-read"}) == []
