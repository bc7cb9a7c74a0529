"""Batches and the synchronous client over a real HTTP server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support import fake_v1_host
from tests.support.fake_v1_host import FakeV1Host, Running, serving

from osgym_sdk import AsyncClient, Client, EpisodeLost, Progress, Result, Timeouts

QUICK = Timeouts(connect_s=2.0, control_s=3.0, step_s=5.0, setup_s=5.0, evaluate_s=5.0, retry_s=1.0)


@pytest.fixture
def running() -> Iterator[Running]:
    """A host with four replicas."""
    with serving(FakeV1Host()) as started:
        yield started


def three_clicks(obs: Any, task: Any, step: int) -> str:
    """A plain function as a policy."""
    return "click(1,1)" if step < 3 else "finish()"


async def collect(results: Any) -> list[Result]:
    """All results, in the order of the tasks."""
    return sorted([r async for r in results], key=lambda r: r.index)


async def test_a_batch_scores_every_task(running: Running) -> None:
    """More tasks than replicas, results for all, progress told, nothing left behind."""
    seen: list[Progress] = []
    tasks = [{"id": f"t{i}"} for i in range(10)]
    async with AsyncClient(running.url) as client:
        results = await collect(client.run(tasks, three_clicks, concurrency=6, on_progress=seen.append))
    assert [r.task_id for r in results] == [f"t{i}" for i in range(10)]
    assert all(r.ok and r.reward == 1.0 and r.valid_for_training for r in results)
    assert {(r.termination_reason, len(r.steps), r.attempts) for r in results} == {("done", 4, 1)}
    assert (seen[-1].finished, seen[-1].total, seen[-1].mean_reward) == (10, 10, 1.0)
    assert max(p.running for p in seen) <= 6
    assert running.host.live() == []


async def test_failures_are_typed_and_stop_nobody_else(running: Running) -> None:
    """Policy, task, check and replica each fail in their own way; none has a reward of 0."""

    async def policy(obs: Any, task: Any, step: int) -> str | None:
        if task["id"] == "raises":
            raise ZeroDivisionError("oops")
        if task["id"] == "nonsense":
            return "nonsense"
        if task["id"] == "lost" and step == 1:
            episode = next(e for e in running.host.live() if e.request.task == task)
            running.host.lose(episode, "out_of_memory")
        return "click(1,1)" if step < 2 else None

    names = ["good", "raises", "nonsense", "lost", "broken-setup", "broken-check"]
    async with AsyncClient(running.url) as client:
        results = await collect(client.run([{"id": name} for name in names], policy))
    by_name = {r.task_id: r for r in results}
    told = {
        name: (r.reward, r.termination_reason, r.failure and (r.failure.code, r.failure.error_class))
        for name, r in by_name.items()
    }
    assert told == {
        "good": (1.0, "policy_stopped", None),
        "raises": (None, "policy_error", ("policy_error", "model")),
        "nonsense": (None, "invalid_action", ("invalid_action", "model")),
        "lost": (None, "replica_lost", ("episode_lost", "infra")),
        "broken-setup": (None, "setup_failed", ("setup_failed", "task")),
        "broken-check": (None, "evaluator_error", ("evaluator_error", "task")),
    }
    assert by_name["nonsense"].note == "cannot parse 'nonsense'"
    assert [name for name, r in by_name.items() if r.valid_for_training] == ["good"]
    assert isinstance(by_name["lost"].failure.cause, EpisodeLost)  # type: ignore[union-attr] # is there
    assert running.host.live() == []


async def test_a_lost_task_is_tried_again_on_a_fresh_replica(running: Running) -> None:
    """With retries an infrastructure failure does not reach the trainer."""
    lost = []

    async def policy(obs: Any, task: Any, step: int) -> str | None:
        if not lost:
            lost.append(running.host.live()[0])
            running.host.lose(lost[0], "hung")
        return "x" if step < 1 else None

    async with AsyncClient(running.url) as client:
        [result] = await collect(client.run([{"id": "t"}], policy, retries=1))
    assert (result.reward, result.attempts, result.failure) == (1.0, 2, None)
    assert result.trajectory.episode_id != lost[0].episode_id


async def test_max_steps_and_episode_deadline(running: Running) -> None:
    """An endless policy is cut off and scored; one that takes too long is a failure."""
    async with AsyncClient(running.url) as client:
        [result] = await collect(client.run([{"id": "t"}], lambda obs, task, step: "x", max_steps=3))
        assert (len(result.steps), result.termination_reason, result.reward) == (3, "max_steps", 1.0)
        running.host.step_delay_s = 10.0
        batch = client.run([{"id": "t"}], lambda obs, task, step: "x", episode_timeout_s=0.3)
        [result] = await collect(batch)
        assert (result.reward, result.termination_reason) == (None, "deadline")
    assert running.host.live() == []


async def test_policies_with_a_state(running: Running) -> None:
    """reset gives each episode its own policy object."""

    class Mine:
        def __init__(self) -> None:
            self.count = 0

        def reset(self, task: Any) -> Mine:
            return Mine()

        def act(self, obs: Any, task: Any, step: int) -> str | None:
            assert self.count == step
            self.count += 1
            return "x" if step < 3 else None

    async with AsyncClient(running.url) as client:
        results = await collect(client.run([{"id": str(i)} for i in range(8)], Mine(), concurrency=4))
    assert all(r.ok and len(r.steps) == 3 for r in results)


async def test_plain_policies_run_side_by_side(running: Running) -> None:
    """A policy that blocks its thread does not block the others."""
    meeting = threading.Barrier(4, timeout=20)

    def policy(obs: Any, task: Any, step: int) -> str | None:
        meeting.wait()
        return None

    async with AsyncClient(running.url) as client:
        results = await collect(client.run([{"id": str(i)} for i in range(4)], policy, concurrency=4))
    assert all(r.ok for r in results)


async def test_tasks_are_pulled_as_there_is_room(running: Running) -> None:
    """An endless source is fine; leaving the loop stops everything and frees the replicas."""
    pulled = 0

    async def source() -> AsyncIterator[dict[str, str]]:
        nonlocal pulled
        while True:
            pulled += 1
            yield {"id": str(pulled)}

    async with AsyncClient(running.url) as client:
        count = 0
        async for result in client.run(source(), three_clicks, concurrency=3):
            assert result.ok
            count += 1
            if count == 5:
                break
    assert pulled <= 5 + 2 * 3 + 1
    assert running.host.live() == []


async def test_a_slow_consumer_holds_the_batch_back(running: Running) -> None:
    """Results that wait are bounded by the concurrency."""
    async with AsyncClient(running.url) as client:
        batch = aiter(client.run(({"id": str(i)} for i in range(100)), three_clicks, concurrency=2))
        await anext(batch)
        last = -1
        while last != len(running.host.episodes):
            last = len(running.host.episodes)
            await asyncio.sleep(0.3)
        assert last <= 1 + 2 + 2 + 1
        await batch.aclose()  # type: ignore[attr-defined] # it is a generator


def test_the_sync_client(running: Running) -> None:
    """The same without async: episode, final, evaluation, batch."""
    with Client(running.url) as client:
        with client.episode({"id": "t"}) as episode:
            obs = episode.step("click(1,1)")
            assert obs.image.size == fake_v1_host.SCREEN
            assert obs.final().is_final
            assert episode.observe().size == fake_v1_host.SCREEN
            assert episode.evaluate().reward == 1.0
            assert len(episode.trajectory.steps) == 1

        def policy(obs: Any, task: Any, step: int) -> str | None:
            if step == 1:
                assert obs.final().is_final
            return "x" if step < 2 else None

        results = list(client.run([{"id": str(i)} for i in range(5)], policy, concurrency=2))
        assert len(results) == 5 and all(r.ok for r in results)
        for result in client.run(({"id": str(i)} for i in range(10**9)), policy, concurrency=2):
            assert result.ok
            break
    assert running.host.live() == []
    assert not [t for t in threading.enumerate() if t.name == "osgym-sdk"]


def test_threads_share_a_sync_client(running: Running) -> None:
    """Four threads, four episodes, one client."""

    def use(number: int) -> list[int]:
        with client.episode() as episode:
            return [episode.step(f"move({number},{n})").step for n in range(5)]

    with Client(running.url) as client, ThreadPoolExecutor(4) as threads:
        assert list(threads.map(use, range(4))) == [[1, 2, 3, 4, 5]] * 4
    assert running.host.live() == []


def test_after_a_fork_the_child_is_told(running: Running) -> None:
    """The parent's client cannot work in the child, and says so instead of hanging."""
    code = (
        "import os, warnings; from osgym_sdk import Client, ConfigError\n"
        "warnings.simplefilter('ignore')\n"
        f"c = Client({running.url!r})\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    try:\n"
        "        c.host_states()\n"
        "    except ConfigError as e:\n"
        "        os._exit(7 if 'fork' in str(e) else 1)\n"
        "    os._exit(2)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("7\n", 0), done.stderr


async def test_the_sync_client_inside_a_running_loop(running: Running) -> None:
    """As in Jupyter: the caller's loop is running, and does not matter."""
    with Client(running.url) as client, client.episode() as episode:
        assert episode.step("x").step == 1


def test_a_client_left_open_is_closed_at_exit(running: Running) -> None:
    """A script that just ends gives its replica back and does not hang."""
    code = (
        f"from osgym_sdk import Client; e = Client({running.url!r}).episode(); e.start(); "
        "print(e.step('x').step)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    assert running.host.live() == []


def test_an_interrupt_ends_the_call_and_frees_the_replica(running: Running, tmp_path: Path) -> None:
    """Ctrl-C in the middle of a step raises KeyboardInterrupt at once, and the episode is closed."""
    import signal

    running.host.step_delay_s = 60.0
    code = (
        "from osgym_sdk import Client\n"
        f"with Client({running.url!r}) as c, c.episode() as e:\n"
        "    e.step('long')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    deadline = threading.Event()
    for _ in range(1000):
        if running.host.busy:
            break
        deadline.wait(0.02)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert "KeyboardInterrupt" in stderr
    assert running.host.live() == []


async def test_tls_with_a_private_ca(tmp_path: Path) -> None:
    """A host with its own certificate is trusted by its CA file, and only then."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    argv += ["-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", "/CN=osgym-test"]
    argv += ["-addext", "subjectAltName=IP:127.0.0.1"]
    await asyncio.to_thread(subprocess.run, argv, check=True, capture_output=True, timeout=60)
    with serving(FakeV1Host(), ssl_certfile=str(cert), ssl_keyfile=str(key)) as running:
        for verify in (str(cert), False):
            async with AsyncClient(running.url, verify=verify) as client, client.episode() as episode:
                assert (await episode.step("x")).step == 1
        async with AsyncClient(running.url, timeouts=QUICK) as client:
            with pytest.raises(Exception, match="certificate"):
                await client.episode(wait_s=0.2).start()
