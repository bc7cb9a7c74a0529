"""First process of a replica, from `clone` to its session. Standard library only.

It runs as a fork of a fork of the zygote in fresh namespaces, with every capability in them and none
outside; `outer` says what is around them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import signal
import socket
from dataclasses import dataclass
from typing import Any

from osgym_host.runtimes.local import detached
from osgym_host.runtimes.local import syscalls as sc
from osgym_host.runtimes.local.protocol import LISTEN_FD, SESSION, SESSION_GROUPS, SESSION_GROUPS_FD

_TTY_GID = 5
FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
NAMESPACES = sc.CLONE_NEWUSER | sc.CLONE_NEWPID | sc.CLONE_NEWNS | sc.CLONE_NEWIPC | sc.CLONE_NEWUTS


class StepFailed(Exception):
    """Failure of a step on the way into the replica."""

    def __init__(self, step: str, cause: OSError) -> None:
        super().__init__(f"{step}: {cause}")
        self.step = step
        self.reason = str(cause)


@dataclass(frozen=True)
class Descriptors:
    """Descriptors that the first process inherits.

    Attributes:
        console: Target of stdout and stderr.
        status: Pipe for errors; `execve` closes it.
        image: The root file system as a detached mount with the replica's ids as owners; -1: it has them
            on disk.
        dev: A detached /dev with nodes of its own; -1: the host's are bound there.
        go: Pipe that gets one byte when the id maps are written; at its end the process exits.
        sys: A detached /sys; -1: it stays empty.
        listen: Listening socket of the guest agent.
        groups: ``cgroup.procs`` files of the session's control groups; a process that writes to one joins it.
    """

    console: int
    status: int
    image: int
    dev: int
    go: int = -1
    sys: int = -1
    listen: int = -1
    groups: tuple[int, ...] = ()


@dataclass(frozen=True)
class Inside:
    """Settings of one replica's first process.

    Attributes:
        rootfs: Golden root file system.
        folder: Folder with `lower`, `upper`, `work` and `merged`.
        limits: `run_mib`, `tmp_mib`, `shm_mib`, `nofile`.
        filter_program: Instructions of the system call filter.
        name_server: Address for /etc/resolv.conf; empty: the image's file stays.
        files: Path, text and mode (`w` writes anew, `a` appends) of further files.
    """

    rootfs: str
    folder: str
    hostname: str
    environment: dict[str, str]
    limits: dict[str, int]
    filter_program: bytes
    fds: Descriptors
    name_server: str = ""
    files: tuple[tuple[str, str, str], ...] = ()


def enter(inside: Inside) -> None:
    """Become the session of the replica. Returns only by raising.

    Raises:
        StepFailed: A step failed; nothing of it is visible outside the namespaces.
    """
    with step("wait"):
        if os.read(inside.fds.go, 1) != b"g":
            os._exit(1)
    with step("folders"):
        # Still with the ids of the zygote, which may pass through closed folders; and by name, since
        # an overlay takes only what was opened in its own mount namespace.
        rootfs_fd = os.open(inside.rootfs, FOLDER)
        dir_fd = os.open(inside.folder, FOLDER)
    with step("credentials"):
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        os.setsid()
        os.umask(0o022)
    with step("cgroup namespace"):
        sc.unshare(sc.CLONE_NEWCGROUP)
    with step("overlay"):
        _mount_overlay(rootfs_fd, dir_fd, inside.fds.image)
    with step("mounts"):
        _mount_all(inside)
    if inside.name_server:
        with step("name server"):
            _set_name_server(inside.name_server)
    with step("files"):
        for path, text, mode in inside.files:
            _write(path, text, mode)
    with step("host name"):
        socket.sethostname(inside.hostname)
    with step("limits"):
        set_limits(inside.limits)
    with step("descriptors"):
        _arrange_descriptors(inside)
    with step("signals"):
        reset_signals()
    with step("system call filter"):
        sc.install_seccomp(inside.filter_program)
    with step("session"):
        environment = dict(inside.environment)
        if inside.fds.groups:
            environment[SESSION_GROUPS] = str(len(inside.fds.groups))
        os.execve(SESSION, [SESSION], environment)  # noqa: S606 (no shell is wanted)


class step(contextlib.AbstractContextManager["step"]):
    def __init__(self, name: str) -> None:
        self._name = name

    def __exit__(self, kind: object, value: BaseException | None, trace: object) -> None:
        if isinstance(value, OSError):
            raise StepFailed(self._name, value) from value


def _mount_overlay(rootfs_fd: int, dir_fd: int, image_fd: int) -> None:
    """Mount the replica's root and make it the working directory."""
    sc.mount("none", "/", None, sc.MS_REC | sc.MS_PRIVATE)
    base = f"/proc/self/fd/{dir_fd}"
    lower = f"/proc/self/fd/{rootfs_fd}"
    if image_fd >= 0:
        lower = f"{base}/lower"
        detached.attach(image_fd, lower)
    root = f"{base}/merged"
    # Volatile: the overlay lives as long as the replica, so nothing of it needs to reach the disk by fsync.
    options = f"lowerdir={lower},upperdir={base}/upper,workdir={base}/work"
    sc.mount("osgym", root, "overlay", 0, options + ",userxattr,volatile")
    os.chdir(root)


def _mount_all(inside: Inside) -> None:
    """Mount the file systems of the replica below its root, and leave the host's root."""
    limits = inside.limits
    guarded = sc.MS_NOSUID | sc.MS_NODEV
    sc.mount("proc", "proc", "proc", guarded | sc.MS_NOEXEC)
    if inside.fds.sys >= 0:
        detached.attach(inside.fds.sys, "sys")
    sc.mount("tmpfs", "run", "tmpfs", guarded, f"mode=755,size={limits['run_mib']}m")
    sc.mount("tmpfs", "tmp", "tmpfs", guarded, f"mode=1777,size={limits['tmp_mib']}m")
    _mount_dev(inside.fds.dev, limits["shm_mib"])
    sc.pivot_root(".", ".")
    sc.umount(".", sc.MNT_DETACH)
    os.chdir("/")


def _mount_dev(dev_fd: int, shm_mib: int) -> None:
    if dev_fd >= 0:
        detached.attach(dev_fd, "dev")
    else:
        sc.mount("tmpfs", "dev", "tmpfs", sc.MS_NOSUID, "mode=755,size=1m,nr_inodes=256")
        for name in detached.DEVICES:
            os.close(os.open(f"dev/{name}", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666))
            sc.mount(f"/dev/{name}", f"dev/{name}", None, sc.MS_BIND)
    complete_dev("dev")
    for name, flags, options in (
        ("pts", sc.MS_NOSUID | sc.MS_NOEXEC, f"newinstance,ptmxmode=0666,mode=620,gid={_TTY_GID},max=256"),
        ("shm", sc.MS_NOSUID | sc.MS_NODEV, f"mode=1777,size={shm_mib}m"),
    ):
        sc.mount(name, f"dev/{name}", "devpts" if name == "pts" else "tmpfs", flags, options)


def complete_dev(folder: str) -> None:
    """Make links and folders of a /dev besides its device nodes."""
    for name in ("pts", "shm"):
        os.mkdir(f"{folder}/{name}", 0o755)  # noqa: PTH102 (no pathlib in what is forked per replica)
    for name, target in (
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ):
        os.symlink(target, f"{folder}/{name}")  # noqa: PTH211 (the same)


def _set_name_server(address: str) -> None:
    """Write /etc/resolv.conf, in the replica's root already, so that no link of the image leads out."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink("/etc/resolv.conf")  # noqa: PTH108 (no pathlib in what is forked per replica)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open("/etc/resolv.conf", flags, 0o644)
    os.write(fd, f"nameserver {address}\n".encode())
    os.close(fd)


def _write(path: str, text: str, mode: str) -> None:
    """Write a file with the folders above it, in the replica's root already (see `_set_name_server`)."""
    folder = ""
    for part in path.split("/")[1:-1]:
        folder += f"/{part}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o755)  # noqa: PTH102 (no pathlib in what is forked per replica)
    if mode == "w":
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 (the same)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o644)
    os.write(fd, text.encode())
    os.close(fd)


def set_limits(limits: dict[str, int]) -> None:
    """Bound open files and core dumps of this process and its descendants."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = limits["nofile"] if hard == resource.RLIM_INFINITY else min(hard, limits["nofile"])
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, most), most))


def _arrange_descriptors(inside: Inside) -> None:
    """Put the console on 1 and 2, the listening socket on 3, then the groups; others close on `execve`."""
    # Copies with high numbers first, so that no descriptor is overwritten before it was used.
    listen = fcntl.fcntl(inside.fds.listen, fcntl.F_DUPFD_CLOEXEC, 10)
    console = fcntl.fcntl(inside.fds.console, fcntl.F_DUPFD_CLOEXEC, 10)
    groups = [fcntl.fcntl(group, fcntl.F_DUPFD_CLOEXEC, 10) for group in inside.fds.groups]
    null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    if inside.fds.status < SESSION_GROUPS_FD + len(groups):
        raise OSError(errno.EBADF, "the status pipe is where the standard descriptors go")
    os.dup2(null, 0)
    os.dup2(console, 1)
    os.dup2(console, 2)
    os.dup2(listen, LISTEN_FD)
    for number, group in enumerate(groups, SESSION_GROUPS_FD):
        os.dup2(group, number)
    sc.close_on_exec_from(SESSION_GROUPS_FD + len(groups))


def reset_signals() -> None:
    """Reset every signal to its default and unblock all."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError):  # the C library keeps two for itself
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def inside_from(message: dict[str, Any], fds: Descriptors, program: bytes) -> Inside:
    """Build the settings from a `spawn` request."""
    return Inside(
        rootfs=message["rootfs"],
        folder=message["folder"],
        hostname=message["hostname"],
        environment=message["environment"],
        limits=message["limits"],
        filter_program=program,
        fds=fds,
        name_server=message["name_server"],
        files=tuple((path, text, mode) for path, text, mode in message["files"]),
    )
