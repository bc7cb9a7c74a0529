"""Scope of a fleet's resources: names and options, the same for every provider."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from osgym_infra.components.common import HostsArgs
from osgym_infra.config.keys import FleetConfig


@dataclass(frozen=True, slots=True)
class FleetScope:
    """Names and options of a fleet's resources.

    Attributes:
        name: Name of the fleet's component, with which all names begin.
        args: Arguments of the component.
        child: Options of what is destroyed with the component.
        kept: Options of what `protect` keeps from being destroyed.
    """

    name: str
    args: HostsArgs
    child: pulumi.ResourceOptions
    kept: pulumi.ResourceOptions

    @property
    def config(self) -> FleetConfig:
        return self.args.blueprint.config
