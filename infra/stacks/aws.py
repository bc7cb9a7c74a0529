"""A fleet at AWS: from a checked configuration to serving hosts."""

from __future__ import annotations

from typing import Any

import pulumi

from osgym_infra.args import Provider
from osgym_infra.components.aws import ReplicaHosts
from osgym_infra.components.common import HostsArgs, fleet_name
from osgym_infra.components.golden import fed
from osgym_infra.components.golden_aws import GoldenImage
from osgym_infra.stack import begin, finish


def main() -> dict[str, Any]:
    """The program; returns the stack's outputs."""
    blueprint = begin(Provider.AWS)
    stack = pulumi.get_stack()
    name = fleet_name(stack)
    fleet = ReplicaHosts(name, fed(GoldenImage, name, HostsArgs(blueprint, stack)))
    return finish(blueprint, fleet.hosts, fleet.token_secret.apply(lambda name: f"aws:{name}"), fleet.ca)
