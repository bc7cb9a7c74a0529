"""What no stack of ours may contain: a check of single resources, for tests and for every preview. Pure.

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

from osgym_infra.errors import OsgymInfraError

SECRETS = re.compile(
    r"(AKIA[0-9A-Z]{16}|-----BEGIN [A-Z ]*PRIVATE KEY|OSGYM_TOKEN=|(?i:password|secret_key)\s*[=:]\s*\S)"
)
PUBLIC_ACLS = {"public-read", "public-read-write", "authenticated-read", "publicRead", "publicReadWrite"}
EVERYBODY = {"allUsers", "allAuthenticatedUsers"}

GZIP = b"\x1f\x8b"

Props = Mapping[str, Any]


class PolicyViolated(OsgymInfraError):
    """A resource that must not exist.

    Attributes:
        resource: its type and name.
        problems: what is wrong with it.
    """

    def __init__(self, resource: str, problems: list[str]) -> None:
        self.resource, self.problems = resource, problems
        super().__init__(f"{resource}: {'; '.join(problems)}")


def violations(kind: str, properties: Props) -> list[str]:
    """What is wrong with a resource.

    Args:
        kind: Pulumi's type, e.g. `aws:ec2/securityGroup:SecurityGroup`.
        properties: its inputs, in Pulumi's spelling (camelCase). Values that are not known yet pass.
    """
    found: list[str] = []
    for pattern, rule in RULES:
        if re.fullmatch(pattern, kind):
            found += rule(properties)
    return found


def enforce(kind: str, name: str, properties: Props) -> None:
    """Lets a sound resource pass.

    Raises:
        PolicyViolated: it is not.
    """
    if problems := violations(kind, properties):
        raise PolicyViolated(f"{kind} {name}", problems)


def world(value: object) -> bool:
    """Whether a CIDR is (half of) the whole internet; two halves would open it just as well."""
    try:
        return ipaddress.ip_network(str(value), strict=False).prefixlen <= 1
    except ValueError:
        return False


def _port(rule: Props) -> object:
    """The engine's numbers are all floating point."""
    port = rule.get("fromPort")
    return int(port) if isinstance(port, float) else port


def _ingress(properties: Props) -> list[str]:
    found = []
    for rule in properties.get("ingress") or []:
        for cidr in [*(rule.get("cidrBlocks") or []), *(rule.get("ipv6CidrBlocks") or [])]:
            if world(cidr):
                found.append(f"port {_port(rule)} is open to {cidr}")
    return found


def _ingress_rule(properties: Props) -> list[str]:
    if properties.get("type", "ingress") != "ingress":
        return []
    cidrs = [*(properties.get("cidrBlocks") or []), *(properties.get("ipv6CidrBlocks") or [])]
    cidrs += [properties.get("cidrIpv4"), properties.get("cidrIpv6")]
    return [f"port {_port(properties)} is open to {cidr}" for cidr in cidrs if world(cidr)]


def _firewall(properties: Props) -> list[str]:
    if properties.get("direction", "INGRESS") != "INGRESS" or not properties.get("allows"):
        return []
    ranges = properties.get("sourceRanges") or []
    # Without a source Google Cloud lets everybody in.
    if not ranges and not properties.get("sourceTags") and not properties.get("sourceServiceAccounts"):
        return ["is open to everybody: it names no source"]
    return [f"is open to {cidr}" for cidr in ranges if world(cidr)]


def _bucket(properties: Props) -> list[str]:
    acl = properties.get("acl") or properties.get("predefinedAcl")
    found = [f"the bucket is public ({acl})"] if acl in PUBLIC_ACLS else []
    if properties.get("publicAccessPrevention") == "inherited":
        found.append("the bucket does not prevent public access")
    return found


def _object(properties: Props) -> list[str]:
    acl = properties.get("acl")
    found = [f"the object is public ({acl})"] if acl in PUBLIC_ACLS else []
    return found if "serverSideEncryption" in properties else [*found, "the object is not encrypted"]


def _public_access(properties: Props) -> list[str]:
    wanted = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    return [f"{name} is not set" for name in wanted if not properties.get(name)]


def _members(properties: Props) -> list[str]:
    members = [*(properties.get("members") or []), properties.get("member")]
    return [f"{member} may use it" for member in members if member in EVERYBODY]


def _template(properties: Props) -> list[str]:
    found = _metadata(properties)
    for mapping in properties.get("blockDeviceMappings") or []:
        ebs = mapping.get("ebs")
        if ebs is not None and str(ebs.get("encrypted")).lower() != "true":
            found.append(f"disk {mapping.get('deviceName')} is not encrypted")
    return found + _no_secret(properties)


def _instance(properties: Props) -> list[str]:
    found = [] if properties.get("launchTemplate") else _metadata(properties)
    for name in ("rootBlockDevice", "ebsBlockDevices"):
        devices = properties.get(name) or []
        for device in [devices] if isinstance(devices, Mapping) else devices:
            if not device.get("encrypted"):
                found.append(f"{name} is not encrypted")
    return found + _no_secret(properties)


def _metadata(properties: Props) -> list[str]:
    options = properties.get("metadataOptions") or {}
    found = []
    if options.get("httpTokens") != "required":
        found.append("metadata does not require IMDSv2 (httpTokens)")
    if options.get("httpPutResponseHopLimit") != 1:
        found.append("metadata can be reached from guests (httpPutResponseHopLimit is not 1)")
    return found


def _volume(properties: Props) -> list[str]:
    return [] if properties.get("encrypted") else ["the volume is not encrypted"]


def _no_secret(properties: Props) -> list[str]:
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
    return ["its start script holds a secret"] if any(
        isinstance(text, str) and SECRETS.search(text) for text in texts
    ) else []  # fmt: skip


RULES: Iterable[tuple[str, Callable[[Props], list[str]]]] = (
    (r"aws:ec2/(securityGroup:SecurityGroup|defaultSecurityGroup:DefaultSecurityGroup)", _ingress),
    (r"aws:ec2/securityGroupRule:SecurityGroupRule", _ingress_rule),
    (r"aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", _ingress_rule),
    (r"aws:ec2/launchTemplate:LaunchTemplate", _template),
    (r"aws:ec2/instance:Instance", _instance),
    (r"aws:ebs/volume:Volume", _volume),
    (r"aws:s3/bucket\w*:Bucket(V2|AclV2|Acl)?", _bucket),
    (r"aws:s3/bucketObject(v2)?:BucketObject(v2)?", _object),
    (r"aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", _public_access),
    (r"gcp:compute/firewall:Firewall", _firewall),
    (r"gcp:storage/bucket:Bucket", _bucket),
    (r"gcp:(storage/bucketIAM|secretmanager/secretIam)\w+:\w+", _members),
    (r"gcp:compute/(instanceTemplate:InstanceTemplate|instance:Instance)", _no_secret),
)
