"""Confinement of a process, by the means that the kernel gives an ordinary user.

Three layers, each of which keeps a taken-over parser from files and network. `available_layers` returns those
that this machine has; the evaluator refuses to start without any:

- ``namespaces``: own user, mount, PID, network, IPC and UTS namespace, an empty read-only root;
- ``landlock``: no file can be opened;
- ``seccomp``: a list of system calls that read, write, allocate and end; all others fail.

Always: no new privileges, no capabilities, limits on memory, CPU, file size and processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import platform
import resource
import signal
import struct
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_REC, _MS_PRIVATE = 32, 16384, 1 << 18
_MNT_DETACH = 2
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_RESTRICT = 444, 446
"""Numbers of landlock's system calls, equal on all architectures."""
_NOBODY = 65534


CPU_GRACE_S = 2
PROGRAM_LAYERS = frozenset({"namespaces", "seccomp"})
"""Layers without which no program of a result is run: it could reach other processes of this user."""

_held: frozenset[str] = frozenset()
"""Layers that hold in this process."""
_program_fd: int | None = None


class ConfineError(Exception):
    """The kernel refused a part of the confinement."""


def _check(result: int, what: str) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise ConfineError(f"{what}: {os.strerror(error)}")
    return result


def _prctl(option: int, value: int, pointer: object = 0) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(value), pointer, 0, 0), f"prctl {option}")


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    arguments = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())
    _check(_libc.mount(*arguments), f"mount {target}")


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; end now if the parent has ended."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() not in {parent, 0}:
        os._exit(1)


def drop_root() -> None:
    """Change the user from root to nobody; do nothing for another user."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        _prctl(_PR_SET_DUMPABLE, 1)  # else /proc/self stays root's and no id can be mapped


def enter_namespaces() -> None:
    """Enter new namespaces with an empty read-only root; the next child is PID 1 there.

    Raises:
        ConfineError: the kernel does not allow it here.
    """
    uid, gid = os.geteuid(), os.getegid()
    flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
    _check(_libc.unshare(flags), "unshare")
    try:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{_NOBODY} {uid} 1")
        _write("/proc/self/gid_map", f"{_NOBODY} {gid} 1")
    except OSError as error:
        raise ConfineError(f"mapping ids: {error}") from error
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    _mount("none", "/proc", "tmpfs", flags, "size=4k,nr_inodes=2,mode=555")
    os.chdir("/proc")
    _check(_libc.pivot_root(b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", _MNT_DETACH), "umount")
    os.chdir("/")
    _mount("none", "/", "", flags | _MS_REMOUNT | _MS_RDONLY)


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def drop_capabilities() -> None:
    """Drop every capability that a new user namespace gave."""
    header = struct.pack("=II", 0x20080522, 0)
    _check(_libc.capset(header, bytes(24)), "capset")


def no_new_privileges() -> None:
    """Set "no new privileges", which landlock and seccomp need."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def landlock() -> None:
    """Forbid to open files by name, from now on.

    Raises:
        ConfineError: the kernel has no landlock.
    """
    version = _check(_libc.syscall(_SYS_LANDLOCK_CREATE, None, 0, 1), "landlock")
    rights = (1 << 13) - 1 if version == 1 else (1 << 14) - 1 if version == 2 else (1 << 15) - 1
    attributes = struct.pack("=Q", rights)
    fd = _check(_libc.syscall(_SYS_LANDLOCK_CREATE, attributes, len(attributes), 0), "landlock")
    try:
        _check(_libc.syscall(_SYS_LANDLOCK_RESTRICT, fd, 0), "landlock")
    finally:
        os.close(fd)


_X86_64 = (
    "0 1 3 5 8 9 10 11 12 13 14 15 16 17 19 20 24 25 28 32 39 186 60 231 72 202 228 230 35 318 131 96"
    " 262 219 234 334 273"
)
_AARCH64 = (
    "63 64 57 80 62 222 226 215 214 134 135 139 29 67 65 66 124 216 233 23 172 178 93 94 25 98 113 115"
    " 101 278 132 169 79 128 131 293 99"
)
_CALLS = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _AARCH64)}
"""Audit architecture, then the numbers of: read write close fstat lseek mmap mprotect munmap brk
rt_sigaction rt_sigprocmask rt_sigreturn ioctl pread64 readv writev sched_yield mremap madvise dup
getpid gettid exit exit_group fcntl futex clock_gettime clock_nanosleep nanosleep getrandom
sigaltstack gettimeofday newfstatat restart_syscall tgkill rseq set_robust_list."""


def seccomp() -> None:
    """Allow only the system calls of `_CALLS`; every other call fails with EPERM.

    Raises:
        ConfineError: an unknown architecture, or the kernel has no seccomp.
    """
    machine = platform.machine()
    if machine not in _CALLS or struct.calcsize("P") != 8:
        raise ConfineError(f"seccomp: no list of system calls for {machine}")
    arch, numbers = _CALLS[machine]
    allowed = [int(number) for number in numbers.split()]
    load, jump, ret = 0x20, 0x15, 0x06
    count = len(allowed)
    program = [
        (load, 0, 0, 4),
        (jump, 1, 0, arch),
        (ret, 0, 0, 0x80000000),  # another architecture's calls: killed
        (load, 0, 0, 0),
        *((jump, count - i, 0, number) for i, number in enumerate(allowed)),
        (ret, 0, 0, 0x00050001),  # EPERM
        (ret, 0, 0, 0x7FFF0000),
    ]
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("@HP", len(program), ctypes.addressof(buffer))
    _prctl(_PR_SET_SECCOMP, 2, ctypes.c_char_p(header))


def address_space_bytes() -> int:
    """Return the size of this process's mappings, libraries included, in bytes."""
    return int(Path("/proc/self/statm").read_bytes().split()[0]) * resource.getpagesize()


def limits(memory_bytes: int, cpu_s: float) -> None:
    """Bound memory, CPU time, written files (none), descriptors and processes (none).

    SIGXCPU comes when the CPU time is used up, and the end a little later.
    """
    cpu = max(1, math.ceil(cpu_s))
    wanted = (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, cpu + CPU_GRACE_S),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    )
    for name, value in wanted:
        _, hard = resource.getrlimit(name)
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        soft = min(cpu, bound) if name == resource.RLIMIT_CPU else bound
        resource.setrlimit(name, (soft, bound))


def confine_self(memory_bytes: int, cpu_s: float, layers: frozenset[str]) -> None:
    """Apply all layers that a process can apply to itself, after `enter_namespaces`.

    Raises:
        ConfineError: a layer of ``layers`` does not hold.
    """
    limits(memory_bytes, cpu_s)
    with contextlib.suppress(ConfineError) if "namespaces" not in layers else contextlib.nullcontext():
        drop_capabilities()
    no_new_privileges()
    if "landlock" in layers:
        landlock()
    if "seccomp" in layers:
        seccomp()
    global _held
    _held = layers


def may_ask_program(fd: int) -> None:
    """Store the descriptor of the stream to the process that runs a result's program."""
    global _program_fd
    _program_fd = fd


def program_fd() -> int:
    """Return the descriptor of the stream to the process that runs a result's program.

    Raises:
        ConfineError: This process is not the confined evaluator, which alone has that stream.
    """
    if _program_fd is None or not _held >= PROGRAM_LAYERS:
        raise ConfineError(
            "programs are run only in the confined evaluator, which needs user namespaces and seccomp"
        )
    return _program_fd


def available_layers() -> tuple[str, ...]:
    """Return the layers that hold on this machine, each tried in a child of this process."""
    found = []
    if _works(enter_namespaces):
        found.append("namespaces")
    for name, function in (("landlock", landlock), ("seccomp", seccomp)):
        if _works(no_new_privileges, function):
            found.append(name)
    return tuple(found)


def _works(*functions: object) -> bool:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            for function in functions:
                assert callable(function)
                function()
            status = 0
        except (ConfineError, OSError):
            pass
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    return status == 0
