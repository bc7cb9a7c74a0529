"""Control groups of replicas: version 2 first, version 1 controllers besides, mixed hosts included.

Only groups made here are ever touched: each instance has one group `osgym-<instance>` below the host
agent's own group of a hierarchy, each replica one below that. Where the own group is a service's that was
delegated, the host agent moves into a group `agent` below it, since version 2 caps only beside no process.
Where nothing can be made, there are no caps, and `CgroupTree.enforces` says so.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from osgym_host.runtimes.cgroup_leaf import LEAF, move_to_leaf

_CONTROLLERS = ("memory", "cpu", "pids")
_CPU_PERIOD_US = 100_000
_MIB = 1024 * 1024
_SOCKETS_SHARE = 4
"""One part in so many of a replica's memory may wait in its sockets."""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted hierarchy and the group of this process in it."""

    version: int
    mount: Path
    own: Path
    controllers: frozenset[str]


def parse_hierarchies(mountinfo: str, own_groups: str) -> list[Hierarchy]:
    """Combine `/proc/self/mountinfo` and `/proc/self/cgroup`. Pure, but for nothing being opened.

    Version 2 comes first; its controllers are left empty (the files of the mount name them).
    """
    own_v1: dict[str, str] = {}
    own_v2 = "/"
    for line in own_groups.splitlines():
        number, names, path = line.split(":", 2)
        if number == "0" and not names:
            own_v2 = path
        for name in names.split(","):
            own_v1[name] = path
    found: list[Hierarchy] = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or not kind or kind[0] not in ("cgroup", "cgroup2"):
            continue
        root, mount = fields[3], Path(fields[4])
        if kind[0] == "cgroup2":
            found.insert(0, Hierarchy(2, mount, _below(mount, root, own_v2), frozenset()))
            continue
        options = kind[2].split(",") if len(kind) > 2 else []
        controllers = frozenset(options) & frozenset((*_CONTROLLERS, "cpuacct"))
        if controllers:
            own = own_v1.get(next(iter(sorted(controllers))), "/")
            found.append(Hierarchy(1, mount, _below(mount, root, own), controllers))
    return found


def _below(mount: Path, root: str, own: str) -> Path:
    """Path of the group `own` in a mount whose top is the group `root`."""
    relative = os.path.relpath(own, root)
    return mount if relative == "." or relative.startswith("..") else mount / relative


@dataclass(frozen=True, slots=True)
class Caps:
    """Caps of one group. None: no cap."""

    ram_mib: int | None = None
    cpus: float | None = None
    pids: int | None = None


class CgroupGroup:
    """The groups of one replica, one folder per hierarchy."""

    def __init__(self, folders: Mapping[str, Path], version: Mapping[str, int]) -> None:
        """Take folders by controller; `""` is the version 2 folder, if any."""
        self._folders = dict(folders)
        self._version = dict(version)

    @property
    def procs_files(self) -> list[str]:
        """Files that take a PID to move a process in."""
        return [str(folder / "cgroup.procs") for folder in dict.fromkeys(self._folders.values())]

    def pids(self) -> set[int]:
        """Return the PIDs of the processes inside."""
        found: set[int] = set()
        for folder in set(self._folders.values()):
            for group in _with_children(folder):
                with contextlib.suppress(OSError):
                    found.update(int(pid) for pid in (group / "cgroup.procs").read_text().split())
        return found - {0}

    def kill(self) -> int:
        """Kill every process inside; return how many were seen."""
        pids = self.pids()
        unified = self._folders.get("")
        if unified is not None:
            with contextlib.suppress(OSError):
                (unified / "cgroup.kill").write_text("1")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    def remove(self, timeout_s: float = 5.0) -> None:
        """Remove the groups; dying processes are waited for. Blocking, bounded.

        Raises:
            OSError: A group could not be removed in time (EBUSY: a process lives in it).
        """
        deadline = time.monotonic() + timeout_s
        for folder in set(self._folders.values()):
            for group in sorted(_with_children(folder), reverse=True):
                _rmdir(group, deadline)

    def charged_mib(self) -> float | None:
        """Memory charged to the cap."""
        name = "memory.current" if self._version.get("memory") == 2 else "memory.usage_in_bytes"
        value = self._read_int("memory", name)
        return None if value is None else value / _MIB

    def cpu_s(self) -> float | None:
        """Return the CPU time used by all processes that ever were inside."""
        folder = self._folders.get("")
        if folder is not None:
            with contextlib.suppress(OSError, ValueError, KeyError):
                return int(read_pairs(folder / "cpu.stat")["usage_usec"]) / 1e6
        value = self._read_int("cpuacct", "cpuacct.usage")
        return None if value is None else value / 1e9

    def set_cpu_weight(self, weight: int) -> None:
        """Set the share of the processors beside other groups, in the scale of version 2 (100: normal).

        Raises:
            OSError: The kernel refused.
        """
        folder = self._folders.get("cpu")
        if folder is None:
            return
        if self._version["cpu"] == 2:
            (folder / "cpu.weight").write_text(str(weight))
        else:  # 1,024 is normal, 2 the least
            (folder / "cpu.shares").write_text(str(max(2, weight * 1024 // 100)))

    def oom_kills(self) -> int:
        """Return how often the kernel killed in here because the cap was reached."""
        folder = self._folders.get("memory")
        if folder is None:
            return 0
        name = "memory.events" if self._version["memory"] == 2 else "memory.oom_control"
        with contextlib.suppress(OSError, ValueError, KeyError):
            return int(read_pairs(folder / name)["oom_kill"])
        return 0

    def oom_eventfd(self) -> int | None:
        """Open a descriptor that becomes readable when the cap is reached (version 1 only).

        Version 2 kills the whole group by itself (`memory.oom.group`). The caller closes it.
        """
        folder = self._folders.get("memory")
        if folder is None or self._version["memory"] == 2:
            return None
        eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            control = os.open(folder / "memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
            try:
                (folder / "cgroup.event_control").write_text(f"{eventfd} {control}")
            finally:
                os.close(control)
        except OSError:
            os.close(eventfd)
            return None
        return eventfd

    def set_caps(self, caps: Caps) -> None:
        """Write the caps.

        Raises:
            OSError: The kernel refused.
        """
        if caps.ram_mib is not None and "memory" in self._folders:
            self._cap_memory(self._folders["memory"], caps.ram_mib * _MIB)
        if caps.cpus is not None and "cpu" in self._folders:
            quota = max(1000, round(caps.cpus * _CPU_PERIOD_US))
            if self._version["cpu"] == 2:
                (self._folders["cpu"] / "cpu.max").write_text(f"{quota} {_CPU_PERIOD_US}")
            else:
                (self._folders["cpu"] / "cpu.cfs_period_us").write_text(str(_CPU_PERIOD_US))
                (self._folders["cpu"] / "cpu.cfs_quota_us").write_text(str(quota))
        if caps.pids is not None and "pids" in self._folders:
            (self._folders["pids"] / "pids.max").write_text(str(caps.pids))

    def _cap_memory(self, folder: Path, limit: int) -> None:
        if self._version["memory"] == 2:
            (folder / "memory.max").write_text(str(limit))
            for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
                with contextlib.suppress(FileNotFoundError):
                    (folder / name).write_text(value)
            return
        with_swap = folder / "memory.memsw.limit_in_bytes"  # only there when swap is accounted
        # It may never be the lower one of the two: raising begins with it, lowering ends with it.
        with contextlib.suppress(OSError):
            with_swap.write_text(str(limit))
        (folder / "memory.limit_in_bytes").write_text(str(limit))
        with contextlib.suppress(OSError):
            with_swap.write_text(str(limit))
        # Version 2 counts what sockets hold as memory; here it has a cap of its own, or else none at all.
        with contextlib.suppress(OSError):
            (folder / "memory.kmem.tcp.limit_in_bytes").write_text(str(limit // _SOCKETS_SHARE))

    def _read_int(self, controller: str, name: str) -> int | None:
        folder = self._folders.get(controller)
        if folder is None:
            return None
        try:
            return int((folder / name).read_text())
        except (OSError, ValueError):
            return None


class CgroupTree:
    """The instance's group in every hierarchy where one can be made."""

    def __init__(
        self, name: str, folders: Mapping[str, Path], version: Mapping[str, int], notes: tuple[str, ...]
    ) -> None:
        """Use `open_tree`."""
        self._name = name
        self._folders = dict(folders)
        self._version = dict(version)
        self.notes = notes

    @property
    def folders(self) -> list[Path]:
        """The instance's groups, one per hierarchy."""
        return sorted(set(self._folders.values()))

    @property
    def enforces(self) -> frozenset[str]:
        """Which of memory, cpu and pids are capped."""
        return frozenset(self._folders) & frozenset(_CONTROLLERS)

    def make(self, name: str, caps: Caps) -> CgroupGroup:
        """Make the groups of one replica.

        Raises:
            OSError: The kernel refused; nothing is left.
        """
        folders = {controller: folder / name for controller, folder in self._folders.items()}
        group = CgroupGroup(folders, self._version)
        try:
            for folder in set(folders.values()):
                folder.mkdir()
            group.set_caps(caps)
        except OSError:
            with contextlib.suppress(OSError):
                group.remove()
            raise
        return group

    def leftovers(self) -> Iterator[tuple[str, CgroupGroup]]:
        """Groups of replicas that are there although this object did not make them."""
        names = {
            child.name
            for folder in set(self._folders.values())
            for child in folder.iterdir()
            if child.is_dir()
        }
        for name in sorted(names):
            folders = {
                key: folder / name for key, folder in self._folders.items() if (folder / name).is_dir()
            }
            yield name, CgroupGroup(folders, self._version)

    def reap_elsewhere(self, folders: list[Path]) -> int:
        """Clear the groups that a predecessor had below another group of the host; blocking.

        Only folders named like this instance's are touched, whatever the list says.

        Returns:
            How many processes were killed.

        Raises:
            OSError: A group could not be removed.
        """
        killed = 0
        for folder in folders:
            if folder.name != self._name or folder in self.folders or not (folder / "cgroup.procs").exists():
                continue
            group = CgroupGroup({"": folder}, {"": 2})
            killed += group.kill()
            group.remove()
        return killed

    def remove(self) -> None:
        """Remove the instance's groups, which must be empty. Idempotent.

        Raises:
            OSError: Something is still in them.
        """
        for folder in set(self._folders.values()):
            _rmdir(folder, time.monotonic() + 2.0)
        self._folders.clear()


def group_of(pid: int, part: str) -> CgroupGroup | None:
    """Return the groups of a process that somebody else made for it alone, such as a container's.

    Args:
        part: What the groups' own names contain (the container's id). Others that the process is in,
            for instance the root of a hierarchy that is not used, are left out.

    Returns:
        None when the process is gone. The groups are for reading and capping, not to be removed.
    """
    try:
        hierarchies = parse_hierarchies(
            Path("/proc/self/mountinfo").read_text(), Path(f"/proc/{pid}/cgroup").read_text()
        )
    except OSError:
        return None
    folders: dict[str, Path] = {}
    version: dict[str, int] = {}
    for hierarchy in hierarchies:
        if part not in hierarchy.own.name:
            continue
        if hierarchy.version == 2:
            with contextlib.suppress(OSError):
                named = ["", *(hierarchy.own / "cgroup.controllers").read_text().split()]
                folders.update(dict.fromkeys(named, hierarchy.own))
                version.update(dict.fromkeys(named, 2))
            continue
        for controller in hierarchy.controllers:
            folders.setdefault(controller, hierarchy.own)
            version.setdefault(controller, 1)
    return CgroupGroup(folders, version)


def instance_group_name(run_dir: Path) -> str:
    """Name of an instance's group; two data directories never share one."""
    digest = hashlib.sha256(os.fsencode(run_dir.resolve())).hexdigest()[:8]
    return f"osgym-{run_dir.name}-{digest}"


def open_tree(name: str, hierarchies: list[Hierarchy] | None = None) -> CgroupTree:
    """Make (or find) the group `name` wherever this process may.

    Never fails: what cannot be made is missing from `enforces` and explained in `notes`.
    """
    if hierarchies is None:
        hierarchies = parse_hierarchies(
            Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text()
        )
    folders: dict[str, Path] = {}
    version: dict[str, int] = {}
    notes: list[str] = []
    for hierarchy in hierarchies:
        wanted = ["", *_CONTROLLERS] if hierarchy.version == 2 else sorted(hierarchy.controllers)
        wanted = [controller for controller in wanted if controller not in folders]
        try:
            made = _open_v2(hierarchy, name) if hierarchy.version == 2 else _open_v1(hierarchy, name)
        except OSError as exc:
            notes.append(f"No control group below {hierarchy.own}: {exc.strerror}.")
            continue
        for controller in wanted:
            if controller in made:
                folders[controller] = made[controller]
                version[controller] = hierarchy.version
    missing = [controller for controller in _CONTROLLERS if controller not in folders]
    if missing:
        notes.append(
            f"Replicas are not capped in {', '.join(missing)}: run the host agent as root, or in a "
            "delegated group (systemd-run --user --scope -p Delegate=yes)."
        )
    return CgroupTree(name, folders, version, tuple(notes))


def _open_v1(hierarchy: Hierarchy, name: str) -> dict[str, Path]:
    folder = hierarchy.own / name
    folder.mkdir(exist_ok=True)
    return dict.fromkeys(hierarchy.controllers, folder)


def _open_v2(hierarchy: Hierarchy, name: str) -> dict[str, Path]:
    """Make the group below our own, else (as root) at the top, where processes may stay beside it."""
    error = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    best: dict[str, Path] | None = None
    own = hierarchy.own.parent if hierarchy.own.name == LEAF else hierarchy.own
    for parent in dict.fromkeys((own, hierarchy.mount)):
        folder = parent / name
        try:
            folder.mkdir(exist_ok=True)
        except OSError as exc:
            error = exc
            continue
        if os.geteuid() != 0 and parent == hierarchy.own:
            move_to_leaf(parent, frozenset(_CONTROLLERS))
        enabled = _enable(parent) & _enable(folder)
        made = {"": folder, **dict.fromkeys(enabled, folder)}
        if best is None:
            best = made
        elif len(made) > len(best):
            _rmdir(best[""], time.monotonic())
            best = made
        else:
            _rmdir(folder, time.monotonic())
        if len(best) > len(_CONTROLLERS):
            break
    if best is None:
        raise error
    return best


def _enable(folder: Path) -> frozenset[str]:
    """Pass controllers on to the groups below; return those that are passed on."""
    with contextlib.suppress(OSError):
        available = (folder / "cgroup.controllers").read_text().split()
        enabled = (folder / "cgroup.subtree_control").read_text().split()
        for controller in _CONTROLLERS:
            if controller in available and controller not in enabled:
                with contextlib.suppress(OSError):  # EBUSY: processes live beside; EACCES: not delegated
                    (folder / "cgroup.subtree_control").write_text(f"+{controller}")
        return frozenset((folder / "cgroup.subtree_control").read_text().split()) & frozenset(_CONTROLLERS)
    return frozenset()


def _with_children(folder: Path) -> list[Path]:
    return [folder, *(Path(found) for found, _dirs, _files in os.walk(folder) if Path(found) != folder)]


def _rmdir(folder: Path, deadline: float) -> None:
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError as exc:
            if exc.errno != errno.EBUSY or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)
        else:
            return


def read_pairs(path: Path) -> dict[str, str]:
    """Read a file of `key value` lines."""
    pairs = (line.split(None, 1) for line in path.read_text().splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
