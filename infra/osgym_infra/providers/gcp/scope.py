"""Names, labels, options, project and zones that the parts of a fleet at Google Cloud share."""

from __future__ import annotations

import pulumi
import pulumi_gcp as gcp

from osgym_infra.components.common import FleetScope
from osgym_infra.fleet.bounds import HostGroup, check_zones

MOST_ZONES = 5
"""Zones are asked one by one, at every `pulumi up`; a region has three or four."""


class Scope(FleetScope):
    """Scope of a fleet at Google Cloud, with its project, labels and network tag."""

    __slots__ = ()

    @property
    def project(self) -> str:
        return str(self.config.own["project"])

    @property
    def tag(self) -> str:
        """Network tag of this fleet's hosts, by which another stack's rules do not concern them."""
        return f"{self.name}-host"

    @property
    def labels(self) -> dict[str, str]:
        """Labels of every resource that can have them."""
        return self.args.tags


def zones_of(scope: Scope, group: HostGroup) -> tuple[str, ...]:
    """Return the zones of a group's hosts: those configured, or all that have its type.

    Raises:
        BadInput: A configured zone does not have the type, or none has.
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
