"""A plain Debian in a folder, entered like a machine of its own: what the bootstrap is tested on."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.ssh_hosts import memory_will_do

# pivot_root, not chroot: a process in a chroot may not make user namespaces, and replicas need them.
ENTER = """
set -e
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mount --rbind /dev dev
if [ "$2" = sealed ]; then mount --bind proc/sys proc/sys; mount -o remount,bind,ro proc/sys; fi
ip link set lo up 2>/dev/null || true
mkdir -p old
pivot_root . old
umount -l /old
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root bash -c "$3"
"""


def missing() -> str:
    """What this machine lacks for it; empty when nothing."""
    if os.geteuid() != 0:
        return "root"
    return next((tool for tool in ("mmdebstrap", "unshare", "ip") if shutil.which(tool) is None), "")


@dataclass(frozen=True, slots=True)
class NamespaceHost:
    """The folder. What runs in it sees its own files, processes and, unless told otherwise, network."""

    root: Path

    def run(
        self, script: str, timeout_s: float, network: bool = False, sealed: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Runs a script of bash; every process of it is gone afterwards.

        Args:
            network: use this machine's network (for packages) instead of an empty one.
            sealed: the kernel's settings, which are this machine's, cannot be changed.
        """
        argv = ["unshare", "-m", "-p", "-f", "--kill-child", *([] if network else ["-n"])]
        argv += ["bash", "-c", ENTER, "enter", str(self.root), "sealed" if sealed else "open", script]
        return subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)


@contextlib.contextmanager
def namespace_host(folder: Path) -> Iterator[NamespaceHost]:
    """Install a minimal Debian into `folder`, about a minute; remove it afterwards, also if that fails."""
    root = folder / "root"
    argv = ["mmdebstrap", "--variant=minbase", "--include=iproute2", "bookworm", str(folder / "root.tar")]
    subprocess.run(argv, check=True, capture_output=True, timeout=600)
    root.mkdir()
    try:
        if memory_will_do(root):
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5g,mode=755", "tmpfs", str(root)], check=True)
        tar = ["tar", "-xf", str(folder / "root.tar"), "-C", str(root), "--exclude=./dev/*"]
        subprocess.run(tar, check=True, timeout=120)
        (folder / "root.tar").unlink()
        for path in (Path("/etc/resolv.conf"), *Path("/etc/apt/apt.conf.d").glob("*")):
            target = root / path.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        # A container: settings of the kernel that cannot be changed are passed over.
        (root / ".dockerenv").touch()
        yield NamespaceHost(root)
    finally:
        if root.is_mount():
            subprocess.run(["umount", str(root)], check=True)
        shutil.rmtree(root, ignore_errors=True)
