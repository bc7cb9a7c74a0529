"""Setup steps of the browser."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from osgym_host.tasks.browser import tabs
from osgym_host.tasks.browser.blame import of_step
from osgym_host.tasks.context import TaskRun
from osgym_host.tasks.registry import Parameters, setup_step
from osgym_host.tasks.urls import MAX_URL_CHARS

START_S = 60.0
"""For a browser that a step before has launched."""

PageUrl = Annotated[str, Field(min_length=1, max_length=MAX_URL_CHARS, pattern=r"^[^\x00-\x20\x7f]+$")]


class OpenTabsParameters(Parameters):
    urls_to_open: Annotated[list[PageUrl], Field(max_length=tabs.MAX_TABS)]


@setup_step("chrome_open_tabs", OpenTabsParameters)
async def chrome_open_tabs(run: TaskRun, parameters: OpenTabsParameters) -> None:
    """Open addresses in the browser that was launched, in place of its first tab."""
    async with of_step(run):
        port = await tabs.find_port(run, wait_s=START_S)
        await tabs.open_all(run, port, parameters.urls_to_open)


class CloseTabsParameters(Parameters):
    urls_to_close: Annotated[list[PageUrl], Field(max_length=tabs.MAX_TABS)]


@setup_step("chrome_close_tabs", CloseTabsParameters)
async def chrome_close_tabs(run: TaskRun, parameters: CloseTabsParameters) -> None:
    """Close the tabs of these addresses."""
    async with of_step(run):
        port = await tabs.find_port(run, wait_s=START_S)
        await tabs.close_all(run, port, parameters.urls_to_close)
