"""Dump of a running replica by CRIU, during which it stands still for a moment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from osgym_host.programs import end_program, start_program
from osgym_host.runtimes.base import PointFailed
from osgym_host.runtimes.local.criu import images, layer
from osgym_host.runtimes.local.criu.commands import Outside, console_name, copy_script, dump_argv, error_in
from osgym_host.runtimes.local.criu.installed import lacking_right
from osgym_host.runtimes.local.replica import LocalReplica

DUMP_S = 20.0
CONNECTIONS_S = 2.0
"""Time that the guest agent has to close its ends of connections that the host has closed."""
_LOOK_S = 0.01
_PRIORITY = 1
"""Real-time priority of a dump: the replica stands still, so nothing else is to come before CRIU."""
_SCRIPT = "copy-layer"
_SOCKET_TABLES = ("unix", "tcp", "tcp6", "udp", "udp6", "netlink")
_INODE = {"unix": 6, "netlink": 9}
"""Column of the inode in each table; 9 for internet sockets as well."""
_SOCKET = re.compile(r"socket:\[(\d+)\]")


class DumpStuck(PointFailed):
    """Timeout of CRIU: the replica may stand still, and must not be used any more."""


@dataclass(frozen=True, slots=True)
class Dumped:
    """Dumped state of a replica.

    Attributes:
        folder: Folder with `images` and `upper`.
        base: First host id of the files in `upper`.
        pause_ms: Duration for which the replica stood still.
        digest: Digest of both folders, so that no clone is made from one without the other.
    """

    folder: Path
    outside: Outside
    base: int
    digest: str
    pause_ms: float
    ram_mib: float
    disk_mib: float

    @property
    def images(self) -> Path:
        return self.folder / "images"

    @property
    def upper(self) -> Path:
        return self.folder / "upper"


async def dump(criu: str, replica: LocalReplica, pids: Collection[int], folder: Path) -> Dumped:
    """Dump a replica into a fresh folder, and prepare it for clones.

    Raises:
        PointFailed: It could not be dumped; the replica goes on.
        DumpStuck: The replica is lost.
    """
    if replica.ids is None or not replica.group.procs_files:
        raise PointFailed(
            "the replica has no ids or no control group of its own", replica_id=replica.replica_id
        )
    try:
        await asyncio.to_thread(_check_filters, pids)
        await _connections_closed(replica)
        outside = await asyncio.to_thread(_outside, replica)
        await asyncio.to_thread(_make, replica, folder)
        await _run(criu, replica, outside, folder)
        return await asyncio.to_thread(_prepare, replica, outside, folder)
    except (OSError, ValueError) as exc:
        raise PointFailed(f"the replica could not be dumped: {exc}", replica_id=replica.replica_id) from exc


def _make(replica: LocalReplica, folder: Path) -> None:
    folder.mkdir(mode=0o755)
    (folder / "images").mkdir(mode=0o755)
    script = folder / _SCRIPT
    script.write_text(
        copy_script(*(os.fspath((whose / "upper").absolute()) for whose in (replica.folder, folder)))
    )
    script.chmod(0o700)


def _check_filters(pids: Collection[int]) -> None:
    """Raise ValueError when a thread has a system call filter other than the replica's own."""
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            status = (task / "status").read_text(errors="replace")
            found = re.search(r"^Seccomp_filters:\s*(\d+)", status, re.MULTILINE)
            if found is None or found[1] != "1":
                name = ascii((task / "comm").read_text(errors="replace").strip())
                raise ValueError(
                    f"the program {name} has its own sandbox, which cannot be dumped: close it, or start it "
                    "without (Chromium: --no-sandbox, which lets what a page runs do all that a program may)"
                )


async def _connections_closed(replica: LocalReplica) -> None:
    """Wait until the guest agent holds no socket of another network namespace, such as the host's.

    Raises:
        PointFailed: It still does.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + CONNECTIONS_S
    while await asyncio.to_thread(_foreign_sockets, (replica.agent or {}).get("pid", replica.pid)):
        if loop.time() >= until:
            raise PointFailed("a connection to the guest agent is open", replica_id=replica.replica_id)
        await asyncio.sleep(_LOOK_S)


def _foreign_sockets(pid: int) -> set[int]:
    """Return inodes of a process's sockets that belong to another network namespace than its own."""
    held = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found = _SOCKET.fullmatch(os.readlink(entry))  # noqa: PTH115 (a magic link)
        except FileNotFoundError:
            continue
        if found is not None:
            held.add(int(found[1]))
    for name in _SOCKET_TABLES:
        try:
            lines = Path(f"/proc/{pid}/net/{name}").read_text(errors="replace").splitlines()[1:]
        except FileNotFoundError:  # no IPv6 in this kernel
            continue
        for line in lines:
            held.discard(int(line.split()[_INODE.get(name, 9)]))
    return held


def _outside(replica: LocalReplica) -> Outside:
    info = Path(f"/proc/{replica.pid}/fdinfo/1").read_text()
    mount_id = next(int(line.split()[1]) for line in info.splitlines() if line.startswith("mnt_id:"))
    return Outside(console_name(mount_id, (replica.folder / "console.log").stat().st_ino), replica.listening)


async def _run(criu: str, replica: LocalReplica, outside: Outside, folder: Path) -> None:
    argv = dump_argv(
        criu,
        replica.pid,
        os.fspath(folder / "images"),
        outside,
        os.fspath((folder / _SCRIPT).absolute()),
    )
    process = await start_program(argv)
    with contextlib.suppress(OSError):  # where that is not allowed, the pause is longer on a busy host
        os.sched_setscheduler(process.pid, os.SCHED_RR, os.sched_param(_PRIORITY))
    try:
        async with asyncio.timeout(DUMP_S):
            said, _ = await process.communicate()
    except TimeoutError as exc:
        text = f"criu did not end within {DUMP_S:g} s"
        raise DumpStuck(text, replica_id=replica.replica_id) from exc
    finally:
        await asyncio.shield(end_program(process))
    if process.returncode != 0:
        text = error_in(await asyncio.to_thread(_log, folder)) or said.decode("utf-8", "replace")[-400:]
        why = lacking_right() if "rlimit" in text else ""
        raise PointFailed(f"criu dump: {text.strip()} {why}".strip(), replica_id=replica.replica_id)


def _log(folder: Path) -> str:
    try:
        return (folder / "images/dump.log").read_text(errors="replace")
    except OSError:
        return ""


def _prepare(replica: LocalReplica, outside: Outside, folder: Path) -> Dumped:
    """Change the dump for a replica with other ids, and describe it."""
    assert replica.ids is not None  # `dump` has looked
    pause_ms = images.pause_ms(folder / "images")
    images.renumber_ids(folder / "images", 0)
    images.drop_inherited(folder / "images")
    images.follow_first_threads(folder / "images")
    for path in (folder / "images").iterdir():
        path.chmod(0o644)  # a clone's CRIU reads them with the clone's ids; the folder above is closed
    return Dumped(
        folder,
        outside,
        replica.ids.base,
        layer.digest_of(folder / "images", folder / "upper"),
        pause_ms,
        layer.size_mib(folder / "images"),
        layer.size_mib(folder / "upper"),
    )
