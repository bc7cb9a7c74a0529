"""Answers of Google Cloud in a preview: outputs of resources, zones, hosts of a group. Pure.

What is found follows from what was made, in another process too: a group's link holds its size and zones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlencode, urlsplit

from osgym_infra.preview.answers import CloudAnswers

GROUP = "gcp:compute/regionInstanceGroupManager:RegionInstanceGroupManager"
API = "https://www.googleapis.com/compute/v1"
ZONES = "abcf"
"""Those of us-central1; the last has none of the newest types here, so that zones are seen to be asked."""
NOT_EVERYWHERE = ("n4-", "c4-")


class Answers(CloudAnswers):
    """Google Cloud without an account."""

    replaced: ClassVar[Mapping[str, frozenset[str]]] = {
        "gcp:compute/network:Network": frozenset({"name", "project"}),
        "gcp:compute/subnetwork:Subnetwork": frozenset({"network", "ipCidrRange", "region"}),
        GROUP: frozenset({"baseInstanceName", "distributionPolicyZones", "region", "project"}),
        "gcp:secretmanager/secretVersion:SecretVersion": frozenset({"secret", "secretData"}),
        "gcp:storage/bucketObject:BucketObject": frozenset({"bucket", "name", "source"}),
    }
    immutable = frozenset({"gcp:compute/instanceTemplate:InstanceTemplate"})
    secret = frozenset({"secretData"})

    def outputs(self, kind: str, name: str, inputs: Mapping[str, Any], digest: str) -> dict[str, Any]:
        match kind.rpartition(":")[2]:
            case "InstanceTemplate":
                link = f"projects/fake/global/instanceTemplates/{name}?uniqueId={digest}"
                return {"selfLinkUnique": link}
            case "Account":
                return {"email": f"{name}@fake.iam.gserviceaccount.com"}
            case "RegionInstanceGroupManager":
                return _group_outputs(name, inputs)
            case "Router" | "IAMCustomRole":
                return {"name": name}
        return {}

    def lookup(self, function: str, args: Mapping[str, Any]) -> dict[str, Any]:
        match function.rpartition(":")[2]:
            case "getZones":
                return {"id": "zones", "names": [f"{args['region']}-{letter}" for letter in ZONES]}
            case "getMachineTypes":
                return {"id": "types", "machineTypes": _types(str(args["filter"]), str(args["zone"]))}
            case "getRegionInstanceGroup":
                return {"id": "group", **_members(str(args["selfLink"]))}
            case "getInstance":
                return {"id": str(args["name"]), **_instance(str(args["name"]))}
            case "getImages":
                return {"id": "images", "images": []}
        return super().lookup(function, args)


def _group_outputs(name: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    zones = inputs.get("distributionPolicyZones") or []
    size = {"size": str(int(inputs.get("targetSize") or 0)), "zones": ",".join(map(str, zones))}
    place = f"{API}/projects/{inputs.get('project')}/regions/{inputs.get('region')}"
    return {
        "name": name,
        "instanceGroup": f"{place}/instanceGroups/{name}?{urlencode(size)}",
        "creationTimestamp": "2026-11-22T12:00:00Z",
    }


def _types(filter_: str, zone: str) -> list[dict[str, Any]]:
    name = filter_.split('"')[1]
    away = zone.endswith(ZONES[-1]) and name.startswith(NOT_EVERYWHERE)
    return [] if away else [{"name": name}]


def _members(link: str) -> dict[str, Any]:
    parts = urlsplit(link)
    found = parse_qs(parts.query)
    size, zones = int(found["size"][0]), found.get("zones", [""])[0].split(",")
    name, project = parts.path.split("/")[-1], parts.path.split("/")[4]
    links = [_link(project, zones, name, number) for number in range(size)]
    return {"size": size, "instances": [{"instance": one, "status": "RUNNING"} for one in links]}


def _link(project: str, zones: Sequence[str], name: str, number: int) -> str:
    letters = hashlib.sha256(f"{name} {number}".encode()).hexdigest()[:4]
    return f"{API}/projects/{project}/zones/{zones[number % len(zones)]}/instances/{name}-{letters}"


def _instance(name: str) -> dict[str, Any]:
    number = int(hashlib.sha256(name.encode()).hexdigest(), 16)
    private = f"10.64.{number % 16}.{number // 16 % 254 + 1}"
    public = f"203.0.113.{number % 254 + 1}"
    return {"networkInterfaces": [{"networkIp": private, "accessConfigs": [{"natIp": public}]}]}
