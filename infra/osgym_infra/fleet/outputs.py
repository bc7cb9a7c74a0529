"""Outputs of a stack: the content of fleet.json, the same for every provider. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from osgym_infra.cost.compare import shown
from osgym_infra.cost.model import boots_machines
from osgym_infra.fleet.blueprint import Blueprint
from osgym_infra.fleet.boot import DATA, LOCAL_DATA
from osgym_infra.fleet.bounds import HostGroup
from osgym_protocol.fleet_file import SCHEMA_VERSION

REMOVES = "destroy_removes"
"""An output for people; it does not get into fleet.json."""


@dataclass(frozen=True, slots=True)
class HostOutput:
    """Entry of a host in fleet.json.

    Attributes:
        zone: Zone of the host; empty for own machines.
        server_name: The name in its certificate where that is not its address; empty otherwise. A client
            verifies the certificate against it (TLS server name indication), trusting the fleet's CA only.
        capacity: Replicas that it carries at most: at clouds what was planned; of own machines what the
            agent admitted when it was last looked at, and before that what was asked for.
    """

    id: str
    zone: str
    url: str
    server_name: str
    capacity: int
    market: str
    image_digest: str

    def to_dict(self) -> dict[str, Any]:
        """Return the host's entry of fleet.json."""
        return {name: getattr(self, name) for name in self.__slots__}


def admitted(entry: dict[str, Any], admits: Any) -> dict[str, Any]:
    """Return a host's entry with the capacity that its agent admits, which memory may bound.

    Args:
        admits: Number that the agent admits; None or 0: unknown.
    """
    found = int(admits or 0)
    return {**entry, "capacity": min(int(entry["capacity"]), found)} if found > 0 else entry


def fleet_outputs(
    blueprint: Blueprint, stack: str, hosts: Any, token_secret: Any, ca: Any, discover: str = ""
) -> dict[str, Any]:
    """Return the outputs of a stack by name; hosts, secret and authority may be known later only.

    Args:
        hosts: `HostOutput.to_dict` of each.
        token_secret: Place of the token (`aws:ARN`, `gcp:projects/…`, `file:PATH`), never the token.
        ca: Certificate of the authority that signed the hosts' certificates, PEM; empty: hosts speak HTTP.
        discover: URL of the source of hosts for clients; empty where hosts stay the same.
    """
    config = blueprint.config
    return {
        "schema_version": SCHEMA_VERSION,
        "stack": stack,
        "provider": str(config.provider),
        "region": config.region,
        "hosts": hosts,
        "token_secret": token_secret,
        "ca": ca,
        "discover": discover,
        "capacity": blueprint.capacity,
        # Own machines: what they cost is paid for elsewhere, and this stack adds nothing.
        "expected_usd_per_day": round(blueprint.usd_per_day or 0.0, 2),
        "expected_usd_per_replica_day": round(blueprint.usd_per_replica_day or 0.0, 4),
        "notes": list(blueprint.notes),
        "price_sources": price_sources(blueprint),
    }


def destroy_removes(blueprint: Blueprint) -> list[str]:
    """What `pulumi destroy` takes from own machines, for the preview and for the stack's outputs: a destroy
    runs no program and asks no provider before it begins, but it shows the outputs that it will drop."""
    away = sum(not host.is_local for host in blueprint.config.hosts)
    places = [(f"{away} hosts behind ssh", DATA)] if away else []
    if away < len(blueprint.config.hosts):
        places.append(("this machine", LOCAL_DATA))
    return [
        f"{where}: everything below {data} (images, checkpoints, trajectories, what replicas wrote), "
        "/opt/osgym, /etc/osgym, /usr/local/lib/osgym, the account osgym. Packages stay"
        for where, data in places
    ]


def price_sources(blueprint: Blueprint) -> list[str]:
    """Return the sources of the prices with their dates."""
    return [f"{s.title} ({s.as_of or 'undated'})" for s in blueprint.sources]


def summary(blueprint: Blueprint) -> str:
    """Return the summary of a preview: hosts, their capacity, their price."""
    if blueprint.usd_per_day is None:
        kinds = f"{sum(group.count for group in blueprint.groups)} own machines"
    else:
        kinds = ", ".join(
            f"{group.count} × {group.type} ({group.market.value.replace('_', '-')}, "
            f"{group.replicas} replicas each, {group.usd_per_hour:.2f} USD/h each)"
            for group in blueprint.groups
        )
    asked = "" if blueprint.config.provider.rents else ", as far as their memory goes"
    lines = [f"{blueprint.config.replicas} replicas on {kinds}; room for {blueprint.capacity}{asked}"]
    if blueprint.usd_per_day is not None and blueprint.usd_per_replica_day is not None:
        lines.append(
            f"expected: {blueprint.usd_per_day:.2f} USD a day, "
            f"{blueprint.usd_per_replica_day:.4f} USD per replica-day"
        )
    lines += [
        f"{shown(fleet.market)} instead: {fleet.mix.usd_per_day:.2f} USD a day ({fleet.hosts})"
        for fleet in blueprint.compared
        if fleet.market is not blueprint.config.market
    ]
    if boots_machines(blueprint.config.runtime) and any(group.nested for group in blueprint.groups):
        lines.append("nested virtualisation is switched on where the type is not metal")
    lines += [
        f"where there is no {group.type}: {_stand_ins(group)}"
        for group in blueprint.groups
        if group.stand_ins
    ]
    lines += [
        f"{group.type}: {group.least} to {group.most} hosts, with the load"
        for group in blueprint.groups
        if group.grows
    ]
    lines += [f"destroy will remove from {line}" for line in destroy_removes(blueprint)]
    return "\n".join(lines)


def _stand_ins(group: HostGroup) -> str:
    return ", ".join(f"{other.type} ({other.usd_per_hour:.2f} USD/h)" for other in group.stand_ins)
