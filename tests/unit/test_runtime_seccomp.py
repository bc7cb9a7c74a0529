"""The system call filter, run by a small interpreter of its instructions."""

from __future__ import annotations

import errno
import struct

import pytest

from osgym_host.runtimes.local import seccomp

ALLOW, ERRNO = 0x7FFF0000, 0x00050000
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
SOCKET = {"x86_64": 41, "aarch64": 198}
MACHINES = sorted(seccomp.DENIED)


def verdict(machine: str, number: int, *args: int, arch: int | None = None) -> int:
    """Return 0 for allowed, else the errno."""
    padded = (*args, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("<IIQ6Q", number, ARCH[machine] if arch is None else arch, 0, *padded)
    code = [
        struct.unpack_from("<HBBI", seccomp.program(machine), at)
        for at in range(0, len(seccomp.program(machine)), 8)
    ]
    accumulator = at = 0
    while True:
        operation, true, false, value = code[at]
        at += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("<I", data, value)[0]
        elif operation == 0x15:
            at += true if accumulator == value else false
        elif operation == 0x35:
            at += true if accumulator >= value else false
        elif operation == 0x06:
            return 0 if value == ALLOW else value & ~ERRNO
        else:
            raise AssertionError(f"unknown instruction {operation:#x}")


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_listed_is_denied_and_nothing_else(machine: str) -> None:
    """Every listed call fails, every other of the first 500 passes (sockets are looked at apart)."""
    denied = set(seccomp.DENIED[machine].values())
    for number in range(500):
        if number == SOCKET[machine]:
            continue
        assert (verdict(machine, number) != 0) == (number in denied), number


@pytest.mark.parametrize("machine", MACHINES)
def test_new_interfaces_answer_as_if_absent(machine: str) -> None:
    """Programs fall back from io_uring and the newer mount calls when the kernel seems not to have them."""
    for name in ("io_uring_setup", "fsopen", "mount_setattr"):
        assert verdict(machine, seccomp.DENIED[machine][name]) == errno.ENOSYS
    assert verdict(machine, seccomp.DENIED[machine]["keyctl"]) == errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_socket_families(machine: str) -> None:
    """Unix, internet and netlink (but netfilter's) sockets pass; vsock and every other do not."""
    socket = SOCKET[machine]
    for family in range(64):
        allowed = family in (1, 2, 10, 16)
        assert (verdict(machine, socket, family, 1, 0) == 0) == allowed, family
    assert verdict(machine, socket, 40, 1, 0) == errno.EAFNOSUPPORT
    assert verdict(machine, socket, 16, 3, 12) == errno.EPROTONOSUPPORT
    assert verdict(machine, socket, 16, 3, 0) == 0
    assert verdict(machine, socket, 2, 1, 12) == 0


def test_other_entry_points_are_closed() -> None:
    """32-bit calls and the x32 numbers would go round the list."""
    assert verdict("x86_64", 1, arch=0x40000003) == errno.ENOSYS
    assert verdict("x86_64", 0x40000001) == errno.ENOSYS
    assert verdict("aarch64", 1, arch=ARCH["x86_64"]) == errno.ENOSYS
