"""Launchers of QEMU: as a bare process of an unprivileged user, or in a runner container."""

from osgym_host.runtimes.qemu.runner.container import ContainerLauncher
from osgym_host.runtimes.qemu.runner.daemon import DockerDaemon
from osgym_host.runtimes.qemu.runner.process import ProcessLauncher
from osgym_host.runtimes.qemu.runner.runner_image import build_runner_image
from osgym_host.runtimes.qemu.runner.stale_runners import clear_stale

__all__ = ["ContainerLauncher", "DockerDaemon", "ProcessLauncher", "build_runner_image", "clear_stale"]
