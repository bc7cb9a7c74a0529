"""`python -m osgym_host` is the `osgym` command."""

from osgym_host.cli.main import main

main()
