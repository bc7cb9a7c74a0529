"""Network of hosts at Google Cloud: subnet, address translation for hosts without addresses, firewall."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from osgym_infra.providers.gcp.scope import Scope

SUBNET = "10.64.0.0/20"
IAP_CIDRS = ("35.235.240.0/20",)
"""Where connections through Identity-Aware Proxy come from (IAP, "Using IAP for TCP forwarding")."""
PROBE_CIDRS = ("35.191.0.0/16", "130.211.0.0/22")
"""Where health checks come from (Cloud Load Balancing, "Health checks overview", probe ranges)."""
NAT_PORTS = 512
"""Kept for each host at least; it gets up to 65,536 as replicas open connections."""


@dataclass(frozen=True, slots=True)
class HostNetwork:
    """Network of the hosts.

    Attributes:
        needs: Resources that a host needs to reach the internet at its first start.
    """

    network: pulumi.Input[str]
    subnet: pulumi.Input[str]
    needs: tuple[pulumi.Resource, ...] = ()


def make_network(scope: Scope) -> HostNetwork:
    """Make a network with a subnet, and NAT for hosts without addresses, or look up the configured one."""
    config = scope.config
    if config.network_id:
        return HostNetwork(config.network_id, config.subnet_id)
    network = gcp.compute.Network(
        f"{scope.name}-network", auto_create_subnetworks=False, project=scope.project, opts=scope.kept
    )
    inside = pulumi.ResourceOptions(parent=network)
    subnet = gcp.compute.Subnetwork(
        f"{scope.name}-subnet",
        network=network.id,
        ip_cidr_range=SUBNET,
        region=config.region,
        # Buckets, secrets and metrics are reached without leaving Google's network, also without addresses.
        private_ip_google_access=True,
        project=scope.project,
        opts=inside,
    )
    needs = (_nat(scope, network, subnet),) if config.private else ()
    return HostNetwork(network.id, subnet.id, needs)


def _nat(scope: Scope, network: gcp.compute.Network, subnet: gcp.compute.Subnetwork) -> gcp.compute.RouterNat:
    """Make a NAT, for packages and replicas' egress."""
    inside = pulumi.ResourceOptions(parent=network)
    router = gcp.compute.Router(
        f"{scope.name}-router",
        network=network.id,
        region=scope.config.region,
        project=scope.project,
        opts=inside,
    )
    return gcp.compute.RouterNat(
        f"{scope.name}-nat",
        router=router.name,
        region=scope.config.region,
        project=scope.project,
        nat_ip_allocate_option="AUTO_ONLY",
        source_subnetwork_ip_ranges_to_nat="LIST_OF_SUBNETWORKS",
        subnetworks=[
            gcp.compute.RouterNatSubnetworkArgs(name=subnet.id, source_ip_ranges_to_nats=["ALL_IP_RANGES"])
        ],
        enable_dynamic_port_allocation=True,
        enable_endpoint_independent_mapping=False,
        min_ports_per_vm=NAT_PORTS,
        log_config=gcp.compute.RouterNatLogConfigArgs(enable=True, filter="ERRORS_ONLY"),
        opts=inside,
    )


def make_firewall(scope: Scope, network: pulumi.Input[str]) -> None:
    """Admit clients of the agents, health checks, and ssh through Identity-Aware Proxy."""
    port = scope.config.agent_port
    cidrs = scope.config.allowed_cidrs
    # One rule cannot hold both families.
    families = {
        "agent": tuple(cidr for cidr in cidrs if ":" not in cidr),
        "agent6": tuple(cidr for cidr in cidrs if ":" in cidr),
    }
    for part, ranges in families.items():
        if ranges:
            _allow(
                scope, network, part, port, ranges, "The OSGym agent's port, from the allowed networks only"
            )
    _allow(scope, network, "health", port, PROBE_CIDRS, "Google's health checks of the OSGym agent")
    _allow(scope, network, "iap", 22, IAP_CIDRS, "ssh through Identity-Aware Proxy only")


def _allow(
    scope: Scope, network: pulumi.Input[str], part: str, port: int, ranges: tuple[str, ...], why: str
) -> None:
    gcp.compute.Firewall(
        f"{scope.name}-{part}",
        description=why,
        network=network,
        direction="INGRESS",
        allows=[gcp.compute.FirewallAllowArgs(protocol="tcp", ports=[str(port)])],
        source_ranges=list(ranges),
        target_tags=[scope.tag],
        project=scope.project,
        opts=scope.child,
    )
