"""Network of hosts at AWS: zones, subnets, NAT, firewall."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from osgym_infra.config.readers import bad_key
from osgym_infra.fleet.bounds import HostGroup, check_zones
from osgym_infra.providers.aws.scope import Scope

NETWORK = "10.64.0.0/16"
MOST_ZONES = 6
"""More zones have more spot capacity; no region has more (us-east-1)."""
NAT_SUBNET = "10.64.240.0/24"


def subnet_range(number: int) -> str:
    """Return the addresses of one zone, of which 4,091 can be used."""
    return f"10.64.{16 * number}.0/20"


@dataclass(frozen=True, slots=True)
class Network:
    """Network of the hosts.

    Attributes:
        subnets: Subnets by zone; configured ones under their own names.
        needs: Resources that hosts need to reach the internet.
    """

    vpc: pulumi.Input[str]
    subnets: dict[str, pulumi.Input[str]]
    needs: list[pulumi.Resource]

    def in_zones(self, zones: Iterable[str]) -> list[pulumi.Input[str]]:
        """Return the subnets of these zones; all of the configured ones, which were checked."""
        return [self.subnets[zone] for zone in zones if zone in self.subnets] or [*self.subnets.values()]


def zones_of(scope: Scope) -> dict[str, tuple[str, ...]]:
    """Return the zones of each group: those that offer its type, as AWS says now.

    Raises:
        BadInput: A configured zone, or the whole region, does not have a type.
    """
    groups = scope.args.blueprint.groups
    types = sorted({kind.type for group in groups for kind in group.kinds})
    found = aws.ec2.get_instance_type_offerings(
        filters=[aws.ec2.GetInstanceTypeOfferingsFilterArgs(name="instance-type", values=types)],
        location_type="availability-zone",
        region=scope.config.region,
        opts=pulumi.InvokeOptions(parent=scope.child.parent),
    )
    # Local and wavelength zones have longer names, and no room for such machines.
    zone = re.compile(re.escape(scope.config.region) + "[a-z]")
    offered = {
        (type_, where)
        for type_, where in zip(found.instance_types, found.locations, strict=True)
        if zone.fullmatch(where)
    }
    return {
        group.name: check_zones(
            scope.config, sorted(where for type_, where in offered if type_ == group.type), group.type
        )[:MOST_ZONES]
        for group in groups
    }


def make_network(scope: Scope, zones: Iterable[str]) -> Network:
    """Make a VPC with a subnet in each zone, or look up the configured ones."""
    if scope.config.network_id:
        named = named_subnets(scope)
        return Network(scope.config.network_id, dict(zip(named, named, strict=True)), [])
    vpc = aws.ec2.Vpc(
        f"{scope.name}-vpc",
        cidr_block=NETWORK,
        enable_dns_hostnames=True,
        tags=scope.tags("vpc"),
        opts=scope.kept,
    )
    inside = pulumi.ResourceOptions(parent=vpc)
    gateway = aws.ec2.InternetGateway(
        f"{scope.name}-gateway", vpc_id=vpc.id, tags=scope.tags("gateway"), opts=inside
    )
    out = _table(
        scope, "routes", vpc, aws.ec2.RouteTableRouteArgs(cidr_block="0.0.0.0/0", gateway_id=gateway.id)
    )
    needs: list[pulumi.Resource] = []
    tables = [out]
    if scope.config.private:
        nat, made = _nat(scope, vpc, out, sorted(zones)[0], gateway)
        needs += made
        out = _table(
            scope,
            "private-routes",
            vpc,
            aws.ec2.RouteTableRouteArgs(cidr_block="0.0.0.0/0", nat_gateway_id=nat.id),
        )
        tables.append(out)
    subnets: dict[str, pulumi.Input[str]] = {}
    for number, zone in enumerate(sorted(zones)):
        subnet = _subnet(scope, f"subnet-{zone}", vpc, subnet_range(number), zone)
        subnets[zone] = subnet.id
        needs.append(_joined(scope, f"routes-{zone}", vpc, subnet, out))
    # Images come from a bucket of the region: over this they cost no traffic.
    aws.ec2.VpcEndpoint(
        f"{scope.name}-s3",
        vpc_id=vpc.id,
        service_name=f"com.amazonaws.{scope.config.region}.s3",
        vpc_endpoint_type="Gateway",
        route_table_ids=[table.id for table in tables],
        tags=scope.tags("s3"),
        opts=inside,
    )
    return Network(vpc.id, subnets, needs)


def _nat(
    scope: Scope, vpc: aws.ec2.Vpc, public: aws.ec2.RouteTable, zone: str, gateway: aws.ec2.InternetGateway
) -> tuple[aws.ec2.NatGateway, list[pulumi.Resource]]:
    """Make one NAT for all zones, for packages and secrets of hosts without public addresses."""
    subnet = _subnet(scope, "nat", vpc, NAT_SUBNET, zone)
    joined = _joined(scope, "nat", vpc, subnet, public)
    address = aws.ec2.Eip(
        f"{scope.name}-nat",
        domain="vpc",
        tags=scope.tags("nat"),
        # An address is had only where a gateway is (EC2 user guide, "Elastic IP addresses").
        opts=pulumi.ResourceOptions(parent=vpc, depends_on=[gateway]),
    )
    nat = aws.ec2.NatGateway(
        f"{scope.name}-nat",
        subnet_id=subnet.id,
        allocation_id=address.id,
        tags=scope.tags("nat"),
        opts=pulumi.ResourceOptions(parent=vpc, depends_on=[joined]),
    )
    return nat, [nat]


def _subnet(scope: Scope, part: str, vpc: aws.ec2.Vpc, cidr: str, zone: str) -> aws.ec2.Subnet:
    return aws.ec2.Subnet(
        f"{scope.name}-{part}",
        vpc_id=vpc.id,
        cidr_block=cidr,
        availability_zone=zone,
        # Whether a host has a public address says its template.
        map_public_ip_on_launch=False,
        tags=scope.tags(part),
        opts=pulumi.ResourceOptions(parent=vpc),
    )


def _table(
    scope: Scope, part: str, vpc: aws.ec2.Vpc, route: aws.ec2.RouteTableRouteArgs
) -> aws.ec2.RouteTable:
    return aws.ec2.RouteTable(
        f"{scope.name}-{part}",
        vpc_id=vpc.id,
        routes=[route],
        tags=scope.tags(part),
        opts=pulumi.ResourceOptions(parent=vpc),
    )


def _joined(
    scope: Scope, part: str, vpc: aws.ec2.Vpc, subnet: aws.ec2.Subnet, table: aws.ec2.RouteTable
) -> aws.ec2.RouteTableAssociation:
    return aws.ec2.RouteTableAssociation(
        f"{scope.name}-{part}",
        subnet_id=subnet.id,
        route_table_id=table.id,
        opts=pulumi.ResourceOptions(parent=vpc),
    )


def named_subnets(scope: Scope) -> list[str]:
    """Look up the configured subnets."""
    return [part.strip() for part in scope.config.subnet_id.split(",") if part.strip()]


def check_subnets(scope: Scope, groups: Iterable[HostGroup], zones: dict[str, tuple[str, ...]]) -> None:
    """Check that the configured subnets belong to the network and have the types.

    Raises:
        BadInput: A subnet stands in another network, or in a zone without a type.
    """
    if not scope.config.network_id:
        return
    for name in named_subnets(scope):
        subnet = aws.ec2.get_subnet(
            id=name, region=scope.config.region, opts=pulumi.InvokeOptions(parent=scope.child.parent)
        )
        if subnet.vpc_id != scope.config.network_id:
            raise bad_key(
                "subnet_id",
                f"{name} is in {subnet.vpc_id}, not in {scope.config.network_id}",
                "Name a subnet of network_id",
            )
        for group in groups:
            if subnet.availability_zone not in zones[group.name]:
                raise bad_key(
                    "subnet_id",
                    f"{name} is in {subnet.availability_zone}, which does not have {group.type}",
                    f"Name a subnet in {', '.join(zones[group.name])}, or another host_type",
                )


def make_firewall(scope: Scope, vpc: pulumi.Input[str]) -> pulumi.Output[str]:
    """Make the security group; return its id."""
    cidrs = scope.config.allowed_cidrs
    port = scope.config.agent_port
    group = aws.ec2.SecurityGroup(
        f"{scope.name}-agent",
        # No apostrophe: EC2 refuses it.
        description="Port of the OSGym agents, from the allowed networks only",
        vpc_id=vpc,
        ingress=[
            aws.ec2.SecurityGroupIngressArgs(
                description="OSGym agent",
                protocol="tcp",
                from_port=port,
                to_port=port,
                cidr_blocks=[cidr for cidr in cidrs if ":" not in cidr],
                ipv6_cidr_blocks=[cidr for cidr in cidrs if ":" in cidr],
            )
        ],
        egress=[
            aws.ec2.SecurityGroupEgressArgs(
                description="Packages, images; replicas are held back on the host",
                protocol="-1",
                from_port=0,
                to_port=0,
                cidr_blocks=["0.0.0.0/0"],
                ipv6_cidr_blocks=["::/0"],
            )
        ],
        tags=scope.tags("agent"),
        opts=scope.child,
    )
    found: pulumi.Output[str] = group.id
    return found
