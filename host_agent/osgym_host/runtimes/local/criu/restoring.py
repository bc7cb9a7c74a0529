"""Restoring of a clone: the process in its outer user namespace becomes CRIU.

It has no right outside of that namespace, and the replica's system call filter, before CRIU reads the first
byte of an image, which a guest had a hand in. CRIU makes the first process as a child of the zygote.
Standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from dataclasses import dataclass
from typing import Any

from osgym_host.runtimes.local import detached, inside, outer
from osgym_host.runtimes.local import syscalls as sc
from osgym_host.runtimes.local.criu.commands import (
    LOG,
    PID_FILE,
    Outside,
    RestorePaths,
    error_in,
    restore_argv,
)

WORK = "criu"
"""Subfolder of the replica's folder for CRIU's log and the PID of the process that it made."""
_TOP = "/run"
"""Folder, in this process's own mount namespace, in which everything for CRIU is put together."""
_PATHS = RestorePaths(
    images=f"{_TOP}/images",
    work=f"{_TOP}/work",
    root=f"{_TOP}/root",
    dev=f"{_TOP}/dev",
    sys=f"{_TOP}/sys",
    console_fd=62,
    listen_fd=63,
)
_FOLDERS = ("images", "work", "root", "dev", "sys", "image", "runtime", "proc")
_NOT_OURS = ("kernel/hostname", "kernel/domainname")
"""CRIU writes these, which only the host's root may. A new namespace takes over what is set around it."""
_ABOVE = 64
_MAX_LOG_BYTES = 1 << 20


@dataclass(frozen=True)
class Template:
    """Sources of a clone.

    Attributes:
        criu: Path of the program.
        outside: Names in its image for resources that each clone has anew.
        images: Descriptor of a detached mount of CRIU's image.
        proc: Descriptor of a /proc of the zygote's PID namespace.
        work: Descriptor of the folder `WORK` of the clone.
    """

    criu: str
    outside: Outside
    images: int
    proc: int
    work: int

    @property
    def descriptors(self) -> tuple[int, ...]:
        return (self.images, self.proc, self.work)


def open_template(restore: dict[str, Any], folder: str, uid: int, gid: int) -> Template:
    """Open what a `spawn` request names, with the zygote's rights, and make the work folder.

    Raises:
        OSError: Something is missing, or the kernel refused.
    """
    work = f"{folder}/{WORK}"
    os.mkdir(work, 0o755)  # noqa: PTH102 (no pathlib in what is forked)
    os.chown(work, uid, gid, follow_symlinks=False)
    opened: list[int] = []
    try:
        for path in (restore["images"], work):
            opened.append(detached.clone_tree(path))
        opened.append(detached.proc())
    except OSError:
        for fd in opened:
            os.close(fd)
        raise
    images, work_fd, proc = opened
    outside = Outside(restore["console"], restore["listening"])
    return Template(restore["criu"], outside, images, proc, work_fd)


def become_criu(around: outer.Outer, what: inside.Inside, template: Template) -> None:
    """Enter the namespaces in which CRIU may restore the clone, and become CRIU. Returns only by raising.

    Raises:
        StepFailed: A step failed.
        OSError: The outer namespace could not be bounded.
    """
    listening, sys_fd = outer.enter(around)
    os.write(around.status_fd, b"0 %d\n" % os.fstat(listening).st_ino)
    with inside.step("cgroup namespace"):
        sc.unshare(sc.CLONE_NEWCGROUP)
    with inside.step("mounts"):
        _mount_all(what, template, sys_fd)
    with inside.step("limits"):
        inside.set_limits(what.limits)
    with inside.step("descriptors"):
        _arrange_descriptors(what, listening)
    with inside.step("signals"):
        inside.reset_signals()
    with inside.step("system call filter"):
        sc.install_seccomp(what.filter_program)
    with inside.step("criu"):
        argv = restore_argv(template.criu, template.outside, _PATHS)
        os.execve(template.criu, argv, {"PATH": os.defpath, "XDG_RUNTIME_DIR": f"{_TOP}/runtime"})  # noqa: S606


def _mount_all(what: inside.Inside, template: Template, sys_fd: int) -> None:
    """Mount everything at `_PATHS`, the clone's root included."""
    folder_fd = os.open(what.folder, inside.FOLDER)
    sc.mount("none", "/", None, sc.MS_REC | sc.MS_PRIVATE)
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    os.setsid()
    for place in (_TOP, "/tmp"):  # noqa: S108 (a file system of its own)
        sc.mount("tmpfs", place, "tmpfs", sc.MS_NOSUID | sc.MS_NODEV, "mode=755,size=4m")
    for name in _FOLDERS:
        os.mkdir(f"{_TOP}/{name}", 0o755)  # noqa: PTH102 (no pathlib in what is forked)
    fds = what.fds
    for fd, name in (
        (fds.image, "image"),
        (template.images, "images"),
        (template.work, "work"),
        (fds.dev, "dev"),
        (sys_fd, "sys"),
        (template.proc, "proc"),
    ):
        detached.attach(fd, f"{_TOP}/{name}")
    inside.complete_dev(_PATHS.dev)
    base = f"/proc/self/fd/{folder_fd}"
    options = f"lowerdir={_TOP}/image,upperdir={base}/upper,workdir={base}/work,userxattr,volatile"
    sc.mount("osgym", _PATHS.root, "overlay", 0, options)
    _mount_proc(what.hostname)


def _mount_proc(hostname: str) -> None:
    """Mount the /proc of CRIU's own PID namespace, with files that CRIU may write but not set."""
    # One /proc stays whole elsewhere: the kernel mounts another inside only where one is seen as a whole.
    sc.mount(f"{_TOP}/proc", "/proc", None, sc.MS_BIND)
    sc.unshare(sc.CLONE_NEWUTS)
    socket.sethostname(hostname)
    for name in _NOT_OURS:
        place = f"{_TOP}/runtime/{name.replace('/', '-')}"
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        sc.mount(place, f"/proc/sys/{name}", None, sc.MS_BIND)


def _arrange_descriptors(what: inside.Inside, listening: int) -> None:
    """Let CRIU inherit the console log and the socket; all others close when it starts."""
    # Above all of these first, so that no descriptor is overwritten before it was used.
    console = fcntl.fcntl(what.fds.console, fcntl.F_DUPFD_CLOEXEC, _ABOVE)
    listen = fcntl.fcntl(listening, fcntl.F_DUPFD_CLOEXEC, _ABOVE)
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    sc.close_on_exec_from(3)
    os.dup2(console, _PATHS.console_fd)
    os.dup2(listen, _PATHS.listen_fd)


def first_process(folder: str) -> int:
    """Return the zygote's number of the process that CRIU made.

    CRIU is not trusted: the caller checks that such a child exists and belongs to this clone.
    """
    said = _said(folder, PID_FILE, 32).strip()
    if not said.isdecimal():
        raise ValueError("not a number")
    return int(said)


def error_of(folder: str) -> str:
    """Return the first error in CRIU's log; an empty string where there is none."""
    try:
        return error_in(_said(folder, LOG, _MAX_LOG_BYTES))
    except OSError:
        return ""


def _said(folder: str, name: str, most_bytes: int) -> str:
    """Read a file of CRIU, without following links or blocking on pipes.

    Raises:
        OSError: It is not there, or no file.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(f"{folder}/{WORK}/{name}", flags)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, f"{name} is not a file")
        return os.read(fd, most_bytes).decode("utf-8", "replace")
    finally:
        os.close(fd)
