"""Our resources as requests to AWS's APIs, checked against the models that AWS publishes (botocore).

Names, kinds and nesting are the models' own; only what the provider renames stands here. A property that a
request does not have fails: nothing is left out silently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import botocore.session
from botocore.validate import ParamValidator

SESSION = botocore.session.get_session()

RENAMED = {
    "LaunchTemplateInstanceNetworkInterfaceSpecificationRequest": {"securityGroups": "Groups"},
    "CreateAutoScalingGroupType": {
        "name": "AutoScalingGroupName",
        "vpcZoneIdentifiers": "VPCZoneIdentifier",
        "defaultInstanceWarmup": "DefaultInstanceWarmup",
    },
    "PutLifecycleHookType": {"name": "LifecycleHookName"},
    "PutScalingPolicyType": {"name": "PolicyName"},
    "CustomizedMetricSpecification": {"metricDimensions": "Dimensions"},
}
"""By shape: what the provider calls otherwise."""
PROVIDERS_OWN = {
    "CreateAutoScalingGroupType": {"waitForCapacityTimeout", "instanceRefresh", "forceDelete"},
    "RequestLaunchTemplateData": {"updateDefaultVersion", "tags", "name"},
}
"""By shape: what the provider itself acts on, or sends in another request."""


def request(service: str, operation: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The request of an operation, checked."""
    shape = SESSION.get_service_model(service).operation_model(operation).input_shape
    found: dict[str, Any] = converted(shape, inputs)
    check(shape, found)
    return found


def template_data(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The `LaunchTemplateData` of a launch template, checked."""
    shape = SESSION.get_service_model("ec2").shape_for("RequestLaunchTemplateData")
    found: dict[str, Any] = converted(shape, inputs)
    check(shape, found)
    return found


def converted(shape: Any, value: Any) -> Any:
    """A value in Pulumi's spelling as its shape wants it."""
    match shape.type_name:
        case "structure":
            members = {name.lower(): name for name in shape.members}
            renamed = RENAMED.get(shape.name, {})
            made = {}
            for key, item in value.items():
                if item is None or key in PROVIDERS_OWN.get(shape.name, ()):
                    continue
                name = renamed.get(key) or members.get(key.lower())
                assert name, f"{shape.name} has no {key}"
                made[name] = converted(shape.members[name], item)
            return made
        case "list" if isinstance(value, Mapping):
            return [{"Key": key, "Value": item} for key, item in value.items()]
        case "list":
            return [converted(shape.member, item) for item in value]
        case "boolean":
            assert str(value).lower() in ("true", "false"), value
            return str(value).lower() == "true"
        case "integer" | "long":
            assert float(value) == int(float(value)), value
            return int(float(value))
        case "double" | "float":
            return float(value)
        case "string" if isinstance(value, list):
            return ",".join(value)
    return value


def check(shape: Any, value: Any, where: str = "") -> None:
    """Kinds and required members by botocore's own validator; enums, patterns and bounds besides.

    Raises:
        AssertionError: with what is wrong.
    """
    if not where:
        report = ParamValidator().validate(value, shape)
        assert not report.has_errors(), report.generate_report()
    match shape.type_name:
        case "structure":
            for name, item in value.items():
                check(shape.members[name], item, f"{where}.{name}")
        case "list":
            for index, item in enumerate(value):
                check(shape.member, item, f"{where}[{index}]")
        case "string":
            if enum := shape.metadata.get("enum"):
                assert value in enum, f"{where}: {value!r} is none of {enum}"
            pattern = shape.metadata.get("pattern")
            if pattern and "\\u" not in pattern and "\\p" not in pattern:
                assert re.fullmatch(pattern, value), f"{where}: {value!r} does not match {pattern}"
            low, high = shape.metadata.get("min", 0), shape.metadata.get("max", float("inf"))
            assert low <= len(value) <= high, f"{where}: {len(value)} characters"
        case "integer" | "long":
            low = shape.metadata.get("min", float("-inf"))
            assert low <= value <= shape.metadata.get("max", float("inf")), f"{where}: {value}"
