"""Commands whose caller left, over the agent's own server with real processes: each ends with its caller."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from tests.support.agent_endpoints import StillDesktop
from tests.support.waiting import until

from osgym_guest import osworld
from osgym_guest.http import HttpError, Router
from osgym_guest.osworld import process
from osgym_guest.osworld.process import start
from osgym_guest.osworld.session import DesktopSession
from osgym_guest.reach.execute import CommandSpec, Executions
from osgym_guest.server import Server

TYPING = "echo $$ >> {home}/pids; while :; do echo x >> {home}/typed; sleep 0.02; done"
"""Stands for a script that types: it goes on until it is ended."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.fixture
def session(home: Path) -> DesktopSession:
    return DesktopSession({"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin"}, home)


Connect = Callable[[], socket.socket]


@pytest.fixture(params=["unix", "tcp"])
async def connect(
    request: pytest.FixtureRequest, tmp_path: Path, session: DesktopSession
) -> AsyncIterator[Connect]:
    """Opens a connection to an agent with OSWorld's endpoints."""
    router = Router()
    context = osworld.register(router, StillDesktop(), session)
    server = Server(router)
    family = socket.AF_UNIX if request.param == "unix" else socket.AF_INET
    listener = socket.socket(family)
    listener.bind(str(tmp_path / "agent.sock") if request.param == "unix" else ("127.0.0.1", 0))
    address = listener.getsockname()
    server.listen(listener)

    def opened() -> socket.socket:
        caller = socket.socket(family)
        caller.settimeout(30)
        caller.connect(address)
        return caller

    yield opened
    await server.close()
    await context.close()


def ask(caller: socket.socket, target: str, body: dict[str, Any], version: str = "HTTP/1.1") -> None:
    """Send a request and read no answer."""
    data = json.dumps(body).encode()
    head = f"POST {target} {version}\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    caller.sendall(head.encode() + data)


def answer(caller: socket.socket) -> Any:
    """Read an answer as the standard library's client does."""
    connection = HTTPConnection("x")
    connection.sock = caller
    connection._HTTPConnection__state = "Request-sent"  # type: ignore[attr-defined]  # it sent nothing itself
    response = connection.getresponse()
    return json.loads(response.read())


def running(home: Path) -> list[int]:
    """Return the processes that wrote their number and have not ended."""
    found = []
    for word in (home / "pids").read_text().split() if (home / "pids").exists() else ():
        with contextlib.suppress(OSError):
            if Path("/proc", word, "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                found.append(int(word))
    return found


def body_of(target: str, script: str) -> dict[str, Any]:
    match target:
        case "/run_python":
            return {"code": f"import os; os.execv('/bin/sh', ['sh', '-c', {script!r}])"}
        case "/run_bash_script":
            return {"script": script}
        case _:
            return {"command": script, "shell": True}


TARGETS = ["/execute", "/setup/execute", "/execute_with_verification", "/run_python", "/run_bash_script"]


@pytest.mark.parametrize("target", TARGETS)
async def test_a_command_ends_when_its_caller_leaves(connect: Connect, home: Path, target: str) -> None:
    """With all that it started, jobs in process groups of their own included; the agent serves on."""
    typing = shlex.quote(TYPING.format(home=home))
    caller = connect()
    ask(caller, target, body_of(target, f"bash -mc {shlex.quote(f'sh -c {typing} & sh -c {typing}')}"))
    await until(lambda: len(running(home)) == 2, what="both loops run")
    caller.close()
    await until(lambda: not running(home), what="nothing of the command runs")
    size = (home / "typed").stat().st_size
    again = connect()
    ask(again, "/execute", {"command": "echo well", "shell": True})
    assert (await asyncio.to_thread(answer, again))["output"] == "well\n"
    assert (home / "typed").stat().st_size == size
    again.close()


async def test_a_check_ends_when_its_caller_leaves(connect: Connect, home: Path) -> None:
    """The verification after the command, too."""
    script = TYPING.format(home=home)
    caller = connect()
    ask(caller, "/execute_with_verification",
        {"command": ["true"], "verification": {"command_success": script}, "max_wait_time": 60})  # fmt: skip
    await until(lambda: len(running(home)) == 1, what="the check runs")
    caller.close()
    await until(lambda: not running(home), what="the check has ended")
    assert len((home / "pids").read_text().split()) == 1


async def test_what_a_command_left_behind_goes_on(connect: Connect, home: Path) -> None:
    """In the background when the command returned, or in a session of its own when the caller left."""
    script = TYPING.format(home=home)
    caller = connect()
    ask(caller, "/execute", {"command": f"nohup sh -c '{script}' >/dev/null 2>&1 &", "shell": True})
    assert (await asyncio.to_thread(answer, caller))["returncode"] == 0
    caller.close()
    leaving = connect()
    ask(
        leaving,
        "/execute",
        {"command": f"setsid sh -c '{script}' >/dev/null 2>&1 & sh -c '{script}'", "shell": True},
    )
    await until(lambda: len(running(home)) == 3, what="all run")
    leaving.close()
    await until(lambda: len(running(home)) == 2, what="the command has ended")
    try:
        first, second = running(home)
        size = (home / "typed").stat().st_size
        await until(lambda: (home / "typed").stat().st_size > size, what="the others type on")
        assert running(home) == [first, second]
    finally:
        for pid in running(home):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
async def test_a_caller_that_only_sends_no_more_gets_its_answer(
    connect: Connect, home: Path, version: str
) -> None:
    """`shutdown(SHUT_WR)` is no hang-up; HTTP/1.0, which knows no interim answers, gets none."""
    caller = connect()
    ask(caller, "/execute", {"command": "sleep 1.2; echo done", "shell": True}, version)
    caller.shutdown(socket.SHUT_WR)
    if version == "HTTP/1.0":
        said = await asyncio.to_thread(caller.recv, 9000, socket.MSG_WAITALL)
        assert said.startswith(b"HTTP/1.1 200 OK\r\n")
        assert json.loads(said.partition(b"\r\n\r\n")[2])["output"] == "done\n"
    else:
        assert (await asyncio.to_thread(answer, caller))["output"] == "done\n"
    caller.close()


async def test_a_caller_that_ends_its_direction_and_leaves_later_ends_its_command(
    connect: Connect, home: Path
) -> None:
    """As callers behind a tunnel do."""
    caller = connect()
    ask(caller, "/execute", {"command": TYPING.format(home=home), "shell": True})
    caller.shutdown(socket.SHUT_WR)
    await until(lambda: len(running(home)) == 1, what="it runs")
    size = (home / "typed").stat().st_size
    await until(lambda: (home / "typed").stat().st_size > size + 60, what="it runs on while its caller waits")
    caller.close()
    await until(lambda: not running(home), what="it has ended")


async def test_a_command_with_a_number_waits_for_callers_that_ask_again(
    session: DesktopSession, home: Path
) -> None:
    """For a while: a lost connection is no end. Then it ends, and whoever still asks is told."""
    executions = Executions(session, abandoned_s=0.5)
    order = CommandSpec(("/bin/sh", "-c", TYPING.format(home=home)), False, 60.0, home, (), b"")
    first = asyncio.create_task(executions.run("r", order))
    await until(lambda: len(running(home)) == 1, what="it runs")
    first.cancel()
    await asyncio.wait((first,))
    second = asyncio.create_task(executions.run("r", order))
    left = time.monotonic()
    await until(lambda: time.monotonic() > left + 0.8, what="longer than a command without a caller may run")
    assert len(running(home)) == 1
    second.cancel()
    await asyncio.wait((second,))
    await until(lambda: not running(home), what="it has ended")
    with pytest.raises(HttpError, match="its caller disconnected"):
        await executions.run("r", order)


async def test_a_session_that_forks_faster_than_it_is_found_holds_nobody_up(
    session: DesktopSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever it is looked for, there is one more process: killing them is given up in time."""
    child = await start(["sleep", "60"], session)
    until_s = time.monotonic() + 5
    forked: list[subprocess.Popen[bytes]] = []

    def one_more(_: int) -> Iterator[int]:
        if time.monotonic() < until_s:
            forked.append(subprocess.Popen(["sleep", "60"]))
            yield forked[-1].pid

    monkeypatch.setattr(process, "_session_members", one_more)
    child.kill_session()
    assert time.monotonic() < until_s - 2
    assert len(forked) > 1
    for one in forked:
        one.kill()
        one.wait()
