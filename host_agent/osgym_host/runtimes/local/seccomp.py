"""The system call filter of a replica: what a desktop never needs and a host fears. Pure.

It is a deny list, because root inside (`sudo`), Chromium's own sandbox and any application must
work: user namespaces and `mount` stay. Denied are the kernel's not namespaced or often broken
parts: keyrings, BPF, perf, io_uring, userfaultfd, modules, the clock, file handles, the newer mount
calls (programs fall back to `mount`), 32-bit entry points, and every socket family except unix,
internet and netlink (vsock would reach the hypervisor), netfilter's netlink included.
"""

from __future__ import annotations

import errno
import struct

_BPF_LD_W_ABS = 0x20
_BPF_JEQ = 0x15
_BPF_JGE = 0x35
_BPF_RET = 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_NR, _ARCH, _ARG0, _ARG2 = 0, 4, 16, 32  # offsets in struct seccomp_data, little endian

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_NETLINK_NETFILTER = 12

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SOCKET = {"x86_64": 41, "aarch64": 198}
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
    code: list[tuple[int, int, int, int]] = []

    def load(offset: int) -> None:
        code.append((_BPF_LD_W_ABS, 0, 0, offset))

    def answer(action: int) -> None:
        code.append((_BPF_RET, 0, 0, action))

    def unless_equal(value: int, skip: int) -> None:
        code.append((_BPF_JEQ, 0, skip, value))

    load(_ARCH)
    code.append((_BPF_JEQ, 1, 0, _AUDIT_ARCH[machine]))
    answer(_ERRNO | errno.ENOSYS)
    load(_NR)
    if machine == "x86_64":
        code.append((_BPF_JGE, 0, 1, _X32_BIT))
        answer(_ERRNO | errno.ENOSYS)
    for name, number in DENIED[machine].items():
        unless_equal(number, 1)
        answer(_ERRNO | (errno.ENOSYS if name in _COMMON else errno.EPERM))
    unless_equal(_SOCKET[machine], 9)  # over all about sockets, to the allow at the end
    load(_ARG0)
    code.append((_BPF_JEQ, 7, 0, _AF_UNIX))
    code.append((_BPF_JEQ, 6, 0, _AF_INET))
    code.append((_BPF_JEQ, 5, 0, _AF_INET6))
    code.append((_BPF_JEQ, 1, 0, _AF_NETLINK))
    answer(_ERRNO | errno.EAFNOSUPPORT)
    load(_ARG2)
    unless_equal(_NETLINK_NETFILTER, 1)
    answer(_ERRNO | errno.EPROTONOSUPPORT)
    answer(_ALLOW)
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)
