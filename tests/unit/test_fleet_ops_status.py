"""`osgym fleet status` and `drain` against servers that speak host API v1, over TLS."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.support.fake_v1_host import FakeV1Host, Running, garbage, never, serving
from tests.support.fleet_files import TOKEN, Authority, authority, write_fleet

from osgym_infra.cli.fleet import fleet as command
from osgym_protocol.host_api import HostCapacity, HostState, Notice, ServedImage

ENTERED = '{"schema_version": 1, "hosts": [{"id": "a", "url": "http://x", "ssh": %s}]}'


class Host(FakeV1Host):
    """A host whose state can be changed as a test likes."""

    def __init__(self, **changes: Any) -> None:
        super().__init__(token=TOKEN)
        self.changes = changes

    def host_state(self) -> HostState:
        return replace(super().host_state(), **self.changes)


class Draining(Host):
    """A host that can be drained; replicas are in use for so many looks."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any] = []
        self.leased_looks = 0
        self._app.routes.append(Route("/v1/drain", self.drain, methods=["POST", "DELETE"]))

    async def drain(self, request: Request) -> Response:
        self.draining = request.method == "POST"
        if self.draining:
            self.asked.append(await request.json())
        return JSONResponse(self.host_state().to_dict())

    def host_state(self) -> HostState:
        self.leased_looks -= 1
        leased = HostCapacity(4, 3, 1) if self.leased_looks >= 0 else HostCapacity(4, 4, 0)
        return replace(super().host_state(), capacity=leased)


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    return authority(tmp_path / "tls")


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as found:
        yield found


def start(
    stack: contextlib.ExitStack, ca: Authority, name: str, host: Host, **options: Any
) -> dict[str, Any]:
    """A host over TLS, as it stands in fleet.json."""
    names = options.pop("names", ("127.0.0.1",))
    running: Running = stack.enter_context(serving(host, **ca.certificate(name, names)))
    return {"id": name, "url": running.url, "server_name": "", "capacity": 4, **options}


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


def test_all_hosts_are_shown_and_all_is_well(
    tmp_path: Path, ca: Authority, stack: contextlib.ExitStack
) -> None:
    """Replicas, notices and what differs from fleet.json; a host that drains is no failure."""
    going = Host(draining=True, notice=Notice("preempted", time.time() + 90))
    served = (
        ServedImage("0" * 64, "small", 2, 1, 0, 0, 2),
        ServedImage("f" * 64, "full", 0, 1, 0, 3, 2),
    )
    rows = [
        start(stack, ca, "a", Host()),
        start(stack, ca, "b", going, image_digest="f" * 64),
        start(stack, ca, "d", Host(images=served)),
        start(stack, ca, "c", Host(), server_name="fleet.internal", names=("fleet.internal",)),
    ]
    path = str(write_fleet(tmp_path / "fleet.json", rows, ca.pem))
    done = run("status", "--fleet", path)
    assert done.exit_code == 0, done.output
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert lines["a"].split()[1:5] == ["serving", "4", "0", "0"]
    assert "draining" in lines["b"]
    assert "preempted, " in lines["b"]
    assert "image is not ffffffffffff" in lines["b"]
    assert "serving" in lines["c"]
    assert "00000000 +1" in lines["d"] and "clients wait for full" in lines["d"]
    found = json.loads(run("status", "--fleet", path, "--json").stdout)
    assert (found["well"], found["failed"]) == (4, 0)
    assert [host["state"] for host in found["hosts"]] == ["serving", "draining", "serving", "serving"]
    assert found["hosts"][0]["agent"]["capacity"]["ready"] == 4


def test_each_failure_is_named_with_step_and_remedy(
    tmp_path: Path, ca: Authority, stack: contextlib.ExitStack
) -> None:
    """A host that is off, a silent one, one of a stranger, one with another token, one that babbles."""
    other = authority(tmp_path / "other")
    silent, babbling, locked = Host(), Host(), Host()
    locked.token = "another"
    for _ in range(4):
        silent.faults.append(("/v1/host", never))
        babbling.faults.append(("/v1/host", garbage))
    rows = [
        start(stack, ca, "good", Host()),
        {"id": "off", "url": f"https://127.0.0.1:{closed_port()}"},
        start(stack, ca, "silent", silent),
        start(stack, other, "stranger", Host()),
        start(stack, ca, "locked", locked),
        start(stack, ca, "babbling", babbling),
    ]
    path = str(write_fleet(tmp_path / "fleet.json", rows, ca.pem))
    began = time.monotonic()
    done = run("status", "--fleet", path, "--json", "--deadline-s", "1.5")
    assert time.monotonic() - began < 15
    assert done.exit_code == 1
    found = {row["host"]: row["failure"] for row in json.loads(done.stdout)["hosts"]}
    assert found.pop("good") is None
    steps = {name: failure["step"] for name, failure in found.items()}
    assert steps == {"off": "connect", "silent": "connect", "stranger": "tls", "locked": "authorize",
                     "babbling": "answer"}  # fmt: skip
    assert all(failure["remedy"] for failure in found.values())
    assert "1.5 s" in found["silent"]["problem"]
    text = run("status", "--fleet", path, "--deadline-s", "1.5")
    assert text.exit_code == 1
    assert "5 of 6 hosts failed" in text.stderr
    assert "host locked: authorize: the token is refused" in text.stderr


def test_what_hosts_say_steers_no_terminal(
    tmp_path: Path, ca: Authority, stack: contextlib.ExitStack
) -> None:
    """Control characters, text direction and markup in a version and a notice are shown, not obeyed."""
    evil = Host(version="\x1b]0;owned\x07\u202e[red]1", draining=True, notice=Notice("x" * 5000))
    path = str(write_fleet(tmp_path / "fleet.json", [start(stack, ca, "a", evil)], ca.pem))
    done = run("status", "--fleet", path)
    assert done.exit_code == 0
    assert "\x1b" not in done.output
    assert "\u202e" not in done.output
    assert r"\x1b]0;owned\x07\u202e[red]1" in done.output
    assert max(map(len, done.output.splitlines())) < 1200


def test_an_answer_without_end_is_cut_off(tmp_path: Path, ca: Authority, stack: contextlib.ExitStack) -> None:
    """Memory stays bounded."""
    loud = Host(version="x" * 300_000)
    path = str(write_fleet(tmp_path / "fleet.json", [start(stack, ca, "a", loud)], ca.pem))
    done = run("status", "--fleet", path)
    assert done.exit_code == 1
    assert "more than 256 KiB" in done.stderr


def test_hosts_are_chosen_by_id_address_and_glob(
    tmp_path: Path, ca: Authority, stack: contextlib.ExitStack
) -> None:
    """A pattern that fits none is a wrong argument."""
    rows = [start(stack, ca, name, Host()) for name in ("web-1", "web-2", "db-1")]
    rows[2]["ssh"] = {"address": "10.9.8.7"}
    path = str(write_fleet(tmp_path / "fleet.json", rows, ca.pem))

    def chosen(*patterns: str) -> list[str]:
        options = [word for pattern in patterns for word in ("--host", pattern)]
        return [
            row["host"]
            for row in json.loads(run("status", "--fleet", path, "--json", *options).stdout)["hosts"]
        ]

    assert chosen("web-*") == ["web-1", "web-2"]
    assert chosen("10.9.*", "web-1") == ["web-1", "db-1"]
    none = run("status", "--fleet", path, "--host", "cache-*")
    assert none.exit_code == 2
    assert "'cache-*' fits no host" in none.output


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "cannot be read"),
        ('{"schema_version": 9}', "schema_version 9"),
        ('{"schema_version": 1, "hosts": []}', "names neither hosts"),
        ('{"schema_version": 1, "hosts": [{"id": "a", "url": "ftp://x"}]}', "not a URL"),
        ('{"schema_version": 1, "hosts": [{"id": "a\\u001b", "url": "http://x"}]}', "has the id"),
        (ENTERED % '{"adress": "x"}', "adress"),
        (ENTERED % '{"address": "-oProxyCommand=x"}', "address"),
        ('{"schema_version": 1, "hosts": [{"id": "a", "url": "http://x"}], "ca": "no"}', "PEM certificate"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_a_wrong_argument(tmp_path: Path, content: str, said: str) -> None:
    """Exit code 2, with what would fit."""
    path = tmp_path / "fleet.json"
    path.write_text(content)
    done = run("status", "--fleet", str(path))
    assert (done.exit_code, said in done.output) == (2, True), done.output


def test_ctrl_c_ends_it_at_once(tmp_path: Path, ca: Authority, stack: contextlib.ExitStack) -> None:
    """With the exit code that shells give it, and no traceback."""
    silent = Host()
    silent.faults.append(("/v1/host", never))
    path = str(write_fleet(tmp_path / "fleet.json", [start(stack, ca, "a", silent)], ca.pem))
    argv = [sys.executable, "-m", "osgym_infra", "fleet", "status", "--fleet", path, "--deadline-s", "100"]
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    end = time.monotonic() + 20
    while not silent.calls:
        assert time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=10)
    assert process.returncode == 130
    assert said.strip() == "interrupted"


@pytest.fixture
def drained(tmp_path: Path, ca: Authority, stack: contextlib.ExitStack) -> tuple[list[Draining], str]:
    """Three hosts that can be drained, and their fleet.json."""
    hosts = [Draining() for _ in range(3)]
    rows = [start(stack, ca, name, host) for name, host in zip("abc", hosts, strict=True)]
    return hosts, str(write_fleet(tmp_path / "fleet.json", rows, ca.pem))


def test_hosts_are_drained_and_taken_back(drained: tuple[list[Draining], str]) -> None:
    """The chosen ones only; all of them only when that is said."""
    hosts, path = drained
    assert run("drain", "--fleet", path).exit_code == 2
    done = run("drain", "--fleet", path, "--host", "b", "--deadline-s", "60")
    assert done.exit_code == 0, done.output
    assert [host.draining for host in hosts] == [False, True, False]
    assert hosts[1].asked == [{"deadline_s": 60.0}]
    assert run("drain", "--fleet", path, "--all").exit_code == 0
    assert [host.draining for host in hosts] == [True] * 3
    assert run("drain", "--fleet", path, "--all", "--stop").exit_code == 0
    assert [host.draining for host in hosts] == [False] * 3


def test_waiting_for_a_host_that_never_empties_fails(drained: tuple[list[Draining], str]) -> None:
    """The others come to their end; the one is named."""
    hosts, path = drained
    hosts[0].leased_looks, hosts[2].leased_looks = 2, 10**6
    done = run("drain", "--fleet", path, "--all", "--wait-s", "4", "--json")
    assert done.exit_code == 1
    found = {row["host"]: row["failure"] for row in json.loads(done.stdout)["hosts"]}
    assert (found["a"], found["b"], found["c"]["step"]) == (None, None, "wait")
    assert hosts[2].draining
