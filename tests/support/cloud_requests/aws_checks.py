"""How each of AWS's rules is broken, on inputs in Pulumi's spelling. Pure; `aws.py` names the rules."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import itertools
import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from osgym_infra.fleet.boot import MOST_USER_DATA_BYTES
from tests.support.cloud_requests import Made
from tests.support.cloud_requests import Request as Props

Check = Callable[[Props, Made], bool]

NESTS = re.compile(r"(c8i|m8i|r8i)(-flex)?\.(?!metal).+")
DESCRIPTION = re.compile(r"[0-9A-Za-z_ .:/()#,@\[\]+=&;{}!$*-]{0,255}")
HOOK_NAME = re.compile(r"[A-Za-z0-9\-_/]{1,255}")
TEMPLATE_NAME = re.compile(r"[0-9A-Za-z()./_\-]{3,125}")
BUCKET_NAME = re.compile(r"(?!xn--|sthree-)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?<!-s3alias)")
ROLE_NAME = re.compile(r"[\w+=,.@-]{1,64}", re.ASCII)
START_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
IMAGE_ROOT_GIB = 8
"""Of Debian's images (`debian-12-amd64-*`)."""
GP3_IOPS, GP3_MIB_PER_S, GP3_GIB = (3000, 80_000), (125, 2000), (1, 65_536)
MOST_POLICY_CHARS = 10_240


def items(value: Any) -> list[Any]:
    """A list, or none."""
    return list(value) if isinstance(value, list | tuple) else []


def outside(value: Any, low: float, high: float) -> bool:
    """Whether a number that is given lies outside."""
    try:
        return value is not None and not low <= float(value) <= high
    except (TypeError, ValueError):
        return True


def both(*names: str) -> Check:
    """All of these are given."""
    return lambda props, _: all(props.get(name) for name in names)


def interfaces_beside(*names: str) -> Check:
    """Network interfaces, and one of these beside them."""
    return lambda props, _: bool(props.get("networkInterfaces")) and any(props.get(name) for name in names)


def several_public(props: Props, _: Made) -> bool:
    """A public address with several interfaces."""
    found = items(props.get("networkInterfaces"))
    return len(found) > 1 and any(str(one.get("associatePublicIpAddress")).lower() == "true" for one in found)


def public_not_first(props: Props, _: Made) -> bool:
    """A public address on another interface than the first."""
    return any(
        str(one.get("associatePublicIpAddress")).lower() == "true" and one.get("deviceIndex", 0) != 0
        for one in items(props.get("networkInterfaces"))
    )


def user_data_long(props: Props, _: Made) -> bool:
    """More than EC2 takes, decoded; text that is no base64 counts as it is."""
    text = props.get("userData") or props.get("userDataBase64")
    if not isinstance(text, str):
        return False
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        data = text.encode()
    return len(data) > MOST_USER_DATA_BYTES


def user_data_plain(props: Props, _: Made) -> bool:
    """A template's user data that is no base64."""
    text = props.get("userData")
    try:
        return isinstance(text, str) and base64.b64decode(text, validate=True) is None
    except (binascii.Error, ValueError):
        return True


def nests_not(props: Props, _: Made) -> bool:
    """Nested virtualisation on a type that does not take it."""
    asked = (props.get("cpuOptions") or {}).get("nestedVirtualization") == "enabled"
    type_ = props.get("instanceType")
    return bool(asked and isinstance(type_, str) and not NESTS.fullmatch(type_))


def one_time_stops(props: Props, _: Made) -> bool:
    """A one-time spot request that is to be stopped or hibernated."""
    spot = (props.get("instanceMarketOptions") or {}).get("spotOptions") or {}
    return bool(
        spot.get("spotInstanceType", "one-time") == "one-time"
        and spot.get("instanceInterruptionBehavior", "terminate") != "terminate"
    )


def hop_limit(props: Props, _: Made) -> bool:
    return outside((props.get("metadataOptions") or {}).get("httpPutResponseHopLimit"), 1, 64)


def metadata_off(props: Props, _: Made) -> bool:
    """Options of the metadata service where it is not switched on."""
    options = props.get("metadataOptions") or {}
    return bool(set(options) - {"httpEndpoint"}) and options.get("httpEndpoint") != "enabled"


def disks(broken: Callable[[Props], bool]) -> Check:
    """Any EBS disk of a template breaks it."""
    return lambda props, _: any(
        broken(mapping["ebs"]) for mapping in items(props.get("blockDeviceMappings")) if mapping.get("ebs")
    )


def gp3_outside(ebs: Props) -> bool:
    if ebs.get("volumeType") != "gp3":
        return False
    pairs = (("iops", GP3_IOPS), ("throughput", GP3_MIB_PER_S), ("volumeSize", GP3_GIB))
    return any(outside(ebs.get(name), *bounds) for name, bounds in pairs)


def gp3_ratio(ebs: Props) -> bool:
    """At most 500 IOPS for each GiB, and 0.25 MiB/s for each of the IOPS."""
    if ebs.get("volumeType") != "gp3":
        return False
    iops, gib, rate = ebs.get("iops") or 3000, ebs.get("volumeSize"), ebs.get("throughput") or 125
    return (ebs.get("iops") is not None and gib is not None and iops > 500 * gib) or rate > iops / 4


def gp2_throughput(ebs: Props) -> bool:
    return ebs.get("throughput") is not None and ebs.get("volumeType") != "gp3"


def root_small(props: Props, _: Made) -> bool:
    """The root disk is smaller than the image's."""
    return any(
        mapping.get("deviceName") == "/dev/xvda"
        and outside((mapping.get("ebs") or {}).get("volumeSize"), IMAGE_ROOT_GIB, GP3_GIB[1])
        for mapping in items(props.get("blockDeviceMappings"))
    )


def device_twice(props: Props, _: Made) -> bool:
    names = [one.get("deviceName") for one in items(props.get("blockDeviceMappings"))]
    return len(names) != len(set(names))


def tagged_kinds(props: Props, _: Made) -> bool:
    """Tags for kinds that a template cannot tag, or for one twice."""
    kinds = [one.get("resourceType") for one in items(props.get("tagSpecifications"))]
    can = {"instance", "volume", "network-interface", "spot-instances-request", "elastic-gpu"}
    return not set(kinds) <= can or len(kinds) != len(set(kinds))


def tags_bad(props: Props, _: Made) -> bool:
    """Reserved keys, too many tags, or too long ones."""
    found = props.get("tags")
    pairs = [(one.get("key"), one.get("value")) for one in found] if isinstance(found, list) else [
        *(found or {}).items()
    ]  # fmt: skip
    return len(pairs) > 50 or any(
        str(key).lower().startswith("aws:") or not 1 <= len(str(key)) <= 128 or len(str(value or "")) > 256
        for key, value in pairs
    )


def template_of(props: Props, made: Made) -> Props:
    """The template of an instance."""
    return made(str((props.get("launchTemplate") or {}).get("id")))


def instance_beside(own: Iterable[str], theirs: str) -> Check:
    """An instance says something itself that does not go with its template."""
    return lambda props, made: (
        bool(template_of(props, made).get(theirs)) and any(props.get(name) for name in own)
    )


def templates_of_group(props: Props) -> list[Props]:
    """All references of a group to templates."""
    mixed = (props.get("mixedInstancesPolicy") or {}).get("launchTemplate") or {}
    found = [props.get("launchTemplate"), mixed.get("launchTemplateSpecification")]
    found += [one.get("launchTemplateSpecification") for one in items(mixed.get("overrides"))]
    return [one for one in found if one]


def group_templates(broken: Callable[[Props], bool], mixed: bool = False) -> Check:
    """Any template of a group breaks it."""

    def check(props: Props, made: Made) -> bool:
        if mixed and not props.get("mixedInstancesPolicy"):
            return False
        return any(
            broken(made(str(one.get("launchTemplateId") or one.get("id"))))
            for one in templates_of_group(props)
        )

    return check


def bare_interface(template: Props) -> bool:
    """Interfaces without groups, not the first, or tied to one subnet or card: a group makes many hosts."""
    found = items(template.get("networkInterfaces"))
    return any(
        not one.get("securityGroups") or one.get("networkInterfaceId") or one.get("subnetId") for one in found
    ) or (bool(found) and not any(one.get("deviceIndex") == 0 for one in found))


def not_one_source(props: Props, _: Made) -> bool:
    names = ("launchConfiguration", "launchTemplate", "mixedInstancesPolicy")
    return sum(name in props for name in names) != 1


def latest_refreshed(props: Props, _: Made) -> bool:
    """A refresh that never starts: the version's name stays the same."""
    return bool(props.get("instanceRefresh")) and any(
        "version" not in one or one["version"] in ("$Latest", "$Default") for one in templates_of_group(props)
    )


def sizes(props: Props, _: Made) -> bool:
    low, high = props.get("minSize"), props.get("maxSize")
    now = props.get("desiredCapacity", low)
    if low is None or high is None or now is None:
        return False
    return not 0 <= low <= now <= high


def overrides(props: Props, _: Made) -> bool:
    """Too many, the same type twice, or weights of some only."""
    mixed = (props.get("mixedInstancesPolicy") or {}).get("launchTemplate") or {}
    found = items(mixed.get("overrides"))
    types = [one.get("instanceType") for one in found]
    weights = [one.get("weightedCapacity") for one in found if one.get("weightedCapacity") is not None]
    return (
        len(found) > 40
        or len(types) != len(set(types))
        or (bool(weights) and len(weights) != len(found))
        or any(outside(weight, 1, 999) for weight in weights)
    )


SPOT_STRATEGIES = {
    "lowest-price", "capacity-optimized", "capacity-optimized-prioritized", "price-capacity-optimized"
}  # fmt: skip


def distribution(props: Props, _: Made) -> bool:
    """Strategies that do not exist, or that do not go together."""
    said = (props.get("mixedInstancesPolicy") or {}).get("instancesDistribution") or {}
    spot = said.get("spotAllocationStrategy", "lowest-price")
    return (
        spot not in SPOT_STRATEGIES
        or said.get("onDemandAllocationStrategy", "lowest-price") not in {"lowest-price", "prioritized"}
        or (said.get("spotInstancePools") is not None and spot != "lowest-price")
        or outside(said.get("onDemandPercentageAboveBaseCapacity"), 0, 100)
    )


def refresh(props: Props, _: Made) -> bool:
    said = (props.get("instanceRefresh") or {}).get("preferences") or {}
    low, high = said.get("minHealthyPercentage", 90), said.get("maxHealthyPercentage", 100)
    return outside(low, 0, 100) or outside(high, 100, 200) or high - low > 100


def lifetime(props: Props, _: Made) -> bool:
    asked = props.get("maxInstanceLifetime")
    return asked not in (None, 0) and outside(asked, 86_400, 31_536_000)


def hook(props: Props, _: Made) -> bool:
    kinds = {"autoscaling:EC2_INSTANCE_TERMINATING", "autoscaling:EC2_INSTANCE_LAUNCHING"}
    return (
        outside(props.get("heartbeatTimeout"), 30, 7200)
        or props.get("lifecycleTransition", "") not in {None, *kinds}
        or props.get("defaultResult") not in {None, "CONTINUE", "ABANDON"}
        or not HOOK_NAME.fullmatch(str(props.get("name") or "x"))
    )


def tracking(props: Props, _: Made) -> bool:
    """Target tracking without a target, with two metrics, or with what other policies have."""
    if props.get("policyType") != "TargetTrackingScaling":
        return False
    said = props.get("targetTrackingConfiguration", {})
    if said is None:
        return False
    metrics = [said.get(f"{one}MetricSpecification") for one in ("predefined", "customized")]
    others = ("adjustmentType", "scalingAdjustment", "stepAdjustments", "cooldown", "metricAggregationType")
    return (
        said.get("targetValue") is None
        or sum(bool(one) for one in metrics) != 1
        or any(props.get(name) is not None for name in others)
    )


def schedule(props: Props, _: Made) -> bool:
    """Nothing to do, or a time that is no time or over."""
    start = props.get("startTime")
    if not {"minSize", "maxSize", "desiredCapacity"} & set(props):
        return True
    if start is None:
        return not {"startTime", "recurrence"} & set(props)
    if not START_TIME.fullmatch(str(start)):
        return True
    return datetime.fromisoformat(str(start)) <= datetime.now(UTC)


def budget(props: Props, _: Made) -> bool:
    """No limit, no time, or mail to nobody."""
    limit = props.get("limitAmount")
    if limit is not None and float(limit) <= 0:
        return True
    if props.get("timeUnit") not in (None, "DAILY", "MONTHLY", "QUARTERLY", "ANNUALLY"):
        return True
    return any(
        notice.get("comparisonOperator") not in ("GREATER_THAN", "LESS_THAN", "EQUAL_TO")
        or notice.get("notificationType") not in ("ACTUAL", "FORECASTED")
        or outside(notice.get("threshold"), 0, 15_000_000_000_000)
        or not 1 <= len(items(notice.get("subscriberEmailAddresses"))) <= 10
        for notice in items(props.get("notifications"))
    )


def policy_document(props: Props, _: Made) -> bool:
    """No JSON, too long, or a statement without an effect, action or resource."""
    text = props.get("policy")
    if not isinstance(text, str):
        return False
    try:
        found = json.loads(text)
    except ValueError:
        return True
    statements = found.get("Statement", [])
    arn = re.compile(r"\*|arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:[0-9*]*:.+")
    resources = itertools.chain.from_iterable(
        [one.get("Resource")] if isinstance(one.get("Resource"), str) else items(one.get("Resource"))
        for one in statements
    )
    return (
        len(re.sub(r"\s", "", text)) > MOST_POLICY_CHARS
        or found.get("Version") not in ("2012-10-17", "2008-10-17")
        or not statements
        or any(
            one.get("Effect") not in ("Allow", "Deny") or not one.get("Action") or not one.get("Resource")
            for one in statements
        )
        or any(not arn.fullmatch(str(one)) for one in resources)
    )


def descriptions(props: Props, _: Made) -> bool:
    """Characters that EC2 does not take, of a security group and of its rules."""
    rules = [*items(props.get("ingress")), *items(props.get("egress"))]
    texts = [props.get("description"), *(rule.get("description") for rule in rules)]
    return any(text is not None and not DESCRIPTION.fullmatch(str(text)) for text in texts)


def subnet_size(props: Props, _: Made) -> bool:
    """A range that is none, or of a size that no subnet has."""
    own = _range(props)
    return props.get("cidrBlock") is not None and (own is None or not 16 <= own.prefixlen <= 28)


def subnet_outside(props: Props, made: Made) -> bool:
    """A range outside that of the network."""
    own, around = _range(props), _range(made(str(props.get("vpcId"))))
    return own is not None and around is not None and not own.subnet_of(around)


def _range(props: Props) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(str(props.get("cidrBlock")))
    except ValueError:
        return None


def nat_without_address(props: Props, _: Made) -> bool:
    """A public gateway has an address, a private one has none."""
    public = props.get("connectivityType", "public") == "public"
    return bool(public != ("allocationId" in props))


def named(name: str, pattern: re.Pattern[str]) -> Check:
    """A name that is given does not fit."""
    return lambda props, _: props.get(name) is not None and not pattern.fullmatch(str(props[name]))
