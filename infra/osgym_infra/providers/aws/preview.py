"""Answers of AWS in a preview: zones, images, and the hosts of an Auto Scaling group. Pure.

A group's hosts are invented from its last request: as many as it asks for, spread over its zones, of its
first type, with public addresses if its template says so.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from osgym_infra.preview.answers import CloudAnswers

NESTS = re.compile(r"(c8i|m8i|r8i)(-flex)?\.(?!metal).+")
"""Types with nested virtualisation (EC2 API model, `NestedVirtualization`, 2026-11-22)."""
ZONES = "abd"
"""Where every type is offered: three zones of a region, not all."""
EXISTING_VPC = "vpc-existing"
"""The network of every subnet that nobody made here."""


class Answers(CloudAnswers):
    """AWS without an account."""

    replaced: ClassVar[Mapping[str, frozenset[str]]] = {
        "aws:ec2/vpc:Vpc": frozenset({"cidrBlock"}),
        "aws:ec2/subnet:Subnet": frozenset({"vpcId", "cidrBlock", "availabilityZone"}),
        "aws:ec2/securityGroup:SecurityGroup": frozenset({"vpcId", "name", "description"}),
        "aws:ec2/instance:Instance": frozenset({"launchTemplate", "subnetId", "ami"}),
        "aws:autoscaling/group:Group": frozenset({"name", "initialLifecycleHooks"}),
        "aws:secretsmanager/secretVersion:SecretVersion": frozenset({"secretId", "secretString"}),
        "aws:s3/bucketObjectv2:BucketObjectv2": frozenset({"bucket", "key"}),
    }
    secret = frozenset({"secretString"})
    counted: ClassVar[Mapping[str, str]] = {"aws:ec2/launchTemplate:LaunchTemplate": "latestVersion"}

    def __init__(self) -> None:
        self._groups: dict[str, Mapping[str, Any]] = {}
        self._by_id: dict[str, Mapping[str, Any]] = {}

    def record(self, kind: str, inputs: Mapping[str, Any], id_: str = "") -> None:
        if kind == "aws:autoscaling/group:Group":
            self._groups[str(inputs.get("name"))] = inputs
        if id_:
            self._by_id[id_] = inputs

    def inputs_of(self, id_: str) -> Mapping[str, Any]:
        return self._by_id.get(id_, {})

    def outputs(self, kind: str, name: str, inputs: Mapping[str, Any], digest: str) -> dict[str, Any]:
        found: dict[str, Any] = {"arn": f"arn:aws:fake:us-east-1:123456789012:{name}"}
        match kind.rpartition(":")[2]:
            case "Instance":
                number = int(_digits(name), 16) % 254 + 1
                found |= {"publicIp": f"198.51.100.{number}", "availabilityZone": "us-east-1a"}
            case "LaunchTemplate":
                found["latestVersion"] = 1.0
            case "SecretVersion":
                found["versionId"] = digest
            case "Role" | "InstanceProfile":
                found["name"] = name
        return found

    def lookup(self, function: str, args: Mapping[str, Any]) -> dict[str, Any]:
        match function.rpartition(":")[2]:
            case "getInstanceTypeOfferings":
                region = args.get("region") or "us-east-1"
                (types,) = [one["values"] for one in args["filters"] if one["name"] == "instance-type"]
                pairs = [(type_, f"{region}{zone}") for type_ in types for zone in ZONES]
                return {
                    "id": "fake",
                    "instanceTypes": [pair[0] for pair in pairs],
                    "locations": [pair[1] for pair in pairs],
                    "locationTypes": ["availability-zone"] * len(pairs),
                }
            case "getInstanceTypes":
                (types,) = [one["values"] for one in args["filters"] if one["name"] == "instance-type"]
                return {"id": "fake", "instanceTypes": [one for one in types if NESTS.fullmatch(one)]}
            case "getSubnet":
                return {"vpcId": EXISTING_VPC, "availabilityZone": f"{args.get('region') or 'us-east-1'}a"}
            case "getInstances":
                (name,) = args["filters"][0]["values"]
                return {"id": "fake", "ids": self._ids(name)}
            case "getInstance":
                return self._instance(str(args["instanceId"]))
        return {"id": "fake", "architecture": "x86_64"}

    def _ids(self, group: str) -> list[str]:
        desired = self._groups.get(group, {}).get("desiredCapacity") or 0
        return [f"i-{_digits(f'{group}/{number}')[:17]}" for number in range(int(desired))]

    def _instance(self, id_: str) -> dict[str, Any]:
        for name, group in self._groups.items():
            ids = self._ids(name)
            if id_ in ids:
                number = int(_digits(id_), 16) % 62_500
                last = f"{number // 250}.{number % 250 + 1}"
                override = group["mixedInstancesPolicy"]["launchTemplate"]["overrides"][0]
                reference = (override.get("launchTemplateSpecification") or {}).get("launchTemplateId")
                (card,) = self.inputs_of(str(reference)).get("networkInterfaces") or [{}]
                public = str(card.get("associatePublicIpAddress")).lower() == "true"
                return {
                    "id": id_,
                    "instanceType": override["instanceType"],
                    "availabilityZone": f"us-east-1{ZONES[ids.index(id_) % len(ZONES)]}",
                    "privateIp": f"10.64.{last}",
                    "publicIp": f"198.18.{last}" if public else "",
                }
        raise LookupError(f"no group has {id_}")


def _digits(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
