"""Facts of Google Cloud."""

import re

from osgym_infra.config.providers import ConfigKey, ProviderFacts, SettingBeside
from osgym_infra.config.readers import matching

ARCHIVE = matching(re.compile(r"(gs|https)://\S+"), "gs:// or https://, which hosts at Google Cloud can read")
NAME = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
PROJECT = r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]"
IMAGE = rf"(global/images/(family/)?{NAME}|family/{NAME}|({PROJECT}/)?{NAME})"
"""How an image is named: whole, by project, or in the own project (terraform-provider-google,
`image.go`, `resolveImage`; read 2026-11-22)."""

FACTS = ProviderFacts(
    default_region="us-central1",
    own_keys={
        "project": ConfigKey(
            matching(re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]"), "a project id"),
            ...,
            "Google Cloud project.",
        ),
        "billing_account": ConfigKey(
            matching(re.compile(r"[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}"), "XXXXXX-XXXXXX-XXXXXX"),
            "",
            "Billing account, to which budgets belong: needed with alert_email.",
        ),
    },
    has_prices=True,
    notices="gcp",
    metrics_to="gcp",
    needs_machines=True,
    forms={
        "image_uri": ARCHIVE,
        "agent_uri": ARCHIVE,
        "host_image": matching(
            re.compile(rf"auto|(https://\S+/)?projects/{PROJECT}/global/images/(family/)?{NAME}|{IMAGE}"),
            "an image like osgym-host-0123abcd or projects/PROJECT/global/images/NAME, or auto",
        ),
    },
    # us-central1-a; zones for accelerators: us-central1-ai1a.
    zone_suffix=re.compile(r"-[a-z][a-z0-9]*"),
    zone_example="-a",
    # "On GCP they cannot be in the same rule" (kubernetes/kops#12170).
    ipv4_only=True,
    # The environment's are left alone: every resource names its project, region and zone itself.
    beside=(
        SettingBeside("gcp:project", "project"),
        SettingBeside("gcp:region", "region"),
        SettingBeside("gcp:zone", "zone"),
    ),
)
