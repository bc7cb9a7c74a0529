"""Regional managed instance groups, which replace lost hosts, spread over zones and follow the load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pulumi
from pulumi_gcp import compute

from osgym_infra.components.common import FLEET_TAG, TARGET_PRESSURE_PERCENT, WARMUP_S
from osgym_infra.fleet.bounds import HostGroup
from osgym_infra.providers.gcp.scope import Scope
from osgym_infra.providers.gcp.template import stand_in_types

PRESSURE_METRIC = "custom.googleapis.com/osgym/lease_pressure_percent"
SETTLE_S = 1800
"""So long the load has to be low before a host is removed."""
HEALING_DELAY_S = 1800
"""A host may need so long for packages and a large image; it is healed after it had at least so long."""
CHECK_EVERY_S, CHECK_TIMEOUT_S, CHECKS_FAILED = 30, 10, 10
"""A host whose agent answers nothing for 5 minutes is made anew, and what runs on it is lost: no hurry."""
HEALTH_PATH = "/v1/health"
UP_TIMEOUT = "45m"
"""For all hosts to answer after they were asked for: `HEALING_DELAY_S` and some."""


def make_group(
    scope: Scope,
    group: HostGroup,
    template: compute.InstanceTemplate,
    zones: Sequence[str],
    check: compute.HealthCheck,
    needs: Sequence[pulumi.Resource],
) -> compute.RegionInstanceGroupManager:
    """Make a stateless group, and its autoscaler where the number of hosts follows the load."""
    config = scope.config
    ignored = ["targetSize"] if group.grows else []
    if not config.zone and not config.zones:
        # Other zones mean another group: a new zone of the region is no reason to make all hosts anew.
        ignored.append("distributionPolicyZones")
    made = compute.RegionInstanceGroupManager(
        f"{scope.name}-{group.name}",
        base_instance_name=f"{scope.name}-{group.name}"[:53].rstrip("-"),
        region=config.region,
        project=scope.project,
        versions=[compute.RegionInstanceGroupManagerVersionArgs(instance_template=template.self_link_unique)],
        target_size=group.count,
        distribution_policy_zones=list(zones),
        # Where there is capacity, as evenly as that goes; the only shape that both autoscaling and several
        # types take.
        distribution_policy_target_shape="BALANCED",
        instance_flexibility_policy=_flexibility(group),
        auto_healing_policies=compute.RegionInstanceGroupManagerAutoHealingPoliciesArgs(
            health_check=check.id, initial_delay_sec=HEALING_DELAY_S
        ),
        instance_lifecycle_policy=compute.RegionInstanceGroupManagerInstanceLifecyclePolicyArgs(
            default_action_on_failure="REPAIR",
            # A host that is made anew is a new one: it gets the newest template.
            force_update_on_repair="YES",
            on_repair=compute.RegionInstanceGroupManagerInstanceLifecyclePolicyOnRepairArgs(
                allow_changing_zone="YES"
            ),
        ),
        update_policy=compute.RegionInstanceGroupManagerUpdatePolicyArgs(**_update(scope, group, len(zones))),
        wait_for_instances=True,
        wait_for_instances_status="STABLE",
        opts=pulumi.ResourceOptions.merge(
            scope.child,
            pulumi.ResourceOptions(
                # A host reads secret and image at its first start.
                depends_on=list(needs),
                ignore_changes=ignored,
                custom_timeouts=pulumi.CustomTimeouts(create=UP_TIMEOUT, update=UP_TIMEOUT),
            ),
        ),
    )
    if group.grows:
        _follow_load(scope, group, made)
    return made


def _flexibility(group: HostGroup) -> compute.RegionInstanceGroupManagerInstanceFlexibilityPolicyArgs | None:
    """Return other types for where the planned one is not available, in the order of the plan."""
    types = (group.type, *stand_in_types(group))
    if len(types) == 1:
        return None
    return compute.RegionInstanceGroupManagerInstanceFlexibilityPolicyArgs(
        instance_selections=[
            compute.RegionInstanceGroupManagerInstanceFlexibilityPolicyInstanceSelectionArgs(
                name=f"rank-{rank}", rank=rank, machine_types=[type_]
            )
            for rank, type_ in enumerate(types)
        ]
    )


def _update(scope: Scope, group: HostGroup, zones: int) -> dict[str, Any]:
    """Return how hosts of an older template are replaced.

    Compute Engine takes 0 or at least the number of zones: where fewer hosts may be away, new ones come
    before old ones go.
    """
    away = scope.config.max_unavailable.of(max(group.count, 1))
    enough = away >= zones
    return {
        "type": "PROACTIVE" if scope.config.roll else "OPPORTUNISTIC",
        "minimal_action": "REPLACE",
        "most_disruptive_allowed_action": "REPLACE",
        "replacement_method": "SUBSTITUTE",
        "instance_redistribution_type": "NONE",
        "max_unavailable_fixed": away if enough else 0,
        "max_surge_fixed": 0 if enough else zones,
    }


def make_check(scope: Scope) -> compute.HealthCheck:
    """Make a health check of each host's agent; Google's health checks do not check certificates."""
    port = scope.config.agent_port
    encrypted = not scope.config.token_secret
    return compute.HealthCheck(
        f"{scope.name}-agent",
        check_interval_sec=CHECK_EVERY_S,
        timeout_sec=CHECK_TIMEOUT_S,
        healthy_threshold=1,
        unhealthy_threshold=CHECKS_FAILED,
        https_health_check=compute.HealthCheckHttpsHealthCheckArgs(port=port, request_path=HEALTH_PATH)
        if encrypted
        else None,
        http_health_check=None
        if encrypted
        else compute.HealthCheckHttpHealthCheckArgs(port=port, request_path=HEALTH_PATH),
        project=scope.project,
        opts=scope.child,
    )


def _follow_load(scope: Scope, group: HostGroup, made: compute.RegionInstanceGroupManager) -> None:
    """Scale by the hosts' lease pressure, between the bounds."""
    compute.RegionAutoscaler(
        f"{scope.name}-{group.name}",
        region=scope.config.region,
        project=scope.project,
        target=made.id,
        autoscaling_policy=compute.RegionAutoscalerAutoscalingPolicyArgs(
            min_replicas=group.least,
            max_replicas=group.most,
            cooldown_period=WARMUP_S,
            stabilization_period=SETTLE_S,
            metrics=[
                compute.RegionAutoscalerAutoscalingPolicyMetricArgs(
                    name=PRESSURE_METRIC,
                    type="GAUGE",
                    target=TARGET_PRESSURE_PERCENT,
                    filter=f'resource.type = "gce_instance" AND metric.labels.fleet = '
                    f'"{scope.labels[FLEET_TAG]}"',
                )
            ],
        ),
        opts=pulumi.ResourceOptions(parent=made),
    )


def found_hosts(
    scope: Scope, made: compute.RegionInstanceGroupManager
) -> pulumi.Output[list[tuple[str, str, str]]]:
    """Return name, zone and address of the hosts that the group has now; it may have others later."""
    parent = scope.child.parent
    found = compute.get_region_instance_group_output(
        self_link=made.instance_group, opts=pulumi.InvokeOutputOptions(parent=parent, depends_on=[made])
    )

    def host(link: str) -> pulumi.Output[tuple[str, str, str]]:
        zone, name = link.split("/")[-3], link.split("/")[-1]
        one = compute.get_instance_output(
            name=name, zone=zone, project=scope.project, opts=pulumi.InvokeOutputOptions(parent=parent)
        )
        address: pulumi.Output[str] = one.network_interfaces.apply(
            lambda known: address_of(known, scope.config.private)
        )
        return address.apply(lambda known: (name, zone, known))

    hosts: pulumi.Output[list[tuple[str, str, str]]] = found.instances.apply(
        lambda members: pulumi.Output.all(*[host(link) for link in sorted(one.instance for one in members)])
    )
    return hosts


def address_of(interfaces: Any, private: bool) -> str:
    """Return the address of an instance's first network card that clients use; empty: it has none."""
    first = interfaces[0] if interfaces else None
    if first is None:
        return ""
    if private:
        return str(first.network_ip or "")
    return str(first.access_configs[0].nat_ip or "") if first.access_configs else ""
