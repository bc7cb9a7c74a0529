"""Decision whether the host's load or the desktop itself caused a missing answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_host.core.slowness import Stall, is_of_the_host

STARVED = Stall(passed_s=20.0, starved_s=15.0, own_cpu_s=0.5)
SWAPPING = Stall(passed_s=20.0, own_cpu_s=0.5, blocked_s=12.0, reclaims=5000, own_io_mib=400.0)
BUSY_DISK = Stall(passed_s=20.0, own_cpu_s=0.5, blocked_s=12.0, io_stalled_s=18.0, own_io_mib=1.0)


@pytest.mark.parametrize(
    "stall",
    [STARVED, SWAPPING, BUSY_DISK, Stall(passed_s=20.0, unwatched_s=8.0)],
    ids=["processors", "memory", "disk", "the host agent itself"],
)
def test_what_the_host_kept_from_it(stall: Stall) -> None:
    """A shortage of processors, memory or disk bandwidth of the host makes the stall the host's."""
    assert is_of_the_host(stall)


@pytest.mark.parametrize(
    "stall",
    [
        Stall(passed_s=20.0, own_cpu_s=0.1),
        replace(STARVED, starved_s=2.0),
        replace(STARVED, own_cpu_s=14.0),
        replace(STARVED, cpu_lowered=True),
        replace(STARVED, own_cpu_s=1.7, cpu_cap=0.1),
        replace(STARVED, own_cpu_s=None),
        replace(SWAPPING, reclaims=20),
        replace(SWAPPING, blocked_s=0.5),
        replace(BUSY_DISK, own_io_mib=200.0),
        replace(BUSY_DISK, own_io_mib=None),
        replace(BUSY_DISK, io_stalled_s=1.0),
        replace(BUSY_DISK, blocked_s=0.5),
        Stall(passed_s=0.0),
    ],
    ids=[
        "could have answered",
        "hardly starved",
        "starved by its own programs",
        "has used up its credit",
        "at its own cap",
        "nothing counts it",
        "frees its own memory",
        "did not wait for memory",
        "keeps the disk busy itself",
        "its writes cannot be read",
        "waits for no disk of the host",
        "did not wait for a disk",
        "no time",
    ],
)
def test_what_it_may_have_done_itself(stall: Stall) -> None:
    """Stalls that a policy can cause from inside are not the host's."""
    assert not is_of_the_host(stall)


@given(
    st.floats(0.1, 100),
    st.floats(0, 1),
    st.integers(1, 16),
    st.floats(0, 100),
    st.booleans(),
    st.floats(0, 4),
)
def test_a_policy_cannot_starve_its_agent(
    passed_s: float, starved: float, programs: int, io_mib: float, lowered: bool, cap: float
) -> None:
    """The desktop's own programs, however many, use at least as much CPU time as the agent waits for."""
    starved_s = passed_s * starved
    stall = Stall(
        passed_s=passed_s,
        starved_s=starved_s,
        own_cpu_s=starved_s * programs,
        cpu_lowered=lowered,
        cpu_cap=cap or None,
        own_io_mib=io_mib,
    )
    assert not is_of_the_host(stall)
