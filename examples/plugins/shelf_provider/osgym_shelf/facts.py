"""Facts of the shelf."""

import re

from osgym_infra.config.providers import ConfigKey, ProviderFacts
from osgym_infra.config.readers import names_like

FACTS = ProviderFacts(
    default_region="lab",
    own_keys={
        "boards": ConfigKey(
            names_like(re.compile(r"board-\d+"), "e.g. board-7"), ..., "Boards of the shelf that may be used."
        )
    },
    notices="shelf",
)
