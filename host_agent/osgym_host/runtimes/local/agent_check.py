"""Check that the guest agent is still the process that was started, running the image's code.

Root inside a replica (`sudo`) can stop the agent and answer in its place, and what it answers decides a
score. Nothing prevents root from that; but the host sees its processes from outside, by its own /proc, and
the layer that it writes to. The zygote looks, since for an ordinary user only root of the replicas' ids may;
so this uses the standard library only.

Looked at: the process and its program (pid, start, auxiliary vector, executable), who holds the listening
socket and the connections in use, tracers, mounts and roots, executable memory against the image's files, and
the files of agent and interpreter in the upper layer. Not seen: data that root changed in the agent's memory,
what was undone before the look, and programs other than the agent that a check runs.
"""

# ruff: noqa: PTH123 -- paths of /proc as text

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from osgym_host.runtimes.held_files import tasks_with_own_files

SCAN_CPU_S = 5.0
"""Limit of the CPU time to scan all descriptors of a replica; a usual desktop takes some milliseconds."""
SCAN_S = 20.0
"""Limit of the real time to scan them. On an overloaded host it passes first, which is no evidence against
the agent."""
RESTARTED = "the guest agent that was started with the desktop ended, and its shell started another one"
_LOOKS, _BETWEEN_LOOKS_S = 3, 0.02
MAX_FINDING_CHARS = 300
GUARDED_FOLDERS = (
    "usr/lib/osgym",
    "usr/lib/python3.11",
    "usr/local/lib/python3.11/dist-packages/osgym_guest",
    "usr/local/lib/python3.11/dist-packages/osgym_protocol",
)
GUARDED_FILES = (
    "usr/bin/python3",
    "usr/bin/python3.11",
    "bin",
    "usr/bin/sh",
    "usr/bin/dash",
    # What the X server runs beside the agent for each keymap that a client uploads.
    "usr/bin/xkbcomp",
    "usr/bin/xkbcomp.real",
    "usr/share/osgym/keymap.source",
    "usr/share/osgym/keymap.xkm",
    "etc/ld.so.preload",
)
_GUARDED_MOUNTS = ("/usr", "/lib", "/bin", "/sbin", "/etc", "/proc", "/run/osgym")
_UNGUARDED_MOUNT = "/run/osgym/harness"
"""Mount that is not compared: root in the desktop can end it by removing the folder below. The agent does not
depend on it, since it has opened what it needs there."""
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) ([0-9a-f]+) (\S+) \d+\s*(.*)")
_KERNELS_OWN = ("[vdso]", "[vsyscall]")
_OVERLAY_MARKS = ("user.overlay.opaque", "user.overlay.redirect")


class Tampered(Exception):
    """Change of the agent; the text says in what."""


class Restarted(Tampered):
    """End of the known agent. It may have been started again, which the caller has to check."""


class TooBusy(Exception):
    """Timeout of the check on an overloaded host."""


class NoAgent(Exception):
    """Absence of an agent of ours that listens, so that there is nothing to compare."""


@dataclass(frozen=True)
class AgentIdentity:
    """Properties of an agent that stay the same for as long as it runs.

    Attributes:
        auxv: Digest of its auxiliary vector, which is another one after each `execve`.
        holders: Processes that may hold the listening socket: the agent, and the shell that restarts it.
        mounts: Digest of the mounts over the files that matter.
    """

    pid: int
    started: str
    auxv: str
    executable: tuple[int, int]
    root: tuple[int, int]
    mount_namespace: str
    mounts: str
    holders: dict[str, str]


def identify(pids: Collection[int], listening: int) -> dict[str, Any]:
    """Return the identity of the agent of a replica that nobody has used yet, as a JSON object.

    Args:
        listening: Inode of the listening socket that the host made for the agent.

    Raises:
        NoAgent: None of them is an agent.
        TooBusy: It takes too long for want of a processor.
        OSError: It ended meanwhile.
    """
    holders = _holders(pids, {listening})[listening]
    agents = [pid for pid in holders if _stat(pid)[1] in map(str, holders)]
    if len(agents) != 1:
        raise NoAgent(
            f"{len(agents)} processes of {len(holders)} with the guest agent's socket look like a guest "
            "agent; exactly one was expected"
        )
    return asdict(_identity(agents[0], holders))


def check(
    before: Mapping[str, Any],
    pids: Collection[int],
    listening: int,
    connections: Collection[int],
    rootfs: str,
    upper: str,
) -> str:
    """Return what changed in the agent; an empty string when nothing did.

    Args:
        before: Result of `identify`.
        connections: Inodes of the agent's ends of the connections that the host has to it now.
        rootfs: The image's root file system.

    Raises:
        TooBusy: It takes too long for want of a processor.
    """
    known = AgentIdentity(
        **{**before, "executable": tuple(before["executable"]), "root": tuple(before["root"])}
    )
    try:
        finding = ""
        try:
            _check_process(known)
        except Restarted as error:
            known = _restarted(known, pids, listening, error)
            _check_process(known)
            finding = RESTARTED
        _check_sockets(known, pids, listening, connections)
        for path in (*GUARDED_FOLDERS, *GUARDED_FILES):
            _check_unwritten(upper, path)
        _check_code(known.pid, rootfs, upper)
    except Tampered as error:
        return str(error)[:MAX_FINDING_CHARS]
    except (OSError, ValueError, IndexError) as error:
        return f"the guest agent cannot be inspected: {error}"[:MAX_FINDING_CHARS]
    return finding


def _restarted(known: AgentIdentity, pids: Collection[int], listening: int, gone: Restarted) -> AgentIdentity:
    """Return the identity of the agent that the known shell has started again.

    Raises:
        Restarted: No such agent runs, or it is not the same program over the same files.
    """
    holders = _holders(pids, {listening})[listening]
    shells = {pid for pid in holders if known.holders.get(str(pid)) == _stat(pid)[19]}
    agents = [pid for pid in holders - shells if int(_stat(pid)[1]) in shells]
    if len(agents) != 1:
        raise gone
    now = _identity(agents[0], holders)
    if (now.executable, now.root, now.mount_namespace, now.mounts) != (
        (known.executable, known.root, known.mount_namespace, known.mounts)
    ):
        raise gone
    return replace(now, holders={str(pid): _stat(pid)[19] for pid in (*shells, now.pid)})


def _identity(pid: int, holders: Collection[int]) -> AgentIdentity:
    executable, root = Path(f"/proc/{pid}/exe").stat(), Path(f"/proc/{pid}/root").stat()
    return AgentIdentity(
        pid=pid,
        started=_stat(pid)[19],
        auxv=_digest(_read(f"/proc/{pid}/auxv")),
        executable=(executable.st_dev, executable.st_ino),
        root=(root.st_dev, root.st_ino),
        mount_namespace=str(Path(f"/proc/{pid}/ns/mnt").readlink()),
        mounts=_digest("\n".join(_mounts(pid)).encode()),
        holders={str(holder): _stat(holder)[19] for holder in holders},
    )


def _check_process(known: AgentIdentity) -> None:
    pid = known.pid
    try:
        now = _identity(pid, ())
    except OSError:
        raise Restarted("the guest agent that was started with the desktop has ended") from None
    if now.started != known.started:
        raise Restarted("the guest agent that was started with the desktop has ended")
    if (now.auxv, now.executable) != (known.auxv, known.executable):
        raise Tampered("the guest agent's process runs another program")
    if (now.root, now.mount_namespace, now.mounts) != (known.root, known.mount_namespace, known.mounts):
        raise Tampered("something is mounted over the guest agent's files")
    tracer = re.search(rb"^TracerPid:\s*(\d+)", _read(f"/proc/{pid}/status"), re.MULTILINE)
    if tracer is None or int(tracer[1]):
        raise Tampered("the guest agent is being traced")


def _check_sockets(
    known: AgentIdentity, pids: Collection[int], listening: int, connections: Collection[int]
) -> None:
    """Check repeatedly: a process that the agent starts has its descriptors until `execve`."""
    for looks_left in reversed(range(_LOOKS)):
        try:
            _check_holders(known, pids, listening, connections)
        except (Tampered, OSError):
            if not looks_left:
                raise
            time.sleep(_BETWEEN_LOOKS_S)
        else:
            return


def _check_holders(
    known: AgentIdentity, pids: Collection[int], listening: int, connections: Collection[int]
) -> None:
    found = _holders(pids, {listening, *connections})
    for pid in found[listening]:
        if known.holders.get(str(pid)) != _stat(pid)[19]:
            raise Tampered(f"another process ({_name(pid)}) holds the guest agent's listening socket")
    if known.pid not in found[listening]:
        raise Tampered("the guest agent no longer listens at its socket")
    for connection in connections:
        for pid in found[connection]:
            if pid != known.pid:
                raise Tampered(f"another process ({_name(pid)}) holds a connection of the guest agent")


def _holders(pids: Collection[int], inodes: Collection[int]) -> dict[int, set[int]]:
    """Return which processes have a descriptor of each socket.

    Raises:
        Tampered: The scan took `SCAN_CPU_S`, so there are more descriptors than any honest desktop has.
        TooBusy: It takes too long for want of a processor.
    """
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[int, set[int]] = {inode: set() for inode in inodes}
    until, until_cpu = time.monotonic() + SCAN_S, time.process_time() + SCAN_CPU_S
    for pid in pids:
        for task in tasks_with_own_files(pid):
            folder = f"/proc/{task}/fd"
            try:
                names = os.listdir(folder)  # noqa: PTH208 (no pathlib in what the zygote forks)
            except OSError:
                continue
            for name in names:
                try:
                    inode = wanted.get(os.readlink(f"{folder}/{name}"))  # noqa: PTH115 (the same)
                except OSError:
                    continue
                if inode is not None:
                    found[inode].add(pid)
        if time.process_time() > until_cpu:
            raise Tampered("the replica holds too many file descriptors to inspect them")
        if time.monotonic() > until:
            raise TooBusy(
                "the replica's file descriptors could not be inspected within "
                f"{SCAN_S:g} s: the host is too busy"
            )
    return found


def _check_unwritten(upper: str, path: str) -> None:
    """Raise if anything of a path, or above it, was replaced in the upper layer."""
    place = upper
    parts = path.split("/")
    for part in parts:
        place = f"{place}/{part}"
        try:
            kind = os.lstat(place).st_mode & 0o170000
        except FileNotFoundError:
            return
        if kind != 0o040000:
            raise Tampered(f"/{path} was changed")
        if any(_attribute(place, mark) for mark in _OVERLAY_MARKS):
            raise Tampered(f"/{path} was replaced")
    for _, _, files in os.walk(place):
        if files:
            raise Tampered(f"/{path} was changed: {files[0]}")


def _check_code(pid: int, rootfs: str, upper: str) -> None:
    """Raise unless all executable memory equals the image's files."""
    device = ""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for start, end, offset, of_device, path in _executable(pid):
            if path in _KERNELS_OWN:
                continue
            device = device or of_device  # the first mapping is the interpreter's own, on the overlay
            if not path.startswith("/") or of_device != device or path.endswith(" (deleted)"):
                raise Tampered(f"the guest agent has executable memory mapped from {path or 'no file'}")
            _check_unwritten(upper, path[1:])
            wanted = _part(f"{rootfs}{path}", offset, end - start)
            memory.seek(start)
            if memory.read(end - start) != wanted:
                raise Tampered(f"the guest agent's code of {path} was changed in memory")


def _executable(pid: int) -> Iterator[tuple[int, int, int, str, str]]:
    """Yield start, end, offset, device and file of each executable mapping."""
    for line in _read(f"/proc/{pid}/maps").decode("utf-8", "surrogateescape").splitlines():
        found = _MAPPING.match(line)
        if found is not None and "x" in found[3]:
            yield int(found[1], 16), int(found[2], 16), int(found[4], 16), found[5], found[6]


def _part(path: str, offset: int, length: int) -> bytes:
    """Return a part of a file as a mapping shows it, with zeros behind its end."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        data = os.pread(fd, length, offset)
    finally:
        os.close(fd)
    return data + bytes(length - len(data))


def _mounts(pid: int) -> list[str]:
    """Return the mounts that could cover the agent's files, by their numbers."""
    found = []
    for line in _read(f"/proc/{pid}/mountinfo").decode("utf-8", "replace").splitlines():
        fields = line.split(" ")
        place = fields[4]
        if place == _UNGUARDED_MOUNT:
            continue
        if place == "/" or any(place == top or place.startswith(f"{top}/") for top in _GUARDED_MOUNTS):
            found.append(f"{fields[0]} {place}")
    return found


def _stat(pid: int) -> list[str]:
    """Return the fields of `/proc/PID/stat` from the state on: 1 is the parent, 19 the start."""
    return _read(f"/proc/{pid}/stat").decode("utf-8", "replace").rpartition(")")[2].split()


def _name(pid: int) -> str:
    """Return a process's name, which it chose itself."""
    return ascii(_read(f"/proc/{pid}/comm").decode("utf-8", "replace").strip())


def _attribute(path: str, name: str) -> bool:
    try:
        return bool(os.getxattr(path, name, follow_symlinks=False))
    except OSError:
        return False


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.readall()
