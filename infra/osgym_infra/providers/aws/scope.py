"""What the parts of a fleet at AWS share: names, tags, options, and the words that AWS itself uses."""

from __future__ import annotations

from osgym_infra.components.scope import FleetScope
from osgym_infra.fleet.groups import HostGroup


class Scope(FleetScope):
    """The scope of a fleet at AWS: its tags and names too."""

    __slots__ = ()

    def tags(self, part: str) -> dict[str, str]:
        """The tags of one resource."""
        return {**self.args.tags, "Name": f"{self.name}-{part}"}

    def group_name(self, group: HostGroup) -> str:
        """The name of an Auto Scaling group; its hosts and their role know it before it is made."""
        return f"{self.name}-{group.name}"

    def arn(self, service: str, rest: str) -> str:
        """An ARN of this region, of whatever account."""
        return f"arn:{partition(self.config.region)}:{service}:{self.config.region}:*:{rest}"


def partition(region: str) -> str:
    """The first part of ARNs: China and GovCloud are apart (AWS General Reference, "ARNs")."""
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"
