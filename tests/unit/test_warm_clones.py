"""Clean replicas that are clones of the first one, over fake replicas; and programs that run in each."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_runtime import TASK, FakeRuntime, running_service
from tests.support.pools import nobody, pool_of
from tests.support.waiting import until

from osgym_host.core.plan import Blocked, PoolSpec
from osgym_host.core.reasons import Reason
from osgym_host.core.states import ReplicaState
from osgym_host.core.warm_apps import end_script, parse_warm_apps
from osgym_host.episodes import creator
from osgym_host.guest_client import GuestClient, GuestRefused
from osgym_host.replicas import warming
from osgym_host.replicas.pool import Pool
from osgym_host.replicas.saved_desktops import SavedDesktops
from osgym_host.replicas.warming import MAX_DUMPS, MAX_FAILURES, Warming
from osgym_host.runtime_factory import make_runtime
from osgym_host.runtimes import base
from osgym_host.settings.sources import load

APPS = parse_warm_apps(["calc", "chromium"])


def cloning(saved: SavedDesktops) -> Warming:
    """Clones without programs."""
    return Warming(saved, clones=True)


def fake_of(saved: SavedDesktops) -> FakeRuntime:
    """The runtime below."""
    assert isinstance(saved.runtime, FakeRuntime)
    return saved.runtime


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

    def failing_once(saved: SavedDesktops) -> Warming:
        fake_of(saved).fail_branches = 1
        return cloning(saved)

    async with pool_of(tmp_path, warm=1, warming=failing_once) as (pool, _):
        assert [await use_one(pool, number) for number in range(3)] == [False, False, True]


async def test_a_runtime_that_cannot_makes_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is said once."""

    def unable(saved: SavedDesktops) -> Warming:
        fake_of(saved).branching = False
        return cloning(saved)

    async with pool_of(tmp_path, warm=1, warming=unable) as (pool, _):
        assert [await use_one(pool, number) for number in range(3)] == [False] * 3
    assert caplog.text.count("from the image: this runtime cannot branch a replica") == 1


def test_replicas_of_virtual_machines_are_clones_already(tmp_path: Path) -> None:
    """So the setting changes nothing there, and the log says why."""
    runtime = make_runtime(load(environment={"OSGYM_RUNTIME": "qemu", "OSGYM_DATA_DIR": str(tmp_path)}))
    assert runtime.why_no_warm_clones() == "those of qemu are clones of one that has booted"


class Opened:
    """In the place of a desktop that starts programs: which it was asked for; those in `broken` refuse."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started: list[str] = []
        self.scripts: list[str] = []
        self.broken: set[str] = set()
        monkeypatch.setattr(warming, "open_app", self.open)
        monkeypatch.setattr(warming, "_run", self.run)

    async def open(self, guest: GuestClient, app: Any) -> None:
        self.started.append(app.program.name)
        await asyncio.sleep(0)
        if app.program.name in self.broken:
            raise GuestRefused(500, "verification_failed", "it did not come up", {})

    async def run(self, guest: GuestClient, script: str) -> None:
        self.scripts.append(script)


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
    """The browser has its own sandbox, which cannot be dumped, so each clone starts it."""
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
        await until(lambda: pool.view().ready == 1)
        manager = await pool.acquire("a", nobody, 5)
        assert manager.warm_apps == APPS
    assert "libreoffice" not in opened.started


async def test_a_program_that_does_not_come_up_is_given_up(tmp_path: Path, opened: Opened) -> None:
    """It is ended, replicas go without it and with the other, and after some it is not tried any more."""
    opened.broken = {"chromium"}
    async with pool_of(tmp_path, warm=1, warming=lambda r: Warming(r, wanted=APPS, clones=True)) as (
        pool,
        runtime,
    ):
        for number in range(MAX_FAILURES + 2):
            await until(lambda: pool.view().ready == 1)
            manager = await pool.acquire(str(number), nobody, 5)
            assert [app.program.name for app in manager.warm_apps] == ["libreoffice"]
            manager.retire(Reason.CLOSED)
        assert len(runtime.points.states) == 1
    assert opened.started.count("chromium") == MAX_FAILURES
    assert opened.started.count("libreoffice") == 1
    assert opened.scripts == [end_script(APPS[1])] * MAX_FAILURES


async def test_one_that_is_given_up_does_not_end_clones(tmp_path: Path, opened: Opened) -> None:
    """The dump is of a desktop without it."""
    opened.broken = {"libreoffice"}
    async with pool_of(tmp_path, warm=1, warming=lambda r: Warming(r, wanted=APPS, clones=True)) as (pool, _):
        cloned = [await use_one(pool, number) for number in range(MAX_FAILURES + 2)]
    assert cloned[:MAX_FAILURES] == [False] * MAX_FAILURES
    assert cloned[-1]


async def test_nobody_waits_for_programs(tmp_path: Path, opened: Opened) -> None:
    """A replica for a client who waits already is handed out as it is."""
    async with pool_of(tmp_path, warm=0, warming=lambda r: Warming(r, wanted=APPS)) as (pool, _):
        manager = await pool.acquire("a", nobody, 5)
        assert manager.warm_apps == ()
    assert opened.started == []


async def test_a_replica_that_dies_of_its_programs_slows_the_pool_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caps are too small for them: the next ones would die, too."""

    async with pool_of(tmp_path, warm=1, warming=lambda r: Warming(r, wanted=APPS)) as (pool, runtime):

        async def die(guest: GuestClient, app: Any) -> None:
            for replica in list(runtime.alive.values()):
                replica.die(base.ExitReason.OUT_OF_MEMORY)
            await asyncio.sleep(10)

        monkeypatch.setattr(warming, "open_app", die)
        await until(lambda: pool.retired[Reason.OUT_OF_MEMORY] >= 2)
        await until(lambda: pool.blocked is Blocked.BACKOFF)
        monkeypatch.undo()


async def test_programs_have_a_deadline(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica whose programs take for ever is given up, and the log says why."""

    async def never(guest: GuestClient, app: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(warming, "PREPARE_S", 0.05)
    monkeypatch.setattr(warming, "open_app", never)
    async with pool_of(tmp_path, warm=1, warming=lambda r: Warming(r, wanted=APPS)) as (pool, _):
        await until(lambda: pool.retired[Reason.BOOT_TIMEOUT] >= 1)
        assert "warm_apps" in pool.last_failure


async def test_a_point_is_dropped_when_no_clone_is_being_made(tmp_path: Path) -> None:
    """One that fails does not take it away from another."""
    async with pool_of(tmp_path, warm=1, warming=cloning) as (pool, runtime):
        await until(lambda: pool.view().ready == 1)
        runtime.fail_children = {0}
        runtime.create_gate.clear()
        pool.spec = PoolSpec(3, 4)
        manager = await pool.acquire("a", nobody, 5)
        await until(lambda: pool.view().starting == 3)
        runtime.create_gate.set()
        await until(lambda: pool.view().ready == 3)
        origins = [m.spec.origin for m in pool.replicas.managers() if m.state is ReplicaState.READY]
        assert sum(origin is not None for origin in origins) >= 2, "the other clones came to be"
        manager.retire(Reason.CLOSED)


async def test_an_episode_says_which_it_used(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None without a task; the answer has nothing of it where none was kept open."""
    handed: list[tuple[int, int]] = []

    async def note(guest: GuestClient, used: Any, unused: Any) -> None:
        handed.append((len(used), len(unused)))

    monkeypatch.setattr(creator, "hand_over", note)
    open_calc = {"type": "launch", "parameters": {"command": ["libreoffice", "--calc"]}}
    async with running_service(tmp_path / "a", warm_apps=["calc"], warm=2) as service:
        await until(lambda: service.agent.pool.view().ready == 2)
        body = await service.create()
        assert body["warm_apps"] == []
        assert handed == [(0, 1)]
        refused = await service.http.post(
            "/v1/episodes", json={"request_id": "x", "task": {**TASK, "config": [open_calc]}}
        )
        assert refused.status_code == 424, "a fake desktop launches nothing"
        assert handed == [(0, 1), (1, 0)]
    async with running_service(tmp_path / "b") as service:
        assert "warm_apps" not in await service.create()


async def test_a_desktop_that_cannot_be_made_clean_is_not_handed_out(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It retires, and the episode begins on another one."""
    failures = [GuestRefused(500, "warm_apps", "a script of warm_apps ended with 2", {})]

    async def fail_once(guest: GuestClient, used: Any, unused: Any) -> None:
        if failures:
            raise failures.pop()

    monkeypatch.setattr(creator, "hand_over", fail_once)
    async with running_service(tmp_path, warm_apps=["calc"], warm=1) as service:
        await until(lambda: service.agent.pool.view().ready == 1)
        await service.create()
        assert service.agent.pool.retired[Reason.GUEST_PROTOCOL] == 1
