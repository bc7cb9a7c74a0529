"""Ranges of ids: handed out once per machine, and bounds that leave room for neighbours."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from osgym_host.images.idmap import ID_COUNT, ROOT_UID_BASE
from osgym_host.runtimes.local import ranges
from osgym_host.runtimes.local.isolation import COUNTS, Isolation, counts, unbounded_because
from osgym_host.runtimes.local.ranges import IdRanges, ReplicaIds
from osgym_qemu.runner import users


def open_ranges(lock_file: Path) -> IdRanges:
    return IdRanges.open(lock_file, lock_file.with_suffix(".fallback"))


def test_no_range_meets_another_use_of_ids() -> None:
    """Not the image's, not that of virtual machines, and none beyond what systemd keeps for containers."""
    first, last = ReplicaIds(0), ReplicaIds(ranges.RANGES - 1)
    assert first.base >= users.FIRST_ID + ID_COUNT > ROOT_UID_BASE + ID_COUNT
    assert last.base + ID_COUNT <= 1_879_048_192
    assert (first.base - ROOT_UID_BASE) % ID_COUNT == 0


def test_two_agents_never_have_the_same_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opened the file, in this process or another, a range is taken once until it is given back."""
    monkeypatch.setattr(ranges, "RANGES", 8)
    one, two = open_ranges(tmp_path / "lock"), open_ranges(tmp_path / "lock")
    taken = [agent.take() for agent in (one, two) * 4]
    assert len({ids.number for ids in taken if ids is not None}) == 8
    assert one.take() is None and two.take() is None
    assert taken[0] is not None
    one.release(taken[0])
    one.release(taken[0])
    assert two.take() == taken[0]
    two.close()
    two.close()
    assert one.take() is not None
    one.close()


def test_a_copy_of_the_lock_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who keeps replicas alive keeps their ranges, whatever became of the agent."""
    monkeypatch.setattr(ranges, "RANGES", 1)
    agent, other = open_ranges(tmp_path / "lock"), open_ranges(tmp_path / "lock")
    assert agent.take() is not None
    copy = os.dup(agent.lock_fd)
    agent.close()
    assert other.take() is None
    os.close(copy)
    assert other.take() is not None
    other.close()


def test_a_range_just_given_back_comes_last(tmp_path: Path) -> None:
    """Ids go round, so that what is left of a replica, if anything, seldom meets its successor."""
    agent = open_ranges(tmp_path / "lock")
    seen = set()
    for _ in range(50):
        ids = agent.take()
        assert ids is not None
        seen.add(ids.number)
        agent.release(ids)
    agent.close()
    assert len(seen) == 50


def test_a_lock_file_that_others_may_open_is_not_used(tmp_path: Path) -> None:
    """A user who can lock it could keep every replica from having a range."""
    (tmp_path / "lock").touch(mode=0o666)
    (tmp_path / "lock").chmod(0o666)
    agent = open_ranges(tmp_path / "lock")
    assert (tmp_path / "lock.fallback").exists()
    agent.close()


def test_who_shares_the_limits_of_the_host_leaves_most_to_others(tmp_path: Path) -> None:
    """An eighth at most, but enough for a desktop; with ids of its own a replica has what a user has."""
    (tmp_path / "max_inotify_instances").write_text("256\n")
    (tmp_path / "max_inotify_watches").write_text("64\n")
    found = counts(own_ids=False, sysctls=tmp_path)
    assert (found["max_inotify_instances"], found["max_inotify_watches"]) == (32, 16)
    assert found["max_uts_namespaces"] == COUNTS["max_uts_namespaces"]  # unknown here
    assert counts(own_ids=True, sysctls=tmp_path) == COUNTS


def test_an_image_that_was_refused_is_not_tried_again(tmp_path: Path) -> None:
    """The first failure decides for the image, and only for it."""
    isolation = Isolation(open_ranges(tmp_path / "lock"))
    ids = isolation.take(tmp_path / "a")
    assert ids is not None and not isolation.shared_because
    isolation.refused(tmp_path / "a", "it cannot")
    isolation.release(ids)
    assert isolation.take(tmp_path / "a") is None
    assert isolation.take(tmp_path / "b") is not None
    assert isolation.shared_because == "it cannot"
    isolation.close()


def test_limits_that_cannot_be_written_are_not_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A container mounts /proc/sys read-only: replicas run there without these bounds, and it is said."""
    assert unbounded_because(tmp_path) == unbounded_because(tmp_path / "none") == ""
    real = os.statvfs(tmp_path)
    read_only = os.statvfs_result((*real[:8], real.f_flag | os.ST_RDONLY, *real[9:]))
    monkeypatch.setattr(os, "statvfs", lambda path: read_only)
    assert "read-only" in unbounded_because(tmp_path)
    assert counts(own_ids=True, sysctls=tmp_path) == counts(own_ids=False, sysctls=tmp_path) == {}
