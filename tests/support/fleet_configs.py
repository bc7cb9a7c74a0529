"""Configurations of fleets that are right, for tests to change."""

from __future__ import annotations

DIGEST = "sha256:" + "ab" * 32
COMMON: dict[str, object] = {
    "replicas": "1024",
    "owner": "lab",
    "image_digest": DIGEST,
    "image_uri": "s3://golden/full.tar",
    "image_sha256": "cd" * 32,
    "agent_sha256": "ef" * 32,
    "agent_uri": "s3://golden/agent.tar",
}
AWS = {**COMMON, "provider": "aws", "allowed_cidrs": '["203.0.113.0/24"]'}
GCP = {
    **AWS,
    "provider": "gcp",
    "project": "my-project",
    "image_uri": "gs://golden/full.tar",
    "agent_uri": "gs://golden/agent.tar",
}
SSH = {
    **COMMON,
    "provider": "ssh",
    "hosts": '["local", "root@10.0.0.5"]',
    "allowed_cidrs": '["10.0.0.0/8"]',
    "image_uri": "file:///srv/full.tar",
}
