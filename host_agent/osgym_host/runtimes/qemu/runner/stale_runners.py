"""Leftovers of a previous host agent that ran machines by the other launcher: bare, or in containers."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

from osgym_host.runtimes.base import RuntimeUnsupported
from osgym_host.runtimes.cgroups import CgroupTree, instance_group_name
from osgym_host.runtimes.qemu.machine import RunnerKind
from osgym_host.runtimes.qemu.runner.container import ContainerLauncher
from osgym_host.runtimes.qemu.runner.daemon import DockerDaemon
from osgym_host.runtimes.qemu.runner.process import ProcessLauncher

log = logging.getLogger(__name__)


async def clear_stale(
    now: RunnerKind, folder: Path, tree: CgroupTree, *, keep: Collection[str], containers: bool
) -> int:
    """Remove leftovers of the other launcher; the present launcher removes its own.

    Args:
        folder: `run/<instance>`.
        containers: True if the previous host agent had containers, by its records.

    Returns:
        Number of removed processes or containers.

    Raises:
        RuntimeFault: Something is left.
    """
    if now is not RunnerKind.PROCESS:
        return await ProcessLauncher(folder, tree=tree).reap(keep)
    if not containers:
        return 0
    daemon = DockerDaemon()
    launcher = ContainerLauncher(instance_group_name(folder), daemon)
    try:
        await daemon.open()
        return await launcher.reap(keep)
    except RuntimeUnsupported as exc:
        log.warning("containers of the previous host agent of %s cannot be removed: %s", folder.name, exc)
        return 0
    finally:
        await launcher.close()
