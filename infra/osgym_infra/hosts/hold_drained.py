"""Program for a host: drains its agent, reports when it is empty, and holds it drained while connected.

Python's own modules only, and no word of the installed agent, which may be older. Whatever ends this process
(the update is over, Ctrl-C, a lost connection, a time limit), the agent takes episodes again: no host stays
drained because somebody's laptop was closed. A host that was drained by hand before stays so.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NoReturn

LOOK_S = 0.5
CALL_S = 10.0
UNDO_S = 5.0
"""Below the ten seconds after which the guard kills what it told to end (`links.link.GUARD`)."""
END_S = 60.0
"""How long after the deadline the agent may take to end what is still open."""
ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 (read, not bound)
DRAINED = "drained"
"""The line that says that no episode is open any more, or that there is none to wait for."""


class Agent:
    """Client of this machine's agent, by its current configuration, not the next one."""

    def __init__(self, etc: Path) -> None:
        """Read the agent's address, token and authority.

        Raises:
            OSError, ValueError: It was never configured.
        """
        config = (etc / "agent.yaml").read_text()
        port = re.search(r"^ports: \[(\d+)", config, re.MULTILINE)
        token = re.search(r"^OSGYM_TOKEN=(.*)$", (etc / "secret.env").read_text(), re.MULTILINE)
        if port is None or token is None:
            raise ValueError("agent.yaml names no port, or secret.env holds no token")
        host = re.search(r"^host: (\S+)", config, re.MULTILINE)
        address = host[1] if host is not None and host[1] not in ANYWHERE else "127.0.0.1"
        has_tls = re.search(r"^tls_cert:", config, re.MULTILINE) is not None
        self._url = f"{'https' if has_tls else 'http'}://{address}:{port[1]}"
        self._token = token[1].strip().strip("'\"")
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if has_tls:
            context = ssl.create_default_context(cafile=str(etc / "tls" / "ca.pem"))
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def call(
        self, method: str, path: str, body: dict[str, object] | None = None, timeout_s: float = CALL_S
    ) -> dict[str, Any]:
        """Call the agent's API.

        Raises:
            OSError: It does not answer, or not so.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, data, headers, method=method)  # noqa: S310 - the URL is ours
        with self._opener.open(request, timeout=timeout_s) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found


def say(line: str) -> None:
    print(f"osgym: {line}", flush=True)


def drain(agent: Agent, deadline_s: float) -> None:
    """Drain the agent; return when no episode is open.

    Raises:
        OSError: The agent does not answer.
    """
    state = agent.call("POST", "/v1/drain", {"deadline_s": deadline_s})
    end = time.monotonic() + deadline_s
    shown = -1
    while leased := int(state["capacity"]["leased"]):
        left_s = end - time.monotonic()
        if left_s < -END_S:
            raise OSError(f"{leased} desktops are still in use {END_S:g} s after the deadline")
        if leased != shown:
            say(f"draining: {leased} episodes, for at most {max(0.0, left_s):.0f} s more")
            shown = leased
        time.sleep(LOOK_S)
        state = agent.call("GET", "/v1/host")


def hold(etc: Path, deadline_s: float, most_s: float) -> None:
    """Drain the host and hold it drained for at most `most_s` more; ends by `SystemExit`."""
    agent: Agent | None = None
    was_draining = True  # what we did not begin we do not take back
    try:
        try:
            agent = Agent(etc)
            was_draining = bool(agent.call("GET", "/v1/host")["draining"])
            drain(agent, deadline_s)
        except (OSError, ValueError, KeyError) as error:
            # An agent that does not answer has no episode that could be waited for; what is wrong with it the
            # next steps find out.
            say(f"warning: the host cannot be drained, so its episodes end now: {error}")
        say(DRAINED)
        time.sleep(most_s)
    finally:
        if agent is not None and not was_draining:
            take_back(agent)


def take_back(agent: Agent) -> None:
    """Let the host serve again; a restarted agent does so anyway."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        agent.call("DELETE", "/v1/drain", timeout_s=UNDO_S)
    except (OSError, ValueError):
        return


def _end(*_: object) -> NoReturn:
    raise SystemExit(0)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deadline-s", type=float, required=True)
    parser.add_argument("--most-s", type=float, required=True)
    parser.add_argument("--etc", type=Path, default=Path("/etc/osgym"))
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGHUP, _end)
    hold(options.etc, options.deadline_s, options.most_s)


if __name__ == "__main__":
    main(sys.argv[1:])
