"""Policies, crashed workers and many waiting clients over real desktops of the small image."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from tests.support.host_process import HostProcess, running_host, wait_until

from osgym_host.images.store import Image
from osgym_sdk import AsyncClient, ErrorClass

TASK: dict[str, Any] = {
    "instruction": "Leave the word hello in a file.",
    "config": [{"type": "execute", "parameters": {"command": ["sh", "-c", "echo hello > /tmp/word"]}}],
    "evaluator": {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": ["cat", "/tmp/word"]},
        "expected": {"type": "rule", "rules": {"expected": "hello\n"}},
    },
}


@pytest.fixture(scope="module")
def desks(small_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host agent with two desktops and no more."""
    with running_host(
        f"desks-{os.getpid()}",
        log_dir=tmp_path_factory.mktemp("desks"),
        warm=2,
        max_replicas=2,
        settings=["osgym_make_way_s=1"],
    ) as running:
        yield running


class Number:
    """A number as numpy's: `tolist`, and no int."""

    def __init__(self, value: float) -> None:
        self.value = value

    def tolist(self) -> float:
        return self.value


async def test_a_batch_of_bad_and_good_policies(desks: HostProcess) -> None:
    """Numbers of numpy's kind move the real pointer; what is no action earns nothing; the others score."""
    returned: dict[str, Any] = {
        "good": "click(300,200)",
        "numbers": {"op": "move", "x": Number(321.0), "y": 200.0},
        "keywords": "type(content='hello\\n')",
        "number": 5,
        "nan": {"op": "click", "x": float("nan"), "y": 1},
        "outside": "click(99999,1)",
        "key": {"op": "key", "keys": ["ctl", "c"]},
    }

    def policy(obs: Any, task: Any, step: int) -> Any:
        if task["id"] == "raises":
            sys.exit("bye")
        return returned[task["id"]] if step == 0 else "finish()"

    tasks = [{**TASK, "id": name} for name in (*returned, "raises")]
    async with AsyncClient(desks.url) as client:
        results = {r.task_id: r async for r in client.run(tasks, policy, concurrency=2, wait_s=120)}
    assert {name: r.reward for name, r in results.items()} == {
        name: 1.0 if name in ("good", "numbers") else None for name in (*returned, "raises")
    }
    assert results["numbers"].steps[0].executed[0] == {"op": "move", "x": 321, "y": 200}
    for name in ("keywords", "number", "nan", "outside", "key", "raises"):
        failure = results[name].failure
        assert failure is not None and failure.error_class is ErrorClass.MODEL, name
        assert results[name].steps == []
    assert "UI-TARS" in results["keywords"].failure.message  # type: ignore[union-attr] # checked above
    assert "did you mean ctrl" in results["key"].failure.message  # type: ignore[union-attr] # the same


def reset(url: str) -> requests.Response:
    """As OSGym's clients do it, with their timeout of 17 minutes."""
    body = {"task_config": {**TASK, "id": "t"}, "timeout": 1000}
    return requests.post(f"{url}/reset", json=body, timeout=120)


def test_a_crashed_worker_starts_again(desks: HostProcess) -> None:
    """All desktops are its own from before: the one that was idle longest makes way, within seconds."""
    wait_until(lambda: len(desks.replicas("ready")) == 2, 60, "two clean desktops")
    first, second = (reset(desks.url).json()["vm_id"] for _ in range(2))
    began = time.monotonic()
    again = reset(desks.url)
    assert again.status_code == 200, again.text
    assert time.monotonic() - began < 30
    assert again.json()["vm_id"] not in (first, second)
    step = requests.post(f"{desks.url}/step", json={"action": "wait()", "vm_id": first}, timeout=60)
    assert (step.status_code, step.json()["code"]) == (400, "lease_expired")
    step = requests.post(f"{desks.url}/step", json={"action": "wait()", "vm_id": second}, timeout=60)
    assert step.status_code == 200
    requests.post(f"{desks.url}/shutdown", json={"vm_id": "all"}, timeout=60).raise_for_status()


async def test_one_clients_crowd_does_not_hold_up_another(desks: HostProcess) -> None:
    """Sixteen tasks of one client wait; a single one of another has its turn among the first."""
    wait_until(lambda: not desks.replicas("leased"), 60, "all desktops given back")
    order: list[str] = []

    async def one(client: AsyncClient, name: str) -> None:
        async with client.episode(wait_s=300):
            order.append(name)
            await asyncio.sleep(0.3)

    async with AsyncClient(desks.url) as greedy, AsyncClient(desks.url) as modest:
        crowd = [asyncio.create_task(one(greedy, "greedy")) for _ in range(16)]
        async with asyncio.timeout(60):
            while (await state_of(greedy)).capacity.waiting < 12:  # noqa: ASYNC110 - what is polled is remote
                await asyncio.sleep(0.05)
        before = len(order)
        await one(modest, "modest")
        assert order.index("modest") - before <= 4
        await asyncio.gather(*crowd)
    assert sorted(order) == ["greedy"] * 16 + ["modest"]


async def state_of(client: AsyncClient) -> Any:
    """The state of the only host."""
    return next(iter((await client.host_states()).values()))


def test_sigterm_of_a_trainer_gives_its_desktops_back(desks: HostProcess) -> None:
    """Long before its leases would run out."""
    wait_until(lambda: not desks.replicas("leased"), 60, "all desktops given back")
    code = f"""
        import time
        from osgym_sdk import Client
        with Client({desks.url!r}) as client:
            tasks = [None, None]
            list(client.run(tasks, lambda obs, task, step: "wait()", concurrency=2, lease_ttl_s=600))
        """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stderr=subprocess.DEVNULL
    ) as trainer:
        try:
            wait_until(lambda: len(desks.replicas("leased")) == 2, 60, "two leases")
            began = time.monotonic()
            trainer.send_signal(signal.SIGTERM)
            assert trainer.wait(30) == 143
            wait_until(lambda: not desks.replicas("leased"), 10, "the leases were given back")
            assert time.monotonic() - began < 15
        finally:
            trainer.kill()
