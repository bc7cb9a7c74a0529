"""`python -m osgym_tasks` is `osgym tasks`."""

from __future__ import annotations

from osgym_tasks.cli import tasks

if __name__ == "__main__":
    tasks(prog_name="python -m osgym_tasks")
