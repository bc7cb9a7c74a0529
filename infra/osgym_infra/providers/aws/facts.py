"""What is to be known of AWS."""

from osgym_infra.config.providers import ProviderFacts

FACTS = ProviderFacts(
    default_region="us-east-1",
    has_prices=True,
    notices=True,
    gib_per_vcpu=10.0,  # r8i against c8i: 0.0393 USD/vCPU-h, 0.0038 USD/GiB-h
)
