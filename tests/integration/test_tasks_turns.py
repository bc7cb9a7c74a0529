"""Checks beside hostile ones: slow results do not delay them, and waits do not use up their time."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from tests.integration.test_tasks_blame import Guest

from osgym_host.core.fair_queue import ClientKey
from osgym_host.episodes.evaluation import CHECK_SLACK_S
from osgym_host.episodes.untouched import CLIENT_WAITS_S
from osgym_host.guest_client import GuestClient
from osgym_host.settings import Settings
from osgym_host.tasks import policy as policy_module
from osgym_host.tasks import sandbox as sandbox_module
from osgym_host.tasks.context import TaskContext
from osgym_host.tasks.downloads import DownloadCache
from osgym_host.tasks.evaluate import evaluate
from osgym_host.tasks.evaluator.registry import MetricEnd
from osgym_host.tasks.evaluator_turns import EvaluatorTurns
from osgym_host.tasks.parse import parse_task
from osgym_host.tasks.policy import CheckDeadline, TaskPolicy
from osgym_host.tasks.sandbox import MetricFailed, MetricJob, Sandbox
from osgym_host.tasks.values import Value
from osgym_sdk import Timeouts

pytestmark = pytest.mark.timeout(240)
SLOW = MetricJob(
    "check_list", Value(data="a" * 40 + "!"), Value(data={"expect": ["^(a+)+$"]}), {}, timeout_s=90, cpu_s=10
)
HONEST = MetricJob("exact_match", Value(data="a"), Value(data={"expected": "a"}), {})


async def test_a_quick_check_waits_for_no_slow_one() -> None:
    """An honest check ends before four slow metrics that run and four that wait."""
    async with Sandbox(max_parallel=4) as sandbox:
        await sandbox.confinement()
        sandbox._turns = EvaluatorTurns(4, 4)
        slow = [
            asyncio.create_task(sandbox.run(SLOW, ClientKey("run", f"hostile {number % 4}")))
            for number in range(8)
        ]
        await asyncio.sleep(0)  # they have asked
        honest = asyncio.create_task(sandbox.run(HONEST, ClientKey("run", "honest")))
        done, _ = await asyncio.wait([*slow, honest], return_when=asyncio.FIRST_COMPLETED)
        assert done == {honest} and honest.result().score == 1
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)


async def test_a_wait_is_not_taken_from_the_checks_time(tmp_path: Path) -> None:
    """Two checks of an episode that has one second, behind a metric that takes three: both are scored."""
    task = parse_task(
        {
            "id": "t",
            "instruction": "i",
            "config": [],
            "evaluator": {
                "func": ["check_include_exclude", "check_include_exclude"],
                "result": [{"type": "vm_file", "path": "/a", "dest": "a"}] * 2,
                "expected": [{"type": "rule", "rules": {"include": ["a"]}}] * 2,
            },
        }
    )
    policy = TaskPolicy()
    async with Sandbox(max_parallel=1) as sandbox:
        await sandbox.confinement()
        context = TaskContext(tmp_path, policy, DownloadCache(tmp_path, policy), sandbox)
        guest = cast("GuestClient", Guest(b"a"))
        for limited in (False, True):
            sandbox._turns = EvaluatorTurns(1, 0)
            slow = asyncio.create_task(sandbox.run(replace(SLOW, cpu_s=3), ClientKey("hostile")))
            await asyncio.sleep(0)
            now = asyncio.get_running_loop().time()
            async with asyncio.timeout(2 if limited else None) as limit:
                verdict = await evaluate(task, guest, context, "done", CheckDeadline(now + 1, limit))
            assert verdict.reward == 1 and slow.done()
            with pytest.raises(MetricFailed):
                await slow


async def test_the_waits_of_a_check_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """All waits of a check together have one bound, so that its client knows the longest duration."""
    monkeypatch.setattr(policy_module, "MAX_WAIT_S", 0.3)
    clock = asyncio.get_running_loop().time
    began, waits = clock(), 0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05) as limit:
            deadline = CheckDeadline(began + 0.05, limit)
            while True:
                with deadline.standing_still():
                    await asyncio.sleep(0.1)
                waits += 1
    assert (waits, clock() - began < 1) == (2, True)


def test_the_client_waits_for_longer_than_a_host_takes() -> None:
    """By default: the check, what it waits for, and the trial on an untouched desktop."""
    settings = Settings.model_fields["evaluate_timeout_s"]
    most_s = settings.default + CHECK_SLACK_S + policy_module.MAX_WAIT_S + CLIENT_WAITS_S
    assert Timeouts().evaluate_s > most_s


async def test_a_slow_metric_gets_enough_beside_quick_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow metric reaches its CPU limit, which is the result's fault, before the wall clock ends it."""
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(usable)})  # for this thread, and the evaluator that it starts
    try:
        async with Sandbox(max_parallel=3) as sandbox:
            await sandbox.confinement()
            monkeypatch.setattr(sandbox_module, "QUICK_S", 0.1)
            slow = asyncio.create_task(sandbox.run(replace(SLOW, cpu_s=1, timeout_s=40)))
            await asyncio.sleep(0)  # it has its place
            monkeypatch.setattr(sandbox_module, "QUICK_S", 60)
            quick = [asyncio.create_task(sandbox.run(replace(SLOW, cpu_s=50))) for _ in range(2)]
            with pytest.raises(MetricFailed) as ended:
                await slow
            assert ended.value.end is MetricEnd.CPU_TIME
            for task in quick:
                task.cancel()
            await asyncio.gather(*quick, return_exceptions=True)
    finally:
        os.sched_setaffinity(0, usable)


async def test_turns_go_round_and_slow_ones_leave_their_place() -> None:
    """Episodes take turns; a slow metric makes room; a cancelled waiter holds no place."""
    turns, order, go = EvaluatorTurns(1, 1, quick_s=0.05), [], asyncio.Event()

    async def take(key: str, *, slow: bool = False) -> None:
        async with turns.turn(ClientKey("run", key)):
            order.append(key)
            if slow:
                await go.wait()

    running = [asyncio.create_task(take("a", slow=True))]
    await asyncio.sleep(0)
    running += [asyncio.create_task(take(key)) for key in ("a", "a", "b")]
    given_up = asyncio.create_task(take("c"))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait(running[1:], timeout=10)
    assert order == ["a", "b", "a", "a"] and not running[0].done()
    go.set()
    await asyncio.gather(*running)
    await asyncio.wait_for(asyncio.gather(*(take(str(n)) for n in range(5))), 10)
    assert (turns._free_quick, turns._free_slow) == (1, 1)


async def test_without_a_slow_place_a_slow_metric_keeps_its_own() -> None:
    """No more than both kinds of places together run at once; a place that becomes free is used at once."""
    turns, most, running = EvaluatorTurns(2, 1, quick_s=0.01), 0, 0

    async def take(number: int) -> None:
        nonlocal most, running
        async with turns.turn(ClientKey("run", str(number))):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.05)
            running -= 1

    await asyncio.wait_for(asyncio.gather(*(take(number) for number in range(12))), 30)
    assert most == 3
    assert (turns._free_quick, turns._free_slow) == (2, 1)
