"""What Google Cloud refuses, all of it; and of what does not run a machine. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from tests.support.cloud_requests import Request, RequestRule, gcp_groups, gcp_templates
from tests.support.cloud_requests.gcp_templates import DISCOVERY, NAME, READ, number, part, parts, text

FIREWALL_GO = "terraform-provider-google, google/services/compute/resource_compute_firewall.go (2026-08-21)"
ACCOUNT_GO = (
    "terraform-provider-google, google/services/resourcemanager/resource_google_service_account.go "
    "(2026-08-21)"
)
ACCOUNT = re.compile(r"[a-z]([-a-z0-9]{4,28}[a-z0-9])")
BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
BILLING = re.compile(r"(billingAccounts/)?[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}")
NAMED = "Network|Subnetwork|Firewall|Router|RouterNat|HealthCheck|RegionInstanceGroupManager|RegionAutoscaler"


def _versions(request: Request) -> set[int]:
    found: set[int] = set()
    for cidr in request.get("sourceRanges") or []:
        try:
            found.add(ipaddress.ip_network(str(cidr), strict=False).version)
        except ValueError:
            found.add(0)
    return found


def _no_source(request: Request) -> bool:
    names = ("sourceRanges", "sourceTags", "sourceServiceAccounts")
    return (
        request.get("direction", "INGRESS") == "INGRESS"
        and all(name not in request or request[name] == [] for name in names)
    )  # fmt: skip


def _nat_subnets(request: Request) -> bool:
    chosen = request.get("sourceSubnetworkIpRangesToNat")
    if chosen is None or request.get("subnetworks", []) is None:
        return False
    return bool(chosen == "LIST_OF_SUBNETWORKS") != bool(parts(request, "subnetworks"))


def _host_bits(request: Request) -> bool:
    try:
        ipaddress.ip_network(text(request, "ipCidrRange") or "10.0.0.0/20")
    except ValueError:
        return True
    return False


def _rule(kinds: str, name: str, message: str, source: str, breaks: Any) -> RequestRule:
    return RequestRule(name, kinds, message, source, READ, breaks)


OTHERS: tuple[RequestRule, ...] = (
    _rule(
        NAMED,
        "name",
        "The name must be 1-63 characters long, and comply with RFC1035.",
        f"{DISCOVERY}, name of every resource",
        lambda r: bool(text(r, "name")) and not NAME.fullmatch(text(r, "name")),
    ),
    _rule(
        "Firewall",
        "firewall-source",
        "one of source_tags, source_ranges, or source_service_accounts must be defined",
        FIREWALL_GO,
        _no_source,
    ),
    _rule(
        "Firewall",
        "one-family-of-addresses",
        "IPv4 and IPv6 ranges cannot be in the same firewall rule.",
        "https://github.com/kubernetes/kops/pull/12170",
        lambda r: len(_versions(r)) > 1,
    ),
    _rule(
        "Firewall",
        "tags-or-accounts",
        "target_service_accounts conflicts with source_tags and target_tags.",
        FIREWALL_GO,
        lambda r: (
            bool(r.get("targetServiceAccounts") or r.get("sourceServiceAccounts"))
            and bool(r.get("targetTags") or r.get("sourceTags"))
        ),
    ),
    _rule(
        "Subnetwork",
        "subnet-range",
        "ipCidrRange must be a network: host bits are not 0.",
        f"{DISCOVERY}, Subnetwork.ipCidrRange",
        _host_bits,
    ),
    _rule(
        "RouterNat",
        "nat-addresses",
        "When choosing AUTO_ONLY, nat_ips must be empty.",
        f"{DISCOVERY}, RouterNat.natIpAllocateOption",
        lambda r: r.get("natIpAllocateOption") == "AUTO_ONLY" and bool(r.get("natIps")),
    ),
    _rule(
        "RouterNat",
        "nat-subnets",
        "LIST_OF_SUBNETWORKS needs subnetworks, and only it takes them.",
        f"{DISCOVERY}, RouterNat.sourceSubnetworkIpRangesToNat",
        _nat_subnets,
    ),
    _rule(
        "RouterNat",
        "nat-ports",
        "With dynamic port allocation, minPortsPerVm must be a power of two of 32 or "
        "more, and endpoint-independent mapping is off.",
        f"{DISCOVERY}, RouterNat.enableDynamicPortAllocation",
        lambda r: (
            r.get("enableDynamicPortAllocation") is True
            and (
                r.get("enableEndpointIndependentMapping") is True
                or not _power_of_two(number(r, "minPortsPerVm") or 32)
            )
        ),
    ),
    _rule(
        "Account",
        "account-id",
        "account_id must be 6-30 characters long: small letters, digits, dashes; the first a letter.",
        ACCOUNT_GO,
        lambda r: bool(text(r, "accountId")) and not ACCOUNT.fullmatch(text(r, "accountId")),
    ),
    _rule(
        "Secret",
        "secret-id",
        "secretId is 1 to 255 letters, digits, dashes and underscores.",
        "https://cloud.google.com/secret-manager/docs/reference/rest/v1/projects.secrets/create",
        lambda r: not re.fullmatch(r"[A-Za-z0-9_-]{1,255}", text(r, "secretId") or "-"),
    ),
    _rule(
        "Bucket",
        "bucket-name",
        "Bucket names are 3 to 63 small letters, digits, dashes, dots, underscores.",
        "https://cloud.google.com/storage/docs/buckets#naming",
        lambda r: bool(text(r, "name")) and not BUCKET.fullmatch(text(r, "name")),
    ),
    _rule(
        "BucketIAMMember",
        "condition-has-a-title",
        "A condition needs a title and an expression.",
        "https://cloud.google.com/iam/docs/reference/rest/v1/Expr",
        lambda r: any(
            part(r, "condition").get(name, "") == ""  # None is not known yet
            for name in ("title", "expression")
            if isinstance(r.get("condition"), dict)
        ),
    ),
    _rule(
        "BucketIAMMember",
        "no-condition-for-everybody",
        "Conditions cannot be used with allUsers or allAuthenticatedUsers.",
        "https://cloud.google.com/iam/docs/conditions-overview",
        lambda r: bool(r.get("condition")) and text(r, "member") in ("allUsers", "allAuthenticatedUsers"),
    ),
    _rule(
        "Budget",
        "billing-account",
        "A billing account is XXXXXX-XXXXXX-XXXXXX, of hexadecimal digits.",
        "https://cloud.google.com/billing/docs/reference/budget/rest/v1/billingAccounts.budgets/create",
        lambda r: bool(text(r, "billingAccount")) and not BILLING.fullmatch(text(r, "billingAccount")),
    ),
    _rule(
        "Budget",
        "budget-of-one-label",
        "A budget's filter takes one label with one value.",
        "https://cloud.google.com/billing/docs/reference/budget/rest/v1/billingAccounts.budgets#Filter",
        lambda r: len(part(part(r, "budgetFilter"), "labels")) > 1,
    ),
    _rule(
        "Budget",
        "five-channels",
        "A budget notifies at most 5 channels.",
        "https://cloud.google.com/billing/docs/reference/budget/rest/v1/billingAccounts.budgets"
        "#NotificationsRule",
        lambda r: len(part(r, "allUpdatesRule").get("monitoringNotificationChannels") or []) > 5,
    ),
)


def _power_of_two(value: float) -> bool:
    whole = int(value)
    return whole == value and whole >= 32 and whole & (whole - 1) == 0


RULES: tuple[RequestRule, ...] = (*gcp_templates.RULES, *gcp_groups.RULES, *OTHERS)
