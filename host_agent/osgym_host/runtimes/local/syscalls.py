"""System calls for which Python 3.11 has no function. Standard library only.

`PyDLL` keeps the interpreter lock during a call, so that a `clone` comes back in the child with an
interpreter in a consistent state.
"""

from __future__ import annotations

import ctypes
import os
import platform

CLONE_PARENT = 0x00008000
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
SIGCHLD = 17

MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_SET_SECUREBITS = 28
SECBIT_NO_SETUID_FIXUP = 4
CLOSE_RANGE_CLOEXEC = 4
SECCOMP_SET_MODE_FILTER = 1
SECCOMP_FILTER_FLAG_SPEC_ALLOW = 4

_SAME_EVERYWHERE = {
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "close_range": 436,
    "mount_setattr": 442,
}
_NUMBERS = {
    "x86_64": {"clone": 56, "pivot_root": 155, "seccomp": 317, **_SAME_EVERYWHERE},
    "aarch64": {"clone": 220, "pivot_root": 41, "seccomp": 277, **_SAME_EVERYWHERE},
}
MACHINE = platform.machine()
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def supported_machine() -> bool:
    """Return whether the system call numbers of this processor are known."""
    return MACHINE in _NUMBERS


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def call(name: str, *args: int | bytes | None) -> int:
    """Make a system call by its name in `_NUMBERS`.

    Raises:
        OSError: The kernel refused.
    """
    converted = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    return _check(_libc.syscall(ctypes.c_long(_NUMBERS[MACHINE][name]), *converted), name)


def clone(flags: int) -> int:
    """Fork with new namespaces; like `os.fork`, without its hooks. The caller has one thread.

    Returns:
        0 in the child, which must end in `execve` or `_exit`; its PID in the parent.

    Raises:
        OSError: The kernel refused.
    """
    return call("clone", flags | SIGCHLD, 0, 0, 0, 0)


def unshare(flags: int) -> None:
    """Leave namespaces for new ones.

    Raises:
        OSError: The kernel refused.
    """
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int = 0, options: str = "") -> None:
    """Mount a file system.

    Raises:
        OSError: The kernel refused; the message names target and options.
    """
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        None if kind is None else kind.encode(),
        ctypes.c_ulong(flags),
        options.encode() if options else None,
    )
    _check(result, f"mount {kind or 'bind'} on {target} ({options})" if options else f"mount on {target}")


def umount(target: str, flags: int = 0) -> None:
    """Unmount.

    Raises:
        OSError: The kernel refused.
    """
    _check(_libc.umount2(os.fsencode(target), ctypes.c_int(flags)), f"umount {target}")


def pivot_root(new_root: str, put_old: str) -> None:
    """Make `new_root` the root of this mount namespace.

    Raises:
        OSError: The kernel refused.
    """
    call("pivot_root", os.fsencode(new_root), os.fsencode(put_old))


def keep_capabilities() -> None:
    """Keep capabilities when user ids change; for this process and what it forks until a new user namespace.

    Raises:
        OSError: The kernel refused.
    """
    result = _libc.prctl(PR_SET_SECUREBITS, ctypes.c_ulong(SECBIT_NO_SETUID_FIXUP), 0, 0, 0)
    _check(result, "prctl")


def act_as(uid: int, gid: int) -> None:
    """Let these ids own the namespaces made from now on; files are still accessed as id 0.

    The real and saved ids stay 0, so that `act_as(0, 0)` leads back.

    Raises:
        OSError: The kernel refused.
    """
    os.setresgid(-1, gid, -1)
    os.setresuid(-1, uid, -1)
    _libc.setfsgid(ctypes.c_uint(0))
    _libc.setfsuid(ctypes.c_uint(0))
    # A change of ids closes /proc/PID to anybody but the host's root, which an ordinary user is not.
    _check(_libc.prctl(PR_SET_DUMPABLE, ctypes.c_ulong(1), 0, 0, 0), "prctl")


def set_process_name(name: str) -> None:
    """Set the name that `ps` shows; 15 bytes count."""
    _libc.prctl(PR_SET_NAME, name.encode()[:15] + b"\0", 0, 0, 0)


def close_on_exec_from(first_fd: int) -> None:
    """Mark every descriptor from `first_fd` on to be closed by `execve`.

    Raises:
        OSError: The kernel refused.
    """
    call("close_range", first_fd, 0x7FFFFFFF, CLOSE_RANGE_CLOEXEC)


class _SockFprog(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def install_seccomp(program: bytes) -> None:
    """Install a filter for this process and its descendants. Needs CAP_SYS_ADMIN in its user namespace.

    Raises:
        OSError: The kernel refused.
    """
    buffer = ctypes.create_string_buffer(program, len(program))
    prog = _SockFprog(len(program) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    number = ctypes.c_long(_NUMBERS[MACHINE]["seccomp"])
    result = _libc.syscall(
        number,
        ctypes.c_long(SECCOMP_SET_MODE_FILTER),
        ctypes.c_long(SECCOMP_FILTER_FLAG_SPEC_ALLOW),
        ctypes.byref(prog),
    )
    _check(result, "seccomp")
