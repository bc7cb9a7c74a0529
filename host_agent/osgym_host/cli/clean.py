"""`osgym host clean`: stops the host agent of a data directory and removes leftovers of a killed one."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from pathlib import Path

import click

from osgym_host.errors import OsgymHostError
from osgym_host.pidfile import holder, pid_path, running_agents
from osgym_host.runtime_factory import clear_leftovers
from osgym_host.runtimes.base import RuntimeFault
from osgym_host.settings import Settings, SettingsError, load

POLL_S = 0.05
OWN = frozenset(
    {
        "cache",
        "checkpoints",
        "checkpoints-local",
        "disks",
        "images",
        "run",
        "runner",
        "snapshots",
        "state",
        "trajectories",
    }
)
"""Names that the stores, the host agent and bakes put into a data directory."""
FLEET_MARK = ".osgym-bootstrap"
"""File that a fleet's bootstrap leaves in a folder that it made (infra/bootstrap/bootstrap.sh)."""


@click.command(
    epilog="\b\nExamples:\n"
    "  osgym host clean\n"
    "  osgym host clean --data-dir /var/lib/osgym --instance second --timeout 10\n"
    "  osgym host clean --all --yes                              also images, checkpoints, trajectories\n"
    "\n\b\nExit codes: 0 nothing of it runs any more - 1 it cannot be stopped or removed - 2 wrong usage.\n",
)
@click.option("--data-dir", type=click.Path(path_type=Path),
              help="Data directory, as given to `osgym host serve`.")  # fmt: skip
@click.option("--instance", help="Instance, as given to `osgym host serve`.")
@click.option("--timeout", "timeout_s", default=60.0, show_default=True, help="Seconds until it is killed.")
@click.option(
    "--all", "everything", is_flag=True,
    help="Remove the data directory, too: images, snapshots, checkpoints, trajectories, caches.",
)  # fmt: skip
@click.option("--yes", is_flag=True, help="With --all, do not ask for confirmation.")
def clean(data_dir: Path | None, instance: str | None, timeout_s: float, everything: bool, yes: bool) -> None:
    """Stop the host agent of this data directory and remove its desktops, nothing else.

    With --all, remove the data directory too. It is kept if it holds files that are not OSGym's, belongs to a
    fleet, or is in use by another host agent.
    """
    try:
        settings = load(None, _only_places(), {"data_dir": data_dir, "instance": instance})
    except SettingsError as error:
        raise click.ClickException(str(error)) from error
    pid = holder(pid_path(settings.data_dir, settings.instance))
    if pid is not None:
        click.echo(f"stopping the host agent (process {pid})")
        _stop(settings, pid, timeout_s)
    try:
        report = asyncio.run(clear_leftovers(settings))
    except (RuntimeFault, OSError) as error:
        raise click.ClickException(str(error)) from error
    if report.reaped_replicas or report.reaped_processes:
        click.echo(
            f"removed {report.reaped_replicas} desktops, {report.reaped_processes} processes that a host "
            "agent left behind"
        )
    if everything:
        _remove_all(settings.data_dir, yes)


def _remove_all(folder: Path, yes: bool) -> None:
    try:
        if not folder.exists():
            click.echo(f"{folder} does not exist")
            return
        check_removable(folder)
        if others := running_agents(folder):
            raise NotRemovable(
                f"the host agent of process {others[0]} still uses {folder}; stop it first: osgym host "
                "clean --instance …"
            )
        text = f"remove {folder}, {size_gib(folder):.1f} GiB of images, checkpoints, trajectories and caches?"
        if not yes and not click.confirm(text):
            raise click.ClickException("nothing was removed")
        remove_data(folder)
    except NotRemovable as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"removed {folder}")


def _only_places() -> dict[str, str]:
    return {name: os.environ[name] for name in ("OSGYM_DATA_DIR", "OSGYM_INSTANCE") if name in os.environ}


def _stop(settings: Settings, pid: int, timeout_s: float) -> None:
    path = pid_path(settings.data_dir, settings.instance)
    os.kill(pid, signal.SIGTERM)
    killed = False
    until = time.monotonic() + timeout_s
    while holder(path) == pid:
        if time.monotonic() > until:
            if killed:
                raise click.ClickException(f"process {pid} is still running after SIGKILL")
            os.kill(pid, signal.SIGKILL)
            killed, until = True, time.monotonic() + 10
        time.sleep(POLL_S)


class NotRemovable(OsgymHostError):
    """The folder is not removed; no part of it was."""


def check_removable(folder: Path, mounts: str | None = None) -> None:
    """Check that a folder is a data directory and nothing else, and that nothing in it is in use.

    Args:
        mounts: Text as in /proc/self/mountinfo.

    Raises:
        NotRemovable: The folder fails the check; the message has the reason.
    """
    if folder.is_symlink() or not folder.is_dir():
        raise NotRemovable(f"{folder} is not a folder")
    names = {path.name for path in folder.iterdir()}
    if FLEET_MARK in names:
        raise NotRemovable(f"{folder} belongs to a fleet: `pulumi destroy` removes it")
    strangers = sorted(name for name in names - OWN if not name.startswith(".image-"))
    if strangers:
        raise NotRemovable(
            f"{folder} has entries that OSGym did not make, and is not removed: {', '.join(strangers[:5])}"
            + (" …" if len(strangers) > 5 else "")
        )
    if mounts is None:
        mounts = Path("/proc/self/mountinfo").read_text()
    inside = str(folder.resolve()) + os.sep
    found = [fields[4] for line in mounts.splitlines() if (fields := line.split()) and len(fields) > 4]
    if used := [place for place in found if place.startswith(inside)]:
        raise NotRemovable(f"{used[0]} is still mounted, so a program still uses {folder}")


def size_gib(folder: Path) -> float:
    """Return the disk space of a folder; hard links count once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for where, _, files in os.walk(folder):
        for name in files:
            try:
                found = os.lstat(os.path.join(where, name))  # noqa: PTH118 - hundreds of thousands
            except OSError:
                continue
            if (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                total += found.st_blocks * 512
    return total / 1024**3


def remove_data(folder: Path) -> None:
    """Remove a data directory that passed `check_removable`.

    Raises:
        NotRemovable: A part could not be removed, and stays.
    """
    check_removable(folder)
    try:
        shutil.rmtree(folder)
    except OSError as error:
        hint = "; as root?" if isinstance(error, PermissionError) and os.geteuid() else ""
        raise NotRemovable(f"{error.filename} cannot be removed: {error.strerror}{hint}") from error
