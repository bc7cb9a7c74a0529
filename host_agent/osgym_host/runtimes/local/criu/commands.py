"""Command lines for CRIU, its version, and names of files outside its images. Pure, standard library only.

Outside of an image stays what belongs to the host and is made anew for each clone: the console log, the guest
agent's listening socket, the device nodes and /sys of the replica's own network namespace.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

OLDEST = (4, 2)
"""Oldest usable version: older ones do not know the vDSO of today's kernels."""
_VERSION = re.compile(r"^Version:\s*(\d+)\.(\d+)", re.MULTILINE)
_COMMON = (
    "--manage-cgroups=ignore",  # the clone gets its own, before CRIU runs
    "--network-lock",
    "skip",
    "--file-validation",
    "filesize",
    "--file-locks",
    "--link-remap",
)
_WATCHED = (
    "/home",
    "/etc",
    "/usr/local/share",
    "/usr/share/dbus-1",
    "/usr/share/applications",
    "/usr/share/mime",
    "/root",
    "/run",
)
"""Folders in which the path of a watched inode is searched, since an overlay opens no file by its handle. All
of
/usr/share would take a second while the replica stands still."""
LOG = "restore.log"
PID_FILE = "pid"
"""Name of the file in a clone's work folder to which CRIU writes the PID."""
GHOST_LIMIT = "64M"
"""Largest file that is deleted and still open; browsers and offices have such temporary files."""
MAX_ERROR_CHARS = 400
_HARMLESS = "Can't setup RLIMIT_NOFILE"
"""Error text where root may not raise limits, of no consequence for a desktop."""


@dataclass(frozen=True, slots=True)
class Outside:
    """Names in an image for resources of the host.

    Attributes:
        console: Name of the console log, `file[MOUNT:INODE]`, both hexadecimal.
        listening: Inode of the guest agent's socket.
    """

    console: str
    listening: int


@dataclass(frozen=True, slots=True)
class RestorePaths:
    """Paths and descriptors that CRIU uses, in the mount namespace that it runs in.

    Attributes:
        root: Mounted root of the clone, with nothing mounted in it.
        console_fd, listen_fd: Descriptors that it inherits.
    """

    images: str
    work: str
    root: str
    dev: str
    sys: str
    console_fd: int
    listen_fd: int


def parse_version(text: str) -> tuple[int, int] | None:
    """Return major and minor number from what `criu --version` prints; None where it says neither."""
    found = _VERSION.search(text)
    return None if found is None else (int(found[1]), int(found[2]))


def console_name(mount_id: int, inode: int) -> str:
    """Return the name of an open file that lies outside of the replica's mounts."""
    return f"file[{mount_id:x}:{inode:x}]"


def copy_argv(source: str, target: str) -> list[str]:
    """Return the command that copies a layer with all its attributes; the target must not exist."""
    return ["cp", "-a", "--reflink=auto", source, target]


def copy_script(upper: str, copy: str) -> str:
    """Return a script for CRIU that copies what a replica wrote to disk, while its processes stand still.

    Args:
        copy: Target, which does not exist yet.
    """
    copying = shlex.join(copy_argv(upper, copy))
    return f'#!/bin/sh\n[ "$CRTOOLS_SCRIPT_ACTION" = post-dump ] || exit 0\nexec {copying}\n'


def dump_argv(criu: str, pid: int, images: str, outside: Outside, script: str) -> list[str]:
    """Return the command that dumps a replica, which then goes on.

    Args:
        pid: Host PID of its first process.
        images: Folder for the image, with the log.
        script: File with `copy_script`, executable.
    """
    return [
        # Sockets are found in the network namespace that CRIU is in; and CRIU leaves that alone.
        "nsenter",
        f"--net=/proc/{pid}/ns/net",
        criu,
        "dump",
        "--tree",
        str(pid),
        "--images-dir",
        images,
        "--log-file",
        "dump.log",
        "-v2",
        "--leave-running",
        "--external",
        outside.console,
        "--external",
        "mnt[/dev]:dev",
        "--external",
        "mnt[/sys]:sys",
        "--ext-unix-sk",
        "--ghost-limit",
        GHOST_LIMIT,
        "--force-irmap",
        *(part for path in _WATCHED for part in ("--irmap-scan-path", path)),
        "--action-script",
        script,
        *_COMMON,
    ]


def restore_argv(criu: str, outside: Outside, paths: RestorePaths) -> list[str]:
    """Return the command that restores a clone as a child of the caller's parent, and ends then."""
    return [
        criu,
        "restore",
        "--images-dir",
        paths.images,
        "--work-dir",
        paths.work,
        "--log-file",
        LOG,
        "--pidfile",
        PID_FILE,
        "-v1",
        "--unprivileged",
        "--restore-detached",
        "--restore-sibling",
        "--root",
        paths.root,
        "--inherit-fd",
        f"fd[{paths.console_fd}]:{outside.console}",
        "--inherit-fd",
        f"fd[{paths.listen_fd}]:socket:[{outside.listening}]",
        "--external",
        f"mnt[dev]:{paths.dev}",
        "--external",
        f"mnt[sys]:{paths.sys}",
        "--ext-unix-sk",
        *_COMMON,
    ]


def error_in(log: str) -> str:
    """Return the errors of CRIU's log, shortened; an empty string where there is none."""
    found = [line.partition("Error (")[2] for line in log.splitlines() if "Error (" in line]
    return "; ".join(f"({text}" for text in found if _HARMLESS not in text)[:MAX_ERROR_CHARS]


def older_than_needed(version: Sequence[int]) -> bool:
    return tuple(version) < OLDEST
