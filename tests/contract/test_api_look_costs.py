"""Host API v1: calls that only look are bounded, so that they do not slow other clients' work."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.api_answers import error
from tests.support.fake_runtime import Service, record, running_service

from osgym_host.api.cpu_share import CpuShares
from osgym_host.core import cpu_budget
from osgym_host.cpu_cost import MeasuredCall, charged_to_caller
from osgym_host.episodes import screenshots
from osgym_host.http.access import sender_of
from osgym_host.http.tokens import ScopedToken, add_token
from osgym_protocol.codes import TokenScope

FLOOD_S = 1.0
HEAVY = ["/metrics", "/v1/episodes?limit=1000", "/v1/replicas", "/v1/history", "/openapi.json", "/v1/host"]


async def flood(service: Service, path: str, token: str, connections: int = 8) -> int:
    """Ask as fast as answers come, over several connections; return the number of answers."""
    end_s = time.monotonic() + FLOOD_S
    headers = {"Authorization": f"Bearer {token}"}

    async def ask() -> int:
        count = 0
        while time.monotonic() < end_s:
            answer = await service.http.get(path, headers=headers)
            assert answer.status_code in (200, 429)
            count += 1
        return count

    return sum(await asyncio.gather(*(ask() for _ in range(connections))))


@pytest.mark.parametrize("path", HEAVY)
async def test_who_only_looks_uses_a_share_of_the_processor(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood over eight connections gets less than a third of its unbounded answers; others lose none."""
    monkeypatch.setattr(cpu_budget, "BURST_S", 0.02)
    tokens = tmp_path / "tokens"
    wall, other = (add_token(tokens, TokenScope.OBSERVE, name) for name in ("wall", "other"))
    options: dict[str, Any] = {"token": "s", "tokens_file": tokens, "token_calls_per_s": 0}
    counts = []
    for percent in (0, 2):
        folder = tmp_path / str(percent)
        async with running_service(folder, warm=1, look_cpu_percent=percent, **options) as service:
            service.http.headers["Authorization"] = "Bearer s"
            episode = await service.create()
            counts.append(await flood(service, path, wall))
            began_s = time.monotonic()
            record(await service.step(episode, 1, "wait()"))
            headers = {"Authorization": f"Bearer {other}"}
            assert (await service.http.get(path, headers=headers)).status_code == 200
            assert time.monotonic() - began_s < 3
    free, bounded = counts
    assert 8 <= bounded < free / 3


async def test_beyond_a_second_it_is_refused(tmp_path: Path) -> None:
    """After a second, calls get 429 with the time to wait; later calls of others are answered."""
    tokens = tmp_path / "tokens"
    wall = add_token(tokens, TokenScope.OBSERVE, "wall")
    options: dict[str, Any] = {"token": "s", "tokens_file": tokens, "token_calls_per_s": 0}
    async with running_service(tmp_path, warm=0, look_cpu_percent=0.01, **options) as service:
        headers = {"Authorization": f"Bearer {wall}"}
        for _ in range(1000):
            began_s = time.monotonic()
            answer = await service.http.get("/metrics", headers=headers)
            if answer.status_code != 200:
                break
        assert error(answer) == (429, "rate_limited")
        assert 1 <= time.monotonic() - began_s < 2.5
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["details"]["retry_after_s"] > 0
        assert (await service.http.get("/metrics", headers={"Authorization": "Bearer s"})).status_code == 200


STATE = ["/metrics", "/v1/access", "/v1/host", "/v1/pool", "/v1/episodes/{episode_id}"]


async def test_the_state_waits_for_nobody_who_works(tmp_path: Path) -> None:
    """A token for steps reads the state at once, however much it looks; an observer's has a budget for it."""
    tokens = tmp_path / "tokens"
    wall, work = (add_token(tokens, scope, scope.value) for scope in (TokenScope.OBSERVE, TokenScope.RUN))
    options: dict[str, Any] = {"token": "s", "tokens_file": tokens, "token_calls_per_s": 0}
    async with running_service(tmp_path, warm=1, look_cpu_percent=0.001, **options) as service:
        service.http.headers["Authorization"] = "Bearer s"
        episode = await service.create()
        for token in (wall, work, "s"):
            headers = {"Authorization": f"Bearer {token}"}
            while (await service.http.get("/v1/replicas", headers=headers)).status_code == 200:
                pass
            for path in STATE if token != wall else ["/v1/host"]:
                for _ in range(50 if token != wall else 1):
                    began_s = time.monotonic()
                    answer = await service.http.get(path.format(**episode), headers=headers)
                    assert (answer.status_code, time.monotonic() - began_s < 1) == (200, True), path


async def test_a_call_that_goes_away_while_it_waits_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call gets the CPU time that was reserved for the cancelled one."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("it has not waited")

    shares = CpuShares(answer, percent=1)
    scope = {"type": "http", "method": "GET", "path": "/v1/replicas", "client": ("10.0.0.1", 1)}
    scope["osgym_caller"] = ScopedToken(TokenScope.OBSERVE, "wall", b"digest")
    caller = sender_of(scope).token
    budget = shares._budget
    budget.settle(budget.reserve(caller, "/v1/replicas", 0.01, time.monotonic()), cpu_budget.BURST_S + 0.004)
    left = budget._credits[caller][0]
    for _ in range(20):
        waiting = asyncio.ensure_future(shares(scope, cast(Any, None), cast(Any, None)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert budget._credits[caller][0] >= left


def work(seconds: float) -> None:
    """Use CPU time."""
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


async def test_a_calls_cost_is_its_own() -> None:
    """Work of others during its waits does not count; errors that it raises or receives pass through."""

    async def call() -> None:
        work(0.02)
        await asyncio.sleep(0.02)
        work(0.02)
        raise KeyError("mine")

    async def others() -> None:
        for _ in range(10):
            work(0.02)
            await asyncio.sleep(0)

    async def measured(one: MeasuredCall[None]) -> None:
        await one

    one = MeasuredCall(call())
    results = await asyncio.gather(measured(one), others(), return_exceptions=True)
    assert isinstance(results[0], KeyError)
    assert 0.04 <= one.cost_s < 0.06
    waiting = MeasuredCall(asyncio.sleep(60))
    task = asyncio.create_task(measured(waiting))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_a_task_does_for_a_call_is_of_its_cost() -> None:
    """A shared task, such as a screenshot's, is charged to the call that started it."""

    async def capture() -> str:
        work(0.02)
        await asyncio.sleep(0)
        work(0.02)
        return "picture"

    async def call() -> str:
        return await asyncio.shield(asyncio.create_task(charged_to_caller(capture())))

    first, second = MeasuredCall(call()), MeasuredCall(asyncio.sleep(0.1, "no picture"))
    assert await asyncio.gather(first.run(), second.run()) == ["picture", "no picture"]
    assert 0.04 <= first.cost_s < 0.06
    assert second.cost_s < 0.01
    assert await charged_to_caller(capture()) == "picture"


async def test_a_screenshot_is_charged_to_who_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of the capture counts although a task runs it."""
    tokens = tmp_path / "tokens"
    headers = {"Authorization": f"Bearer {add_token(tokens, TokenScope.OBSERVE, 'wall')}"}
    costs: list[float] = []
    settle = cpu_budget.CpuBudget.settle

    def noted(budget: cpu_budget.CpuBudget, reserved: cpu_budget.Reservation, cost_s: float) -> None:
        costs.append(cost_s)
        settle(budget, reserved, cost_s)

    monkeypatch.setattr(cpu_budget.CpuBudget, "settle", noted)
    observe = screenshots._observe

    async def dear(*given: Any) -> Any:
        work(0.05)
        return await observe(*given)

    monkeypatch.setattr(screenshots, "_observe", dear)
    async with running_service(tmp_path, warm=1, token="s", tokens_file=tokens) as service:
        service.http.headers["Authorization"] = "Bearer s"
        episode = await service.create()
        path = f"/v1/replicas/{episode['replica_id']}/screenshot"
        assert (await service.http.get(path, headers=headers)).status_code == 200
        assert costs[-1] >= 0.05


async def test_a_desktop_is_captured_seldom_in_however_many_sizes(service: Service) -> None:
    """Four captures a second at most, for whole and small pictures together; every call gets one."""
    episode = await service.create()
    path = f"/v1/replicas/{episode['replica_id']}/screenshot"
    agent = service.guest_of(episode).agent
    began_s, before = time.monotonic(), agent.looks
    asked = [f"{path}?width={width}" for width in (320, 640, 960, 1280)] * 3
    answers = await asyncio.gather(*(service.http.get(one) for one in asked))
    assert {answer.status_code for answer in answers} == {200}
    assert agent.looks - before <= (time.monotonic() - began_s) / 0.25 + 1


async def test_whole_pictures_are_shared_and_never_old(service: Service) -> None:
    """Calls share a capture that has not begun; a capture that began before the call is too old."""
    episode = await service.create()
    path = f"/v1/replicas/{episode['replica_id']}/screenshot"
    agent = service.guest_of(episode).agent
    before = agent.looks
    answers = await asyncio.gather(*(service.http.get(path) for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert agent.looks - before <= 2
    seen = agent.looks
    await service.http.get(path)
    assert agent.looks == seen + 1
