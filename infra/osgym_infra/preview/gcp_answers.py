"""What Google Cloud would answer: what it adds to a group, and what it finds when it is asked. Pure.

What is found has to follow from what was made, also in another process: a group's link holds its size and its
zones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

GROUP = "gcp:compute/regionInstanceGroupManager:RegionInstanceGroupManager"
API = "https://www.googleapis.com/compute/v1"
ZONES = "abcf"
"""Those of us-central1; the last has none of the newest types here, so that zones are seen to be asked."""
NOT_EVERYWHERE = ("n4-", "c4-")


def of_group(name: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What a group has besides its inputs.

    Args:
        inputs: in Pulumi's spelling; `None` where unknown.
    """
    zones = inputs.get("distributionPolicyZones") or []
    size = {"size": str(int(inputs.get("targetSize") or 0)), "zones": ",".join(map(str, zones))}
    place = f"{API}/projects/{inputs.get('project')}/regions/{inputs.get('region')}"
    return {
        "name": name,
        "instanceGroup": f"{place}/instanceGroups/{name}?{urlencode(size)}",
        "creationTimestamp": "2026-11-22T12:00:00Z",
    }


def answer(token: str, asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a look-up finds; `None` for those that this module knows nothing of."""
    if not token.startswith("gcp:"):
        return None
    match token.rpartition(":")[2]:
        case "getZones":
            return {**asked, "id": "zones", "names": [f"{asked['region']}-{letter}" for letter in ZONES]}
        case "getMachineTypes":
            return {**asked, "id": "types", "machineTypes": _types(str(asked["filter"]), str(asked["zone"]))}
        case "getRegionInstanceGroup":
            return {**asked, "id": "group", **_members(str(asked["selfLink"]))}
        case "getInstance":
            return {**asked, "id": str(asked["name"]), **_instance(str(asked["name"]))}
        case "getImages":
            return {**asked, "id": "images", "images": []}
    return None


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
