"""What is to be known of Google Cloud."""

import re

from osgym_infra.config.providers import ConfigKey, Provider, ProviderFacts
from osgym_infra.config.readers import matching

FACTS = ProviderFacts(
    default_region="us-central1",
    own_keys={
        "project": ConfigKey(
            matching(re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]"), "a project id"),
            ...,
            "Google Cloud project.",
            frozenset({Provider.GCP}),
        )
    },
    has_prices=True,
    notices=True,
    gib_per_vcpu=7.5,  # N2
    # E2 and the shared-core types (E2 ignores the flag silently), the memory-optimised ones, AMD and Arm,
    # accelerator-optimised types.
    never_nests=re.compile(r"(e2|f1|g1|m\d|t2d|t2a|n2d|n4d|c2d|c3d|c4d|c4a|n4a|a2|a3|g2|h3)-"),
)
