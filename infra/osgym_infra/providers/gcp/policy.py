"""Policy for resources at Google Cloud. Pure."""

from __future__ import annotations

from osgym_infra.fleet.policy import Props, Rules, no_secret, public_bucket, world

EVERYBODY = {"allUsers", "allAuthenticatedUsers"}


def _firewall(properties: Props) -> list[str]:
    if properties.get("direction", "INGRESS") != "INGRESS" or not properties.get("allows"):
        return []
    ranges = properties.get("sourceRanges") or []
    # Without a source Google Cloud lets everybody in.
    if not ranges and not properties.get("sourceTags") and not properties.get("sourceServiceAccounts"):
        return ["is open to everybody, since it has no source ranges"]
    return [f"is open to {cidr}" for cidr in ranges if world(cidr)]


def _members(properties: Props) -> list[str]:
    members = [*(properties.get("members") or []), properties.get("member")]
    return [f"{member} may use it" for member in members if member in EVERYBODY]


RULES: Rules = (
    (r"gcp:compute/firewall:Firewall", _firewall),
    (r"gcp:storage/bucket:Bucket", public_bucket),
    (r"gcp:(storage/bucketIAM|secretmanager/secretIam)\w+:\w+", _members),
    (r"gcp:compute/(instanceTemplate:InstanceTemplate|instance:Instance)", no_secret),
)
