"""The dashboard of a fleet in a real browser, over host agents whose replicas have no desktop."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.browser import browser_page
from tests.support.fake_runtime import Served

from osgym_host.http.tokens import add_token
from osgym_protocol.codes import TokenScope
from osgym_sdk import AsyncClient

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(180)]

TOKEN = "s3cret-of-the-hosts"
HOSTILE = "<img src=x onerror=document.title='owned'>"
NO_SCROLL = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Served]]:
    """Two host agents that ask for a token."""
    settings: dict[str, Any] = {"token": TOKEN, "warm": 2, "max_replicas": 4}
    with (
        Served(tmp_path / "a", usd_per_hour=1.25, **settings) as first,
        Served(tmp_path / "b", usd_per_hour=0.5, **settings) as second,
    ):
        yield [first, second]


@contextlib.asynccontextmanager
async def serving(urls: str, *options: str, token: str = TOKEN) -> AsyncIterator[str]:
    """`osgym fleet dashboard` as a process; gives its address, and ends it in order."""
    command = (sys.executable, "-m", "osgym_cli", "fleet", "dashboard", "--port", "0", "--hosts", urls)
    process = await asyncio.create_subprocess_exec(
        *command, *options, env={"OSGYM_TOKEN": token, "PATH": "/usr/bin"}, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            said = (await process.stdout.readline()).decode()
        found = re.fullmatch(r"Dashboard: (http://127\.0\.0\.1:\d+)/ui\n", said)
        assert found is not None, said
        yield found[1]
    finally:
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(30):
            assert await process.wait() == 130


def task(name: str) -> dict[str, Any]:
    """A task that is solved by doing nothing."""
    return {"id": name, "instruction": "Look.", "config": [], "evaluator": {"func": "infeasible"}}


async def test_a_fleet_is_seen_and_each_host_of_it(
    hosts: list[Served], chromium_root: Path | None, tmp_path: Path
) -> None:
    """Hosts, desktops of all, the page of one below it, episodes and events; a host that goes is named."""
    urls = [served.urls[0] for served in hosts]
    folder = tmp_path / "browser"
    folder.mkdir()
    async with (
        AsyncClient(urls, token=TOKEN) as client,
        serving(",".join(urls)) as at,
        browser_page(f"{at}/ui", folder, chromium_root) as page,
        client.episode(task("find-me")) as found,
        client.episode(task(HOSTILE)) as other,
    ):
        assert found.host != other.host
        await page.size(1280, 800)
        await page.until("document.querySelectorAll('tbody tr').length === 2")
        await page.until("document.querySelector('#standing').textContent === '2 of 2 hosts serve'")
        await page.until("document.querySelector('#figures').innerText.includes('1.75')")  # USD per hour
        await page.until("document.querySelector('#figures').innerText.includes('2 of 8')")  # leased
        await page.click("nav a[href='#/desktops']")
        await page.until("document.querySelectorAll('.tile img:not([hidden])').length === 2")
        await page.until("document.querySelector('.tiles').innerText.includes('<img src=x')")
        await page.click("#search")
        await page.type("find-me")
        await page.until("document.querySelectorAll('.tile').length === 1")
        await page.click(".tile")
        await page.until("location.pathname.startsWith('/hosts/')")
        await page.until("document.querySelector('.picture img:not([hidden])') !== null")
        await found.step([{"op": "click", "x": 70, "y": 40}])
        await page.until("document.querySelector('.steps')?.innerText.includes('click x=70 y=40')")
        await page.click("#fleet")
        await page.until("location.pathname === '/ui'")
        for width, height in ((360, 740), (3840, 2160)):
            await page.size(width, height, dark=width == 360)
            await page.until(f"document.querySelectorAll('tbody tr').length === 2 && {NO_SCROLL}")
        await page.click("nav a[href='#/events']")
        await page.until(f"document.querySelector('tbody')?.innerText.includes('{other.episode_id}')")
        await page.click("nav a[href='#/episodes']")
        await page.until(f"document.querySelector('tbody')?.innerText.includes('{found.episode_id}')")
        await page.click("nav a[href='#/hosts']")
        hosts[1].server.should_exit = True
        await page.until("document.querySelector('tbody')?.innerText.includes('away')")
        await page.until("document.querySelector('#standing').textContent === '1 of 2 hosts serve'")
        assert "owned" not in await page.run("document.title")
        assert TOKEN not in await page.run("location.href + document.documentElement.outerHTML")
        assert page.problems == []


async def test_a_run_is_followed_over_the_hosts(
    hosts: list[Served], chromium_root: Path | None, tmp_path: Path
) -> None:
    """Tasks, attempts, rewards and curve, on the fleet's page and a host's; attempts lead to their steps."""

    async def policy(obs: Any, task: dict[str, Any], step: int) -> dict[str, Any]:
        return {"op": "fail"} if task["id"] == "right" else {"op": "done"}

    urls = [served.urls[0] for served in hosts]
    folder = tmp_path / "browser"
    folder.mkdir()
    async with (
        AsyncClient(urls, token=TOKEN) as client,
        serving(",".join(urls)) as at,
        browser_page(f"{at}/ui#/runs", folder, chromium_root) as page,
    ):
        await page.until("document.querySelector('main')?.innerText.includes('No run yet')")
        tasks = [task(name) for name in ("right", "wrong", HOSTILE) for _ in range(4)]
        results = [result async for result in client.run(tasks, policy, run="grpo/7", concurrency=4)]
        assert all(result.ok for result in results) and len(results) == 12
        await page.until("document.querySelector('tbody')?.innerText.includes('grpo/7')")
        await page.click("tbody a")
        await page.until("location.hash === '#/run/grpo%2F7'")
        await page.until("document.querySelectorAll('.attempt').length === 12")
        await page.until("document.querySelector('.facts').innerText.includes('12, 4 with reward 1')")
        await page.until("document.querySelector('.curve polyline').points.length === 12")
        await page.until("document.querySelector('tbody').innerText.includes('<img src=x')")
        await page.size(360, 740)
        await page.until(NO_SCROLL)
        await page.size(1280, 800)
        await page.click("tbody tr .attempt")
        await page.until("location.pathname.startsWith('/hosts/')")
        await page.until("document.querySelector('output')?.textContent === 'step 1 of 1'")
        await page.click("nav a[href='#/runs']")
        await page.until("document.querySelector('tbody')?.innerText.includes('grpo/7')")
        assert page.problems == []


async def test_a_desktop_is_copied_and_kept(
    hosts: list[Served], chromium_root: Path | None, tmp_path: Path
) -> None:
    """A checkpoint of what a policy does, opened; and a copy to use, while the policy goes on."""
    urls = [served.urls[0] for served in hosts]
    folder = tmp_path / "browser"
    folder.mkdir()
    async with (
        AsyncClient(urls, token=TOKEN) as client,
        serving(",".join(urls)) as at,
        browser_page(f"{at}/ui#/desktops", folder, chromium_root) as page,
        client.episode(task("copied")) as episode,
    ):
        await episode.step([{"op": "click", "x": 70, "y": 40}])
        await page.click(".tile:has(img:not([hidden]))")
        await page.until("document.querySelector('.steps')?.innerText.includes('click x=70 y=40')")
        await page.click(".controls button:nth-of-type(3)")
        await page.until(
            "document.querySelector('.controls [role=status]').innerText.includes('kept for a week')"
        )
        await page.click(".controls [role=status] a")
        await page.until("document.querySelector('main [role=status]')?.innerText.startsWith('Replica')")
        await page.click(".controls button")
        await page.until("location.hash === '#/desktops'")
        await page.run(f"location.hash = '#/desktop/{episode.replica_id}'")
        await page.click(".controls button:nth-of-type(2):enabled")
        await page.until("document.querySelector('main [role=status]')?.innerText.startsWith('Replica')")
        assert (
            await page.run("document.querySelector('h1').innerText")
            == f"A copy of desktop {episode.replica_id}"
        )
        await page.click(".picture.mine")
        await page.key("a")
        await episode.step([{"op": "click", "x": 71, "y": 40}])
        assert episode.trajectory.interventions == 0
        states = [state async for state in _leased(urls, 2)]
        assert states == [2]
        assert page.problems == []


async def _leased(urls: list[str], wanted: int) -> AsyncIterator[int]:
    """How many desktops of all hosts are leased, once it is that many."""
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}) as web, asyncio.timeout(20):
        while True:
            rows = [row for url in urls for row in (await web.get(f"{url}/v1/replicas")).json()]
            found = sum(row["state"] == "leased" for row in rows)
            if found == wanted:
                yield found
                return
            await asyncio.sleep(0.1)


async def test_what_is_passed_on_to_a_host(hosts: list[Served]) -> None:
    """A desktop can be used; nothing else is changed through it, and with --read-only nothing at all."""
    url = hosts[0].urls[0]
    key = url.partition("://")[2]
    lease = {"request_id": "0" * 24, "task": None, "wait_s": 10}
    async with httpx.AsyncClient(timeout=30) as web:
        async with serving(url) as at:
            opened = await web.post(f"{at}/hosts/{key}/v1/episodes", json=lease)
            assert opened.status_code == 200, opened.text
            refused = await web.post(f"{at}/hosts/{key}/v1/drain", json={})
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
            assert (await web.get(f"{at}/hosts/{key}/v1/checkpoints")).status_code == 403
            assert (await web.get(f"{at}/hosts/other/v1/host")).status_code == 404
            foreign = await web.get(f"{at}/fleet/hosts", headers={"Host": "evil.example"})
            assert foreign.status_code == 403
        async with serving(url, "--read-only", "--token", "mine") as at:
            mine = {"Authorization": "Bearer mine"}
            assert (await web.get(f"{at}/fleet/hosts")).status_code == 401
            assert (await web.get(f"{at}/hosts/{key}/v1/host")).status_code == 401
            assert (await web.get(f"{at}/hosts/{key}/v1/host", headers=mine)).status_code == 200
            refused = await web.post(f"{at}/hosts/{key}/v1/episodes", json=lease, headers=mine)
            assert refused.status_code == 403
            assert "--read-only" in refused.json()["message"]
            leased = (await web.get(f"{at}/fleet/replicas?state=leased", headers=mine)).json()
            assert (leased["found"], len(leased["rows"])) == (1, 1)


async def test_a_wrong_token_for_the_hosts_is_said(hosts: list[Served]) -> None:
    """It is a word beside the host, not an empty page."""
    async with serving(hosts[0].urls[0], token="wrong") as at, httpx.AsyncClient() as web:
        (host,) = (await web.get(f"{at}/fleet/hosts", timeout=30)).json()["hosts"]
        assert (host["phase"], host["error"]) == ("joining", "the host refuses the token")


async def test_with_a_token_that_only_looks_it_only_looks(chromium_root: Path | None, tmp_path: Path) -> None:
    """The fleet's page and the host's below it offer nothing; a call is refused in the host's own words."""
    path = tmp_path / "tokens"
    observe = add_token(path, TokenScope.OBSERVE, "wall")
    folder = tmp_path / "browser"
    folder.mkdir()
    with Served(tmp_path / "a", warm=2, tokens_file=path) as served:
        async with (
            serving(served.urls[0], token=observe) as at,
            browser_page(f"{at}/ui#/desktops", folder, chromium_root) as page,
            httpx.AsyncClient(timeout=30) as web,
        ):
            await page.until("document.querySelectorAll('.tile').length === 2")
            assert await page.run("document.querySelector('main a.button').hidden")
            (host,) = (await web.get(f"{at}/fleet/hosts")).json()["hosts"]
            await page.run(f"location.href = '/{host['at']}ui'")
            await page.until("document.querySelector('#host')?.textContent.includes('wall: observe')")
            assert await page.run("document.querySelector('main a.button').hidden")
            refused = await web.post(f"{at}/{host['at']}v1/episodes", json={"request_id": "q"})
            assert (refused.status_code, refused.json()["code"]) == (403, "insufficient_scope")
            assert "needs a token of the scope run; wall has observe" in refused.json()["message"]
        async with serving(served.urls[0], "--read-only", token=observe) as at, httpx.AsyncClient() as web:
            (host,) = (await web.get(f"{at}/fleet/hosts", timeout=30)).json()["hosts"]
            asked = await web.get(f"{at}/{host['at']}v1/access")
            assert asked.json() == {"scope": "observe", "token": None}


async def test_from_afar_it_needs_a_token() -> None:
    """Refused before anything is bound; the exit code is that of wrong usage."""
    command = (sys.executable, "-m", "osgym_cli", "fleet", "dashboard", "--bind", "0.0.0.0")
    process = await asyncio.create_subprocess_exec(
        *command, "--hosts", "http://127.0.0.1:1", stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(30):
        _, said = await process.communicate()
    assert process.returncode == 2
    assert b"OSGYM_DASHBOARD_TOKEN" in said
