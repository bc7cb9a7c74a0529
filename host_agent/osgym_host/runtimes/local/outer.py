"""The user namespace around each replica's own, which bounds what the guest's root cannot raise.

The kernel counts namespaces, inotify instances, queued signals and the like for each user of each user
namespace, and for every namespace above it. A replica's root may write the limits of its own namespace;
those of the one around it are closed to it, since nothing it can do is a right outside of its own. So a
short-lived process makes the outer namespace, writes the limits, and has the replica's first process
made inside as a child of the zygote. Standard library only.

The network namespace belongs to the outer namespace, too: root inside may use it but change nothing of it, so
most of the kernel's network configuration is out of its reach.

In the outer namespace ids have the numbers that the image's files have on disk. The map from them to
the replica's ids of the host is therefore also the one an id-mapped mount of the image needs.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

from osgym_host.runtimes.local import detached
from osgym_host.runtimes.local import syscalls as sc
from osgym_host.runtimes.local.protocol import ID_COUNT

NAMESPACES = sc.CLONE_NEWUSER | sc.CLONE_NEWNET | sc.CLONE_NEWNS
"""New namespaces of the outer process; the mount namespace serves to make a detached /sys only."""
_SYSCTLS = "/proc/sys/user"
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
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
        go_fd: One byte comes here when the id maps are written; end of file means exit.
        status_fd: Takes the line that names the first process and the agent's socket, and errors.
        folder: Of the replica; the guest agent's socket is made there.
        counts: Limits by file name in `/proc/sys/user`.
        limits: `sigpending`, `msgqueue`, `nproc`: of all processes of the replica together; 0 or absent:
            as they are.
        proxy_port: Where the host's proxy listens on the replica's loopback interface; 0: nowhere.
        proxy_fd: Takes the socket that listens there.
    """

    image_uid_base: int
    image_gid_base: int
    go_fd: int
    status_fd: int
    folder: str
    counts: dict[str, int]
    limits: dict[str, int]
    proxy_port: int = 0
    proxy_fd: int = -1


def make_first_process(outer: Outer, namespaces: int, child: Callable[[int, int, int], None]) -> None:
    """Bound the outer namespace and make the replica's first process in it, as a child of our parent.

    Args:
        child: Runs in the new process and does not return; takes a descriptor that is read as `go_fd` is,
            one of a detached /sys, -1 where there is none, and the guest agent's listening socket.

    Raises:
        OSError: The kernel refused; the new process, if there is one, exits.
    """
    listening, sys_fd = enter(outer)
    go_r, go_w = os.pipe2(os.O_CLOEXEC)
    pid = sc.clone(namespaces | sc.CLONE_PARENT)
    if pid == 0:
        os.close(go_w)
        child(go_r, sys_fd, listening)
    os.close(go_r)
    folder = proc_folder(pid)
    write_file(f"{folder}/uid_map", f"0 {outer.image_uid_base} {ID_COUNT}")
    write_file(f"{folder}/gid_map", f"0 {outer.image_gid_base} {ID_COUNT}")
    # Its number first: it may end as soon as it goes on.
    os.write(outer.status_fd, b"%d %d\n" % (pid, os.fstat(listening).st_ino))
    os.write(go_w, b"g")


def enter(outer: Outer) -> tuple[int, int]:
    """Bound the outer namespace, once its ids are mapped, and open its network.

    Returns:
        Descriptors of the guest agent's listening socket and of a detached /sys, -1 where there is none.

    Raises:
        OSError: The kernel refused.
    """
    if os.read(outer.go_fd, 1) != b"g":
        os._exit(1)
    _limit(outer)
    _open_network(outer)
    if outer.proxy_port:
        _listen_for_proxy(outer)
    listening = listen(outer.folder)
    with contextlib.suppress(
        OSError
    ):  # refused where the host's own /sys is masked; the replica's is then empty
        return listening, detached.sysfs()
    return listening, -1


def _limit(outer: Outer) -> None:
    for name, most in outer.counts.items():
        with contextlib.suppress(FileNotFoundError):  # this kernel does not count it
            write_file(f"{_SYSCTLS}/{name}", str(most))
    for name, most in outer.limits.items():
        if most and name in _RLIMITS:
            hard = resource.getrlimit(_RLIMITS[name])[1]
            most = most if hard == resource.RLIM_INFINITY else min(hard, most)
            resource.setrlimit(_RLIMITS[name], (most, most))


def _open_network(outer: Outer) -> None:
    """Bring loopback up, and grant the replica's users what otherwise takes a right over the namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16xH14x", fcntl.ioctl(sock, _SIOCGIFFLAGS, request))[0]
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))
    groups = f"{outer.image_gid_base} {outer.image_gid_base + ID_COUNT - 1}"
    for name, value in (("ip_unprivileged_port_start", "0"), ("ping_group_range", groups)):
        with contextlib.suppress(OSError):  # a host without it, or one whose /proc/sys is closed
            write_file(f"/proc/sys/net/ipv4/{name}", value)


def _listen_for_proxy(outer: Outer) -> None:
    """Listen in the replica's network for a process outside: a socket stays in the network of its making."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as listener:
        listener.bind(("127.0.0.1", outer.proxy_port))
        listener.listen(socket.SOMAXCONN)
        with socket.socket(fileno=outer.proxy_fd) as channel:
            socket.send_fds(channel, [b"l"], [listener.fileno()])


def listen(folder: str) -> int:
    """Listen at the guest agent's address before it runs; return the descriptor.

    The socket is of the replica's network namespace, though anybody who reaches its file can connect: so
    no socket of a replica is of another namespace than its own.

    Raises:
        OSError: The kernel refused.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    os.chdir(folder)  # a path may be longer than an address
    sock.bind("agent.sock")
    os.chdir("/")
    sock.listen(socket.SOMAXCONN)
    return sock.detach()


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
