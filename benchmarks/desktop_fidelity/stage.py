"""One real replica, driven and observed through the guest agent's interface."""

from __future__ import annotations

import base64
import json
import shlex
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.guest_rig import Guest

POLL_S = 0.05
START_S = 60.0
ARRIVAL_S = 10.0
FOLDER = "/tmp/desktop-fidelity"  # inside the replica


class Wrong(Exception):
    """A cell failed; the message has the observation."""


class NotApplicable(Exception):
    """A cell is impossible for this kind; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One check.

    Attributes:
        row: Kind of window or of content.
        run: Function of the check, which raises Wrong with the observation.
    """

    row: str
    column: str
    run: Callable[[Stage], None]


class Stage:
    """A replica's desktop."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self.shell(f"mkdir -p {FOLDER}")

    def shell(self, script: str, timeout_s: float = 60.0) -> str:
        """Run a script as the desktop's user; return what it printed.

        Raises:
            RuntimeError: it failed.
        """
        done = self._run(script, timeout_s, b"")
        if done["returncode"]:
            raise RuntimeError(f"{script!r}: {done['stderr'][-500:]}")
        return str(done["stdout"])

    def _run(self, script: str, timeout_s: float, stdin: bytes) -> dict[str, Any]:
        body: dict[str, Any] = {"command": [script], "shell": True, "timeout_s": timeout_s}
        body |= {"request_id": uuid.uuid4().hex, "stdin_base64": base64.b64encode(stdin).decode()}
        return self._guest.json("POST", "/v1/reach/execute", body)

    def write(self, path: str, data: bytes) -> None:
        """Write a file of up to 4 MiB below FOLDER."""
        done = self._run(f"cat >{FOLDER}/{shlex.quote(path)}", 60.0, data)
        if done["returncode"]:
            raise RuntimeError(f"{path}: {done['stderr']}")

    def read(self, path: str) -> str:
        """Return a text file below FOLDER; empty when it is not there."""
        return self.shell(f"cat {FOLDER}/{shlex.quote(path)} 2>/dev/null || true")

    def step(self, *actions: Mapping[str, Any]) -> dict[str, Any]:
        """Do actions and wait for the screen."""
        return self._guest.step(*actions, observe={"format": "none"})[0]

    def key(self, *names: str) -> None:
        self.step({"op": "key", "keys": list(names)})

    def type(self, text: str) -> None:
        self.step({"op": "type", "text": text})

    def click(self, x: int, y: int, **fields: Any) -> None:
        self.step({"op": "click", "x": x, "y": y, **fields})

    def pixel(self, x: int, y: int) -> tuple[int, int, int]:
        """Return the colour that the screen shows at a place."""
        red, green, blue = self._guest.image().getpixel((x, y))  # type: ignore[misc]
        return red, green, blue

    def windows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._guest.json("POST", "/v1/reach/windows", {})["windows"]
        return found

    def window(self, title: str) -> dict[str, Any] | None:
        return next((window for window in self.windows() if title in window["title"]), None)

    def osworld(self, endpoint: str, **body: Any) -> str:
        """Call one of OSWorld's endpoints; return its answer."""
        return self._guest.call("POST", endpoint, body).decode()

    def wait(self, what: str, seen: Callable[[], Any], timeout_s: float = ARRIVAL_S) -> Any:
        """Poll until something true is seen; return it.

        Raises:
            Wrong: it is not seen in time.
        """
        until = time.monotonic() + timeout_s
        while not (value := seen()):
            if time.monotonic() > until:
                raise Wrong(f"{what}: not within {timeout_s:g} s")
            time.sleep(POLL_S)
        return value

    def open(self, command: str, title: str) -> int:
        """Start a program and wait until its window has the keyboard; return its process group."""
        pid = int(self.shell(f"cd {FOLDER}; setsid {command} >/dev/null 2>&1 </dev/null & echo $!"))
        until = time.monotonic() + START_S
        while not any(one["focused"] and title in one["title"] for one in self.windows()):
            if time.monotonic() > until:
                raise RuntimeError(f"{command!r}: no window with the title {title!r} within {START_S:g} s")
            time.sleep(POLL_S)
        self.step({"op": "screenshot"})
        return pid

    def end(self, pid: int) -> None:
        """End a program with all that it started, and wait until it is gone."""
        # the shell's own kill takes no group after `--`
        self.shell(f"/bin/kill -KILL -- -{pid} 2>/dev/null || true")
        self.wait("end of a program", lambda: self.shell(f"pgrep -r R,S,D,T -g {pid} || true").strip() == "")

    def events(self, log: str) -> list[dict[str, Any]]:
        """Return the complete lines of a file of JSON lines."""
        lines = self.read(log).splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]
