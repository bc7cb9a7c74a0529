"""Control groups of an instance over the life of several host agents. Blocking.

The next host agent may live in another group of the host, below which it makes its own (another login,
another service). What a former one had elsewhere is written down in `cgroups.json`. Groups of virtual
machines outlive their host agent as the machines do, and go when nothing runs in them any more.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from osgym_host.runtimes import cgroups
from osgym_host.runtimes.cgroups import CgroupTree

RECORD = "cgroups.json"


def open_groups(folder: Path) -> CgroupTree:
    """Open the groups of the instance with this run folder, and record their places."""
    tree = cgroups.open_tree(cgroups.instance_group_name(folder))
    known = recorded_groups(folder)
    record_groups(folder, [*tree.folders, *(path for path in known if path not in tree.folders)])
    return tree


def close_groups(folder: Path, tree: CgroupTree) -> None:
    """Remove the groups of the instance, former ones too, once no process lives in them.

    Raises:
        OSError: Something still runs in one.
    """
    name = cgroups.instance_group_name(folder)
    tree.remove()
    for path in recorded_groups(folder):
        if path.name == name and path.is_dir():
            for group in path.iterdir():
                if group.is_dir():
                    with contextlib.suppress(FileNotFoundError):
                        group.rmdir()
            with contextlib.suppress(FileNotFoundError):
                path.rmdir()
    (folder / RECORD).unlink(missing_ok=True)


def record_groups(folder: Path, paths: list[Path]) -> None:
    (folder / RECORD).write_text(json.dumps([str(path) for path in paths]))


def recorded_groups(folder: Path) -> list[Path]:
    """Return the places of the instance's groups, those of previous host agents included."""
    try:
        found = json.loads((folder / RECORD).read_text())
    except (OSError, ValueError):
        return []
    return [Path(path) for path in found if isinstance(path, str)] if isinstance(found, list) else []
