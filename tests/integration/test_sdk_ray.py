"""Rollouts with a real Ray over real desktops: one actor is killed in the middle."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from tests.support.doc_examples import blocks
from tests.support.host_process import HostProcess, wait_until

from osgym_sdk import ConfigError
from osgym_sdk.ray import Rollouts, resource_of

pytestmark = [
    pytest.mark.desktop,
    # Ray leaves sockets and files of its processes to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray", "ignore::DeprecationWarning:ray"),
]

TASK: dict[str, Any] = {
    "id": "word",
    "instruction": "Leave the word hello in a file.",
    "config": [{"type": "execute", "parameters": {"command": ["sh", "-c", "echo hello > /tmp/word"]}}],
    "evaluator": {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": ["cat", "/tmp/word"]},
        "expected": {"type": "rule", "rules": {"expected": "hello\n"}},
    },
}


@pytest.fixture(scope="module")
def desks(host: HostProcess) -> HostProcess:
    """The shared host: what is lost here are replicas, never the host."""
    return host


@pytest.fixture(scope="module")
def cluster(desks: HostProcess) -> Iterator[None]:
    """Ray on this machine, with the host's replicas as a custom resource. It keeps SIGTERM's handler."""
    before = signal.getsignal(signal.SIGTERM)
    ray.init(num_cpus=2, resources={resource_of(desks.url): 6}, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()
    signal.signal(signal.SIGTERM, before)


def test_an_actor_that_dies_is_replaced_and_its_leases_given_back(
    desks: HostProcess, cluster: None, tmp_path: Path
) -> None:
    """Two actors, six tasks, a buffer of two: one is killed while it holds a desktop, and no task is lost."""
    first = tmp_path / "first"

    def make_policy() -> Any:
        def policy(obs: Any, task: Any, step: int) -> Any:
            if task["id"] == "0" and not first.exists():
                first.write_text(str(os.getpid()))
                while True:  # the actor is killed here, with its lease
                    time.sleep(1)
            return "finish()" if step else {"op": "screenshot"}

        return policy

    tasks = [{**TASK, "id": str(number)} for number in range(6)]
    with Rollouts(
        tasks, make_policy, hosts=desks.url, replicas=2, replicas_per_actor=1, capacity=2, max_steps=5,
        lease_ttl_s=300.0, settle="fast",
    ) as rollouts:  # fmt: skip
        assert [plan.replicas for plan in rollouts.plans] == [1, 1]
        wait_until(first.exists, 60, "an actor plays the first task")
        held = {one["episode_id"] for one in desks.replicas("leased")}
        os.kill(int(first.read_text()), signal.SIGKILL)
        results = list(rollouts)
        assert sorted(result.task_id for result in results) == sorted(task["id"] for task in tasks)
        assert [result.reward for result in results] == [1.0] * 6
        assert rollouts.replaced == 1 and held
        assert rollouts.stats()["most_waiting"] <= 2
        assert len(rollouts.sample(4)) == 4
        assert not {one["episode_id"] for one in desks.replicas("leased")}  # its lease runs for minutes yet
    assert ray.is_initialized()  # it was not begun there


def test_resources_that_the_cluster_lacks_are_named(desks: HostProcess, cluster: None) -> None:
    """With the command that brings them; and a fault of the policy's maker is raised as it is."""
    other = desks.url.replace("127.0.0.1", "localhost")
    with pytest.raises(ConfigError, match=r"ray start --resources='\{\"osgym:localhost"):
        Rollouts([TASK], lambda: None, hosts=other)  # type: ignore[arg-type,return-value] # never called


def test_the_pages_example(desks: HostProcess, cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python of docs/ray.md as it stands, on the Ray that runs."""
    monkeypatch.setenv("OSGYM_HOSTS", desks.url)
    (block,) = blocks("docs/ray.md")
    found: dict[str, Any] = {}
    exec(block, found)
    assert found["rewards"] == [0.0, 0.0]
    wait_until(lambda: not desks.replicas("leased"), 20, "all desktops given back")
