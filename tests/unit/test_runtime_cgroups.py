"""Finding control groups on all kinds of hosts, and writing caps, on folders that look like them."""

from __future__ import annotations

from pathlib import Path

import pytest

from osgym_host.runtimes.cgroups import Hierarchy, instance_group_name, open_tree, parse_hierarchies
from osgym_host.runtimes.replica_cgroup import HARNESS_RAM_MIB, Caps, CgroupGroup, MemoryEnd

V2_ONLY = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
MIXED = """\
24 1 0:22 / /proc rw - proc proc rw
31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
32 30 0:28 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
35 30 0:31 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
"""
CONTAINER = "35 30 0:31 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory"


def test_a_host_with_version_2_only() -> None:
    """One hierarchy, our own group below its mount."""
    found = parse_hierarchies(V2_ONLY, "0::/user.slice/session-1.scope\n")
    assert found == [
        Hierarchy(2, Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/user.slice/session-1.scope"), frozenset())
    ]


def test_a_mixed_host() -> None:
    """Version 2 comes first; named hierarchies without a controller are left alone."""
    found = parse_hierarchies(MIXED, "4:memory:/jobs/7\n3:cpu:/\n2:pids:/\n9:name=systemd:/x\n0::/\n")
    assert [(h.version, h.own, set(h.controllers)) for h in found] == [
        (2, Path("/sys/fs/cgroup/unified"), set()),
        (1, Path("/sys/fs/cgroup/cpu"), {"cpu"}),
        (1, Path("/sys/fs/cgroup/memory/jobs/7"), {"memory"}),
        (1, Path("/sys/fs/cgroup/pids"), {"pids"}),
    ]


def test_a_container_whose_mount_starts_at_its_own_group() -> None:
    """The mount's root is taken off our path; what lies outside the mount becomes its top."""
    assert parse_hierarchies(CONTAINER, "4:memory:/docker/abc/x")[0].own == Path("/sys/fs/cgroup/memory/x")
    assert parse_hierarchies(CONTAINER, "4:memory:/elsewhere")[0].own == Path("/sys/fs/cgroup/memory")


def v2_mount(root: Path, own: str, controllers: str) -> Hierarchy:
    """A folder with the files that the code reads before it makes a group."""
    for folder in (root, root / own):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.controllers").write_text(controllers)
        (folder / "cgroup.subtree_control").write_text(controllers)
    return Hierarchy(2, root, root / own, frozenset())


def test_caps_of_version_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits are written in the kernel's units, and the whole group dies when memory runs out."""
    original = Path.mkdir

    def mkdir(self: Path, *args: object, **kwargs: object) -> None:
        original(self, *args, **kwargs)  # type: ignore[arg-type]  # as given
        for name in ("cgroup.controllers", "cgroup.subtree_control"):
            (self / name).write_text("cpu memory pids")
        for name in ("memory.swap.max", "memory.oom.group"):
            (self / name).touch()

    hierarchy = v2_mount(tmp_path / "cg", "own", "cpu memory pids")
    monkeypatch.setattr(Path, "mkdir", mkdir)
    tree = open_tree("osgym-test", [hierarchy])
    assert tree.enforces == {"cpu", "memory", "pids"}
    assert tree.notes == ()
    group = tree.make("r1", Caps(ram_mib=100, cpus=1.5, pids=50))
    folder = tmp_path / "cg/own/osgym-test/r1"
    assert group.procs_files == [str(folder / "cgroup.procs")]
    assert (folder / "memory.max").read_text() == str(100 * 1024 * 1024)
    assert (folder / "memory.oom.group").read_text() == "1"
    assert (folder / "memory.swap.max").read_text() == "0"
    assert (folder / "cpu.max").read_text() == "150000 100000"
    assert (folder / "pids.max").read_text() == "50"
    (folder / "memory.events").write_text("low 0\noom 2\noom_kill 1\n")
    (folder / "memory.current").write_text(str(7 << 20))
    (folder / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    assert (group.oom_kills(), group.charged_mib(), group.cpu_s()) == (1, 7.0, 2.5)
    assert group.oom_eventfd() is None


def test_version_1_controllers_beside_an_empty_version_2(tmp_path: Path) -> None:
    """Caps go to version 1, killing and CPU time to version 2."""
    unified = v2_mount(tmp_path / "unified", ".", "")
    memory = Hierarchy(1, tmp_path / "memory", tmp_path / "memory", frozenset({"memory"}))
    memory.own.mkdir()
    tree = open_tree("osgym-test", [unified, memory])
    assert tree.enforces == {"memory"}
    assert any("cpu, pids" in note for note in tree.notes)
    group = tree.make("r1", Caps(ram_mib=64, cpus=1.0, pids=10))
    assert (memory.own / "osgym-test/r1/memory.limit_in_bytes").read_text() == str(64 << 20)
    (memory.own / "osgym-test/r1/memory.oom_control").write_text("under_oom 0\noom_kill 3\n")
    assert group.oom_kills() == 3
    assert {name for name, _group in tree.leftovers()} == {"r1"}


def test_a_session_has_smaller_caps_beside_its_harness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 2: processes are in the two child groups, and only the cap of the whole replica ends it all."""
    original = Path.mkdir

    def mkdir(self: Path, *args: object, **kwargs: object) -> None:
        original(self, *args, **kwargs)  # type: ignore[arg-type]  # as given
        (self / "cgroup.controllers").write_text("cpu memory pids")
        for name in ("cgroup.subtree_control", "memory.swap.max", "memory.oom.group"):
            (self / name).touch()
        (self / "cgroup.subtree_control").write_text("cpu memory pids")

    hierarchy = v2_mount(tmp_path / "cg", "own", "cpu memory pids")
    monkeypatch.setattr(Path, "mkdir", mkdir)
    caps = Caps(ram_mib=1000, cpus=1.5, pids=200)
    group = open_tree("osgym-test", [hierarchy]).make("r1", caps, caps.for_session())
    folder = tmp_path / "cg/own/osgym-test/r1"
    assert group.procs_files == [str(folder / "harness/cgroup.procs")]
    assert group.session is not None
    assert group.session.procs_files == [str(folder / "session/cgroup.procs")]
    assert (folder / "session/memory.max").read_text() == str((1000 - HARNESS_RAM_MIB) << 20)
    assert (folder / "session/pids.max").read_text() == str(200 - 50)  # a quarter at most is reserved
    assert not (folder / "session/cpu.max").exists()
    assert [(folder / f"{name}memory.oom.group").read_text() for name in ("", "session/")] == ["1", "0"]


def test_version_1_has_a_session_below_by_each_controller(tmp_path: Path) -> None:
    """Version 1: the replica's own group holds the harness; child groups need memory or pids."""
    unified = v2_mount(tmp_path / "unified", ".", "")
    memory = Hierarchy(1, tmp_path / "memory", tmp_path / "memory", frozenset({"memory"}))
    cpu = Hierarchy(1, tmp_path / "cpu", tmp_path / "cpu", frozenset({"cpu"}))
    for hierarchy in (memory, cpu):
        hierarchy.own.mkdir()
    caps = Caps(ram_mib=64)
    group = open_tree("osgym-test", [unified, memory, cpu]).make("r1", caps, caps.for_session())
    folder = memory.own / "osgym-test/r1"
    assert str(folder / "cgroup.procs") in group.procs_files
    assert group.session is not None
    assert group.session.procs_files == [str(folder / "session/cgroup.procs")]
    assert (folder / "session/memory.limit_in_bytes").read_text() == str(48 << 20)
    bare = open_tree("osgym-bare", [cpu]).make("r1", caps, caps.for_session())
    assert bare.session is None


@pytest.mark.parametrize(
    ("whole", "session", "end"),
    [
        ((0, 0), (0, 0), MemoryEnd.NONE),
        ((0, 1), (1, 1), MemoryEnd.NONE),
        ((0, 1), (0, 1), MemoryEnd.HOST),
        ((0, 2), (1, 1), MemoryEnd.HOST),
        ((1, 2), (1, 1), MemoryEnd.CAP),
        ((1, 1), (0, 1), MemoryEnd.CAP),
    ],
)
def test_whose_memory_ran_out(
    tmp_path: Path, whole: tuple[int, int], session: tuple[int, int], end: MemoryEnd
) -> None:
    """Each `(times its own cap was reached, processes killed in it and below)` of version 2."""
    groups = []
    for name, (reached, killed) in (("session", session), (".", whole)):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "memory.events").write_text(f"oom 9\noom_kill {killed}\n")
        (folder / "memory.events.local").write_text(f"oom {reached}\noom_kill 0\n")
        below = groups[0] if groups else None
        groups.append(CgroupGroup({"memory": folder}, {"memory": 2}, session=below))
    assert groups[1].memory_end() is end


def test_without_any_hierarchy_nothing_is_enforced_and_said(tmp_path: Path) -> None:
    """No control groups: no caps, no error, and a note on how to get them."""
    tree = open_tree("osgym-test", [])
    assert tree.enforces == frozenset()
    assert "delegated" in tree.notes[-1]
    group = tree.make("r1", Caps(ram_mib=1, cpus=1, pids=1))
    assert (group.procs_files, group.charged_mib(), group.cpu_s(), group.oom_kills()) == ([], None, None, 0)
    group.remove()
    tree.remove()


def test_two_data_directories_have_two_groups(tmp_path: Path) -> None:
    """Two instances of one name never see each other's processes as leftovers."""
    assert instance_group_name(tmp_path / "a/default") != instance_group_name(tmp_path / "b/default")
    assert instance_group_name(tmp_path / "a/default").startswith("osgym-default-")


def test_a_weight_in_the_scale_of_either_version(tmp_path: Path) -> None:
    """100 of version 2 is 1,024 of version 1, whose least is 2; without the controller nothing is written."""
    for version, name, low in ((2, "cpu.weight", "1"), (1, "cpu.shares", "10")):
        folder = tmp_path / str(version)
        folder.mkdir()
        group = CgroupGroup({"cpu": folder}, {"cpu": version})
        group.set_cpu_weight(1)
        assert (folder / name).read_text() == low
    group.set_cpu_weight(100)
    assert (folder / "cpu.shares").read_text() == "1024"
    CgroupGroup({}, {}).set_cpu_weight(1)
