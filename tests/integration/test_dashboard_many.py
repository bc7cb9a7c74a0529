"""The dashboard on 128 desktops that are all at work, in a real browser: it stays quick."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.support.browser import browser_page
from tests.support.fake_runtime import Served

from osgym_sdk import AsyncClient, AsyncEpisode

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(300)]

DESKTOPS = 128
STEP_EVERY_S = 2.0
LOOKED_AT_S = 6.0
LONG_TASK_MS = 100.0
ROWS = "document.querySelectorAll('tbody tr').length"
TILES = "document.querySelectorAll('.tile').length"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Served]:
    """A host agent over replicas that have no desktop."""
    settings = {"warm": DESKTOPS, "max_replicas": DESKTOPS, "max_starting": 16, "cpu_per_replica": 0}
    with Served(tmp_path, **settings) as served:
        yield served


@pytest.fixture
async def at_work(host: Served) -> AsyncIterator[list[AsyncEpisode]]:
    """An episode on each, which steps all the time."""

    async def work(episode: AsyncEpisode, place: float) -> None:
        await asyncio.sleep(STEP_EVERY_S * place)
        while True:
            await episode.step([{"op": "move", "x": 5, "y": 5}])
            await asyncio.sleep(STEP_EVERY_S)

    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(AsyncClient(host.urls[0]))
        given = [
            {"id": f"task-{n:03}", "instruction": "Look.", "config": [], "evaluator": {"func": "infeasible"}}
            for n in range(DESKTOPS)
        ]
        episodes = [client.episode(one, wait_s=120) for one in given]
        await asyncio.gather(*(stack.enter_async_context(episode) for episode in episodes))
        working = [asyncio.create_task(work(e, n / DESKTOPS)) for n, e in enumerate(episodes)]
        yield episodes
        for one in working:
            one.cancel()
        await asyncio.gather(*working, return_exceptions=True)


async def test_the_page_of_many_desktops_is_quick(
    host: Served, at_work: list[AsyncEpisode], chromium_root: Path | None, tmp_path: Path
) -> None:
    """Found by a word, scrolled through, filtered, listed; nothing keeps the page busy for long."""
    folder = tmp_path / "browser"
    folder.mkdir()
    async with browser_page(f"{host.urls[0]}/ui", folder, chromium_root) as page:
        await page.size(1920, 1080)
        await page.until(f"{TILES} === {DESKTOPS}")
        async with page.tasks_of_main_thread() as tasks:
            await asyncio.sleep(LOOKED_AT_S)
            for _ in range(8):
                await page.wheel(900, 700, 600)
                await asyncio.sleep(0.1)
            await page.until("scrollY > 1000")
            await page.until("document.elementFromPoint(900, 700)?.closest('.tile, .tiles') !== null")
            await page.key("/")
            await page.until("document.activeElement?.id === 'search'")
            await page.type("task-017")
            await page.until(
                f"{TILES} === 1 && document.querySelector('.tile').innerText.includes('task-017')"
            )
            await page.run("document.querySelector('#search').value = ''")
            await page.type("leased")
            await page.until(f"{TILES} === {DESKTOPS}")
            for part in ("episodes", "runs", "host", "events"):
                await page.click(f"nav a[href='#/{part}']")
                await page.until(
                    f"location.hash.startsWith('#/{part}') && document.querySelector('main h1') !== null"
                )
                await asyncio.sleep(1)
            rows = await page.run(ROWS)
            assert rows >= 100
            await page.run("scrollTo(0, document.body.scrollHeight)")
            await page.until(f"{ROWS} >= {rows + 100}")
        assert len(tasks) > 100
        assert max(tasks) < LONG_TASK_MS, sorted(tasks)[-5:]
        assert page.problems == []
