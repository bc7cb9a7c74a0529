"""Whose part a resource of a fleet is: names and options, the same for every provider."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from osgym_infra.components.common import HostsArgs
from osgym_infra.config.keys import FleetConfig


@dataclass(frozen=True, slots=True)
class FleetScope:
    """Whose part something is.

    Attributes:
        name: of the fleet's component; the beginning of all names.
        args: of the component.
        child: options of what goes with the component.
        kept: the same, and refused to be destroyed with `protect`.
    """

    name: str
    args: HostsArgs
    child: pulumi.ResourceOptions
    kept: pulumi.ResourceOptions

    @property
    def config(self) -> FleetConfig:
        return self.args.blueprint.config
