"""What the parts of a fleet at Google Cloud share: names, labels, options, the project, the zones."""

from __future__ import annotations

import pulumi
import pulumi_gcp as gcp

from osgym_infra.components.scope import FleetScope
from osgym_infra.fleet.bounds import check_zones
from osgym_infra.fleet.groups import HostGroup

MOST_ZONES = 5
"""Zones are asked one by one, at every `pulumi up`; a region has three or four."""


class Scope(FleetScope):
    """The scope of a fleet at Google Cloud: its project, labels and network tag too."""

    __slots__ = ()

    @property
    def project(self) -> str:
        """The project's id."""
        return str(self.config.own["project"])

    @property
    def tag(self) -> str:
        """The network tag of this fleet's hosts: rules of another stack in the network are not for them."""
        return f"{self.name}-host"

    @property
    def labels(self) -> dict[str, str]:
        """On every resource that can have them."""
        return self.args.tags


def zones_of(scope: Scope, group: HostGroup) -> tuple[str, ...]:
    """The zones a group's hosts are spread over: those configured, or all that have its type.

    Raises:
        BadInput: a configured zone does not have the type, or none has.
    """
    asked = pulumi.InvokeOptions(parent=scope.child.parent)
    there = gcp.compute.get_zones(
        project=scope.project, region=scope.config.region, status="UP", opts=asked
    ).names
    offered = [
        zone
        for zone in sorted(there)[:MOST_ZONES]
        if gcp.compute.get_machine_types(
            filter=f'name = "{group.type}"', project=scope.project, zone=zone, opts=asked
        ).machine_types
    ]
    return check_zones(scope.config, offered, group.type)
