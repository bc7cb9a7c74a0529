"""Caps of replicas in the kernel's own control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from osgym_host.runtimes.cgroups import Caps, CgroupGroup, open_tree

_MIB = 1 << 20


def memory_limits(group: CgroupGroup) -> list[int]:
    """Every limit of memory that the kernel keeps for a group, in bytes."""
    names = ("memory.max", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
    files = {Path(procs).parent / name for procs in group.procs_files for name in names}
    return [int(file.read_text()) for file in sorted(files) if file.exists()]


def test_caps_of_a_group_are_raised_and_lowered() -> None:
    """A parked machine's cap becomes its replica's, be that more or less."""
    tree = open_tree(f"osgym-test-caps-{os.getpid()}")
    try:
        if "memory" not in tree.enforces:
            pytest.skip("no memory controller of control groups on this machine")
        group = tree.make("r1", Caps(ram_mib=64))
        try:
            for ram_mib in (64, 256, 32):
                group.set_caps(Caps(ram_mib=ram_mib))
                limits = memory_limits(group)
                assert limits and set(limits) == {ram_mib * _MIB}
        finally:
            group.remove()
    finally:
        tree.remove()
