"""Questions to sites rather than to tabs: texts behind some clicks, a page as a PDF file.

It is done in a new tab of the replica's browser, which is closed at the end.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from osgym_host.tasks.getter_plugin import TaskRun
from osgym_osworld.browser import tabs
from osgym_osworld.browser.devtools import Devtools
from osgym_osworld.browser.errors import BrowserProblem

ELEMENT_S = 10.0
"""Wait for an element of a page, as in OSWorld."""
PDF_S = 60.0
MAX_PDF_BYTES = 24 << 20
MAX_VALUE_CHARS = 20_000
PDF_PIECE_BYTES = 1 << 20
_LETTER_IN = {"paperWidth": 8.5, "paperHeight": 11.0}
_NO_MARGINS = dict.fromkeys(("marginTop", "marginBottom", "marginLeft", "marginRight"), 0)

DO_WITH_ELEMENT = """
function ({selector, what, name, nth}) {
  if (what === "ready") return document.readyState === "complete" ? document.location.href : null;
  const found = document.querySelectorAll(selector);
  const element = found[nth];
  if (!element) return null;
  if (what === "fill") {
    const proto = Object.getPrototypeOf(element);  // a framework watches the property of the element itself
    Object.getOwnPropertyDescriptor(proto, "value").set.call(element, name);
    element.dispatchEvent(new Event("input", {bubbles: true}));
    return "";
  }
  if (what === "click") { element.removeAttribute("target"); element.click(); return ""; }
  if (what === "all") return element.textContent.trim().slice(0, 20000);
  const value = what === "attribute" ? element.getAttribute(name) : element.innerText;
  return value === null ? "" : String(value).slice(0, 20000);
}
"""


@dataclass(frozen=True, slots=True)
class Ask:
    """A text of a page, behind some clicks.

    Attributes:
        clicks: Selectors of what is clicked first, each on the page that the last one led to.
        selector: Of the element.
        attribute: Whose value is wanted; None for the text that it shows.
    """

    clicks: tuple[str, ...]
    selector: str
    attribute: str | None


class Site:
    """A tab at a site. Use `visiting`."""

    def __init__(self, run: TaskRun, browser: Devtools, session: str) -> None:
        self._run, self._browser, self._session = run, browser, session

    async def do(
        self, what: str, selector: str, name: str = "", nth: int = 0, wait_s: float = ELEMENT_S
    ) -> str:
        """Act on an element as soon as it exists.

        Args:
            what: ``click``; ``fill``; read its ``text``, as it is shown, ``all`` of it, or an ``attribute``.
            name: Of the attribute; what is filled in.
            nth: Which of those that the selector finds.

        Raises:
            BrowserProblem: It does not come in this time.
        """
        order = {"what": what, "selector": selector, "name": name, "nth": nth}
        async with tabs.within(self._run, f"waiting for {selector[:100]!r}", wait_s):
            while True:
                with contextlib.suppress(BrowserProblem):  # a page that is just being left
                    found = await tabs.run_in_page(self._browser, self._session, DO_WITH_ELEMENT, order)
                    if isinstance(found, str):
                        return found[:MAX_VALUE_CHARS]
                await asyncio.sleep(tabs.POLL_S)

    async def answer(self, url: str, ask: Ask) -> str:
        """Load a page unless it is loaded, click, and read."""
        if await self.do("ready", "the page") != url:
            await self.go(url)
        for selector in ask.clicks:
            await self.do("click", selector)
            await asyncio.sleep(tabs.POLL_S)
            await self.do("ready", "the page behind a click")
        if ask.attribute is not None:
            return await self.do("attribute", ask.selector, ask.attribute)
        return await self.do("text", ask.selector)

    async def go(self, url: str) -> None:
        """Load another page in the tab."""
        async with tabs.within(self._run, f"loading {url}", tabs.LOAD_S):
            await self._browser.call("Page.navigate", {"url": url}, session=self._session)
        await self.do("ready", "the page")

    async def pdf(self) -> bytes:
        """Return the page as a PDF file, on paper of letter size without margins.

        Raises:
            BrowserProblem: The browser does not print it, or it is larger than 24 MiB.
        """
        paper = {**_LETTER_IN, **_NO_MARGINS, "transferMode": "ReturnAsStream"}
        parts: list[bytes] = []
        async with tabs.within(self._run, "printing the page", PDF_S):
            made = await self._browser.call("Page.printToPDF", paper, session=self._session)
            place = {"handle": tabs.text_of(made, "stream"), "size": PDF_PIECE_BYTES}
            while True:
                piece = await self._browser.call("IO.read", place, session=self._session)
                try:
                    parts.append(base64.b64decode(tabs.text_of(piece, "data"), validate=True))
                except binascii.Error as error:
                    raise BrowserProblem("the browser's PDF file is not base64") from error
                if sum(map(len, parts)) > MAX_PDF_BYTES:
                    raise BrowserProblem(f"the page is larger than {MAX_PDF_BYTES} bytes as PDF")
                if piece.get("eof") is not False:
                    return b"".join(parts)


@contextlib.asynccontextmanager
async def visiting(run: TaskRun, port: int, url: str) -> AsyncIterator[Site]:
    """Open an address in a new tab, which is closed at the end.

    Raises:
        BrowserProblem: It does not load.
    """
    async with Devtools.connect(run.guest, port) as browser:
        try:
            target, session = await tabs.load(run, browser, url)
        except tabs.StillLoading as error:
            raise BrowserProblem(f"{url} did not load within {tabs.LOAD_S:g} s") from error
        try:
            yield Site(run, browser, session)
        finally:
            with contextlib.suppress(BrowserProblem):
                async with tabs.within(run, "closing the tab", tabs.CALL_S):
                    await browser.call("Target.closeTarget", {"targetId": target})


async def answers(run: TaskRun, port: int, url: str, asked: Sequence[Ask]) -> list[str]:
    """Read texts of a site.

    Raises:
        BrowserProblem: One of them is not there.
    """
    async with visiting(run, port, url) as site:
        return [await site.answer(url, ask) for ask in asked]
