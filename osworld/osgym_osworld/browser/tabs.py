"""Tabs of a browser: listed, opened, closed, found in front, read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from osgym_host.tasks.getter_plugin import DeadlineExceeded, TaskRun
from osgym_osworld.browser.devtools import Devtools, ask, read_json
from osgym_osworld.browser.errors import BrowserClosed, BrowserProblem, NotTheBrowser
from osgym_osworld.browser.page_script import READ_PAGE, Query
from osgym_osworld.browser.urls import same_url
from osgym_osworld.listeners import FIND_LISTENER

PORTS = (9222, 1337)
"""Debugging ports in OSWorld's tasks: that of their relay, and the browser's own."""
PROGRAMS = ("chrome", "chromium", "google-chrome")
"""Names of the files that a browser's first process runs."""
START = ["google-chrome", "--remote-debugging-port=1337"]
CALL_S = 20.0
"""Deadline of a single call to the browser."""
LOAD_S = 60.0
"""Wait for a page to load, as in OSWorld."""
PROBE_S = 3.0
"""A page that does nothing answers so soon."""
POLL_S = 0.25
MAX_TABS = 64
MAX_CONTENT_CHARS = 4_000_000


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab, as the browser describes it."""

    target_id: str
    title: str
    url: str


@contextlib.asynccontextmanager
async def within(run: TaskRun, what: str, most_s: float) -> AsyncIterator[None]:
    """Bound the time of calls to the browser.

    Raises:
        BrowserProblem: It took longer than `most_s`.
        DeadlineExceeded: It took all the time that is left, which is less.
    """
    given_s = run.left(what, most_s)
    try:
        async with asyncio.timeout(given_s):
            yield
    except TimeoutError as error:
        if given_s < most_s:
            raise DeadlineExceeded(f"no time left for {what}", {"what": what}) from error
        raise BrowserProblem(f"{what}: the browser did not do it within {most_s:g} s") from error


async def find_port(run: TaskRun, *, wait_s: float, start: bool = False) -> int:
    """Wait until the browser listens at a debugging port; return the port.

    Args:
        wait_s: For a browser that is being started.
        start: Start one when there is none, as OSWorld does.

    Raises:
        BrowserClosed: None listens.
        GuestError: The guest agent does not answer, or has no tunnels.
    """
    clock = asyncio.get_running_loop().time
    end = clock() + run.left("the browser", wait_s)
    why = f"no browser listens at port {PORTS[0]} or {PORTS[1]} for debugging"
    while True:
        for port in PORTS:
            try:
                async with within(run, "asking for the browser", CALL_S):
                    await ask(run.guest, port, "/json/version")
                    if run.of_check:
                        await _made_sure(run, port)
                return port
            except NotTheBrowser as error:  # a browser started now could not bind the port either
                why, start = str(error), False
            except BrowserProblem:
                continue
        if start:
            start = False
            await run.guest.launch(START, timeout_s=run.left("starting the browser", 30))
        if clock() >= end:
            raise BrowserClosed(why)
        await asyncio.sleep(POLL_S)


async def _made_sure(run: TaskRun, port: int) -> None:
    """Check that the browser itself listens at a port, and not for instance a relay to another program.

    Raises:
        NotTheBrowser: Another program listens there.
    """
    command = ["python3", "-I", "-c", f"{FIND_LISTENER}\ncheck({port}, {set(PROGRAMS)!r})"]
    found = await run.guest.execute(command, timeout_s=CALL_S, isolated=True)
    if found.returncode != 0:
        raise NotTheBrowser(found.error.strip()[-400:] or f"the program at port {port} cannot be determined")


async def listed(run: TaskRun, port: int) -> list[Tab]:
    """Return the tabs, the one that was in front last first.

    Raises:
        BrowserProblem: It does not say, or they are too many.
    """
    async with within(run, "the list of tabs", CALL_S):
        answer = await ask(run.guest, port, "/json/list")
        found = (await read_json(b'{"tabs":' + answer + b"}")).get("tabs")
    if not isinstance(found, list):
        raise BrowserProblem("the browser's list of tabs is not a list")
    tabs = [
        Tab(text_of(tab, "id"), text_of(tab, "title"), text_of(tab, "url"))
        for tab in found
        if isinstance(tab, dict) and tab.get("type") == "page"
    ]
    if len(tabs) > MAX_TABS:
        raise BrowserProblem(f"{len(tabs)} tabs are more than {MAX_TABS}")
    return tabs


def text_of(value: Mapping[str, Any], key: str) -> str:
    found = value.get(key)
    return found if isinstance(found, str) else ""


async def open_all(run: TaskRun, port: int, urls: Sequence[str]) -> None:
    """Open addresses in new tabs, one after the other, and close the tabs that were there before.

    One that does not load in `LOAD_S` stays as it is, as in OSWorld.

    Raises:
        BrowserProblem: The browser does not do it.
    """
    before = await listed(run, port)
    async with Devtools.connect(run.guest, port) as browser:
        for url in urls:
            with contextlib.suppress(StillLoading):
                await load(run, browser, url)
        for tab in before[:1] if urls else []:
            async with within(run, "closing the first tab", CALL_S):
                await browser.call("Target.closeTarget", {"targetId": tab.target_id})


async def close_all(run: TaskRun, port: int, urls: Sequence[str]) -> None:
    """Close for each address one tab that shows it.

    Raises:
        BrowserProblem: The browser does not do it.
    """
    left = await listed(run, port)
    async with Devtools.connect(run.guest, port) as browser:
        for url in urls:
            if (tab := next((t for t in left if same_url(t.url, url)), None)) is None:
                continue
            left.remove(tab)
            async with within(run, f"closing the tab of {url}", CALL_S):
                await browser.call("Target.closeTarget", {"targetId": tab.target_id})


class StillLoading(Exception):
    """A page had not loaded in its time."""


async def load(run: TaskRun, browser: Devtools, url: str) -> tuple[str, str]:
    """Open an address in a new tab and wait until it has loaded; return the tab's id and its session."""
    async with within(run, "a new tab", CALL_S):
        made = await browser.call("Target.createTarget", {"url": "about:blank"})
        target = text_of(made, "targetId")
        session = await attach(browser, target)
        await browser.call("Page.enable", session=session)
    try:
        async with within(run, f"loading {url}", LOAD_S):
            went = await browser.call("Page.navigate", {"url": url}, session=session)
            if not went.get("errorText") and went.get("loaderId"):
                await browser.event("Page.loadEventFired", session)
    except BrowserProblem as error:
        if isinstance(error.__cause__, TimeoutError):
            raise StillLoading(url) from error
        raise
    return target, session


async def attach(browser: Devtools, target: str) -> str:
    answer = await browser.call("Target.attachToTarget", {"targetId": target, "flatten": True})
    return text_of(answer, "sessionId")


@contextlib.asynccontextmanager
async def in_front(run: TaskRun, port: int) -> AsyncIterator[tuple[Tab, Devtools, str]]:
    """Find the tab in front; yield it, a connection to its browser, and its session.

    Raises:
        BrowserProblem: No tab is open, or none answers.
    """
    tabs = await listed(run, port)
    async with Devtools.connect(run.guest, port) as browser:
        for tab in tabs:
            if (session := await _session_if_shown(run, browser, tab)) is not None:
                yield tab, browser, session
                return
    raise BrowserProblem("no tab is in front" if tabs else "no tab is open")


async def _session_if_shown(run: TaskRun, browser: Devtools, tab: Tab) -> str | None:
    """Attach to a tab that is shown; return None if it is not shown or does not answer."""
    with contextlib.suppress(BrowserProblem):
        async with within(run, "asking a tab", PROBE_S):
            session = await attach(browser, tab.target_id)
            if await _read(browser, session, [Query("visible")]) == [["visible"]]:
                return session
    return None


async def run_in_page(browser: Devtools, session: str, function: str, argument: Any) -> Any:
    """Call a function in an isolated world of a page, which the page cannot see; return its value.

    Raises:
        BrowserProblem: The page has gone meanwhile, or the browser does not do it.
    """
    frames = (await browser.call("Page.getFrameTree", session=session)).get("frameTree")
    frame = frames.get("frame") if isinstance(frames, dict) else None
    place = {"frameId": frame.get("id") if isinstance(frame, dict) else None}
    world = (await browser.call("Page.createIsolatedWorld", place, session=session)).get("executionContextId")
    order = {
        "functionDeclaration": function,
        "executionContextId": world,
        "arguments": [{"value": argument}],
        "returnByValue": True,
    }
    answer = await browser.call("Runtime.callFunctionOn", order, session=session)
    result = answer.get("result")
    return result.get("value") if isinstance(result, dict) else None


async def _read(browser: Devtools, session: str, queries: Sequence[Query]) -> list[list[str]]:
    """Read texts from a page, one list for each query.

    Raises:
        BrowserProblem: It gives anything else.
    """
    asked = [{"by": q.by, "what": q.what} for q in queries]
    found = await run_in_page(browser, session, READ_PAGE, asked)
    if not isinstance(found, list) or len(found) != len(queries):
        raise BrowserProblem("the page cannot be read")
    return [[str(text) for text in texts] if isinstance(texts, list) else [] for texts in found]


async def read_front(run: TaskRun, port: int, queries: Sequence[Query]) -> tuple[Tab, list[list[str]]]:
    """Read texts from the tab in front.

    Raises:
        BrowserProblem: No tab is in front, or it cannot be read.
    """
    async with in_front(run, port) as (tab, browser, session):
        if not queries:
            return tab, []
        async with within(run, "reading the page", CALL_S):
            return tab, await _read(browser, session, queries)


async def visit(run: TaskRun, port: int, url: str) -> dict[str, str]:
    """Open an address in a new tab, read it when it has loaded, and close the tab.

    Returns:
        `title`, `url`, `content` (its HTML, at most `MAX_CONTENT_CHARS`).

    Raises:
        BrowserProblem: It does not load or cannot be read.
    """
    async with Devtools.connect(run.guest, port) as browser:
        try:
            target, session = await load(run, browser, url)
        except StillLoading as error:
            raise BrowserProblem(f"{url} did not load within {LOAD_S:g} s") from error
        async with within(run, "reading the page", CALL_S):
            title, place, content = await _read(browser, session, PAGE)
            await browser.call("Target.closeTarget", {"targetId": target})
    return page_of(title, place, content)


PAGE = (Query("title"), Query("url"), Query("html"))


def page_of(title: Sequence[str], url: Sequence[str], content: Sequence[str]) -> dict[str, str]:
    """Return a page as tasks get it, from the answers to `PAGE`."""
    return {
        "title": "".join(title[:1]),
        "url": "".join(url[:1]),
        "content": "".join(content[:1])[:MAX_CONTENT_CHARS],
    }
