"""A plain Debian in a folder, entered like a machine of its own: what the bootstrap is rehearsed on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
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
class PlainHost:
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


def make_plain_host(folder: Path) -> PlainHost:
    """Installs a minimal Debian into `folder`; about a minute."""
    root = folder / "root"
    argv = ["mmdebstrap", "--variant=minbase", "--include=iproute2", "bookworm", str(folder / "root.tar")]
    subprocess.run(argv, check=True, capture_output=True, timeout=600)
    root.mkdir()
    tar = ["tar", "-xf", str(folder / "root.tar"), "-C", str(root), "--exclude=./dev/*"]
    subprocess.run(tar, check=True, timeout=120)
    (folder / "root.tar").unlink()
    for path in (Path("/etc/resolv.conf"), *Path("/etc/apt/apt.conf.d").glob("*")):
        target = root / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    (
        root / ".dockerenv"
    ).touch()  # a container: settings of the kernel that cannot be changed are passed over
    return PlainHost(root)


def agent_archive(target: Path) -> None:
    """The host agent of this tree with all it needs, as wheels in a tar."""
    wheels = target.parent / "wheels"
    source = target.parent / "source"
    for name in ("sdk", "guest_agent", "host_agent"):
        ignore = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=ignore)
    argv = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check"]
    argv += ["-c", str(ROOT / "constraints.txt"), "-w", str(wheels)]
    argv += [str(source / name) for name in ("sdk", "guest_agent", "host_agent")]
    subprocess.run(argv, check=True, capture_output=True, timeout=300)
    subprocess.run(["tar", "-C", str(wheels), "-cf", str(target), "."], check=True, timeout=60)
    shutil.rmtree(wheels)
    shutil.rmtree(source)


def image_archive(data_dir: Path, digest: str, flavor: str, target: Path) -> None:
    """An image of the store as the bootstrap takes it: folders below the data directory, ids as they are."""
    argv = [
        "tar",
        "--numeric-owner",
        "--xattrs",
        "--xattrs-include=*",
        "-C",
        str(data_dir),
        "-cf",
        str(target),
    ]
    argv += [f"images/{digest}", f"images/tags/{flavor}"]
    subprocess.run(argv, check=True, timeout=300)
