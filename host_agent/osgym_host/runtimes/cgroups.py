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
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from osgym_host.runtimes.processes import stat_fields
from osgym_host.runtimes.replica_cgroup import Caps, CgroupGroup, remove_folder

_CONTROLLERS = ("memory", "cpu", "pids")
_SESSION_CONTROLLERS = ("memory", "pids")
"""Controllers with separate caps for the session."""
SESSION, HARNESS = "session", "harness"
"""Names of child groups of a replica's group: one for the session and, in version 2, one for the harness."""
LEAF = "agent"
"""Name of the group of the host agent and its helpers, beside the groups of the replicas."""
_TRIES = 10


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Mounted hierarchy, with the group of this process in it."""

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
    """Return the path of the group `own` in a mount whose top is the group `root`."""
    relative = os.path.relpath(own, root)
    return mount if relative == "." or relative.startswith("..") else mount / relative


class CgroupTree:
    """Group of the instance in every hierarchy where one can be made."""

    def __init__(
        self, name: str, folders: Mapping[str, Path], version: Mapping[str, int], notes: tuple[str, ...]
    ) -> None:
        self._name = name
        self._folders = dict(folders)
        self._version = dict(version)
        self.notes = notes

    @property
    def folders(self) -> list[Path]:
        """Groups of the instance, one per hierarchy."""
        return sorted(set(self._folders.values()))

    @property
    def enforces(self) -> frozenset[str]:
        """Enforced caps among memory, cpu and pids."""
        return frozenset(self._folders) & frozenset(_CONTROLLERS)

    def make(self, name: str, caps: Caps, session: Caps | None = None) -> CgroupGroup:
        """Make the groups of one replica.

        Args:
            session: Caps of a child group for the session; None: no child groups are made.

        Raises:
            OSError: The kernel refused; nothing is left.
        """
        folders = {controller: folder / name for controller, folder in self._folders.items()}
        group = CgroupGroup(folders, self._version)
        try:
            for folder in set(folders.values()):
                folder.mkdir()
            group.set_caps(caps)
            return group if session is None else self._with_session(folders, session)
        except OSError:
            with contextlib.suppress(OSError):
                group.remove()
            raise

    def _with_session(self, folders: Mapping[str, Path], caps: Caps) -> CgroupGroup:
        """Make the child groups of a replica's group.

        With version 2 there is one for the harness as well, since a group that delegates controllers to
        children may hold no process itself.
        """
        session: dict[str, Path] = {}
        harness: dict[str, Path] = {}
        enabled = _enable(folders[""], _SESSION_CONTROLLERS) if "" in folders else frozenset()
        for controller in _SESSION_CONTROLLERS:
            folder = folders.get(controller)
            if folder is None or (self._version[controller] == 2 and controller not in enabled):
                continue
            session[controller] = folder / SESSION
            (folder / SESSION).mkdir(exist_ok=True)
            if self._version[controller] == 2:
                (folder / HARNESS).mkdir(exist_ok=True)
                harness = {key: folder / HARNESS for key, of_key in folders.items() if of_key == folder}
        below = CgroupGroup(session, self._version)
        below.set_caps(caps, end_together=False)
        return CgroupGroup(folders, self._version, session=below if session else None, processes=harness)

    def leftovers(self) -> Iterator[tuple[str, CgroupGroup]]:
        """Return groups of replicas that this object did not make."""
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
        """Remove the groups that a predecessor had below another group of the host; blocking.

        Only folders named like this instance's are touched, whatever the list says.

        Returns:
            Number of killed processes.

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
            remove_folder(folder, time.monotonic() + 2.0)
        self._folders.clear()


def group_of(pid: int, part: str) -> CgroupGroup | None:
    """Return the groups of a process that others made for it alone, such as a container's.

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
    """Return the name of an instance's group, different for every data directory."""
    digest = hashlib.sha256(os.fsencode(run_dir.resolve())).hexdigest()[:8]
    return f"osgym-{run_dir.name}-{digest}"


def open_tree(name: str, hierarchies: list[Hierarchy] | None = None) -> CgroupTree:
    """Open the group `name` in every hierarchy where this process may make one.

    Never fails: a missing cap is absent from `enforces` and explained in `notes`.
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
            notes.append(f"No control group can be made below {hierarchy.own}: {exc.strerror}.")
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
    """Make the group below this process's own, else (as root) at the top, beside any processes."""
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
        enabled = _enable(parent, _CONTROLLERS) & _enable(folder, _CONTROLLERS)
        made = {"": folder, **dict.fromkeys(enabled, folder)}
        if best is None:
            best = made
        elif len(made) > len(best):
            remove_folder(best[""], time.monotonic())
            best = made
        else:
            remove_folder(folder, time.monotonic())
        if len(best) > len(_CONTROLLERS):
            break
    if best is None:
        raise error
    return best


def _enable(folder: Path, controllers: Sequence[str]) -> frozenset[str]:
    """Delegate controllers to child groups; return those that were delegated."""
    with contextlib.suppress(OSError):
        available = (folder / "cgroup.controllers").read_text().split()
        enabled = (folder / "cgroup.subtree_control").read_text().split()
        for controller in controllers:
            if controller in available and controller not in enabled:
                with contextlib.suppress(OSError):  # EBUSY: processes live beside; EACCES: not delegated
                    (folder / "cgroup.subtree_control").write_text(f"+{controller}")
        return frozenset((folder / "cgroup.subtree_control").read_text().split()) & frozenset(controllers)
    return frozenset()


def move_to_leaf(own: Path, wanted: frozenset[str]) -> None:
    """Move all processes of this group one group below, so that it can delegate controllers.

    Nothing is moved unless all of them descend from this process and a wanted controller exists. A process
    that cannot be moved stays, and then nothing is capped.

    Version 2 lets no group that has processes pass controllers on ("no internal processes", cgroups(7)). A
    service that systemd delegates (`Delegate=yes`) starts in the very group whose children it wants to cap.
    """
    with contextlib.suppress(OSError):
        pids = _pids_of(own)
        there = frozenset((own / "cgroup.controllers").read_text().split())
        if not there & wanted or not all(_is_ours(pid) for pid in pids):
            return
        leaf = own / LEAF
        leaf.mkdir(exist_ok=True)
        for _ in range(_TRIES):  # a process may be started meanwhile
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    (leaf / "cgroup.procs").write_text(str(pid))
            pids = _pids_of(own)
            if not pids:
                return


def _pids_of(group: Path) -> list[int]:
    return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]


def _is_ours(pid: int) -> bool:
    """Return whether a process is this one or descends from it; also when it is gone."""
    while pid > 1 and pid != os.getpid():
        try:
            pid = int(stat_fields(pid)[1])
        except (FileNotFoundError, ProcessLookupError):
            return True
    return pid == os.getpid()
