"""Facts of machines that exist already."""

from osgym_infra.config.providers import ProviderFacts

FACTS = ProviderFacts()
