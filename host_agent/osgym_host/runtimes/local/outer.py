"""The user namespace around each replica's own, which bounds what the guest's root cannot raise.

The kernel counts namespaces, inotify instances, queued signals and the like for each user of each user
namespace, and for every namespace above it. A replica's root may write the limits of its own namespace;
those of the one around it are closed to it, since nothing it can do is a right outside of its own. So a
short-lived process makes the outer namespace, writes the limits, and has the replica's first process
made inside as a child of the zygote. Standard library only.

In the outer namespace ids have the numbers that the image's files have on disk. The map from them to
the replica's ids of the host is therefore also the one an id-mapped mount of the image needs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass

from osgym_host.runtimes.local import syscalls as sc
from osgym_host.runtimes.local.protocol import ID_COUNT

_SYSCTLS = "/proc/sys/user"
_RLIMITS = {
    "sigpending": resource.RLIMIT_SIGPENDING,
    "msgqueue": resource.RLIMIT_MSGQUEUE,
    "nproc": resource.RLIMIT_NPROC,
}
"""Those that a user namespace takes over as bounds for all in it, when it is made."""


@dataclass(frozen=True)
class Outer:
    """What the process in the outer namespace needs.

    Attributes:
        image_uid_base, image_gid_base: Numbers that ids have here; the replica's root is the first.
        go_fd: One byte comes here when the id maps are written; end of file means give up.
        status_fd: Takes the line that names the first process, and errors.
        counts: Limits by file name in `/proc/sys/user`.
        limits: `sigpending`, `msgqueue`, `nproc`: of all processes of the replica together; 0 or absent:
            as they are.
    """

    image_uid_base: int
    image_gid_base: int
    go_fd: int
    status_fd: int
    counts: dict[str, int]
    limits: dict[str, int]


def make_first_process(outer: Outer, namespaces: int, child: Callable[[int], None]) -> None:
    """Bound the outer namespace and make the replica's first process in it, as a child of our parent.

    Args:
        child: Runs in the new process and does not return; takes a descriptor that is read as `go_fd` is.

    Raises:
        OSError: The kernel refused; the new process, if there is one, gives up.
    """
    if os.read(outer.go_fd, 1) != b"g":
        os._exit(1)
    _limit(outer)
    go_r, go_w = os.pipe2(os.O_CLOEXEC)
    pid = sc.clone(namespaces | sc.CLONE_PARENT)
    if pid == 0:
        os.close(go_w)
        child(go_r)
    os.close(go_r)
    folder = proc_folder(pid)
    write_file(f"{folder}/uid_map", f"0 {outer.image_uid_base} {ID_COUNT}")
    write_file(f"{folder}/gid_map", f"0 {outer.image_gid_base} {ID_COUNT}")
    # Its number first: it may end as soon as it goes on.
    os.write(outer.status_fd, b"%d\n" % pid)
    os.write(go_w, b"g")


def _limit(outer: Outer) -> None:
    for name, most in outer.counts.items():
        with contextlib.suppress(FileNotFoundError):  # this kernel does not count it
            write_file(f"{_SYSCTLS}/{name}", str(most))
    for name, most in outer.limits.items():
        if most and name in _RLIMITS:
            hard = resource.getrlimit(_RLIMITS[name])[1]
            most = most if hard == resource.RLIM_INFINITY else min(hard, most)
            resource.setrlimit(_RLIMITS[name], (most, most))


def proc_folder(pid: int) -> str:
    """Return the folder in `/proc` of a child that was not waited for.

    Raises:
        OSError: There is no such process.
    """
    pidfd = os.pidfd_open(pid)
    try:
        return f"/proc/{pid_in_proc(pidfd)}"
    finally:
        os.close(pidfd)


def pid_in_proc(pidfd: int) -> int:
    """Return the number that `/proc` has for a process: the host's, whatever namespace this process is in.

    Raises:
        OSError: `/proc` does not know it.
    """
    with open(f"/proc/self/fdinfo/{pidfd}") as info:  # noqa: PTH123 (no pathlib in what is forked)
        numbers = [int(line.split()[1]) for line in info if line.startswith("Pid:")]
    if not numbers or numbers[0] <= 0:
        raise ProcessLookupError(errno.ESRCH, "/proc does not know the process")
    return numbers[0]


def write_file(path: str, text: str) -> None:
    """Write a file of the kernel in one call.

    Raises:
        OSError: The kernel refused; the message names text and file.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    except OSError as exc:
        raise OSError(exc.errno, f"writing {text!r} to {path}: {os.strerror(exc.errno or 0)}") from exc
    finally:
        os.close(fd)
