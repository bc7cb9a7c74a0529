"""Facts of AWS."""

import re

from osgym_infra.config.providers import ProviderFacts, SettingBeside
from osgym_infra.config.readers import matching

# Hosts read s3:// with their role; the plain form is for archives that are served elsewhere.
ARCHIVE = matching(re.compile(r"(s3|https)://\S+"), "s3:// or https://, which hosts at AWS can read")

FACTS = ProviderFacts(
    default_region="us-east-1",
    has_prices=True,
    notices="aws",
    metrics_to="cloudwatch:{region}",
    forms={
        "image_uri": ARCHIVE,
        "agent_uri": ARCHIVE,
        # Ids have 8 or 17 digits (EC2 user guide, "Resource IDs"); a launch template also takes the name of a
        # parameter (EC2 API, RequestLaunchTemplateData, `ImageId`).
        "host_image": matching(
            re.compile(r"auto|ami-([0-9a-f]{8}|[0-9a-f]{17})|resolve:ssm:\S+"),
            "an AMI's id like ami-0123456789abcdef0, or auto",
        ),
    },
    # us-east-1a; Local and Wavelength Zones: us-east-1-bos-1a.
    zone_suffix=re.compile(r"[a-z]|-[a-z0-9-]*[a-z0-9]"),
    zone_example="a",
    beside=(SettingBeside("aws:region", "region", ("AWS_REGION", "AWS_DEFAULT_REGION")),),
)
