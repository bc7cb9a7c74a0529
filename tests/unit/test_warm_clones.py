"""Clean replicas that are clones of the first one, over fake replicas; and programs that run in each."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_runtime import FakeRuntime, running_service, until
from tests.support.pools import nobody, pool_of

from osgym_host.core.reasons import Reason
from osgym_host.core.warm_apps import parse_warm_apps
from osgym_host.guest_client import GuestClient, GuestRefused
from osgym_host.replicas import warming
from osgym_host.replicas.pool import Pool
from osgym_host.replicas.warming import MAX_DUMPS, MAX_FAILURES, Warming

APPS = parse_warm_apps(["calc", "chromium"])


def cloning(runtime: FakeRuntime) -> Warming:
    """Clones without programs."""
    return Warming(runtime, clones=True)


async def use_one(pool: Pool, number: int) -> bool:
    """Lease a replica and give it up; whether it was a clone of a warm one."""
    await until(lambda: pool.view().ready == 1)
    manager = await pool.acquire(str(number), nobody, 5)
    cloned = manager.spec.origin is not None
    assert manager.clean
    manager.retire(Reason.CLOSED)
    return cloned


async def test_later_replicas_are_clones_of_the_first(tmp_path: Path) -> None:
    """The first goes on, and is handed out like any other."""
    async with pool_of(tmp_path, warm=1, warming=cloning) as (pool, runtime):
        assert [await use_one(pool, number) for number in range(4)] == [False, True, True, True]
        assert len(runtime.points.states) == 1


async def test_a_clone_that_fails_ends_its_point_and_not_the_pool(tmp_path: Path) -> None:
    """The next is made from the image, and dumped; after some it is enough. The pool never slows down."""
    async with pool_of(tmp_path, warm=1, warming=cloning) as (pool, runtime):
        runtime.fail_children = set(range(100))
        cloned = [await use_one(pool, number) for number in range(2 * MAX_DUMPS + 2)]
        assert not any(cloned)
        assert pool.last_failure == ""
        await until(lambda: not runtime.points.states)
        await until(lambda: pool.view().ready == 1)
        assert runtime.created == runtime.made + MAX_DUMPS, "no clone is tried any more"


async def test_a_dump_that_fails_costs_no_replica(tmp_path: Path) -> None:
    """It is tried with later ones."""

    def failing_once(runtime: FakeRuntime) -> Warming:
        runtime.fail_branches = 1
        return cloning(runtime)

    async with pool_of(tmp_path, warm=1, warming=failing_once) as (pool, runtime):
        assert [await use_one(pool, number) for number in range(3)] == [False, False, True]
        assert runtime.destroyed <= runtime.created


async def test_a_runtime_that_cannot_makes_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is said once."""

    def unable(runtime: FakeRuntime) -> Warming:
        runtime.branching = False
        return cloning(runtime)

    async with pool_of(tmp_path, warm=1, warming=unable) as (pool, _):
        assert [await use_one(pool, number) for number in range(3)] == [False] * 3
    assert caplog.text.count("warm_clones: this runtime does not branch") == 1


class Opened:
    """In the place of a desktop that starts programs: which it was asked for; it can refuse."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started: list[str] = []
        self.ended: list[str] = []
        self.refuses = False
        monkeypatch.setattr(warming, "open_app", self.open)
        monkeypatch.setattr(warming, "hand_over", self.end)

    async def open(self, guest: GuestClient, app: Any) -> None:
        self.started.append(app.program.name)
        await asyncio.sleep(0)
        if self.refuses:
            raise GuestRefused(500, "verification_failed", "it did not come up", {})

    async def end(self, guest: GuestClient, used: Any, unused: Any) -> None:
        assert not used
        self.ended += [app.program.name for app in unused]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    return Opened(monkeypatch)


async def test_programs_run_in_each_replica(tmp_path: Path, opened: Opened) -> None:
    """Before it is ready."""
    async with pool_of(tmp_path, warm=1, warming=lambda r: Warming(r, wanted=APPS)) as (pool, _):
        await until(lambda: pool.view().ready == 1)
        manager = await pool.acquire("a", nobody, 5)
        assert manager.warm_apps == APPS
        assert opened.started[:2] == ["libreoffice", "chromium"]


async def test_what_can_be_cloned_is_started_once(tmp_path: Path, opened: Opened) -> None:
    """The browser has a sandbox of its own, so each clone starts it."""
    async with pool_of(tmp_path, warm=1, warming=lambda r: Warming(r, wanted=APPS, clones=True)) as (pool, _):
        for number in range(3):
            await until(lambda: pool.view().ready == 1)
            manager = await pool.acquire(str(number), nobody, 5)
            assert sorted(app.program.name for app in manager.warm_apps) == ["chromium", "libreoffice"]
            manager.retire(Reason.CLOSED)
        await until(lambda: pool.view().ready == 1)
    assert opened.started.count("libreoffice") == 1
    assert opened.started.count("chromium") == 4


async def test_what_the_image_runs_is_not_started(tmp_path: Path, opened: Opened) -> None:
    """It runs in every clone already."""
    of_image = parse_warm_apps(["calc"])
    async with pool_of(tmp_path, warm=1, warming=lambda r: Warming(r, in_image=of_image, wanted=APPS)) as (
        pool,
        _,
    ):
        manager = await pool.acquire("a", nobody, 5)
        assert manager.warm_apps == APPS
    assert "libreoffice" not in opened.started


async def test_programs_that_do_not_come_up_are_given_up(tmp_path: Path, opened: Opened) -> None:
    """Replicas are handed out without them, and after some it is not tried any more."""
    opened.refuses = True
    async with pool_of(tmp_path, warm=1, warming=lambda r: Warming(r, wanted=APPS)) as (pool, _):
        for number in range(MAX_FAILURES + 2):
            manager = await pool.acquire(str(number), nobody, 5)
            assert manager.warm_apps == ()
            manager.retire(Reason.CLOSED)
    assert opened.started == ["libreoffice"] * MAX_FAILURES
    assert opened.ended == ["libreoffice", "chromium"] * MAX_FAILURES


async def test_an_episode_says_which_it_used(tmp_path: Path, opened: Opened) -> None:
    """None by a task that opens neither; the answer has nothing of it where none was kept open."""
    async with running_service(tmp_path / "a", warm_apps=["calc"]) as service:
        body = await service.create()
        assert body["warm_apps"] == []
    async with running_service(tmp_path / "b") as service:
        assert "warm_apps" not in await service.create()


async def test_a_desktop_that_cannot_be_made_clean_is_not_handed_out(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It retires, and the episode begins on another one."""
    from osgym_host.episodes import creator

    failures = [GuestRefused(500, "warm_apps", "a script of warm_apps ended with 2", {})]

    async def fail_once(guest: GuestClient, used: Any, unused: Any) -> None:
        if failures:
            raise failures.pop()

    monkeypatch.setattr(creator, "hand_over", fail_once)
    async with running_service(tmp_path, warm_apps=["calc"], warm=1) as service:
        body = await service.create()
        assert body["warm_apps"] == []
        assert service.runtime.created >= 2
        assert service.agent.pool.retired[Reason.GUEST_PROTOCOL] == 1
