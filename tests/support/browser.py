"""A real browser for tests of pages: Chromium without a window, driven by its debugging protocol.

It is the one on PATH, else that of the full golden image, in a mount namespace and a root of its own.
"""

from __future__ import annotations

import asyncio
import base64
import collections
import contextlib
import itertools
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from osgym_host.images.store import ImageStore, default_data_dir

START_S = 30.0
CALL_S = 20.0
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--remote-debugging-port=0",
)
_IN_IMAGE = """
set -e
mount -t tmpfs osgym-test "$1" && mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay osgym-test -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount --rbind /dev "$1/root/dev" && mount -t proc proc "$1/root/proc" && mount --bind "$3" "$1/root/mnt"
shift 3
exec chroot "$root" "$@"
"""


class Page:
    """One tab: what it shows, what it logs, what a person does in it."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.problems: list[str] = []
        """Errors of scripts, and what the page's own policy forbade."""
        self._open: dict[str, str] = {}
        self._failed: collections.deque[str] = collections.deque(maxlen=20)
        self._trace: list[dict[str, Any]] = []
        self._traced = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol."""
        number = next(self._ids)
        answered = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
            async with asyncio.timeout(CALL_S):
                answer = await answered
        finally:
            del self._waiting[number]
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def run(self, script: str) -> Any:
        """What an expression gives, promises awaited."""
        answer = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, script: str, timeout_s: float = 40.0) -> Any:
        """Asks again until the expression gives something true."""
        try:
            async with asyncio.timeout(timeout_s):
                while not (value := await self.run(script)):  # noqa: ASYNC110 - a page tells nobody
                    await asyncio.sleep(0.05)
                return value
        except TimeoutError:
            shown = await self.run("document.body.innerText")
            network = f"asked for and not answered: {list(self._open.values())}; failed: {list(self._failed)}"
            raise AssertionError(
                f"not in {timeout_s} s: {script}\n{shown}\n{self.problems}\n{network}"
            ) from None

    async def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """The window's size in pixels, and which colours the person prefers."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def click(self, selector: str) -> None:
        """A click of the mouse on the middle of an element."""
        box = await self.until(
            f"(async () => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null;"
            " e.scrollIntoView({block: 'center'});"
            # Until a frame was drawn, a click falls where things were before.
            " for (let n = 0; n < 2; n += 1) await new Promise(requestAnimationFrame);"
            " const b = e.getBoundingClientRect();"
            " return b.width ? [b.x + b.width / 2, b.y + b.height / 2] : null; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.call(
                "Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1
            )

    async def type(self, text: str) -> None:
        """Text where the focus is."""
        await self.call("Input.insertText", text=text)

    async def key(self, name: str) -> None:
        """One key by its name; a character gives its text, too."""
        text = {"text": name} if len(name) == 1 else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=name, **text)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=name)

    async def wheel(self, x: int, y: int, pixels: int) -> None:
        """The wheel turned over a point."""
        await self.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=pixels)

    @contextlib.asynccontextmanager
    async def tasks_of_main_thread(self) -> AsyncIterator[list[float]]:
        """Milliseconds of CPU of each task of the page's main thread within the block, known after it.

        Not of the clock: how long a task was kept from a core says something of the machine, not of the page.
        """
        found: list[float] = []
        await self.call("Tracing.start", categories="-*,toplevel", transferMode="ReportEvents")
        yield found
        await self.call("Tracing.end")
        async with asyncio.timeout(CALL_S):
            await self._traced.wait()
        main = {
            (event["pid"], event["tid"])
            for event in self._trace
            if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
        }
        found += [e["tdur"] / 1000 for e in self._trace if (e["pid"], e["tid"]) in main and "tdur" in e]

    async def screenshot(self, path: Path) -> None:
        """What is seen, as PNG."""
        answer = await self.call("Page.captureScreenshot", format="png")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(answer["data"]))

    async def close(self) -> None:
        """Ends the connection; the tab goes with the browser."""
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._socket.close()

    async def _read(self) -> None:
        """Ends with the connection, however that ends."""
        with contextlib.suppress(ConnectionClosed):
            await self._read_all()

    async def _read_all(self) -> None:
        async for text in self._socket:
            message = json.loads(text)
            if "id" in message:
                waiting = self._waiting.get(message["id"])
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
            elif message["method"] == "Tracing.dataCollected":
                self._trace += message["params"]["value"]
            elif message["method"] == "Tracing.tracingComplete":
                self._traced.set()
            elif message["method"].startswith("Network."):
                self._note(message["method"], message["params"])
            elif message["method"] == "Runtime.exceptionThrown":
                details = message["params"]["exceptionDetails"]
                self.problems.append(str(details.get("exception", details).get("description", details)))
            elif message["method"] == "Log.entryAdded":
                entry = message["params"]["entry"]
                if entry["level"] == "error" and entry["source"] != "network":
                    self.problems.append(f"{entry['source']}: {entry['text']}")

    def _note(self, method: str, parameters: dict[str, Any]) -> None:
        """What the page asks for, until it is answered; for who has to find out why it shows nothing."""
        request = parameters.get("requestId", "")
        if method == "Network.requestWillBeSent":
            self._open[request] = parameters["request"]["url"]
        elif method == "Network.loadingFailed":
            self._failed.append(f"{self._open.pop(request, request)}: {parameters['errorText']}")
        elif method == "Network.loadingFinished":
            self._open.pop(request, None)
        elif method == "Network.responseReceived" and parameters["response"]["status"] >= 400:
            self._failed.append(f"{parameters['response']['url']}: {parameters['response']['status']}")


@contextlib.asynccontextmanager
async def browser_page(url: str, folder: Path, rootfs: Path | None = None) -> AsyncIterator[Page]:
    """A browser with one tab at this address; it ends with the context.

    Args:
        folder: Empty; the browser's profile lies in it.
        rootfs: Of an image that has Chromium, for where PATH has none.
    """
    argv = _argv(folder, rootfs)
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL, start_new_session=True
    )
    try:
        port = await _port(folder / "DevToolsActivePort", process)
        page = await _tab(port)
        await page.call("Page.navigate", url=url)
        try:
            yield page
        finally:
            await page.close()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _tab(port: int) -> Page:
    async with httpx.AsyncClient(trust_env=False, timeout=CALL_S) as http:
        tab = (await http.put(f"http://127.0.0.1:{port}/json/new?about:blank")).json()
    page = Page(await connect(tab["webSocketDebuggerUrl"], max_size=64 << 20, proxy=None))
    for domain in ("Page", "Runtime", "Log", "Network"):
        await page.call(f"{domain}.enable")
    return page


def chromium_on_path() -> str | None:
    """Where Chromium is installed, None where it is not."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def browser_root() -> Path | None:
    """The golden image whose Chromium is taken where PATH has none."""
    return None if chromium_on_path() else ImageStore(default_data_dir()).resolve("full").rootfs


def _argv(folder: Path, rootfs: Path | None) -> list[str]:
    found = chromium_on_path()
    if found is not None:
        return [found, *_FLAGS, f"--user-data-dir={folder}", "about:blank"]
    assert rootfs is not None, "neither PATH nor an image has Chromium"
    place = folder.with_name(folder.name + "-root")
    place.mkdir()
    inside = ["chromium", *_FLAGS, "--user-data-dir=/mnt", "about:blank"]
    script = _IN_IMAGE.replace('"$root"', f'"{place}/root"')
    return ["unshare", "--mount", "sh", "-c", script, "sh", str(place), str(rootfs), str(folder), *inside]


async def _port(path: Path, process: asyncio.subprocess.Process) -> int:
    async with asyncio.timeout(START_S):
        while process.returncode is None:
            with contextlib.suppress(OSError, ValueError, IndexError):
                return int((await asyncio.to_thread(path.read_text)).splitlines()[0])
            await asyncio.sleep(0.05)
    raise AssertionError(f"Chromium ended with {process.returncode}")
