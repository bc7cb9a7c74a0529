"""`python -m osgym_cli` is the `osgym` command."""

from osgym_cli.main import main

main()
