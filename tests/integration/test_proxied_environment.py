"""Commands and clients where the environment names a proxy: it sees neither loopback requests nor tokens."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_runtime import TASK, Served
from tests.support.fleet_files import TOKEN, write_fleet
from tests.support.host_process import osgym
from tests.support.local_http import serving_http
from tests.support.otlp import collecting
from tests.support.recording_proxy import RecordingProxy, recording_proxy

from osgym_sdk import Client, HostUnreachable, ModelError
from osgym_sdk.agents._server import ModelServer, ServerOptions

ELSEWHERE = "http://desk.example:20000"
"""A name that nobody resolves: only a proxy gets there."""
COMMANDS = (
    ["replica", "ls"],
    ["host", "top", "--once"],
    ["host", "events", "-n", "1"],
    ["checkpoint", "ls"],
    ["host", "drain", "--stop"],
    ["replica", "screenshot", "REPLICA", "FILE"],
)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "host") as running:
        yield running


@pytest.fixture
def proxy(tmp_path: Path, served: Served) -> Iterator[RecordingProxy]:
    with recording_proxy(tmp_path, served.urls[0]) as running:
        yield running


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_commands_reach_this_machine_past_the_proxy(
    command: list[str], served: Served, proxy: RecordingProxy, tmp_path: Path
) -> None:
    """Also where all variables name one, and none an exception."""
    with Client(served.urls[0]) as client, client.episode(TASK) as episode:
        given = {"REPLICA": episode.replica_id, "FILE": str(tmp_path / "shot.png")}
        argv = [given.get(word, word) for word in command]
        done = osgym(*argv, OSGYM_HOSTS=served.urls[0], OSGYM_TOKEN="s3cret", **proxy.environment())
    assert done.returncode == 0, done.stderr
    assert proxy.heads == []


def test_a_support_bundle_has_the_answers_of_this_machine(
    served: Served, proxy: RecordingProxy, tmp_path: Path
) -> None:
    """Each of them, and the proxy none."""
    file = tmp_path / "bundle.tar.gz"
    done = osgym("host", "support-bundle", "-o", str(file), OSGYM_HOSTS=served.urls[0], **proxy.environment())
    assert done.returncode == 0, done.stderr
    with tarfile.open(file) as archive:
        names = {Path(name).name for name in archive.getnames()}
    assert {"host.json", "pool.json", "replicas.json", "metrics.txt"} <= names
    assert proxy.heads == []


@pytest.mark.parametrize("command", [["replica", "ls"], ["host", "top", "--once"]], ids=" ".join)
def test_a_hosts_token_goes_to_no_proxy_that_was_not_meant_for_it(
    command: list[str], proxy: RecordingProxy
) -> None:
    """Rather the command fails, and OSGYM_PROXY is how it gets through."""
    environ = {"OSGYM_HOSTS": ELSEWHERE, "OSGYM_TOKEN": "s3cret", **proxy.environment()}
    refused = osgym(*command, **environ)
    assert refused.returncode == 1
    assert proxy.heads == []
    meant = osgym(*command, OSGYM_PROXY=proxy.url, **environ)
    assert meant.returncode == 0, meant.stderr
    assert f"GET {ELSEWHERE}/v1/replicas HTTP/1.1" in {head.split("\r\n")[0] for head in proxy.heads}


def test_commands_of_a_fleet_go_straight_to_its_hosts(
    served: Served, proxy: RecordingProxy, tmp_path: Path
) -> None:
    """And through OSGYM_PROXY where it is set."""
    here = write_fleet(tmp_path / "here.json", [{"id": "a", "url": served.urls[0]}])
    assert osgym("fleet", "status", "--fleet", str(here), **proxy.environment()).returncode == 0
    there = write_fleet(tmp_path / "there.json", [{"id": "a", "url": ELSEWHERE}])
    assert osgym("fleet", "status", "--fleet", str(there), **proxy.environment()).returncode == 1
    assert proxy.heads == []
    meant = osgym("fleet", "status", "--fleet", str(there), **proxy.environment(), OSGYM_PROXY=proxy.url)
    assert meant.returncode == 0, meant.stdout + meant.stderr
    assert f"Bearer {TOKEN}" in proxy.heads[0]


def test_the_client_goes_straight_to_its_hosts(
    served: Served, proxy: RecordingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It uses a proxy that is named by argument or OSGYM_PROXY, and for loopback not even that one."""
    for name, value in proxy.environment().items():
        monkeypatch.setenv(name, value)
    with Client(served.urls[0]) as client, client.episode(TASK) as episode:
        episode.step("wait()")
    with Client(served.urls[0], proxy=proxy.url) as client:
        client.host_states()
    with pytest.raises(HostUnreachable), Client(ELSEWHERE) as client, client.episode(TASK):
        raise AssertionError("a host was reached past the proxy")
    assert proxy.heads == []
    monkeypatch.setenv("OSGYM_PROXY", proxy.url)
    with Client(ELSEWHERE) as client, client.episode(TASK) as episode:
        episode.step("wait()")
    assert any(f"POST {ELSEWHERE}/v1/episodes" in head for head in proxy.heads)


async def test_models_follow_the_environment_but_on_this_machine(
    proxy: RecordingProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model server here is asked directly, one elsewhere through the proxy unless NO_PROXY exempts it."""
    for name, value in proxy.environment().items():
        monkeypatch.setenv(name, value)
    with answering() as here:
        assert (await asked(here)) == {"ok": True}
        assert proxy.heads == []
        with recording_proxy(tmp_path / "models", here) as way:
            monkeypatch.setenv("http_proxy", way.url)
            assert (await asked("http://model.example:8000/v1")) == {"ok": True}
            assert way.heads[0].startswith("POST http://model.example:8000/v1/chat HTTP/1.1")
            monkeypatch.setenv("no_proxy", "192.0.2.0/24, .example")
            with pytest.raises(ModelError):
                await asked("http://model.example:8000/v1")
            assert len(way.heads) == 1


async def test_a_proxy_that_cannot_be_used_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong with it and what to do, at the first request that needs it."""
    monkeypatch.setenv("all_proxy", "gopher://proxy.example:70")
    monkeypatch.delenv("http_proxy", raising=False)
    with answering() as here:
        assert (await asked(here)) == {"ok": True}
    with pytest.raises(ModelError, match=r"the URL of the proxy for model\.example is wrong"):
        await asked("http://model.example:8000/v1")


async def asked(base_url: str) -> dict[str, Any]:
    """Return what a model's server answers to one request."""
    server = ModelServer(base_url, {"authorization": "Bearer k"}, ServerOptions(timeout_s=20, retries=0))
    try:
        return (await server.post("/chat", {})).data
    finally:
        await server.aclose()


@contextlib.contextmanager
def answering() -> Iterator[str]:
    """A server that says yes to every POST."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "12")
            self.end_headers()
            self.wfile.write(b'{"ok": true}')

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    with serving_http(Handler) as url:
        yield url


def test_spans_reach_a_collector_on_this_machine(proxy: RecordingProxy, tmp_path: Path) -> None:
    """Past the proxy."""
    code = (
        "import os, osgym_protocol.telemetry as t; p = t.provider_from(os.environ, 'x'); "
        "p.get_tracer('x').start_span('here').end(); p.end(20)"
    )
    with collecting() as collector:
        environ = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **proxy.environment()}
        subprocess.run([sys.executable, "-c", code], env=environ, check=True, timeout=60)
        assert [span.name for span in collector.spans] == ["here"]
    assert proxy.heads == []
