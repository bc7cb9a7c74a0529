"""A fleet of machines that exist already: from a checked configuration to serving hosts."""

from __future__ import annotations

from typing import Any

import pulumi

from osgym_infra.args import Provider
from osgym_infra.components.common import HostsArgs
from osgym_infra.components.golden import GoldenImage, fed
from osgym_infra.components.ssh import ReplicaHosts
from osgym_infra.outputs import REMOVES, destroy_removes
from osgym_infra.stack import begin, finish


def main() -> dict[str, Any]:
    """The program; returns the stack's outputs."""
    blueprint = begin(Provider.SSH)
    fleet = ReplicaHosts("fleet", fed(GoldenImage, "fleet", HostsArgs(blueprint, pulumi.get_stack())))
    pulumi.export(REMOVES, destroy_removes(blueprint))
    return finish(blueprint, fleet.hosts, fleet.token_secret, fleet.ca)
