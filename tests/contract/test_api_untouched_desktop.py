"""Host API v1: a check that the policy may have broken is judged by what an untouched desktop answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.contract.test_api_policy_losses import evaluated, score
from tests.support.api_answers import error
from tests.support.fake_runtime import TASK, FakeReplica, Service, running_service
from tests.support.waiting import until

from osgym_host.core.reasons import Reason
from osgym_host.episodes import untouched
from osgym_host.runtimes import base
from osgym_protocol.codes import ErrorClass
from osgym_sdk import wire

ASKS: dict[str, Any] = {**TASK, "config": []}
EXECUTE = frozenset({"/setup/execute"})
UNTRIED = "the check could not be tried on an untouched desktop"
FAILS = "the check also fails on an untouched desktop"


def breaks(replica: FakeReplica, paths: frozenset[str] = EXECUTE) -> None:
    """Make the agent answer calls of these paths with an internal error."""
    replica.agent.refuses, replica.agent.refused_paths = "internal", paths


def changes_new_desktops(
    service: Service, monkeypatch: pytest.MonkeyPatch, change: Callable[[FakeReplica], object]
) -> None:
    """Apply a change to each desktop that is made from now on."""
    create = service.runtime.create

    async def changed(spec: base.ReplicaSpec) -> base.Replica:
        made = await create(spec)
        assert isinstance(made, FakeReplica)
        change(made)
        return made

    monkeypatch.setattr(service.runtime, "create", changed)


async def acted(service: Service, task: dict[str, Any], paths: frozenset[str] = EXECUTE) -> dict[str, Any]:
    """Return an episode whose policy has acted and then broken its agent."""
    episode = await service.create(task=task)
    await service.step(episode, 1, "click(1,2)")
    breaks(service.guest_of(episode), paths)
    return episode


def untouched_of(service: Service, *mine: dict[str, Any]) -> list[FakeReplica]:
    """Return the desktops that no client has."""
    known = {episode["generation"] for episode in mine}
    return [replica for replica in service.runtime.alive.values() if replica.generation not in known]


def said(answer: wire.EvaluationAnswer) -> tuple[float | None, str]:
    """Return the reward and the finding of the trial."""
    assert answer.error is not None
    assert answer.error_class is ErrorClass.INFRA
    return answer.reward, str(answer.error.details["untouched"])


@pytest.mark.parametrize("ends", [base.ExitReason.SESSION_ENDED, base.ExitReason.KILLED])
async def test_an_untouched_desktop_that_dies_proves_nothing(tmp_path: Path, ends: base.ExitReason) -> None:
    """The episode has no reward, and the next one of the task has another trial."""
    async with running_service(tmp_path, warm=1, max_replicas=2) as service:
        episode = await acted(service, ASKS)
        await until(lambda: untouched_of(service, episode))
        [other] = untouched_of(service, episode)
        other.agent.execute_gate.clear()
        asked = asyncio.create_task(score(service, episode))
        await until(lambda: ["answer"] in other.agent.commands)
        other.die(ends)
        assert said(await asked) == (None, UNTRIED)
        service.agent.episodes.end(service.agent.episodes.find(episode["episode_id"]), Reason.CLOSED)
        again = await acted(service, ASKS)
        assert (await score(service, again)).reward == 0


async def test_no_desktop_in_time_proves_nothing_and_the_trial_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client waits up to its bound; the trial's later finding applies to the next episode."""
    monkeypatch.setattr(untouched, "CLIENT_WAITS_S", 0.3)
    async with running_service(tmp_path, warm=0, max_replicas=1) as service:
        episode = await acted(service, ASKS)
        answer = await score(service, episode)
        assert said(answer) == (None, UNTRIED)
        assert await score(service, episode) == answer
        service.agent.episodes.end(service.agent.episodes.find(episode["episode_id"]), Reason.CLOSED)
        judge = service.agent._untouched
        await until(lambda: judge._proven and not judge._trials, 20)
        again = await acted(service, ASKS)
        assert (await score(service, again)).reward == 0


async def test_episodes_of_a_task_share_a_trial(service: Service) -> None:
    """Episodes that ask at once use one desktop."""
    episodes = [await acted(service, ASKS) for _ in range(2)]
    await until(lambda: service.agent.pool.view().leased == 2)
    before = service.runtime.made
    answers = await asyncio.gather(*(score(service, episode) for episode in episodes))
    assert [answer.reward for answer in answers] == [0, 0]
    commands = [replica.agent.commands for replica in service.runtime.alive.values()]
    assert service.runtime.made - before <= 2, commands


def check(*command: str, expected: str = "yes\n") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a result and an expected value of a check."""
    result = {"type": "vm_command_line", "command": list(command)}
    return result, {"type": "rule", "rules": {"expected": expected}}


async def test_the_question_that_failed_is_asked_whatever_comes_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent fails in the second check of every desktop, where the first one ends the check."""
    first, second = check("answer", expected="no\n"), ({"type": "accessibility_tree"}, check()[1])
    evaluator = {
        "func": ["exact_match", "exact_match"],
        "conj": "and",
        "result": [first[0], second[0]],
        "expected": [first[1], second[1]],
    }
    task = {**ASKS, "evaluator": evaluator}
    tree = frozenset({"/accessibility"})
    async with running_service(tmp_path, warm=0, max_replicas=3) as service:
        episode = await service.create(task=task)
        await service.step(episode, 1, "click(1,2)")
        breaks(service.guest_of(episode), tree)
        changes_new_desktops(service, monkeypatch, lambda made: breaks(made, tree))
        found = service.agent.episodes.find(episode["episode_id"])
        # The policy has passed the first check.
        monkeypatch.setattr(found.context.sandbox, "run", passed)
        assert said(await score(service, episode)) == (None, FAILS)


async def passed(*_: object) -> Any:
    """A metric that accepts any result."""
    from osgym_host.tasks.sandbox import MetricVerdict

    return MetricVerdict(1.0, "")


async def test_a_host_that_stops_while_it_judges_gives_no_0(tmp_path: Path) -> None:
    """A finding after the stop has no effect, and the stop does not wait for the trial."""
    async with running_service(tmp_path, warm=1, max_replicas=2) as service:
        episode = await acted(service, ASKS)
        await until(lambda: untouched_of(service, episode))
        [other] = untouched_of(service, episode)
        other.agent.execute_gate.clear()
        asked = asyncio.create_task(evaluated(service, episode))
        await until(lambda: ["answer"] in other.agent.commands)
        service.agent.episodes.end_all(Reason.SHUTDOWN)
        lost = await asyncio.wait_for(asked, 5)
        assert lost.json()["details"]["cause"] == "shutdown"
        assert error(lost)[1] == "episode_lost"
        assert service.agent.episodes.find(episode["episode_id"]).evaluation is None
