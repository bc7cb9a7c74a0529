"""`python -m osgym_tasks` runs `osgym task family`."""

from __future__ import annotations

from osgym_tasks.cli import commands

if __name__ == "__main__":
    commands(prog_name="python -m osgym_tasks")
