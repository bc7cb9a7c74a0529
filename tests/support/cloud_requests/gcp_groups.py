"""What Compute Engine refuses of regional groups, their autoscalers and health checks. Pure."""

from __future__ import annotations

import re
from typing import Any

from tests.support.cloud_requests import Request, RequestRule
from tests.support.cloud_requests.gcp_templates import DISCOVERY, READ, number, part, parts, text

GROUP_GO = (
    "terraform-provider-google, google/services/compute/resource_compute_region_instance_group_manager.go "
    "(2026-08-21)"
)
SHAPE = "https://cloud.google.com/compute/docs/instance-groups/regional-mig-set-target-distribution-shape"
ZONES = "https://github.com/terraform-google-modules/terraform-example-foundation/pull/427"
BASE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,57})")
DEFAULT_ZONES = 3
"""Over so many zones a group is spread that names none (Compute Engine, "Regional MIGs")."""


def _update(request: Request, name: str) -> float | None:
    return number(part(request, "updatePolicy"), name)


def _zones(request: Request) -> int:
    zones = request.get("distributionPolicyZones")
    return len(zones) if isinstance(zones, list | tuple) and zones else DEFAULT_ZONES


def _too_few(request: Request, name: str) -> bool:
    fixed = _update(request, name)
    return fixed is not None and 0 < fixed < _zones(request)


def _nothing_moves(request: Request) -> bool:
    names = ("maxSurgeFixed", "maxSurgePercent", "maxUnavailableFixed", "maxUnavailablePercent")
    given = [_update(request, name) for name in names]
    surge, unavailable = given[:2], given[2:]
    return any(one == 0 for one in surge) and any(one == 0 for one in unavailable) and not any(given)


def _percent_of_few(request: Request) -> bool:
    size = number(request, "targetSize")
    percent = _update(request, "maxSurgePercent"), _update(request, "maxUnavailablePercent")
    return size is not None and size < 10 and any(one is not None for one in percent)


def _proactive(request: Request) -> bool:
    if request.get("updatePolicy", {}) is None:
        return False
    return bool(part(request, "updatePolicy").get("instanceRedistributionType", "PROACTIVE") == "PROACTIVE")


def _initial_delay(request: Request) -> float | None:
    healing = request.get("autoHealingPolicies")
    return number(healing, "initialDelaySec") if isinstance(healing, dict) else None


def _filter(request: Request) -> list[str]:
    return [text(metric, "filter") for metric in parts(part(request, "autoscalingPolicy"), "metrics")]


CHECKS = ("httpHealthCheck", "httpsHealthCheck", "http2HealthCheck", "sslHealthCheck", "tcpHealthCheck",
          "grpcHealthCheck")  # fmt: skip


def _port(request: Request) -> float | None:
    return next((number(part(request, name), "port") for name in CHECKS if request.get(name)), None)


def _protocols(request: Request) -> bool:
    given = [request[name] for name in CHECKS if name in request]
    return None not in given and len(given) != 1


def _rule(kinds: str, name: str, message: str, source: str, breaks: Any) -> RequestRule:
    return RequestRule(name, kinds, message, source, READ, breaks)


GROUP, SCALER, CHECK = "RegionInstanceGroupManager", "RegionAutoscaler", "HealthCheck"

RULES: tuple[RequestRule, ...] = (
    _rule(
        GROUP,
        "base-name",
        "The base instance name is at most 58 characters of RFC1035.",
        f"{DISCOVERY}, InstanceGroupManager.baseInstanceName",
        lambda r: bool(text(r, "baseInstanceName")) and not BASE_NAME.fullmatch(text(r, "baseInstanceName")),
    ),
    _rule(
        GROUP,
        "surge-or-unavailable",
        "At least one of either maxSurge or maxUnavailable must be greater than 0.",
        f"{DISCOVERY}, InstanceGroupManagerUpdatePolicy",
        _nothing_moves,
    ),
    _rule(
        GROUP,
        "surge-of-zones",
        "Fixed updatePolicy.maxSurge for regional managed instance group has to be "
        "either 0 or at least equal to the number of zones.",
        ZONES,
        lambda r: _too_few(r, "maxSurgeFixed"),
    ),
    _rule(
        GROUP,
        "unavailable-of-zones",
        "Fixed updatePolicy.maxUnavailable for regional managed instance group "
        "has to be either 0 or at least equal to the number of zones.",
        ZONES,
        lambda r: _too_few(r, "maxUnavailableFixed"),
    ),
    _rule(
        GROUP,
        "fixed-or-percent",
        "max_surge_fixed conflicts with max_surge_percent, max_unavailable_fixed "
        "with max_unavailable_percent.",
        GROUP_GO,
        lambda r: any(
            _update(r, f"{name}Fixed") is not None and _update(r, f"{name}Percent") is not None
            for name in ("maxSurge", "maxUnavailable")
        ),
    ),
    _rule(
        GROUP,
        "percent-of-ten",
        "A percentage needs a group of 10 or more instances.",
        f"{DISCOVERY}, InstanceGroupManagerUpdatePolicy",
        _percent_of_few,
    ),
    _rule(
        GROUP,
        "recreate-without-surge",
        "maxSurge must be equal to 0 when replacement method is set to RECREATE.",
        "https://github.com/GoogleCloudPlatform/magic-modules/pull/8210",
        lambda r: (
            part(r, "updatePolicy").get("replacementMethod") == "RECREATE"
            and bool(_update(r, "maxSurgeFixed") or _update(r, "maxSurgePercent"))
        ),
    ),
    _rule(
        GROUP,
        "healing-delay",
        "The value of initial delay must be between 0 and 3600 seconds.",
        f"{DISCOVERY}, InstanceGroupManagerAutoHealingPolicy",
        lambda r: not 0 <= (_initial_delay(r) or 0) <= 3600,
    ),
    _rule(
        GROUP,
        "shape-without-redistribution",
        "To set the target distribution shape to BALANCED or "
        "ANY_SINGLE_ZONE, you must disable proactive instance redistribution.",
        SHAPE,
        lambda r: r.get("distributionPolicyTargetShape") in ("BALANCED", "ANY_SINGLE_ZONE") and _proactive(r),
    ),
    _rule(
        GROUP,
        "flexible-is-not-even",
        "A group with an instance flexibility policy cannot have the shape EVEN.",
        "https://cloud.google.com/compute/docs/instance-groups/about-instance-flexibility (unconfirmed: "
        "the tests of terraform-provider-google use ANY_SINGLE_ZONE)",
        lambda r: (
            bool(r.get("instanceFlexibilityPolicy"))
            and r.get("distributionPolicyTargetShape", "EVEN") == "EVEN"
        ),
    ),
    _rule(
        GROUP,
        "zones-of-the-region",
        "A group's zones are zones of its region.",
        f"{DISCOVERY}, DistributionPolicy.zones",
        lambda r: (
            bool(text(r, "region"))
            and any(
                isinstance(zone, str) and not zone.startswith(f"{text(r, 'region')}-")
                for zone in r.get("distributionPolicyZones") or []
            )
        ),
    ),
    _rule(
        GROUP,
        "one-version-has-no-target",
        "Exactly one version must not have a target size.",
        f"{DISCOVERY}, InstanceGroupManagerVersion.targetSize",
        lambda r: (
            bool(parts(r, "versions")) and sum("targetSize" not in one for one in parts(r, "versions")) != 1
        ),
    ),
    _rule(
        SCALER,
        "bounds",
        "The maximum number of replicas must not be lower than minimal number of replicas.",
        f"{DISCOVERY}, AutoscalingPolicy.maxNumReplicas",
        lambda r: (
            (number(part(r, "autoscalingPolicy"), "minReplicas") or 0)
            > (number(part(r, "autoscalingPolicy"), "maxReplicas") or 10**9)
        ),
    ),
    _rule(
        SCALER,
        "positive-target",
        "The target value of the metric must be a positive value.",
        f"{DISCOVERY}, AutoscalingPolicyCustomMetricUtilization.utilizationTarget",
        lambda r: any(
            (target := number(one, "target")) is not None and target <= 0
            for one in parts(part(r, "autoscalingPolicy"), "metrics")
        ),
    ),
    _rule(
        SCALER,
        "plain-filter",
        "In a metric's filter only AND joins selectors, and only = compares.",
        f"{DISCOVERY}, AutoscalingPolicyCustomMetricUtilization.filter",
        lambda r: any(re.search(r"\bOR\b|\bNOT\b|!=|<|>|=\s*\w+\(|:", one) for one in _filter(r)),
    ),
    _rule(
        CHECK,
        "timeout-in-interval",
        "timeoutSec must not be greater than checkIntervalSec.",
        f"{DISCOVERY}, HealthCheck.timeoutSec",
        lambda r: (number(r, "timeoutSec") or 5) > (number(r, "checkIntervalSec") or 5),
    ),
    _rule(
        CHECK,
        "one-protocol",
        "Exactly one of the protocol-specific health check fields must be specified.",
        f"{DISCOVERY}, HealthCheck.type",
        _protocols,
    ),
    _rule(
        CHECK,
        "port",
        "Valid ports are 1 through 65535.",
        f"{DISCOVERY}, HTTPSHealthCheck.port",
        lambda r: (port := _port(r)) is not None and not 1 <= port <= 65535,
    ),
)
