"""The `osgym` command: one module per sub-command."""
