"""System call filter of a replica: denies what a desktop never needs and endangers the host. Pure.

It is a deny list, because root inside (`sudo`), Chromium's own sandbox and any application must
work: user namespaces and `mount` stay. Denied are the kernel's not namespaced or often broken
parts: keyrings, BPF, perf, io_uring, userfaultfd, modules, the clock, file handles, secret memory, the
newer mount calls (programs fall back to `mount`) and 32-bit entry points.

What is left of the network is what its loopback interface needs: sockets of the families unix, internet
(TCP, UDP, ping; nothing raw) and netlink (routes, device events). Other families (vsock would reach the
hypervisor), netlink's other protocols (IPsec, netfilter, audit, generic), options that configure
netfilter or put a module into a TCP connection, and requests that make bridges, VLANs and tunnels are
refused, also to the root of a namespace that the guest makes.

Tracing the replica's first process is refused: a tracer could end it by SIGKILL or stop it. A loss with these
causes is attributed to the host, since otherwise only the host can bring them about.

Two ways from the namespaces of the desktop to those of its guest agent are refused as well: a pidfd of the
other end of a socket, and iterating over the mount namespaces of a user namespace.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable

from osgym_host.runtimes.local.bpf import Program

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_NR, _ARCH, _ARG0, _ARG1, _ARG2 = 0, 4, 16, 24, 32  # offsets in struct seccomp_data, little endian

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_SOCK_TYPES = (1, 2)
"""Stream and datagram sockets."""
_SOCK_TYPE_MASK = 0xF
_IP_PROTOCOLS = (0, 1, 6, 17, 58)
"""Default protocol, ICMP (as datagrams: ping), TCP, UDP, ICMPv6."""
_NETLINK_PROTOCOLS = (0, 15)
"""NETLINK_ROUTE, NETLINK_KOBJECT_UEVENT."""
_SOL_IP, _SOL_SOCKET, _SOL_TCP, _SOL_IPV6 = 0, 1, 6, 41
_SO_PASSPIDFD, _SO_PEERPIDFD = 76, 77
"""Socket options that return a pidfd of the peer, also of one in a parent PID namespace. The peer's
descriptors and namespaces can be reached by it."""
_FIRST_NETFILTER_OPTION = 64
_IPV6_OPTIONS = (66, 67, 70, 72, 73, 74, 75, 76, 77, 78)
"""Options of IPv6 itself that lie between those of netfilter."""
_TCP_ULP = 31
_IOCTLS = (
    0x5423,  # TIOCSETD: line disciplines, each a module
    0x8980,  # SIOCADDDLCI
    0x8982,  # SIOCGIFVLAN
    0x8983,  # SIOCSIFVLAN
    0x89A0,  # SIOCBRADDBR
    0x89A1,  # SIOCBRDELBR
    0x89A2,  # SIOCBRADDIF
    0x89A3,  # SIOCBRDELIF
    *range(0x89F0, 0x8A00),  # SIOCDEVPRIVATE: tunnels
)

_NAMESPACE_IOCTLS = (0xB70B, 0xB70C)
"""NS_MNT_GET_NEXT and NS_MNT_GET_PREV without the bits for direction and size, which may vary. They open
other mount namespaces of the same owner, such as the guest agent's."""
_REQUEST_MASK = 0xFFFF

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_LOOKED_INTO = {
    "x86_64": {
        "ioctl": 16,
        "socket": 41,
        "socketpair": 53,
        "setsockopt": 54,
        "getsockopt": 55,
        "ptrace": 101,
    },
    "aarch64": {
        "ioctl": 29,
        "socket": 198,
        "socketpair": 199,
        "setsockopt": 208,
        "getsockopt": 209,
        "ptrace": 117,
    },
}
_X32_BIT = 0x40000000

_COMMON = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "memfd_secret": 447,
    "open_tree_attr": 467,
}
DENIED: dict[str, dict[str, int]] = {
    "x86_64": {
        "syslog": 103,
        "acct": 163,
        "settimeofday": 164,
        "swapon": 167,
        "swapoff": 168,
        "iopl": 172,
        "ioperm": 173,
        "init_module": 175,
        "delete_module": 176,
        "quotactl": 179,
        "lookup_dcookie": 212,
        "clock_settime": 227,
        "kexec_load": 246,
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "perf_event_open": 298,
        "open_by_handle_at": 304,
        "clock_adjtime": 305,
        "finit_module": 313,
        "kexec_file_load": 320,
        "bpf": 321,
        "userfaultfd": 323,
        **_COMMON,
    },
    "aarch64": {
        "lookup_dcookie": 18,
        "quotactl": 60,
        "acct": 89,
        "kexec_load": 104,
        "init_module": 105,
        "delete_module": 106,
        "clock_settime": 112,
        "syslog": 116,
        "settimeofday": 170,
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "swapon": 224,
        "swapoff": 225,
        "perf_event_open": 241,
        "open_by_handle_at": 265,
        "clock_adjtime": 266,
        "finit_module": 273,
        "bpf": 280,
        "userfaultfd": 282,
        "kexec_file_load": 294,
        **_COMMON,
    },
}
"""Name and number of each denied call. Those of `_COMMON` answer ENOSYS, so that programs fall back."""


def program(machine: str) -> bytes:
    """Assemble the filter for a processor.

    Returns:
        Instructions of struct sock_filter, 8 bytes each.

    Raises:
        KeyError: The processor is not known.
    """
    code = Program()
    code.load(_ARCH)
    code.jump_if_equal(_AUDIT_ARCH[machine], "known")
    code.answer(_ERRNO | errno.ENOSYS)
    code.label("known")
    code.load(_NR)
    if machine == "x86_64":
        code.jump_if_less(_X32_BIT, "native")
        code.answer(_ERRNO | errno.ENOSYS)
        code.label("native")
    looked_into = _LOOKED_INTO[machine]
    # Each of these answers in any case; the kernel remembers what the others get, so their order is free.
    for name, rules in (
        ("ioctl", _ioctl),
        ("socket", _socket),
        ("socketpair", _socketpair),
        ("setsockopt", _option),
        ("getsockopt", _option),
        ("ptrace", _ptrace),
    ):
        code.jump_unless_equal(looked_into[name], f"not {name}")
        rules(code, name)
        code.label(f"not {name}")
    for name, number in DENIED[machine].items():
        code.jump_unless_equal(number, f"not {name}")
        code.answer(_ERRNO | (errno.ENOSYS if name in _COMMON else errno.EPERM))
        code.label(f"not {name}")
    code.answer(_ALLOW)
    return code.assemble()


def _allow_only(code: Program, values: Iterable[int], refusal: int, where: str) -> None:
    """Allow when the loaded value is one of these, else refuse."""
    for value in values:
        code.jump_if_equal(value, f"{where}: allowed")
    code.answer(_ERRNO | refusal)
    code.label(f"{where}: allowed")
    code.answer(_ALLOW)


def _socket(code: Program, name: str) -> None:
    code.load(_ARG0)
    code.jump_if_equal(_AF_INET, "internet")
    code.jump_if_equal(_AF_INET6, "internet")
    code.jump_if_equal(_AF_NETLINK, "netlink")
    _allow_only(code, (_AF_UNIX,), errno.EAFNOSUPPORT, name)
    code.label("internet")
    code.load(_ARG1)
    code.keep_bits(_SOCK_TYPE_MASK)
    for kind in _SOCK_TYPES:
        code.jump_if_equal(kind, "ordinary")
    code.answer(_ERRNO | errno.EPERM)
    code.label("ordinary")
    code.load(_ARG2)
    _allow_only(code, _IP_PROTOCOLS, errno.EPROTONOSUPPORT, "internet protocol")
    code.label("netlink")
    code.load(_ARG2)
    _allow_only(code, _NETLINK_PROTOCOLS, errno.EPROTONOSUPPORT, "netlink protocol")


def _socketpair(code: Program, name: str) -> None:
    code.load(_ARG0)
    _allow_only(code, (_AF_UNIX,), errno.EAFNOSUPPORT, name)


def _option(code: Program, name: str) -> None:
    """`setsockopt` and `getsockopt`, whose level and option have the same places."""
    code.load(_ARG1)
    levels = ((_SOL_IP, "IP"), (_SOL_SOCKET, "socket"), (_SOL_IPV6, "IPv6"), (_SOL_TCP, "TCP"))
    for level, what in levels:
        code.jump_if_equal(level, f"{name}: {what}")
    code.answer(_ALLOW)
    code.label(f"{name}: IP")
    code.load(_ARG2)
    code.jump_if_less(_FIRST_NETFILTER_OPTION, f"{name}: fine")
    code.answer(_ERRNO | errno.ENOPROTOOPT)
    code.label(f"{name}: socket")
    code.load(_ARG2)
    for option in (_SO_PASSPIDFD, _SO_PEERPIDFD):
        code.jump_unless_equal(option, f"{name}: not {option}")
        code.answer(_ERRNO | errno.ENOPROTOOPT)
        code.label(f"{name}: not {option}")
    code.answer(_ALLOW)
    code.label(f"{name}: IPv6")
    code.load(_ARG2)
    code.jump_if_less(_FIRST_NETFILTER_OPTION, f"{name}: fine")
    _allow_only(code, _IPV6_OPTIONS, errno.ENOPROTOOPT, f"{name}: IPv6 option")
    code.label(f"{name}: TCP")
    code.load(_ARG2)
    code.jump_unless_equal(_TCP_ULP, f"{name}: fine")
    code.answer(_ERRNO | errno.ENOPROTOOPT)
    code.label(f"{name}: fine")
    code.answer(_ALLOW)


def _ptrace(code: Program, name: str) -> None:
    code.load(_ARG1)
    code.jump_unless_equal(1, f"{name}: another process")
    code.answer(_ERRNO | errno.EPERM)
    code.label(f"{name}: another process")
    code.answer(_ALLOW)


def _ioctl(code: Program, name: str) -> None:
    code.load(_ARG1)
    for request in _IOCTLS:
        code.jump_if_equal(request, f"{name}: refused")
    code.keep_bits(_REQUEST_MASK)
    for request in _NAMESPACE_IOCTLS:
        code.jump_if_equal(request, f"{name}: refused")
    code.answer(_ALLOW)
    code.label(f"{name}: refused")
    code.answer(_ERRNO | errno.EPERM)
