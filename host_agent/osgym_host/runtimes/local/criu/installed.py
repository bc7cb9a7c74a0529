"""CRIU of this host: its version and whether it can be used. Blocking."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from osgym_host.runtimes.local.criu.commands import OLDEST, older_than_needed, parse_version

NEEDED = f"criu {OLDEST[0]}.{OLDEST[1]} or newer"
COVERED = ("/run/", "/tmp/")  # noqa: S108 (looked for, not used)
"""Folders over which `restoring` mounts before it becomes CRIU."""
_TIMEOUT_S = 10.0
_CHECK_TIMEOUT_S = 20.0
_MAX_LINE = 300
_CAP_SYS_RESOURCE = 24


@dataclass(frozen=True, slots=True)
class InstalledCriu:
    """Program found on this host.

    Attributes:
        path: Path of the program; empty where there is none.
        version: Major and minor number.
        lacking: Reason why it cannot be used; empty when it can.
    """

    path: str = ""
    version: tuple[int, int] | None = None
    lacking: str = ""

    @property
    def usable(self) -> bool:
        return not self.lacking


def find_criu() -> InstalledCriu:
    """Search CRIU on PATH and in the folders of system programs, and ask for its version."""
    path = shutil.which("criu", path=f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin")
    if path is None:
        return InstalledCriu(lacking=f"{NEEDED} is not installed")
    path = os.fspath(Path(path).absolute())
    if os.geteuid() != 0:
        return InstalledCriu(path, lacking="only root can use criu here")
    said = _run([path, "--version"], _TIMEOUT_S)
    version = parse_version(said)
    if version is None:
        return InstalledCriu(path, lacking=f"{path} did not print its version")
    if older_than_needed(version):
        return InstalledCriu(path, version, f"criu {version[0]}.{version[1]} is too old: {NEEDED} is needed")
    if path.startswith(COVERED):
        return InstalledCriu(
            path, version, f"{path} lies in a folder that clones cannot see; install it below /usr"
        )
    if shutil.which("nsenter") is None:
        return InstalledCriu(path, version, "nsenter (util-linux) is not installed")
    return InstalledCriu(path, version)


def what_is_lacking(criu: InstalledCriu) -> str:
    """Return what CRIU's own check of the kernel finds missing, in one line; empty when nothing is.

    The check ignores a right of the host's root that dumps need, and that some containers lack.
    """
    said = _run([criu.path, "check"], _CHECK_TIMEOUT_S)
    if "Looks good" not in said:
        lines = [line for line in said.splitlines() if "Error" in line] or said.splitlines()
        return f"`criu check` failed: {lines[0][:_MAX_LINE]}" if lines else "`criu check` printed nothing"
    return lacking_right()


def lacking_right() -> str:
    """Return which right of the host's root is lacking; empty when none is.

    A dump reads the limits of other users' processes.
    """
    status = Path("/proc/self/status").read_text()
    rights = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))
    return "" if rights >> _CAP_SYS_RESOURCE & 1 else "root lacks CAP_SYS_RESOURCE, which dumps need"


def _run(argv: list[str], timeout_s: float) -> str:
    """Return the output of a program, errors included; the cause when it could not be run."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return str(exc)
    return done.stdout + done.stderr
