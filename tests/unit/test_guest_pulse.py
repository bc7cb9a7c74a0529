"""Which guest agents count as frozen: those that could have answered and did not."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.pools import nobody, pool_of
from tests.support.waiting import stays, until

from osgym_host.core.reasons import Reason
from osgym_host.core.states import ReplicaState
from osgym_host.replicas.brancher import ReplicaBrancher
from osgym_host.replicas.guest_pulse import PulseOptions, Silence
from osgym_host.runtimes.base import PointFailed, Replica
from osgym_host.runtimes.processes import cpu_waits_s

OPTIONS = PulseOptions()
LOOK_S = OPTIONS.look_s
QUICK = PulseOptions(
    called_after_s=0.02,
    called_every_s=0.05,
    idle_every_s=0.05,
    idle_share_s=0.0,
    patience_s=0.05,
    silent_s=0.3,
    excused_s=0.2,
    look_s=0.02,
)


def looks_until_frozen(starved: float, state: str = "S", looks: int = 400, told_every: int = 1) -> int | None:
    """After how many looks an agent is frozen that waits for a processor for this part of the time.

    The kernel tells of its waits at one look in so many.
    """
    silence = Silence(OPTIONS, 0.0, {1: 0.0})
    for number in range(1, looks + 1):
        told_s = (number - number % told_every) * LOOK_S
        if silence.look(number * LOOK_S, {1: starved * told_s}, state):
            return number
    return None


def test_an_agent_that_could_answer_and_does_not_is_frozen() -> None:
    """Within the time that is promised, stopped or not."""
    needed = round(OPTIONS.silent_s / LOOK_S)
    for state in ("S", "R", "T", "t", "Z"):
        assert looks_until_frozen(0.0, state) == needed
    worst_s = OPTIONS.patience_s + OPTIONS.silent_s + 2 * LOOK_S
    assert OPTIONS.called_after_s + OPTIONS.called_every_s + worst_s <= 5
    assert OPTIONS.idle_every_s + worst_s <= 5


def test_who_is_called_is_asked_soon_however_many_there_are() -> None:
    """Of those that nobody calls, twenty a second are asked at most."""
    assert OPTIONS.is_due(1.0, 0.5, 1000) and not OPTIONS.is_due(0.9, 9.0, 1)
    assert OPTIONS.is_due(1.5, 0.0, 30) and not OPTIONS.is_due(1.2, 0.4, 1)
    assert not OPTIONS.is_due(9.0, 0.4, 200) and OPTIONS.is_due(10.0, 0.0, 200)


def test_an_agent_that_gets_no_processor_is_slow() -> None:
    """It is given as much longer as it waits."""
    assert looks_until_frozen(1.0) is None
    needed = looks_until_frozen(2 / 3)
    assert needed is not None and needed == pytest.approx(3 * OPTIONS.silent_s / LOOK_S, abs=2)


def test_a_wait_that_lasts_longer_than_a_look_is_excused_all_the_same() -> None:
    """With many others on its core, an agent gets none of it for several looks in a row."""
    assert looks_until_frozen(1.0, told_every=8) is None
    needed = looks_until_frozen(0.9, told_every=4)
    assert needed is not None and needed >= 5 * OPTIONS.silent_s / LOOK_S


@pytest.mark.parametrize("state", ["", "D"])
def test_a_disk_or_a_restart_excuses_for_a_while(state: str) -> None:
    """One that never comes back is not waited for."""
    assert looks_until_frozen(0.0, state) == round((OPTIONS.silent_s + OPTIONS.excused_s) / LOOK_S)


@given(st.lists(st.floats(0, 100), max_size=30))
def test_our_own_lateness_is_not_held_against_it(pauses_s: list[float]) -> None:
    """However late we look, a look counts for two at most; nothing is counted backwards."""
    silence, at_s = Silence(OPTIONS, 0.0, {}), 0.0
    for pause_s in pauses_s:
        at_s += pause_s
        before = silence.counted_s
        silence.look(at_s, {}, "S")
        assert before <= silence.counted_s <= before + 2 * LOOK_S + 1e-9


def test_a_thread_that_came_or_went_is_no_mistake() -> None:
    """Waits are compared thread by thread."""
    silence = Silence(OPTIONS, 0.0, {1: 50.0})
    silence.look(LOOK_S, {2: 0.1}, "S")
    assert silence.counted_s == pytest.approx(LOOK_S - 0.1)
    silence.look(2 * LOOK_S, {}, "S")
    assert silence.counted_s == pytest.approx(2 * LOOK_S - 0.1)


def test_what_threads_waited_is_read() -> None:
    """Of all threads of a process; nothing of one that is gone."""
    assert os.getpid() in cpu_waits_s(os.getpid())
    assert all(value >= 0 for value in cpu_waits_s(os.getpid()).values())
    assert cpu_waits_s(2**22 + 1) == {}


async def test_a_frozen_guest_is_lost_by_that_name_and_replaced(tmp_path: Path) -> None:
    """Its holder, who makes no call, hears of it; its neighbour stays."""
    async with pool_of(tmp_path, pulse_options=QUICK) as (pool, runtime):
        told: list[tuple[Reason, str]] = []
        frozen = await pool.acquire("a", lambda reason, detail: told.append((reason, detail)), 1)
        well = await pool.acquire("b", nobody, 1)
        runtime.by_generation(frozen.generation).agent.ready.clear()
        await until(lambda: told)
        assert told[0][0] is Reason.GUEST_HUNG
        assert "did not answer" in told[0][1]
        assert well.state is ReplicaState.LEASED


async def test_an_agent_that_was_replaced_is_lost_before_anybody_calls_it(tmp_path: Path) -> None:
    """What answers in its place is no agent: its holder hears of it while it thinks."""
    async with pool_of(tmp_path, pulse_options=QUICK) as (pool, runtime):
        told: list[tuple[Reason, str]] = []
        replaced = await pool.acquire("a", lambda reason, detail: told.append((reason, detail)), 1)
        well = await pool.acquire("b", nobody, 1)
        runtime.by_generation(replaced.generation).agent.nonsense = True
        await until(lambda: told)
        assert told[0][0] is Reason.GUEST_PROTOCOL
        assert well.state is ReplicaState.LEASED


async def test_a_frozen_guest_that_waits_is_never_handed_out_again(tmp_path: Path) -> None:
    """Another one takes its place."""
    async with pool_of(tmp_path, pulse_options=QUICK) as (pool, runtime):
        await until(lambda: pool.view().ready == 1)
        runtime.by_generation(1).agent.ready.clear()
        await until(lambda: pool.retired[Reason.GUEST_HUNG] == 1)
        manager = await pool.acquire("a", nobody, 2)
        assert manager.generation > 1


async def test_a_slow_guest_is_kept(tmp_path: Path) -> None:
    """One that answers late, but does."""
    async with pool_of(tmp_path, pulse_options=QUICK) as (pool, runtime):
        manager = await pool.acquire("a", nobody, 1)
        guest = runtime.by_generation(manager.generation).agent
        for _ in range(6):
            guest.ready.clear()
            await asyncio.sleep(0.15)
            guest.ready.set()
            await asyncio.sleep(0.1)
        assert manager.state is ReplicaState.LEASED
        assert pool.retired[Reason.GUEST_HUNG] == 0


async def test_a_guest_that_stands_still_for_a_branch_point_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it was asked just before; one that does not answer afterwards is frozen."""
    async with pool_of(tmp_path, pulse_options=QUICK) as (pool, runtime):
        manager = await pool.acquire("a", nobody, 1)
        agent, taken = runtime.by_generation(manager.generation).agent, asyncio.Event()

        async def branch(replica: Replica, *, keep: bool = False) -> None:
            agent.ready.clear()
            await taken.wait()
            raise PointFailed("no point")

        monkeypatch.setattr(runtime, "branch", branch)
        taking = asyncio.create_task(ReplicaBrancher(pool).take(manager))
        await stays(lambda: manager.state is ReplicaState.LEASED, 0.8)
        taken.set()
        with pytest.raises(PointFailed):
            await taking
        await until(lambda: pool.retired[Reason.GUEST_HUNG] == 1)


async def test_a_guest_that_cannot_be_reached_is_not_frozen(tmp_path: Path) -> None:
    """Its agent may be starting again; that it died is another's to find out."""
    async with pool_of(tmp_path, pulse_options=QUICK) as (pool, runtime):
        manager = await pool.acquire("a", nobody, 1)
        (runtime.by_generation(manager.generation).folder / "agent.sock").unlink()
        await stays(lambda: manager.state is ReplicaState.LEASED, 0.8)
