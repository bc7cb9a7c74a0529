"""Hosts of one kind. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from osgym_infra.catalogue.rows import MachineRow
from osgym_infra.catalogue.shapes import Market


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Hosts of one kind.

    Attributes:
        name: Part of resource names: small letters, digits, dashes.
        type: The provider's name of the type.
        count: Number of hosts.
        replicas: Most replicas of one host.
        nested: Whether nested virtualisation has to be switched on.
        volume_gib: Size of the network volume; what replicas write goes there unless the type has NVMe.
        nvme: Whether the type has local disks.
        least: Fewest hosts; the cloud replaces what is missing.
        most: Most hosts; the cloud adds hosts up to it when clients wait.
        stand_ins: The same for other types, which the cloud may take where it has none of this; their `count`
            is 0.
        machine: Options of the type, where the catalogue has them.
    """

    name: str
    type: str
    count: int
    replicas: int
    market: Market
    nested: bool
    volume_gib: int
    nvme: bool
    usd_per_hour: float
    least: int = 0
    most: int = 0
    stand_ins: tuple[HostGroup, ...] = ()
    machine: MachineRow | None = None

    @property
    def grows(self) -> bool:
        """Whether the number of hosts follows the load."""
        return self.least < self.most

    @property
    def kinds(self) -> tuple[HostGroup, ...]:
        """The group's own type, then its stand-ins."""
        return (self, *self.stand_ins)
