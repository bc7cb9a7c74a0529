"""Policy for resources at AWS. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from osgym_infra.fleet.policy import PUBLIC_ACLS, Props, Rules, no_secret, public_bucket, world


def _port(rule: Props) -> object:
    """Return a port as an integer; the engine's numbers are floats."""
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


def _object(properties: Props) -> list[str]:
    acl = properties.get("acl")
    found = [f"the object is public ({acl})"] if acl in PUBLIC_ACLS else []
    return found if "serverSideEncryption" in properties else [*found, "the object is not encrypted"]


def _public_access(properties: Props) -> list[str]:
    wanted = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    return [f"{name} is not set" for name in wanted if not properties.get(name)]


def _template(properties: Props) -> list[str]:
    found = _metadata(properties)
    for mapping in properties.get("blockDeviceMappings") or []:
        ebs = mapping.get("ebs")
        if ebs is not None and str(ebs.get("encrypted")).lower() != "true":
            found.append(f"disk {mapping.get('deviceName')} is not encrypted")
    return found + no_secret(properties)


def _instance(properties: Props) -> list[str]:
    found = [] if properties.get("launchTemplate") else _metadata(properties)
    for name in ("rootBlockDevice", "ebsBlockDevices"):
        devices = properties.get(name) or []
        for device in [devices] if isinstance(devices, Mapping) else devices:
            if not device.get("encrypted"):
                found.append(f"{name} is not encrypted")
    return found + no_secret(properties)


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


RULES: Rules = (
    (r"aws:ec2/(securityGroup:SecurityGroup|defaultSecurityGroup:DefaultSecurityGroup)", _ingress),
    (r"aws:ec2/securityGroupRule:SecurityGroupRule", _ingress_rule),
    (r"aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", _ingress_rule),
    (r"aws:ec2/launchTemplate:LaunchTemplate", _template),
    (r"aws:ec2/instance:Instance", _instance),
    (r"aws:ebs/volume:Volume", _volume),
    (r"aws:s3/bucket\w*:Bucket(V2|AclV2|Acl)?", public_bucket),
    (r"aws:s3/bucketObject(v2)?:BucketObject(v2)?", _object),
    (r"aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", _public_access),
)
