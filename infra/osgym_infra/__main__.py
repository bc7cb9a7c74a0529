"""`python -m osgym_infra`."""

from osgym_infra.cli.main import main

main(prog_name="osgym")
