"""Setup steps of the browser."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field

from osgym_host.tasks.getter_plugin import MAX_URL_CHARS, Parameters, StepProblem, TaskRun, setup_step
from osgym_osworld.browser import tabs
from osgym_osworld.browser.errors import as_step_error

START_S = 60.0
"""Wait for a browser that an earlier step has launched."""

HISTORY_S = 120.0
MAX_VISITS = 1000
ADD_VISITS = """
import json, os, sqlite3, subprocess, sys, time
path = os.path.expanduser("~/.config/google-chrome/Default/History")
if not os.path.exists(path):
    first = ["google-chrome", "--headless", "--disable-gpu", "--dump-dom", "about:blank"]
    subprocess.run(first, timeout=90, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
base = sqlite3.connect(f"file:{path}?mode=rw", uri=True, timeout=10)
with base:
    for url, title, seconds in json.loads(sys.argv[1]):
        moment = int((time.time() - seconds + 11644473600) * 1000000)
        found = base.execute(
            "INSERT INTO urls (url, title, visit_count, typed_count, last_visit_time, hidden)"
            " VALUES (?, ?, 1, 0, ?, 0)", (url, title, moment))
        base.execute(
            "INSERT INTO visits (url, visit_time, from_visit, transition, segment_id, visit_duration)"
            " VALUES (?, ?, 0, 805306368, 0, 0)", (found.lastrowid, moment))
"""
"""Run in the guest: its browser makes the database, as its version has it. Times: microseconds since 1601."""

PageUrl = Annotated[str, Field(min_length=1, max_length=MAX_URL_CHARS, pattern=r"^[^\x00-\x20\x7f]+$")]


class OpenTabsParameters(Parameters):
    urls_to_open: Annotated[list[PageUrl], Field(max_length=tabs.MAX_TABS)]


@setup_step(OpenTabsParameters)
async def chrome_open_tabs(run: TaskRun, parameters: OpenTabsParameters) -> None:
    """Open addresses in the browser that was launched, in place of its first tab."""
    async with as_step_error(run):
        port = await tabs.find_port(run, wait_s=START_S)
        await tabs.open_all(run, port, parameters.urls_to_open)


class CloseTabsParameters(Parameters):
    urls_to_close: Annotated[list[PageUrl], Field(max_length=tabs.MAX_TABS)]


@setup_step(CloseTabsParameters)
async def chrome_close_tabs(run: TaskRun, parameters: CloseTabsParameters) -> None:
    """Close the tabs of these addresses."""
    async with as_step_error(run):
        port = await tabs.find_port(run, wait_s=START_S)
        await tabs.close_all(run, port, parameters.urls_to_close)


class Visit(Parameters):
    """A page that was visited so many seconds ago."""

    url: PageUrl
    title: Annotated[str, Field(max_length=2000)]
    visit_time_from_now_in_seconds: Annotated[float, Field(ge=0, le=10_000_000_000)]


class HistoryParameters(Parameters):
    history: Annotated[list[Visit], Field(max_length=MAX_VISITS)]


@setup_step(HistoryParameters)
async def update_browse_history(run: TaskRun, parameters: HistoryParameters) -> None:
    """Put visits into the history of a browser that does not run; it is started once if it has none yet."""
    visits = json.dumps([[v.url, v.title, v.visit_time_from_now_in_seconds] for v in parameters.history])
    done = await run.guest.execute(
        ["python3", "-I", "-c", ADD_VISITS, visits], timeout_s=run.left("the browser's history", HISTORY_S)
    )
    if done.returncode != 0:
        raise StepProblem(f"the history cannot be written: {done.error[-400:]}", by_replica=True)
