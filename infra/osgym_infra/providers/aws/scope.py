"""Names, tags and options that the parts of a fleet at AWS share."""

from __future__ import annotations

from osgym_infra.components.common import FleetScope
from osgym_infra.fleet.bounds import HostGroup


class Scope(FleetScope):
    """Scope of a fleet at AWS, with its tags and names."""

    __slots__ = ()

    def tags(self, part: str) -> dict[str, str]:
        return {**self.args.tags, "Name": f"{self.name}-{part}"}

    def group_name(self, group: HostGroup) -> str:
        """Return the name of an Auto Scaling group, which hosts and role know before it exists."""
        return f"{self.name}-{group.name}"

    def arn(self, service: str, rest: str) -> str:
        """Return an ARN of this region, of any account."""
        return f"arn:{partition(self.config.region)}:{service}:{self.config.region}:*:{rest}"


def partition(region: str) -> str:
    """Return the first part of ARNs: China and GovCloud are apart (AWS General Reference, "ARNs")."""
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"
