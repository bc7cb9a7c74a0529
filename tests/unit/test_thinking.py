"""Replicas that stand still between calls: which calls let their clocks go on, and by what charge."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.fake_runtime import FakeImage, FakeReplica, FakeRuntime
from tests.support.waiting import until

from osgym_host.core.rest import RestStage
from osgym_host.guest_client import GuestClient, GuestProtocolError
from osgym_host.replicas.rest import ReplicaRest
from osgym_host.replicas.wake_slots import WakeSlots
from osgym_host.runtimes import base


@dataclass
class Desktop:
    """A replica, its rest, and a client of its guest agent."""

    runtime: FakeRuntime
    clone: FakeReplica
    rest: ReplicaRest
    client: GuestClient

    async def stands(self) -> None:
        """Wait until it stands still, its clock included."""
        await until(lambda: self.rest.stage is RestStage.PAUSED)
        assert self.clone.agent.held and self.runtime.paused == {"r1"}

    async def step(self, seq: int) -> None:
        await self.rest.acquire()
        try:
            await self.client.step(seq, [], hold=True, timeout_s=5)
            assert self.rest.thinking is not None
            self.rest.thinking.mark_held()
        finally:
            self.rest.release()


@pytest.fixture
async def desktop(tmp_path: Path) -> AsyncIterator[Desktop]:
    """A desktop that stands still between calls and charges nothing."""
    runtime = FakeRuntime(tmp_path / "r")
    runtime.pausable = True
    clone = await runtime.create(base.ReplicaSpec("r1", 1, FakeImage()))
    assert isinstance(clone, FakeReplica)
    rest = ReplicaRest(runtime, clone, WakeSlots(lambda: 1e6, 32), Counter())
    async with GuestClient(clone.guest, wake_lock=rest) as client:
        rest.before_pause = client.drop_idle
        await rest.begin_thinking(real_time=False)
        yield Desktop(runtime, clone, rest, client)
    await runtime.stop()


async def test_it_stands_still_from_the_first_pause_on(desktop: Desktop) -> None:
    """A step lets it go on; the answer of the step finds it standing still again."""
    assert desktop.rest.stage is RestStage.PAUSED
    await desktop.stands()
    await desktop.step(1)
    assert desktop.clone.agent.held
    await desktop.stands()
    assert desktop.clone.agent.charges == [0.0]


async def test_a_look_does_not_let_the_clock_go_on(desktop: Desktop) -> None:
    """Its processes run for the call, and its clock stands still all the while."""
    holds = desktop.rest.thinking and desktop.rest.thinking.holds
    await desktop.client.observe(None)
    await desktop.client.health()
    await desktop.stands()
    assert desktop.clone.agent.charges == []
    assert desktop.rest.thinking and desktop.rest.thinking.holds == holds


async def test_each_thought_has_its_charge(desktop: Desktop) -> None:
    """What was named for one is not that of the next; what could not pass is left to be waited for."""
    clock = desktop.rest.thinking
    assert clock is not None and not clock.charges
    clock.charge(2.5)
    assert clock.charges
    await desktop.step(1)
    await desktop.stands()
    await desktop.step(2)
    await desktop.stands()
    assert desktop.clone.agent.charges == [2.5, 0.0]
    assert clock.left_s == 2.5


async def test_real_time_is_for_the_guest_to_count(desktop: Desktop) -> None:
    """It is told no number, and nothing is left."""
    await desktop.rest.acquire()
    desktop.rest.begin_thinking(real_time=True)
    desktop.rest.release()
    clock = desktop.rest.thinking
    assert clock is not None and clock.charges
    await desktop.stands()
    await desktop.step(1)
    assert desktop.clone.agent.charges == [0.0, None]
    assert clock.left_s == 0.0


async def test_a_step_does_not_stop_the_clock_of_a_call_beside_it(desktop: Desktop) -> None:
    """A command that sleeps would never end, and its episode would be lost."""
    await desktop.rest.acquire()
    await desktop.step(1)
    await until(lambda: not desktop.clone.agent.held)
    assert desktop.rest.stage is RestStage.AWAKE
    desktop.rest.release()
    await desktop.stands()


async def test_a_look_beside_a_step_leaves_the_clock_held(desktop: Desktop) -> None:
    """It is a still call: the desktop is paused once it has ended."""
    await desktop.rest.acquire(still=True)
    await desktop.step(1)
    await asyncio.sleep(0)
    assert desktop.clone.agent.held and desktop.rest.stage is RestStage.AWAKE
    desktop.rest.release(still=True)
    await desktop.stands()


async def test_a_desktop_that_stands_still_is_reclaimed(desktop: Desktop) -> None:
    """Its memory goes to swap like that of others at rest, and a step brings it back with its clock."""
    await desktop.stands()
    await desktop.rest.reclaim()
    assert desktop.rest.stage is RestStage.RECLAIMED
    await desktop.step(1)
    await desktop.stands()
    assert desktop.clone.agent.charges == [0.0]


async def test_an_agent_that_refuses_to_go_on_is_at_fault(desktop: Desktop) -> None:
    """It did so at the create: this is no refusal of the step, after which an episode would go on."""
    await desktop.stands()
    desktop.clone.agent.refuses = "not_available"
    desktop.clone.agent.refused_paths = frozenset({"/v1/clock/resume"})
    with pytest.raises(GuestProtocolError, match="refused to hold or resume its clocks"):
        await desktop.rest.acquire()
    assert desktop.rest.calls == 0


async def test_a_desktop_that_cannot_be_held_runs_on(desktop: Desktop) -> None:
    """Calls still reach it."""
    await desktop.stands()
    agent = desktop.clone.agent
    agent.refuses, agent.refused_paths = "busy", frozenset({"/v1/clock/hold"})
    await desktop.client.execute(["true"], timeout_s=5)
    await until(lambda: desktop.rest._changes is not None and desktop.rest._changes.done())
    assert desktop.rest.stage is RestStage.AWAKE and not agent.held
    assert (await desktop.client.health()).last_seq == 0
