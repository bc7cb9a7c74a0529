"""Show witness.html in Chromium and write down what the page and the browser tell: `chromium.py LOG`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from recorder import HEIGHT, PLACES, ROWS, WIDTH, Recorder

PAGE = Path(__file__).resolve().with_name("witness.html")
ASKS_WHERE_TO_SAVE = {"download": {"prompt_for_download": True, "default_directory": str(Path.home())}}
COMMAND_FD, EVENT_FD = 3, 4
"""Descriptors that the browser reads commands from and writes events to: --remote-debugging-pipe."""


class PageHandler(BaseHTTPRequestHandler):
    """Serves the page and takes its events, in the order in which the page sends them."""

    recorder: Recorder

    def do_GET(self) -> None:
        """Answer with the page, the places of its targets, or a file to save."""
        if self.path == "/layout":
            self._answer(json.dumps({"places": PLACES, "rows": ROWS}).encode(), "application/json")
        elif self.path == "/file":
            self._answer(b"saved by the witness\n", "application/octet-stream")
        else:
            self._answer(PAGE.read_bytes(), "text/html; charset=utf-8")

    def do_POST(self) -> None:
        fields = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.recorder.write(fields.pop("event"), **fields)
        self._answer(b"", "text/plain")

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing on standard error."""


def browser_argv(url: str, profile: str) -> list[str]:
    """Return the command of a browser with a window without tabs and a profile of its own."""
    name = next(name for name in ("google-chrome", "chromium") if shutil.which(name))
    argv = [name, f"--user-data-dir={profile}", f"--app={url}", "--no-first-run", "--remote-debugging-pipe"]
    argv += [f"--window-size={WIDTH},{HEIGHT + 40}", "--window-position=40,40", "--password-store=basic"]
    return argv + (["--no-sandbox"] if os.geteuid() == 0 else [])


def start(argv: list[str]) -> tuple[subprocess.Popen[bytes], int, int]:
    """Start the browser; return it with descriptors to write commands to and to read events from."""
    command_read, command_write = os.pipe()
    event_read, event_write = os.pipe()

    def place_descriptors() -> None:
        # first out of the way: a pipe's end may already be 3 or 4
        ends = os.dup(command_read), os.dup(event_write)
        os.dup2(ends[0], COMMAND_FD)
        os.dup2(ends[1], EVENT_FD)

    process = subprocess.Popen(
        argv,
        preexec_fn=place_descriptors,
        close_fds=False,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(command_read)
    os.close(event_write)
    return process, command_write, event_read


def follow_downloads(recorder: Recorder, commands: int, events: int) -> None:
    """Write down where each download was saved, until the browser ends."""
    wanted = {"behavior": "default", "eventsEnabled": True}
    message = {"id": 1, "method": "Browser.setDownloadBehavior", "params": wanted}
    os.write(commands, json.dumps(message).encode() + b"\0")
    rest = b""
    while data := os.read(events, 65536):
        *packets, rest = (rest + data).split(b"\0")
        for event in map(json.loads, packets):
            state = event.get("params", {}).get("state")
            if event.get("method") == "Browser.downloadProgress" and state != "inProgress":
                recorder.write("dialog", name="save", path=event["params"].get("filePath", ""))


def main() -> None:
    recorder = PageHandler.recorder = Recorder(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), PageHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="witness-chromium-", ignore_cleanup_errors=True) as profile:
        preferences = Path(profile, "Default", "Preferences")
        preferences.parent.mkdir()
        preferences.write_text(json.dumps(ASKS_WHERE_TO_SAVE))
        argv = browser_argv(f"http://127.0.0.1:{server.server_port}/", profile)
        process, commands, events = start(argv)
        follow_downloads(recorder, commands, events)
        process.wait()


if __name__ == "__main__":
    main()
