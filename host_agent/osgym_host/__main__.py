"""`python -m osgym_host serve` runs the host agent."""

from osgym_host.cli.main import main

main()
