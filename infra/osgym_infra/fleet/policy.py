"""Policy for single resources, checked by tests and in every preview. Pure.

The rules: no port open to the world, no public bucket, disks encrypted, metadata by IMDSv2 with a hop limit
of 1, no secret in user data or outputs.
"""

from __future__ import annotations

import base64
import gzip
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from osgym_infra.config.providers import Provider, installed
from osgym_infra.errors import OsgymInfraError

SECRETS = re.compile(
    r"(AKIA[0-9A-Z]{16}|-----BEGIN [A-Z ]*PRIVATE KEY|OSGYM_TOKEN=|(?i:password|secret_key)\s*[=:]\s*\S)"
)
PUBLIC_ACLS = {"public-read", "public-read-write", "authenticated-read", "publicRead", "publicReadWrite"}

GZIP = b"\x1f\x8b"

Props = Mapping[str, Any]
Rules = Iterable[tuple[str, Callable[[Props], list[str]]]]
"""Patterns of Pulumi's types, and what says what is wrong with a resource of them."""


class PolicyViolated(OsgymInfraError):
    """A resource breaks the policy."""

    def __init__(self, resource: str, problems: list[str]) -> None:
        self.resource, self.problems = resource, problems
        super().__init__(f"{resource}: {'; '.join(problems)}")


def violations(kind: str, properties: Props) -> list[str]:
    """Return what is wrong with a resource.

    Args:
        kind: Pulumi's type, e.g. `aws:ec2/securityGroup:SecurityGroup`.
        properties: Inputs in Pulumi's spelling (camelCase). Values that are not known yet pass.
    """
    found: list[str] = []
    for pattern, rule in _rules(kind.partition(":")[0]):
        if re.fullmatch(pattern, kind):
            found += rule(properties)
    return found


def _rules(provider: str) -> Rules:
    """Return the rules of a resource's provider; none for other resources, such as ours."""
    found = Provider(provider).optional_part("policy") if provider in installed() else None
    return () if found is None else found.RULES


def enforce(kind: str, name: str, properties: Props) -> None:
    """Check a resource against the policy.

    Raises:
        PolicyViolated: The resource breaks the policy.
    """
    if problems := violations(kind, properties):
        raise PolicyViolated(f"{kind} {name}", problems)


def world(value: object) -> bool:
    """Return whether a CIDR is half of the internet or more; two halves would open it just as well."""
    try:
        return ipaddress.ip_network(str(value), strict=False).prefixlen <= 1
    except ValueError:
        return False


def no_secret(properties: Props) -> list[str]:
    texts = [properties.get("userData"), properties.get("metadataStartupScript")]
    texts += (
        [*(properties.get("metadata") or {}).values()]
        if isinstance(properties.get("metadata"), Mapping)
        else []
    )
    coded = properties.get("userDataBase64") or (
        properties.get("userData") if "blockDeviceMappings" in properties else None
    )
    if isinstance(coded, str):
        try:
            data = base64.b64decode(coded, validate=True)
            if data.startswith(GZIP):
                data = gzip.decompress(data)
            texts.append(data.decode("utf-8", "replace"))
        except (ValueError, OSError, EOFError):
            texts.append(coded)
    return ["its start script contains a secret"] if any(
        isinstance(text, str) and SECRETS.search(text) for text in texts
    ) else []  # fmt: skip


def public_bucket(properties: Props) -> list[str]:
    acl = properties.get("acl") or properties.get("predefinedAcl")
    found = [f"the bucket is public ({acl})"] if acl in PUBLIC_ACLS else []
    if properties.get("publicAccessPrevention") == "inherited":
        found.append("the bucket does not prevent public access")
    return found
