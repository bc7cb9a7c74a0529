"""Auto Scaling groups, which replace lost hosts, drain hosts before they end, and follow the load."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pulumi
import pulumi_aws as aws
from pulumi_aws import autoscaling

from osgym_infra.catalogue.shapes import Market
from osgym_infra.components.common import FLEET_TAG, TARGET_PRESSURE_PERCENT, WARMUP_S
from osgym_infra.fleet.bounds import HostGroup
from osgym_infra.providers.aws.iam import FLEET_DIMENSION, METRICS_NAMESPACE, PRESSURE_METRIC
from osgym_infra.providers.aws.scope import Scope

DRAIN_HOOK = "osgym-drain"
LEAST_HEARTBEAT_S, MOST_HEARTBEAT_S = 30, 7200
"""EC2 Auto Scaling API, PutLifecycleHook, `HeartbeatTimeout`; a host prolongs it up to 48 hours by
RecordLifecycleActionHeartbeat."""
DRAIN_SPARE_S = 120
"""What a host needs besides its episodes: to hear of it, and to write trajectories."""
CAPACITY_TIMEOUT = "15m"


def heartbeat_s(drain_timeout_s: float) -> int:
    """Return how long the group waits for a draining host."""
    return min(max(math.ceil(drain_timeout_s) + DRAIN_SPARE_S, LEAST_HEARTBEAT_S), MOST_HEARTBEAT_S)


def make_group(
    scope: Scope,
    group: HostGroup,
    templates: Mapping[str, aws.ec2.LaunchTemplate],
    subnets: Sequence[pulumi.Input[str]],
    needs: Sequence[pulumi.Resource],
) -> autoscaling.Group:
    """Make the group with its drain hook, its scaling and its end.

    Args:
        needs: Resources that have to exist before a host starts.
    """
    name = scope.group_name(group)
    made = autoscaling.Group(
        name,
        name=name,
        min_size=group.least,
        max_size=group.most,
        desired_capacity=group.count,
        vpc_zone_identifiers=list(subnets),
        mixed_instances_policy=_policy(group, templates),
        # A host that is likely to be interrupted is replaced before it is.
        capacity_rebalance=group.market is Market.SPOT,
        health_check_type="EC2",
        default_instance_warmup=WARMUP_S,
        wait_for_capacity_timeout=CAPACITY_TIMEOUT,
        instance_refresh=_refresh(scope, group) if scope.config.roll else None,
        tags=[
            # Hosts have theirs from the template, with their disks.
            autoscaling.GroupTagArgs(key=key, value=value, propagate_at_launch=False)
            for key, value in scope.tags(group.name).items()
        ],
        opts=pulumi.ResourceOptions.merge(
            scope.child,
            pulumi.ResourceOptions(
                # A host reads secret and image at its first start.
                depends_on=list(needs),
                # How many there are now is the cloud's to say where it follows the load.
                ignore_changes=["desiredCapacity"] if group.grows else [],
            ),
        ),
    )
    inside = pulumi.ResourceOptions(parent=made)
    _drain_hook(scope, name, made, inside)
    if group.grows:
        _follow_load(scope, name, made, inside)
    if scope.config.ttl_hours is not None:
        _end(name, made, scope.config.ttl_hours, inside)
    return made


def _policy(
    group: HostGroup, templates: Mapping[str, aws.ec2.LaunchTemplate]
) -> autoscaling.GroupMixedInstancesPolicyArgs:
    spot = group.market is Market.SPOT

    def version(kind: HostGroup) -> dict[str, Any]:
        template = templates[kind.type]
        # The number, not $Latest: a change is seen in preview, and starts a refresh.
        return {"launch_template_id": template.id, "version": template.latest_version.apply(str)}

    return autoscaling.GroupMixedInstancesPolicyArgs(
        instances_distribution=autoscaling.GroupMixedInstancesPolicyInstancesDistributionArgs(
            on_demand_base_capacity=0,
            on_demand_percentage_above_base_capacity=0 if spot else 100,
            # In the order of the plan, which is by price.
            on_demand_allocation_strategy="prioritized",
            spot_allocation_strategy="price-capacity-optimized",
        ),
        launch_template=autoscaling.GroupMixedInstancesPolicyLaunchTemplateArgs(
            launch_template_specification=autoscaling.GroupMixedInstancesPolicyLaunchTemplateLaunchTemplateSpecificationArgs(
                **version(group)
            ),
            overrides=[
                autoscaling.GroupMixedInstancesPolicyLaunchTemplateOverrideArgs(
                    instance_type=kind.type,
                    launch_template_specification=autoscaling.GroupMixedInstancesPolicyLaunchTemplateOverrideLaunchTemplateSpecificationArgs(
                        **version(kind)
                    ),
                )
                for kind in group.kinds
            ],
        ),
    )


def _refresh(scope: Scope, group: HostGroup) -> autoscaling.GroupInstanceRefreshArgs:
    """Replace hosts of an older template, a bounded number at once, each drained first."""
    away = scope.config.max_unavailable.of(max(group.count, 1))
    return autoscaling.GroupInstanceRefreshArgs(
        strategy="Rolling",
        preferences=autoscaling.GroupInstanceRefreshPreferencesArgs(
            min_healthy_percentage=100 * (group.count - away) // max(group.count, 1),
            max_healthy_percentage=100,
            skip_matching=True,
            instance_warmup=str(WARMUP_S),
        ),
    )


def _drain_hook(scope: Scope, name: str, made: autoscaling.Group, inside: pulumi.ResourceOptions) -> None:
    """Make the hook; as an initial hook it could change only with a new group."""
    autoscaling.LifecycleHook(
        f"{name}-drain",
        name=DRAIN_HOOK,
        autoscaling_group_name=made.name,
        lifecycle_transition="autoscaling:EC2_INSTANCE_TERMINATING",
        heartbeat_timeout=heartbeat_s(scope.config.drain_timeout_s),
        default_result="CONTINUE",
        opts=inside,
    )


def _follow_load(scope: Scope, name: str, made: autoscaling.Group, inside: pulumi.ResourceOptions) -> None:
    """Scale by the hosts' lease pressure."""
    autoscaling.Policy(
        f"{name}-load",
        name=f"{name}-load",
        autoscaling_group_name=made.name,
        policy_type="TargetTrackingScaling",
        estimated_instance_warmup=WARMUP_S,
        target_tracking_configuration=autoscaling.PolicyTargetTrackingConfigurationArgs(
            target_value=TARGET_PRESSURE_PERCENT,
            customized_metric_specification=autoscaling.PolicyTargetTrackingConfigurationCustomizedMetricSpecificationArgs(
                namespace=METRICS_NAMESPACE,
                metric_name=PRESSURE_METRIC,
                statistic="Average",
                metric_dimensions=[
                    autoscaling.PolicyTargetTrackingConfigurationCustomizedMetricSpecificationMetricDimensionArgs(
                        name=FLEET_DIMENSION, value=scope.args.tags[FLEET_TAG]
                    )
                ],
            ),
        ),
        opts=inside,
    )


def _end(name: str, made: autoscaling.Group, ttl_hours: float, inside: pulumi.ResourceOptions) -> None:
    """Schedule the end of all hosts, so that a forgotten fleet ends by itself."""
    ends = datetime.now(UTC) + timedelta(hours=ttl_hours)
    autoscaling.Schedule(
        f"{name}-end",
        scheduled_action_name="osgym-ttl",
        autoscaling_group_name=made.name,
        start_time=ends.strftime("%Y-%m-%dT%H:%M:00Z"),
        min_size=0,
        max_size=0,
        desired_capacity=0,
        opts=inside,
    )
