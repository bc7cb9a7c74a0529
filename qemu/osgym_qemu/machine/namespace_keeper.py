"""Process with rights on network namespaces, for a host agent that is an ordinary user.

Run as a program, on Python's standard library alone, with a socket as standard input: it enters a user
namespace of its own (or the one that is named), where it has all rights and outside none, and does two
things for whoever holds the other end: make a network namespace with a loopback interface, and make a TCP
socket inside one. Both are answered with a descriptor. It ends with the other end.
"""

import array
import ctypes
import fcntl
import os
import socket
import struct
import sys

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1
INTERFACE = struct.Struct("16sH14x")
libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    """Raise OSError when a call of the C library failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def enter_user_namespace(path: str) -> None:
    """Enter the user namespace at `path`, or a new one in which our user and group are themselves."""
    if path:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        check(libc.setns(fd, CLONE_NEWUSER), "setns")
        os.close(fd)
        return
    user, group = os.geteuid(), os.getegid()
    check(libc.unshare(CLONE_NEWUSER), "unshare")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123  # pathlib costs memory
            file.write(text)


def bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as control:
        name, flags = INTERFACE.unpack(fcntl.ioctl(control, SIOCGIFFLAGS, INTERFACE.pack(b"lo", 0)))
        fcntl.ioctl(control, SIOCSIFFLAGS, INTERFACE.pack(name, flags | IFF_UP))


def make_namespace() -> int:
    """Return a descriptor of a new network namespace."""
    check(libc.unshare(CLONE_NEWNET), "unshare")
    bring_up_loopback()
    return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def make_socket(namespace: int) -> int:
    """Return a TCP socket made inside a network namespace."""
    check(libc.setns(namespace, CLONE_NEWNET), "setns")
    kind = socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    return socket.socket(socket.AF_INET, kind).detach()


def serve(channel: socket.socket) -> None:
    """Answer requests with a descriptor or an error, until the other end is closed."""
    while True:
        word, fds, _, _ = socket.recv_fds(channel, 16, 1)
        if not word:
            return
        try:
            made = make_namespace() if word == b"namespace" else make_socket(fds[0])
        except (OSError, IndexError) as exc:
            channel.send(str(exc).encode()[:200] or b"?")
            continue
        finally:
            for fd in fds:
                os.close(fd)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [made]))]
        channel.sendmsg([b"ok"], rights)
        os.close(made)


def main() -> None:
    """Report whether there are rights, then serve."""
    with socket.socket(fileno=0) as channel:
        try:
            enter_user_namespace(sys.argv[1] if len(sys.argv) > 1 else "")
        except OSError as exc:
            channel.send(str(exc).encode()[:200])
            return
        channel.send(b"ready")
        serve(channel)


if __name__ == "__main__":
    main()
