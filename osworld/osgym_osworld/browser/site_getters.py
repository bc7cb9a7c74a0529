"""Getters of sites, which are asked when the result is checked."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from osgym_host.tasks.getter_plugin import FileName, Parameters, TaskRun, Value, getter
from osgym_osworld.browser import sites, tabs
from osgym_osworld.browser.errors import BrowserProblem, as_result_error
from osgym_osworld.browser.getters import START_S, Key
from osgym_osworld.browser.steps import PageUrl

MAX_ASKED = 64
MAX_CLICKS = 16
SLOW_SITE_S = 30.0
"""Wait for a site that builds its pages in the browser; OSWorld waits a minute."""
Selectors = Annotated[list[Key], Field(min_length=1, max_length=MAX_CLICKS)]


class Info(Parameters):
    """A text or an attribute of an element, behind clicks if there are several selectors."""

    action: Literal["inner_text", "attribute", "click_and_inner_text", "click_and_attribute"] = "inner_text"
    selector: Key | Selectors
    attribute: Key | None = None

    @model_validator(mode="after")
    def _fits(self) -> Info:
        if isinstance(self.selector, list) != self.action.startswith("click"):
            raise ValueError("click_… needs a list of selectors, the other actions need one selector")
        if self.action.endswith("attribute") and not self.attribute:
            raise ValueError(f"{self.action} needs an attribute")
        return self

    @property
    def ask(self) -> sites.Ask:
        chain = self.selector if isinstance(self.selector, list) else [self.selector]
        attribute = self.attribute if self.action.endswith("attribute") else None
        return sites.Ask(tuple(chain[:-1]), chain[-1], attribute)


class SiteParameters(Parameters):
    """Questions to a site, and the values that count if the site does not answer them."""

    url: PageUrl
    infos: Annotated[list[Info], Field(max_length=MAX_ASKED)]
    backups: Any = None


@getter(SiteParameters)
async def info_from_website(run: TaskRun, parameters: SiteParameters) -> Value:
    """Texts of a site; the task's ``backups`` where they cannot be had."""
    try:
        port = await tabs.find_port(run, wait_s=START_S, start=True)
        return Value(data=await sites.answers(run, port, parameters.url, [i.ask for i in parameters.infos]))
    except BrowserProblem as error:
        if parameters.backups is None:
            async with as_result_error(run):
                raise
        return Value(data=parameters.backups, note=f"not from the site: {error}")


class RecreationParameters(Parameters):
    selector: Literal["class"]
    class_name: Annotated[Key, Field(alias="class", pattern=r"^[\w-]+$")]
    order: Annotated[int, Field(ge=0, lt=500)] = 0
    url: PageUrl = "https://www.recreation.gov/"


@getter(RecreationParameters)
async def goto_recreation_page(run: TaskRun, parameters: RecreationParameters) -> Value:
    """A text of what a search for Diamond finds first at recreation.gov, at its next free date."""
    async with as_result_error(run):
        port = await tabs.find_port(run, wait_s=START_S, start=True)
        async with sites.visiting(run, port, parameters.url) as site:
            await site.do("fill", "input#hero-search-input", "Diamond", wait_s=SLOW_SITE_S)
            await site.do("click", "button.nav-search-button")
            await site.do("click", ".search-result-highlight--success", wait_s=SLOW_SITE_S)
            with contextlib.suppress(BrowserProblem):  # a page that shows no dates has no such button
                await site.do("click", "button.next-available")
            text = await site.do("all", f".{parameters.class_name}", nth=parameters.order)
    return Value(data={"expected": {parameters.class_name: text}})


class PdfParameters(Parameters):
    path: PageUrl
    dest: FileName = "page.pdf"


@getter(PdfParameters)
async def pdf_from_url(run: TaskRun, parameters: PdfParameters) -> Value:
    """A page as the replica's browser prints it to PDF."""
    async with as_result_error(run):
        port = await tabs.find_port(run, wait_s=START_S, start=True)
        async with sites.visiting(run, port, parameters.path) as site:
            data = await site.pdf()
    return Value(files=(await run.keep(data, parameters.dest),))
