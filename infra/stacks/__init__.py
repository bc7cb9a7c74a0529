"""The programs that `pulumi up` runs; `infra/__main__.py` starts the one of a fleet."""
