"""The debugging protocol of a browser, against a server that speaks it: by the book, and hostile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from websockets.asyncio import server as serving

from osgym_host.guest_client import GuestClient, GuestRefused
from osgym_host.guest_client.tunnel import GuestTunnel
from osgym_host.tasks.context import TaskContext, TaskRun
from osgym_host.tasks.errors import DeadlineExceeded, ResultUnusable
from osgym_host.tasks.registry import GETTERS, STEPS, StepProblem
from osgym_osworld.browser import tabs
from osgym_osworld.browser.errors import BrowserClosed, BrowserProblem
from osgym_osworld.browser.page_script import Query
from osgym_protocol.codes import GuestErrorCode

Answer = Callable[[dict[str, Any]], list[Any]]


class Browser:
    """A server with tabs: `/json` by HTTP, calls by WebSocket."""

    def __init__(self) -> None:
        """One blank tab, in front."""
        self.tabs = [{"id": "T0", "type": "page", "title": "New", "url": "about:blank"}]
        self.pages: dict[str, list[list[str]]] = {}
        self.loads = True
        self.http: bytes | None = None
        self.hostile: Answer | None = None
        self.calls: list[str] = []
        self.port = 0

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Listen."""
        async with serving.serve(
            self._talk, "127.0.0.1", 0, process_request=self._http, max_size=2**20
        ) as at:
            self.port = at.sockets[0].getsockname()[1]
            yield

    def _http(self, connection: Any, request: Any) -> Any:
        if request.path.startswith("/devtools"):
            return None
        said: Any = self.tabs
        if request.path == "/json/version":
            said = {"webSocketDebuggerUrl": "ws://localhost:9222/devtools/browser/a-1"}
        return connection.respond(200, self.http.decode() if self.http is not None else json.dumps(said))

    async def _talk(self, connection: Any) -> None:
        async for message in connection:
            call = json.loads(message)
            self.calls.append(call["method"])
            for said in (self.hostile or self._answer)(call):
                await connection.send(said if isinstance(said, str) else json.dumps(said))

    def _answer(self, call: dict[str, Any]) -> list[Any]:
        method, params, session = call["method"], call["params"], call.get("sessionId")
        result: dict[str, Any] = {}
        after: list[Any] = []
        match method:
            case "Target.createTarget":
                made = f"T{len(self.calls)}"
                self.tabs.insert(0, {"id": made, "type": "page", "title": "", "url": params["url"]})
                result = {"targetId": made}
            case "Target.attachToTarget":
                result = {"sessionId": "S" + params["targetId"]}
            case "Target.closeTarget":
                self.tabs = [tab for tab in self.tabs if tab["id"] != params["targetId"]]
            case "Page.navigate":
                next(t for t in self.tabs if "S" + t["id"] == session)["url"] = params["url"]
                result = {"loaderId": "L"}
                if self.loads:
                    after = [{"method": "Page.loadEventFired", "sessionId": session, "params": {}}]
            case "Page.getFrameTree":
                result = {"frameTree": {"frame": {"id": "F"}}}
            case "Page.createIsolatedWorld":
                result = {"executionContextId": 7}
            case "Runtime.callFunctionOn":
                asked = params["arguments"][0]["value"]
                shown = ["visible" if session == "S" + self.tabs[0]["id"] else "hidden"]
                texts = self.pages.get(str(session), [["a"]] * len(asked))
                result = {"result": {"value": [shown] if asked[0]["by"] == "visible" else texts}}
        return [{"id": call["id"], "result": result}, *after]


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """A browser that listens."""
    made = Browser()
    async with made.serve():
        yield made


@pytest.fixture
def run(browser: Browser, tmp_path: Path) -> TaskRun:
    """A run on a replica with that browser behind port 9222."""

    async def tunnel(port: int) -> GuestTunnel:
        if port != 9222 or not browser.port:
            raise GuestRefused(409, GuestErrorCode.PORT_CLOSED, "no program listens", {})
        sock = socket.create_connection(("127.0.0.1", browser.port))
        sock.setblocking(False)
        return GuestTunnel(sock, b"")

    async def well(**_: object) -> None:
        browser.calls.append("health")

    async def launched(command: list[str], **_: object) -> None:
        browser.calls.append(" ".join(command))

    guest = cast(
        GuestClient, SimpleNamespace(reach=SimpleNamespace(tunnel=tunnel), health=well, launch=launched)
    )
    context = cast(TaskContext, SimpleNamespace(episode_dir=tmp_path))
    return TaskRun(guest, context, "t", asyncio.get_event_loop().time() + 30)


async def get(run: TaskRun, name: str, **fields: object) -> Any:
    """What a getter gives."""
    kind = GETTERS[name]
    return (await kind.fetch(run, kind.parameters.model_validate(fields))).data


async def step(run: TaskRun, name: str, **fields: object) -> None:
    """Carry out a step."""
    kind = STEPS[name]
    await kind.run(run, kind.parameters.model_validate(fields))


async def test_tabs_are_opened_listed_and_closed(run: TaskRun, browser: Browser) -> None:
    """In place of the first tab; a tab closes by its address."""
    await step(run, "chrome_open_tabs", urls_to_open=["https://a.org/", "https://b.org/x"])
    assert {t["url"] for t in await get(run, "open_tabs_info")} == {"https://a.org/", "https://b.org/x"}
    await step(run, "chrome_close_tabs", urls_to_close=["a.org", "https://c.org"])
    assert len(await get(run, "open_tabs_info")) == 2  # another scheme is another page
    await step(run, "chrome_close_tabs", urls_to_close=["https://www.a.org", "https://c.org"])
    assert [t["url"] for t in await get(run, "open_tabs_info")] == ["https://b.org/x"]


async def test_the_tab_in_front_is_the_one_that_shows(run: TaskRun, browser: Browser) -> None:
    """Its address comes of the browser, its texts of the page."""
    browser.tabs = [{"id": i, "type": "page", "title": i, "url": f"https://{i}.org/"} for i in ("A", "B")]
    browser.tabs.append({"id": "w", "type": "service_worker", "title": "", "url": "x"})
    browser.pages["SA"] = [["Title"], ["ignored"], ["<p>hello</p>"]]
    found = await get(run, "active_tab_info")
    assert found == {"title": "Title", "url": "https://A.org/", "content": "<p>hello</p>"}
    browser.pages["SA"] = [["42"]]
    assert await get(run, "active_tab_html_parse", category="xpath", xpathObject={"/p": "n"}) == {"n": "42"}


async def test_the_address_is_kept_for_the_confined_process(run: TaskRun, browser: Browser) -> None:
    """With what the task wants of it; nothing of it is parsed here."""
    browser.tabs[0]["url"] = "https://a.org/x?q=1"
    kind = GETTERS["url_dashPart"]
    fields = {"goto_prefix": "https://", "partIndex": -1, "needDeleteId": True, "returnType": "string"}
    value = await kind.fetch(run, kind.parameters.model_validate(fields))
    assert value.reader == "active_url"
    said = json.loads(await asyncio.to_thread(value.files[0].path.read_text))
    assert said["url"] == "https://a.org/x?q=1"
    assert said["want"] == {"part": -1, "without_query": True, "key": None}


async def test_a_page_that_does_not_load_stays_open(
    run: TaskRun, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in OSWorld; the rest of the tabs are opened."""
    monkeypatch.setattr(tabs, "LOAD_S", 0.05)
    browser.loads = False
    await step(run, "chrome_open_tabs", urls_to_open=["https://a.org/", "https://b.org/"])
    assert len(browser.tabs) == 2
    with pytest.raises(ResultUnusable, match="did not load within"):
        await get(run, "page_info", url="https://c.org/")


async def test_no_browser_is_the_replicas_fault(
    run: TaskRun, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is started where OSWorld does; the guest agent is asked whether it is well."""
    monkeypatch.setattr("osgym_osworld.browser.getters.START_S", 0.01)
    monkeypatch.setattr("osgym_osworld.browser.steps.START_S", 0.01)
    browser.port = 0
    with pytest.raises(ResultUnusable, match="no browser listens"):
        await get(run, "open_tabs_info")
    assert "google-chrome --remote-debugging-port=1337" in browser.calls
    assert "health" in browser.calls
    with pytest.raises(StepProblem) as caught:
        await step(run, "chrome_open_tabs", urls_to_open=["https://a.org/"])
    assert caught.value.by_replica


HOSTILE: dict[str, Answer] = {
    "silence": lambda call: [],
    "no JSON": lambda call: ["{"],
    "an error": lambda call: [{"id": call["id"], "error": {"message": "x" * 9000}}],
    "brackets": lambda call: ["[" * 60_000 + "]" * 60_000],
    "nonsense": lambda call: [{"id": call["id"], "result": {"result": {"value": {"a": 1}}, "frameTree": 3}}],
    "others' answers": lambda call: [{"id": -1, "result": {}}] * 500,
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_hostile_answers_end_in_bounded_time(
    run: TaskRun, browser: Browser, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Each is the replica's problem, told in few words."""
    monkeypatch.setattr(tabs, "CALL_S", 0.3)
    monkeypatch.setattr(tabs, "PROBE_S", 0.3)
    browser.hostile = HOSTILE[kind]
    async with asyncio.timeout(10):
        with pytest.raises(BrowserProblem) as caught:
            await tabs.read_front(run, 9222, [Query("title")])
        assert len(str(caught.value)) < 400
        with pytest.raises(BrowserProblem):
            await tabs.visit(run, 9222, "https://a.org/")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"[1, null]", b'{"webSocketDebuggerUrl": "ws://evil.org:1/x"}', b"x" * 400_000]
)
async def test_hostile_http_answers(run: TaskRun, browser: Browser, body: bytes) -> None:
    """No address of theirs is gone to, no list of theirs is believed to be one."""
    browser.http = body
    with pytest.raises(BrowserProblem):
        await tabs.read_front(run, 9222, [Query("title")])
    with pytest.raises(BrowserProblem):
        await tabs.visit(run, 9222, "https://a.org/")


async def test_time_that_is_up_is_told_apart(run: TaskRun, browser: Browser) -> None:
    """A browser that was given less than its time is not blamed for it here."""
    browser.hostile = HOSTILE["silence"]
    short = TaskRun(run.guest, run.ctx, "t", asyncio.get_event_loop().time() + 0.3)
    with pytest.raises(DeadlineExceeded):
        await tabs.visit(short, 9222, "https://a.org/")


async def test_too_many_tabs_are_refused(run: TaskRun, browser: Browser) -> None:
    """A list is bounded."""
    browser.tabs = [{"id": str(i), "type": "page", "title": "", "url": ""} for i in range(65)]
    with pytest.raises(BrowserProblem, match="more than 64"):
        await tabs.listed(run, 9222)
    browser.port = 0
    with pytest.raises(BrowserClosed):
        await tabs.listed(run, 9222)
