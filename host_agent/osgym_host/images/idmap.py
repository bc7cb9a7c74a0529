"""Map of host ids for the ids inside an image, and its form for the kernel."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from osgym_host.images.errors import NamespaceUnavailable

ID_COUNT = 65_536
"""Number of ids that an image can use: one subordinate range of user management tools."""

ROOT_UID_BASE = 1_000_000_000
"""Start of root's range: above what useradd hands out, below 2^31. systemd keeps 524288 to 1879048191 for
containers, of which this is one block.
"""


@dataclass(frozen=True, slots=True)
class IdMap:
    """Map of the inside ids 0..count-1 to the host's uid_base.. and gid_base.."""

    uid_base: int
    gid_base: int
    count: int = ID_COUNT

    @property
    def uid_line(self) -> str:
        """Return the line for /proc/PID/uid_map."""
        return f"0 {self.uid_base} {self.count}\n"

    @property
    def gid_line(self) -> str:
        """Return the line for /proc/PID/gid_map."""
        return f"0 {self.gid_base} {self.count}\n"


def current_idmap() -> IdMap:
    """Return the map with which this user bakes and runs images.

    Raises:
        NamespaceUnavailable: An ordinary user without subordinate ids or without newuidmap.
    """
    if os.geteuid() == 0:
        return IdMap(ROOT_UID_BASE, ROOT_UID_BASE)
    for tool in ("newuidmap", "newgidmap"):
        if shutil.which(tool) is None:
            raise NamespaceUnavailable(f"{tool} is not installed", "install the package uidmap")
    return IdMap(_subordinate(Path("/etc/subuid")), _subordinate(Path("/etc/subgid")))


def write_maps(pid: int, idmap: IdMap) -> None:
    """Write the map of the fresh user namespace of process `pid`.

    Raises:
        NamespaceUnavailable: The kernel or newuidmap refused.
    """
    if os.geteuid() == 0:
        try:
            Path(f"/proc/{pid}/uid_map").write_text(idmap.uid_line)
            Path(f"/proc/{pid}/gid_map").write_text(idmap.gid_line)
        except OSError as exc:
            raise NamespaceUnavailable(f"the kernel refused the id map: {exc}") from exc
        return
    for tool, base in (("newuidmap", idmap.uid_base), ("newgidmap", idmap.gid_base)):
        done = subprocess.run(
            [tool, str(pid), "0", str(base), str(idmap.count)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        if done.returncode != 0:
            raise NamespaceUnavailable(f"{tool}: {done.stderr.strip()}", "see /etc/subuid and /etc/subgid")


def _subordinate(path: Path) -> int:
    """Return the start of the first range of at least ID_COUNT ids that `path` gives this user."""
    user = getpass.getuser()
    try:
        lines = path.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        owner, _, rest = line.partition(":")
        begin, _, count = rest.partition(":")
        if owner in (user, str(os.getuid())) and count.isdigit() and int(count) >= ID_COUNT:
            return int(begin)
    raise NamespaceUnavailable(
        f"{path} gives {user} no range of {ID_COUNT} ids",
        f"as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}",
    )
