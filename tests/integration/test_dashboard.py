"""The dashboard in a real browser: real desktops seen, found, followed, and what must not happen in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.browser import Page, browser_page
from tests.support.fake_runtime import Served
from tests.support.host_process import HostProcess, wait_until

from osgym_sdk import AsyncClient

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(120)]

HOSTILE = "<img src=x onerror=document.title='owned'>\u202e"
NO_SCROLL = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


@pytest.fixture
async def page(host: HostProcess, chromium_root: Path | None, tmp_path: Path) -> AsyncIterator[Page]:
    """The dashboard of the shared host, open; afterwards nothing was thrown or forbidden in it."""
    folder = tmp_path / "browser"
    folder.mkdir()
    async with browser_page(f"{host.url}/ui", folder, chromium_root) as opened:
        await opened.size(1280, 800)
        yield opened
        assert opened.problems == []


def task(**fields: Any) -> dict[str, Any]:
    """A task that is solved by doing nothing."""
    return {"id": "look", "instruction": "Look.", "config": [], "evaluator": {"func": "infeasible"}, **fields}


async def test_a_desktop_is_found_followed_and_read_again(page: Page, client: AsyncClient) -> None:
    """From the grid to the live desktop, its steps as they come, and the episode after its end."""
    async with client.episode(task(id="find-me")) as episode:
        await page.until("document.querySelector('.tile img:not([hidden])')?.naturalWidth === 320")
        await page.click("#search")
        await page.type("nothing-is-like-this")
        await page.until("!document.querySelector('.tile') && location.hash.includes('q=nothing')")
        await page.run("document.querySelector('#search').value = ''")
        await page.type("find-me")
        await page.until("document.querySelectorAll('.tile').length === 1")
        await page.click(".tile")
        await page.until("document.querySelector('.picture img:not([hidden])')?.naturalWidth === 1280")
        await episode.step([{"op": "click", "x": 700, "y": 400}])
        await page.until("document.querySelector('.steps')?.innerText.includes('click x=700 y=400')")
        await page.until("document.querySelector('.picture circle')?.getAttribute('cx') === '700'")
        assert "find-me" in await page.run("document.querySelector('.facts').innerText")
    await page.until("document.querySelector('h1')?.innerText.includes('gone')")
    await page.click("nav a[href='#/episodes']")
    await page.until("document.querySelector('tbody')?.innerText.includes('find-me')")
    await page.click(f"a[href='#/episode/{episode.episode_id}']")
    await page.until("document.querySelector('output')?.textContent === 'step 1 of 1'")
    await page.until("document.querySelector('.picture')?.innerText.includes('trajectory: frames')")
    await page.key("Home")
    await page.until("location.hash.endsWith('step=0')")
    await page.click("nav a[href='#/events']")
    await page.until(f"document.querySelector('tbody')?.innerText.includes('{episode.episode_id}')")


async def test_what_guests_and_tasks_write_is_text(page: Page, client: AsyncClient) -> None:
    """It is shown, marked where it would turn the line round, and never run."""
    async with client.episode(task(id=HOSTILE[:60], instruction=HOSTILE)) as episode:
        await episode.step([{"op": "type", "text": HOSTILE}])
        await page.until("document.querySelector('.tile')?.innerText.includes('<img src=x')")
        await page.click(".tile:has(img:not([hidden]))")
        await page.until("document.querySelector('.steps')?.innerText.includes('<img src=x')")
        assert "\u202e" not in await page.run("document.body.innerText")
        assert "\ufffd" in await page.run("document.querySelector('.steps').innerText")
    assert "owned" not in await page.run("document.title")
    assert await page.run("document.querySelectorAll('img[src=x]').length") == 0


async def test_a_host_says_what_it_admits_what_failed_and_what_episodes_gave(
    page: Page, client: AsyncClient
) -> None:
    """The reward stands on the tile, what happened beside the desktop, the rest on the host's own page."""
    async with client.episode(task(id="rewarded")) as episode:
        await episode.step([{"op": "fail"}])
        evaluation = await episode.evaluate()
        assert evaluation.valid_for_training
        await page.until("document.querySelector('.tiles')?.innerText.includes('step 1 · reward 1')")
        await page.run(f"location.hash = '#/desktop/{episode.replica_id}'")
        await page.until("document.querySelector('.events')?.innerText.includes('episode active')")
        other = "[...document.querySelectorAll('.events li')].filter(e => / r\\d+/.test(e.innerText)).length"
        assert await page.run(other) == 0
    await page.click("nav a[href='#/host']")
    await page.until("document.querySelectorAll('.room tbody tr').length === 4")
    rows = await page.run("document.querySelector('.room').innerText")
    assert all(name in rows for name in ("Desktops", "RAM", "CPU", "Disk", "GiB", "cores"))
    assert "Room for" in await page.run("document.querySelector('main').innerText")
    assert "small" in await page.run("document.querySelector('.images tbody').innerText")
    await page.until("/closed\\s+\\d/.test(document.querySelector('.parts-of-host').innerText)")
    await page.until("document.querySelector('.parts-of-host').innerText.includes('Accepted')")
    assert await page.run(NO_SCROLL)
    overlaps = (
        "[...document.querySelectorAll('.figures dt')].filter(e => e.scrollWidth > e.clientWidth"
        " && getComputedStyle(e).overflow === 'visible').length"
    )
    assert await page.run(overlaps) == 0


@pytest.mark.parametrize(("width", "height"), [(360, 740), (3840, 2160)])
async def test_it_fits_small_and_large_windows(
    page: Page, client: AsyncClient, width: int, height: int
) -> None:
    """Nothing lies outside to the right; all that can be used has a name."""
    await page.size(width, height, dark=width == 360)
    async with client.episode() as episode:
        await page.until("document.querySelector('.tile img:not([hidden])') !== null")
        assert await page.run(NO_SCROLL)
        name = f"replica {episode.replica_id}, leased, step 0"
        await page.until(f"[...document.querySelectorAll('.tile')].some(t => t.ariaLabel === '{name}')")
        await page.run(f"location.hash = '#/desktop/{episode.replica_id}'")
        await page.until("document.querySelector('.picture img:not([hidden])') !== null")
        assert await page.run(NO_SCROLL)
    unnamed = (
        "[...document.querySelectorAll('button, a, input')].filter(e => !e.innerText.trim()"
        " && !e.ariaLabel && !e.labels?.length && e.id !== 'token').length"
    )
    assert await page.run(unnamed) == 0


async def test_a_person_uses_a_desktop(page: Page, host: HostProcess) -> None:
    """Mouse and keyboard of the page reach a desktop under a lease of the page's own, which ends with it."""
    await page.click("a[href='#/use']")
    await page.until("document.querySelector('main [role=status]')?.innerText.startsWith('Replica')")
    await page.until("document.activeElement?.getAttribute('role') === 'application'")
    (row,) = host.replicas("leased")
    await page.click(".picture.mine")
    for name in ("a", "b", "Enter"):
        await page.key(name)
    path = f"/v1/episodes/{row['episode_id']}/lines"
    wanted = [("button_down", None), ("button_up", None), ("type", "a"), ("type", "b"), ("key", ["Return"])]
    done: list[tuple[str, Any]] = []
    async with asyncio.timeout(10):
        while len(done) < len(wanted):
            lines = (await asyncio.to_thread(host.get, path))["lines"]
            actions = [action for line in lines for action in line.get("actions", [])]
            done = [(a["op"], a.get("text") or a.get("keys")) for a in actions if a["op"] != "move"]
            await asyncio.sleep(0.1)
    assert done == wanted
    await page.click(".controls button")
    await page.until("location.hash === '#/desktops'")
    await asyncio.to_thread(wait_until, lambda: not host.replicas("leased"), 10, "the lease given back")


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Served]:
    """A host agent that asks for a token, with replicas that have no desktop."""
    with Served(tmp_path, token="s3cret-of-the-host", warm=2, max_replicas=4, usd_per_hour=1.25) as served:
        yield served


async def test_a_token_is_asked_for_and_a_host_that_goes_is_named(
    locked: Served, chromium_root: Path | None, tmp_path: Path
) -> None:
    """A wrong one is asked for again; it is in no address; and the page says when the host is gone."""
    folder = tmp_path / "browser"
    folder.mkdir()
    async with browser_page(f"{locked.urls[0]}/ui", folder, chromium_root) as page:
        for token in ("wrong", "s3cret-of-the-host"):
            await page.until("document.querySelector('#ask')?.open")
            await page.click("#token")
            await page.type(token)
            await page.click("#ask button")
        await page.until("document.querySelectorAll('.tile').length === 2")
        await page.until("document.body.innerText.includes('1.25')")  # USD per hour
        assert "s3cret" not in await page.run("location.href + document.documentElement.outerHTML")
        locked.server.should_exit = True
        await page.until("document.querySelector('#trouble')?.innerText.includes('does not answer')", 30)
        assert page.problems == []


async def test_a_token_is_asked_for_when_too_many_were_wrong(
    chromium_root: Path | None, tmp_path: Path
) -> None:
    """The page asks again, as for any wrong one, also when the host does not look at it any more."""
    folder = tmp_path / "browser"
    folder.mkdir()
    with Served(tmp_path, token="s3cret-of-the-host", warm=0, wrong_tokens_per_min=2) as served:
        async with browser_page(f"{served.urls[0]}/ui", folder, chromium_root) as page:
            for token in ("wrong", "wronger", "wrongest"):
                await page.until("document.querySelector('#ask')?.open")
                await page.click("#token")
                await page.type(token)
                await page.click("#ask button")
            await page.until("document.querySelector('#ask')?.open")
            assert "Too many" not in await page.run("document.body.innerText")
            assert [problem for problem in page.problems if "429" not in problem] == []
        async with httpx.AsyncClient(base_url=served.urls[0]) as http:
            refused = await http.get("/v1/host", headers={"Authorization": "Bearer wrongest"})
        assert refused.status_code == 429


async def test_a_person_takes_a_policys_desktop_over(
    page: Page, client: AsyncClient, host: HostProcess
) -> None:
    """What is clicked and typed is done between the policy's steps; its trajectory and its reward say so."""
    async with client.episode(task(id="watched")) as episode:
        await episode.step([{"op": "move", "x": 5, "y": 5}])
        await page.until("document.querySelector('.tile img:not([hidden])') !== null")
        await page.click(".tile")
        await page.until("document.querySelector('.steps')?.innerText.includes('move x=5 y=5')")
        take, copy, keep = (f".controls button:nth-of-type({number})" for number in (1, 2, 3))
        assert "makes no copies" in await page.run(f"document.querySelector('{copy}').title")
        assert await page.run(
            f"document.querySelector('{copy}').disabled && document.querySelector('{keep}').disabled"
        )
        await page.click(take)
        await page.until("document.activeElement?.getAttribute('role') === 'application'")
        await page.click(".picture.mine")
        await page.key("a")
        await page.until("document.querySelector('.steps')?.innerText.includes('type text=\"a\"')")
        assert "a person acted" in await page.run("document.querySelector('.steps').innerText")
        await page.click(take)
        await page.until("!document.querySelector('.picture.mine')")
        await page.key("b")
        obs = await episode.step([{"op": "move", "x": 9, "y": 9}])
        assert obs.answer.step == 2
        assert episode.trajectory.interventions >= 2
        evaluation = await episode.evaluate()
        assert not evaluation.valid_for_training
    lines = (await asyncio.to_thread(host.get, f"/v1/episodes/{episode.episode_id}/lines"))["lines"]
    acted = [
        a for line in lines if line["kind"] == "intervention" for a in line["actions"] if a["op"] != "move"
    ]
    assert [action["op"] for action in acted] == ["button_down", "button_up", "type"]
