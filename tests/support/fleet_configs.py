"""Configurations of fleets that are right, for tests to change, and the hosts that they lead to."""

from __future__ import annotations

import functools
from pathlib import Path

from osgym_infra.catalogue.load import load
from osgym_infra.catalogue.rows import Catalogue
from osgym_infra.config.parse import parse
from osgym_infra.fleet.blueprint import Blueprint, draw
from osgym_infra.workloads import profile as profiles

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


@functools.cache
def shipped_catalogue() -> Catalogue:
    """Return the shipped catalogue in USD; reading it takes a tenth of a second."""
    return load(folder=Path("/nowhere")).in_usd({})[0]


def blueprint(values: dict[str, object]) -> Blueprint:
    """Return the hosts of a configuration, from the shipped catalogue."""
    config = parse(values)
    return draw(config, shipped_catalogue(), profiles.chosen(config.profile, config.runtime))
