"""What a former host agent ran the other way than this one: bare, or in containers."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

from osgym_host.runtimes.base import RuntimeUnsupported
from osgym_host.runtimes.cgroups import CgroupTree, instance_group_name
from osgym_host.runtimes.qemu.launcher import Runner
from osgym_host.runtimes.qemu.runner.container import ContainerLauncher
from osgym_host.runtimes.qemu.runner.daemon import Daemon
from osgym_host.runtimes.qemu.runner.process import ProcessLauncher

log = logging.getLogger(__name__)


async def clear_former(
    now: Runner, folder: Path, tree: CgroupTree, *, keep: Collection[str], containers: bool
) -> int:
    """Remove it; what runs the present way is for the launcher itself.

    Args:
        now: How this host agent runs machines.
        folder: `run/<instance>`.
        containers: The former host agent had some, by its records.

    Returns:
        How many processes or containers were removed.

    Raises:
        RuntimeFault: Something is left.
    """
    if now is not Runner.PROCESS:
        return await ProcessLauncher(folder, tree=tree).reap(keep)
    if not containers:
        return 0
    daemon = Daemon()
    launcher = ContainerLauncher(instance_group_name(folder), daemon)
    try:
        await daemon.open()
        return await launcher.reap(keep)
    except RuntimeUnsupported as exc:
        log.warning("containers of the former host agent of %s cannot be removed: %s", folder.name, exc)
        return 0
    finally:
        await launcher.close()
