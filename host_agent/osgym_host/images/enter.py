"""Program that runs another inside fresh namespaces; `namespaces.py` starts it as a process of its own.

It stands alone (standard library only) because it gives away its right to read the caller's files before the
program starts: an ordinary user's home is closed to the mapped root. All paths are therefore relative to the
working directory it was given.
"""

# ruff: noqa: S108  # /tmp and /dev/shm are those of the image

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def _mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    done = _libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())
    _check(done, f"mount {kind or 'bind'} on {target}")


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _mount_root(root: str) -> None:
    """Mount proc, a small /dev and memory-backed /tmp, /run, /dev/shm in the tree at `root`."""
    _mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _mount("tmpfs", f"{root}/dev", "tmpfs", MS_NOSUID, "mode=755")
    for name in DEVICES:
        Path(f"{root}/dev/{name}").touch()
        _mount(f"/dev/{name}", f"{root}/dev/{name}", "", MS_BIND)
    for name in ("pts", "shm"):
        Path(f"{root}/dev/{name}").mkdir()
    _mount("devpts", f"{root}/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    _mount("tmpfs", f"{root}/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    for name, target in (("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0")):
        Path(f"{root}/dev/{name}").symlink_to(target)
    for name, target in (("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2")):
        Path(f"{root}/dev/{name}").symlink_to(target)
    _mount("tmpfs", f"{root}/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    _mount("tmpfs", f"{root}/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")


def _pivot(root: str) -> None:
    """Make the mount at `root` the root; unlike after chroot, programs may make namespaces of their own."""
    os.chdir(root)
    _check(_libc.pivot_root(b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", MNT_DETACH), "detach the old root")
    os.chdir("/")


def _become_mapped_root(ready_fd: int, go_fd: int) -> None:
    """Make the user namespace, wait until the caller has written its maps, and become root inside."""
    _check(_libc.unshare(CLONE_NEWUSER), "unshare a user namespace")
    os.write(ready_fd, b"u")
    if os.read(go_fd, 1) != b"g":
        os._exit(125)
    os.setgroups([])
    os.setgid(0)
    os.setuid(0)
    _die_with_parent()


def _inside(spec: dict[str, Any]) -> int:
    """Run as PID 1 of the new namespaces: mount, and start the program."""
    _check(_libc.mount(b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None), "private mounts")
    overlay = spec.get("overlay")
    if overlay:
        data = "lowerdir={lower},upperdir={upper},workdir={work},userxattr".format(**overlay)
        _mount("overlay", overlay["merged"], "overlay", 0, data)
    if overlay and spec.get("view"):
        _mount(overlay["merged"], spec["view"], "", MS_BIND)
    root = spec.get("root")
    if root:
        _mount_root(root)
        _pivot(root)
    operation = spec.get("operation")
    if operation:
        from osgym_host.images import tree, tree_layers

        operations = {**tree.OPERATIONS, **tree_layers.OPERATIONS}
        json.dump(operations[operation](**spec["arguments"]), sys.stdout)
        sys.stdout.flush()
        return 0
    # The program is not PID 1 itself: an init that reaps what it leaves behind stands before it.
    program = os.fork()
    if program == 0:
        os.execvpe(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606  # argv lists need no shell
    while True:
        pid, status = os.wait()
        if pid == program:
            return os.waitstatus_to_exitcode(status) & 0xFF


def main() -> None:
    spec: dict[str, Any] = json.loads(sys.argv[1])
    _die_with_parent()
    os.chdir(spec["cwd"])
    if spec.get("operation"):
        # Imported while the caller's files can still be read.
        from osgym_host.images import tree, tree_layers  # noqa: F401
    if spec["user_namespace"]:
        _become_mapped_root(spec["ready_fd"], spec["go_fd"])
    flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS
    if not spec.get("network"):
        flags |= CLONE_NEWNET
    _check(_libc.unshare(flags), "unshare namespaces")
    child = os.fork()
    if child == 0:
        _die_with_parent()
        try:
            status = _inside(spec)
        except OSError as exc:
            print(f"osgym: {exc}", file=sys.stderr)
            status = 124
        os._exit(status)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    main()
