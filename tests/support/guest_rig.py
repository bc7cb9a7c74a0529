"""A real X server with a window manager and the guest agent, and a small client, for tests."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from osgym_protocol.guest_api import LISTEN_FD
from osgym_protocol.records import decode_record


class GuestFault(Exception):
    """An error answer of the agent."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(f"{status} {body}")
        self.status = status
        self.code = body.get("code", "")
        self.details = body.get("details", {})


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("guest", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Guest:
    """A client of one agent."""

    def __init__(self, path: Path, token: str = "", timeout_s: float = 60.0) -> None:
        self._path = path
        self._token = token
        self._timeout_s = timeout_s
        self.seq = 0

    def raw(self, method: str, target: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        """Status and body of one request."""
        connection = _UnixConnection(self._path, self._timeout_s)
        try:
            if self._token:
                headers["Authorization"] = f"Bearer {self._token}"
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def call(self, method: str, target: str, body: Any = None) -> bytes:
        """Body of a successful request, else GuestFault."""
        status, data = self.raw(method, target, b"" if body is None else json.dumps(body).encode())
        if status != 200:
            raise GuestFault(status, json.loads(data))
        return data

    def json(self, method: str, target: str, body: Any = None) -> dict[str, Any]:
        """The same, decoded."""
        value = json.loads(self.call(method, target, body))
        assert isinstance(value, dict)
        return value

    def record(self, target: str, body: Any) -> tuple[dict[str, Any], bytes]:
        """Meta and image of a record."""
        record = decode_record(self.call("POST", target, body))
        return record.meta, bytes(record.blob)

    def step(self, *actions: Mapping[str, Any], **options: Any) -> tuple[dict[str, Any], bytes]:
        """The next step."""
        answer = self.record("/v1/step", {"seq": self.seq + 1, "actions": list(actions), **options})
        self.seq += 1
        return answer

    def observe(self, **observe: Any) -> tuple[dict[str, Any], bytes]:
        """A frame."""
        return self.record("/v1/observe", {"observe": observe})

    def image(self) -> Image.Image:
        """The screen now."""
        return Image.open(io.BytesIO(self.observe()[1])).convert("RGB")


class Desktop:
    """One X server and what runs on it.

    Attributes:
        display: such as ``:7``.
        guest: client of the agent, once `start_agent` has been called.
        home: a directory for files.
    """

    def __init__(self, home: Path, stack: contextlib.ExitStack, size: tuple[int, int], fbdir: bool) -> None:
        self.home = home
        self.size = size
        self._stack = stack
        self._fbdir = home / "fb" if fbdir else None
        self.display = ""
        self.guest = Guest(home / "agent.sock")
        self.agent: subprocess.Popen[bytes] | None = None
        self.server = self._start_server()
        self._listener: socket.socket | None = None

    def _start_server(self) -> subprocess.Popen[bytes]:
        reader, writer = os.pipe()
        argv = ["Xvfb", "-displayfd", str(writer), "-screen", "0", f"{self.size[0]}x{self.size[1]}x24"]
        argv += ["-nolisten", "tcp", "-noreset"]
        if self._fbdir:
            self._fbdir.mkdir()
            argv += ["-fbdir", str(self._fbdir)]
        server = subprocess.Popen(argv, pass_fds=[writer], stderr=subprocess.DEVNULL)
        os.close(writer)
        self._stack.callback(stop, server)
        with os.fdopen(reader) as pipe:
            self.display = f":{pipe.readline().strip()}"
        assert self.display != ":", "Xvfb did not start"
        return server

    @property
    def environment(self) -> dict[str, str]:
        """For clients of the X server."""
        kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        return {
            **kept,
            "DISPLAY": self.display,
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "NO_AT_BRIDGE": "1",
            "XDG_RUNTIME_DIR": str(self.home),
            "GSETTINGS_BACKEND": "memory",
            "GTK_OVERLAY_SCROLLING": "0",
        }

    def run(self, *argv: str, **env: str) -> subprocess.Popen[bytes]:
        """Start a client that is stopped at the end."""
        process = subprocess.Popen(
            argv,
            env={**self.environment, **env},
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._stack.callback(stop, process)
        return process

    def start_wm(self) -> subprocess.Popen[bytes]:
        """Start the window manager and wait for it."""
        wm = self.run("openbox")
        until(lambda: "not found" not in self.property("_NET_SUPPORTING_WM_CHECK"))
        return wm

    def start_agent(self, **env: str) -> Guest:
        """Start the agent on an inherited unix socket and wait until the desktop is ready."""
        if self._listener is None:
            self._listener = socket.socket(socket.AF_UNIX)
            self._stack.callback(self._listener.close)
            self._listener.bind(str(self.home / "agent.sock"))
            self._listener.listen(64)
        settings = {"LISTEN_FDS": "1", "OSGYM_GENERATION": "g1", **env}
        if self._fbdir:
            settings["OSGYM_FBDIR"] = str(self._fbdir)
        descriptor = self._listener.fileno()

        def hand_over() -> None:
            os.dup2(descriptor, LISTEN_FD)

        self.agent = subprocess.Popen(
            [sys.executable, "-I", "-m", "osgym_guest"],
            env={**self.environment, **settings},
            cwd=self.home,
            preexec_fn=hand_over if descriptor != LISTEN_FD else None,
            pass_fds=[LISTEN_FD, descriptor],
        )
        self._stack.callback(stop, self.agent)
        self.guest = Guest(self.home / "agent.sock", env.get("OSGYM_TOKEN", ""))
        return self.guest

    def property(self, name: str) -> str:
        """A property of the root window as xprop prints it."""
        return subprocess.run(
            ["xprop", "-root", name], env=self.environment, capture_output=True, text=True, check=False
        ).stdout

    def open(self, *argv: str, **env: str) -> subprocess.Popen[bytes]:
        """Start an application and wait until its window is there and active, and the screen quiet."""
        before = self.property("_NET_CLIENT_LIST")
        process = self.run(*argv, **env)
        until(lambda: self.property("_NET_CLIENT_LIST") != before, timeout_s=30)
        until(lambda: "0x0" not in self.property("_NET_ACTIVE_WINDOW").split("#")[-1])
        self.guest.step({"op": "screenshot"})
        return process


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process that we started."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)


def until(condition: Callable[[], Any], timeout_s: float = 10.0) -> Any:
    """Poll until the condition holds."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)
    return value


@contextlib.contextmanager
def desktop(
    home: Path,
    *,
    size: tuple[int, int] = (1280, 800),
    fbdir: bool = True,
    wm: bool = True,
    agent: bool = True,
) -> Iterator[Desktop]:
    """An X server, by default with a window manager and the agent, gone at the end."""
    with contextlib.ExitStack() as stack:
        made = Desktop(home, stack, size, fbdir)
        if wm:
            made.start_wm()
        if agent:
            made.start_agent()
            made.guest.json("POST", "/v1/ready", {"timeout_s": 20}) if wm else until_serving(made.guest)
        yield made


def until_serving(guest: Guest) -> None:
    """Wait until the agent has its display."""

    def serves() -> bool:
        try:
            guest.observe(format="none")
        except GuestFault:
            return False
        return True

    until(serves)
