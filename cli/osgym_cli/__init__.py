"""The `osgym` command, and the clients of running hosts behind it."""
