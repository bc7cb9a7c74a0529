"""The system call filter, run by a small interpreter of its instructions."""

from __future__ import annotations

import errno
import functools
import struct

import pytest

from osgym_host.runtimes.local import seccomp

ALLOW, ERRNO = 0x7FFF0000, 0x00050000
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
SOCKET = {"x86_64": 41, "aarch64": 198}
SOCKETPAIR = {"x86_64": 53, "aarch64": 199}
OPTIONS = {"x86_64": (54, 55), "aarch64": (208, 209)}
IOCTL = {"x86_64": 16, "aarch64": 29}
STREAM, DATAGRAM, RAW, CLOEXEC = 1, 2, 3, 0o2000000
MACHINES = sorted(seccomp.DENIED)


@functools.cache
def instructions(machine: str) -> list[tuple[int, int, int, int]]:
    return list(struct.iter_unpack("<HBBI", seccomp.program(machine)))


def verdict(machine: str, number: int, *args: int, arch: int | None = None) -> int:
    """Return 0 for allowed, else the errno."""
    padded = (*args, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("<IIQ6Q", number, ARCH[machine] if arch is None else arch, 0, *padded)
    code = instructions(machine)
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
        elif operation == 0x54:
            accumulator &= value
        elif operation == 0x06:
            return 0 if value == ALLOW else value & ~ERRNO
        else:
            raise AssertionError(f"unknown instruction {operation:#x}")


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_listed_is_denied_and_nothing_else(machine: str) -> None:
    """Every listed call fails, every other of the first 500 passes (sockets are looked at apart)."""
    denied = set(seccomp.DENIED[machine].values())
    for number in range(500):
        if number in (SOCKET[machine], SOCKETPAIR[machine]):
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
    """Unix, internet and netlink sockets pass; vsock and every other do not. Pairs are unix sockets only."""
    socket = SOCKET[machine]
    for family in range(64):
        allowed = family in (1, 2, 10, 16)
        assert (verdict(machine, socket, family, 1, 0) == 0) == allowed, family
    assert verdict(machine, socket, 40, 1, 0) == errno.EAFNOSUPPORT
    for family in range(64):
        assert (verdict(machine, SOCKETPAIR[machine], family, 1, 0) == 0) == (family == 1), family


@pytest.mark.parametrize("machine", MACHINES)
def test_netlink_is_for_routes_and_device_events(machine: str) -> None:
    """IPsec, netfilter, audit, generic netlink and all others are closed."""
    for protocol in range(32):
        allowed = protocol in (0, 15)
        found = verdict(machine, SOCKET[machine], 16, RAW | CLOEXEC, protocol)
        assert found == (0 if allowed else errno.EPROTONOSUPPORT), protocol


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("family", [2, 10])
def test_internet_sockets_are_tcp_udp_and_ping(machine: str, family: int) -> None:
    """Nothing raw, and no protocol that is a module of its own (SCTP, DCCP, MPTCP, L2TP)."""
    socket = SOCKET[machine]
    for kind in range(16):
        assert (verdict(machine, socket, family, kind | CLOEXEC, 0) == 0) == (kind in (STREAM, DATAGRAM))
    for protocol in range(300):
        found = verdict(machine, socket, family, STREAM, protocol)
        assert found == (0 if protocol in (0, 1, 6, 17, 58) else errno.EPROTONOSUPPORT), protocol


@pytest.mark.parametrize("machine", MACHINES)
def test_options_that_configure_the_kernel_are_closed(machine: str) -> None:
    """Netfilter's tables and modules within TCP are; what programs set of sockets is not."""
    for call in OPTIONS[machine]:
        for option in (0, 1, 10, 25, 49, 51):  # of IP itself
            assert verdict(machine, call, 3, 0, option) == 0
        for option in (64, 65, 80, 96, 128, 1216, 0xFFFFFFFF):
            assert verdict(machine, call, 3, 0, option) == errno.ENOPROTOOPT
        for option in (0, 26, 49, 62, 67, 72, 78):
            assert verdict(machine, call, 3, 41, option) == 0
        for option in (64, 65, 68, 69, 80, 128):
            assert verdict(machine, call, 3, 41, option) == errno.ENOPROTOOPT
        assert verdict(machine, call, 3, 6, 31) == errno.ENOPROTOOPT
        for level, option in ((6, 1), (6, 30), (1, 64), (1, 31), (17, 103), (270, 1)):
            assert verdict(machine, call, 3, level, option) == 0


@pytest.mark.parametrize("machine", MACHINES)
def test_requests_that_make_interfaces_are_closed(machine: str) -> None:
    """Bridges, VLANs, tunnels and line disciplines; terminals and sockets keep theirs."""
    for request in (0x5423, 0x8982, 0x8983, 0x89A0, 0x89A3, 0x89F0, 0x89F1, 0x89FF):
        assert verdict(machine, IOCTL[machine], 3, request) == errno.EPERM
    for request in (0x5401, 0x5413, 0x541B, 0x8912, 0x8913, 0x8915, 0x8927, 0xC0246400):
        assert verdict(machine, IOCTL[machine], 3, request) == 0


@pytest.mark.parametrize("machine", MACHINES)
def test_nothing_leads_to_namespaces_above(machine: str) -> None:
    """No pidfd of a socket's other end; no mount namespace from another, whatever size the request names."""
    for call in OPTIONS[machine]:
        for option in (76, 77):
            assert verdict(machine, call, 3, 1, option) == errno.ENOPROTOOPT
        for option in (4, 16, 17, 31):  # SO_ERROR, SO_PASSCRED, SO_PEERCRED, SO_PEERSEC
            assert verdict(machine, call, 3, 1, option) == 0
    for request in (0x8010B70B, 0x8010B70C, 0x8018B70C):
        assert verdict(machine, IOCTL[machine], 3, request) == errno.EPERM
    for request in (0xB701, 0xB702, 0x8010B70A):  # of one's own namespaces
        assert verdict(machine, IOCTL[machine], 3, request) == 0


def test_other_entry_points_are_closed() -> None:
    """32-bit calls and the x32 numbers would go round the list."""
    assert verdict("x86_64", 1, arch=0x40000003) == errno.ENOSYS
    assert verdict("x86_64", 0x40000001) == errno.ENOSYS
    assert verdict("aarch64", 1, arch=ARCH["x86_64"]) == errno.ENOSYS
