"""A provider that makes nothing: it answers like AWS or Google Cloud, and programs run without an account.

What the cloud refuses it refuses too, with the cloud's sentence (`osgym_infra.fleet.requests`). Else inputs
come back as the resource's properties, with what the real provider would add; ids are invented. It is named
by path as `aws` or `gcp`, in a copy of `Pulumi.yaml` only (`run.py`, the tests), never in the real one.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping

from pulumi import FileAsset
from pulumi.provider.experimental import provider, server
from pulumi.provider.experimental.property_value import Computed, PropertyValue
from pulumi.runtime.rpc import UNKNOWN

from osgym_infra.fleet.requests import refusals
from osgym_infra.preview import gcp_answers
from osgym_infra.preview.fake_ec2 import FakeEc2

REPLACING = {
    "aws:ec2/vpc:Vpc": {"cidrBlock"},
    "aws:ec2/subnet:Subnet": {"vpcId", "cidrBlock", "availabilityZone"},
    "aws:ec2/securityGroup:SecurityGroup": {"vpcId", "name", "description"},
    "aws:ec2/instance:Instance": {"launchTemplate", "subnetId", "ami"},
    "aws:autoscaling/group:Group": {"name", "initialLifecycleHooks"},
    "aws:secretsmanager/secretVersion:SecretVersion": {"secretId", "secretString"},
    "aws:s3/bucketObjectv2:BucketObjectv2": {"bucket", "key"},
    "gcp:compute/network:Network": {"name", "project"},
    "gcp:compute/subnetwork:Subnetwork": {"network", "ipCidrRange", "region"},
    gcp_answers.GROUP: {"baseInstanceName", "distributionPolicyZones", "region", "project"},
    "gcp:secretmanager/secretVersion:SecretVersion": {"secret", "secretData"},
    "gcp:storage/bucketObject:BucketObject": {"bucket", "name", "source"},
}
"""Properties that the real providers cannot change in place. Instance templates: all but the labels."""

IMMUTABLE = {"gcp:compute/instanceTemplate:InstanceTemplate"}
SECRET_OUTPUTS = {"secretString", "secretData"}
"""What the real providers' schemas mark as secret."""

LATER = PropertyValue(UNKNOWN)
"""What is known only when a resource exists, as the engine writes it: the SDK (3.272) cannot send its own
`PropertyValue.computed()`."""

Props = dict[str, PropertyValue]


class FakeCloud(provider.Provider):
    """Echoes inputs."""

    def __init__(self, name: str, version: str) -> None:
        self._schema = json.dumps({"name": name, "version": version})
        self._ec2 = FakeEc2()

    async def get_schema(self, request: provider.GetSchemaRequest) -> provider.GetSchemaResponse:
        """Name and version are enough for an SDK that is installed."""
        return provider.GetSchemaResponse(self._schema)

    async def check_config(self, request: provider.CheckRequest) -> provider.CheckResponse:
        return provider.CheckResponse(request.new_inputs, [])

    async def diff_config(self, request: provider.DiffRequest) -> provider.DiffResponse:
        return provider.DiffResponse(changes=False)

    async def configure(self, request: provider.ConfigureRequest) -> provider.ConfigureResponse:
        return provider.ConfigureResponse(
            accept_secrets=True, supports_preview=True, accept_resources=True, accept_outputs=True
        )

    async def check(self, request: provider.CheckRequest) -> provider.CheckResponse:
        """Files become their paths: later the engine sends their digests only, which the SDK cannot read."""
        inputs = {
            name: value.with_value(value.value.path) if isinstance(value.value, FileAsset) else value
            for name, value in request.new_inputs.items()
        }
        kind = request.type.rpartition("$")[2]
        self._ec2.seen(kind, _known(inputs))
        said = refusals(kind, _known(inputs), self._ec2.made)
        return provider.CheckResponse(inputs, [provider.CheckFailure("", sentence) for sentence in said])

    async def diff(self, request: provider.DiffRequest) -> provider.DiffResponse:
        """Compare the inputs with the former ones; some properties cannot be changed in place."""
        old, new = request.old_state, request.new_inputs
        kind = _kind(request)
        self._ec2.seen(kind, _known(new), request.resource_id)
        ours = _added(kind, request.name)
        changed = sorted(
            name
            for name in {*old, *new} - set(request.ignore_changes) - set(ours)
            if not name.startswith("__") and _plain(old.get(name)) != _plain(new.get(name))
        )
        fixed = changed if kind in IMMUTABLE else REPLACING.get(kind, set())
        return provider.DiffResponse(
            changes=bool(changed), diffs=changed, replaces=[name for name in changed if name in fixed]
        )

    async def create(self, request: provider.CreateRequest) -> provider.CreateResponse:
        properties = _made(_kind(request), request.name, request.properties, known=not request.preview)
        made_id = f"{request.name}-{_number(request.properties)}"
        if not request.preview:
            self._ec2.seen(_kind(request), _known(request.properties), made_id)
        return provider.CreateResponse("" if request.preview else made_id, properties)

    async def update(self, request: provider.UpdateRequest) -> provider.UpdateResponse:
        properties = _made(_kind(request), request.name, request.news, known=not request.preview)
        if _kind(request) == "aws:ec2/launchTemplate:LaunchTemplate":
            # A new version of the template, one above the former.
            former = _plain(request.olds.get("latestVersion"))
            if not request.preview and isinstance(former, int | float):
                properties["latestVersion"] = PropertyValue(former + 1)
            else:
                properties["latestVersion"] = LATER
        return provider.UpdateResponse(properties)

    async def read(self, request: provider.ReadRequest) -> provider.ReadResponse:
        return provider.ReadResponse(
            resource_id=request.resource_id, properties=request.properties, inputs=request.inputs
        )

    async def delete(self, request: provider.DeleteRequest) -> None:
        return None

    async def invoke(self, request: provider.InvokeRequest) -> provider.InvokeResponse:
        """Whatever is looked up is found."""
        asked = _known(request.args)
        found = gcp_answers.answer(request.tok, asked)
        if found is not None:
            return provider.InvokeResponse({key: _valued(value) for key, value in found.items()})
        found = self._ec2.answer(request.tok, asked)
        return provider.InvokeResponse(
            {**request.args, **{name: _valued(value) for name, value in found.items()}}
        )

    async def cancel(self) -> None:
        return None


def _kind(request: provider.DiffRequest | provider.CreateRequest | provider.UpdateRequest) -> str:
    """The resource's own type; the SDK gives it with those of its parents before it (`a$b`)."""
    return request.type.rpartition("$")[2]


def _made(kind: str, name: str, inputs: Props, known: bool) -> Props:
    """The properties of a resource; what only a provider knows is unknown in a preview."""
    added: Props = {
        key: LATER if not known else PropertyValue(value) for key, value in _added(kind, name).items()
    }
    if kind == "aws:secretsmanager/secretVersion:SecretVersion" and known:
        added["versionId"] = PropertyValue(_number(inputs))
    if kind == "gcp:compute/instanceTemplate:InstanceTemplate" and known:
        link = f"projects/fake/global/instanceTemplates/{name}?uniqueId={_number(inputs)}"
        added["selfLinkUnique"] = PropertyValue(link)
    if kind == gcp_answers.GROUP:
        more = gcp_answers.of_group(name, _known(inputs)).items()
        added |= {key: PropertyValue(value) if known else LATER for key, value in more}
    made = {**{key: _sendable(value) for key, value in inputs.items()}, **added}
    return {key: value.with_secret(True) if key in SECRET_OUTPUTS else value for key, value in made.items()}


def _added(kind: str, name: str) -> dict[str, str | float]:
    match kind.rpartition(":")[2]:
        case "Instance":
            return {
                "publicIp": _address("198.51.100", name),
                "availabilityZone": "us-east-1a",
                "arn": _arn(name),
            }
        case "LaunchTemplate":
            return {"latestVersion": 1.0, "arn": _arn(name)}
        case "SecretVersion" if kind.startswith("aws:"):
            return {"versionId": "", "arn": _arn(name)}
        case "InstanceTemplate":
            return {"selfLinkUnique": ""}
        case "Account":
            return {"email": f"{name}@fake.iam.gserviceaccount.com"}
        case "Role" | "InstanceProfile":
            return {"arn": _arn(name), "name": name}
        case "RegionInstanceGroupManager":
            return {"name": "", "instanceGroup": "", "creationTimestamp": ""}
        case "Router" | "IAMCustomRole":
            return {"name": name}
        case _:
            return {"arn": _arn(name)} if kind.startswith("aws:") else {}


def _number(inputs: Props) -> str:
    """Another one for other inputs."""
    data = json.dumps(_plain(inputs), sort_keys=True, default=str)
    return hashlib.sha256(data.encode()).hexdigest()[:8]


def _sendable(value: PropertyValue) -> PropertyValue:
    """A property with everything that is not known yet as `LATER`."""
    inner = value.value
    if isinstance(inner, Computed):
        return LATER.with_secret(value.is_secret)
    if isinstance(inner, Mapping):
        return value.with_value({key: _sendable(item) for key, item in inner.items()})
    if isinstance(inner, tuple):
        return value.with_value([_sendable(item) for item in inner])
    return value


def _arn(name: str) -> str:
    return f"arn:aws:fake:us-east-1:123456789012:{name}"


def _address(prefix: str, name: str) -> str:
    return f"{prefix}.{int(hashlib.sha256(name.encode()).hexdigest(), 16) % 254 + 1}"


def _known(inputs: Props) -> dict[str, object]:
    """Inputs as plain values; what is known only later is `None`."""

    def known(value: object) -> object:
        if isinstance(value, dict):
            return {key: known(item) for key, item in value.items()}
        if isinstance(value, list):
            return [known(item) for item in value]
        return None if value == UNKNOWN else value

    return {key: known(_plain(value)) for key, value in inputs.items()}


def _valued(value: object) -> PropertyValue:
    """A plain value as the engine takes it."""
    if isinstance(value, Mapping):
        return PropertyValue({key: _valued(item) for key, item in value.items()})
    if isinstance(value, list):
        return PropertyValue([_valued(item) for item in value])
    if isinstance(value, int) and not isinstance(value, bool):
        return PropertyValue(float(value))
    assert value is None or isinstance(value, str | float | bool)
    return PropertyValue(value)


def _plain(value: object) -> object:
    """A property without wrappers, to compare and to count with."""
    if isinstance(value, PropertyValue):
        return _plain(value.value)
    if isinstance(value, Computed):
        return UNKNOWN
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if not key.startswith("__")}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def main(name: str, version: str) -> None:
    """Serve until the engine is done."""
    server.main(sys.argv[1:], version, FakeCloud(name, version))
