"""Programs of `pulumi up`, which `infra/__main__.py` starts."""
