"""The SDK's `think` on a host agent over fake replicas: what each thought is charged by each way to step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_guest import Guest
from tests.support.fake_runtime import TASK, Served

from osgym_sdk import AsyncClient, Client, Decision, Unsupported

CLICK = "click(3, 5)"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A host whose replicas can be paused."""
    with Served(tmp_path, warm=1, trajectory="off") as running:
        running.runtime.pausable = True
        yield running


def agents(served: Served) -> list[Guest]:
    """Return the guest agents of all replicas that live now."""
    return [replica.agent for replica in list(served.runtime.alive.values())]


def played(served: Served) -> Guest:
    """Return the one guest agent that has acted."""
    (agent,) = [agent for agent in agents(served) if agent.acted]
    return agent


def test_a_run_charges_tokens(served: Served) -> None:
    """By what each decision says of its tokens; a charge of its own comes first, and none is none."""
    decisions: list[Any] = [
        Decision(CLICK, {"usage": {"output_tokens": 20}}),
        Decision(CLICK, {"usage": {"output_tokens": 20}}, think_s=0.05),
        CLICK,
    ]
    seen: list[Guest] = []

    def policy(obs: object, task: object, step: int) -> Any:
        seen.extend(agents(served))
        return decisions[step] if step < len(decisions) else None

    with Client(served.urls[0]) as client:
        (result,) = client.run([TASK], policy, think="paused", think_charge=0.01)
    assert result.reward == 1
    (agent,) = {id(agent): agent for agent in seen if agent.acted}.values()
    assert [charge_s for charge_s in agent.charges if charge_s] == [0.2, 0.05]


async def test_a_client_charges_real_time_unless_a_step_says_more(served: Served) -> None:
    """Of a client, single steps and steps of many."""
    async with AsyncClient(served.urls, think="paused", think_charge="real") as client:
        async with client.episode() as episode:
            await episode.step(CLICK)
            await episode.step(CLICK, think_s=0.1)
            async for _, outcome in client.step_many([(episode, Decision(CLICK, think_s=0.2))]):
                assert not isinstance(outcome, Exception)
            charges = played(served).charges
        assert [charge_s for charge_s in charges if charge_s is not None] == [0.1, 0.2]
        async with client.episode(think="live") as episode:
            await episode.step(CLICK)
            assert played(served).charges == []


def test_a_host_that_cannot_is_named(served: Served) -> None:
    """The error is that of other things that a host cannot do."""
    served.runtime.pausable = False
    with Client(served.urls[0]) as client, pytest.raises(Unsupported, match="cannot pause a replica"):
        client.episode(think="paused").start()
