"""`osgym fleet wait` against servers with real certificates: answers are judged, each end has its code."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support.fake_v1_host import FakeV1Host, Running, serving

from osgym_infra.cli.fleet_wait import Said, Wait, judge
from osgym_infra.cli.main import main
from osgym_infra.hosts import tls
from osgym_sdk import AuthError, HostUnreachable

pytestmark = pytest.mark.usefixtures("no_client_settings")

TOKEN = "a-token-of-a-fleet-that-is-waited-for"
NOW = datetime.now(UTC)
CA = tls.make_ca("lab", NOW)


@contextlib.contextmanager
def agent(folder: Path, replicas: int = 2, token: str = TOKEN) -> Iterator[Running]:
    """A host agent with a certificate of the fleet's authority."""
    pair = tls.issue(CA, ["127.0.0.1"], NOW)
    folder.mkdir(exist_ok=True)
    (folder / "cert.pem").write_text(pair.certificate)
    (folder / "key.pem").write_text(pair.key)
    options = {"ssl_certfile": str(folder / "cert.pem"), "ssl_keyfile": str(folder / "key.pem")}
    with serving(FakeV1Host(replicas, token), **options) as running:
        yield running


def fleet(folder: Path, *urls: str, ca: str = CA.certificate) -> Path:
    """A fleet.json, and the token beside it."""
    (folder / "token").write_text(TOKEN + "\n")
    hosts = [{"id": url, "url": url, "server_name": "", "capacity": 2} for url in urls]
    path = folder / "fleet.json"
    path.write_text(json.dumps({"schema_version": 1, "hosts": hosts, "ca": ca, "token_secret": "file:token"}))
    return path


def wait(path: Path, *arguments: str) -> Result:
    """`osgym fleet wait`."""
    return CliRunner().invoke(main, ["fleet", "wait", "--fleet", str(path), *arguments])


def free_port() -> int:
    """A port where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_all_hosts_are_ready(tmp_path: Path) -> None:
    """Over TLS, with the fleet's token; each is said once."""
    with agent(tmp_path / "a") as one, agent(tmp_path / "b") as two:
        done = wait(fleet(tmp_path, one.url, two.url), "--timeout-s", "20")
    assert (done.exit_code, done.stdout) == (0, "2 of 2 hosts are ready\n"), done.stderr
    assert sorted(done.stderr.splitlines()) == sorted(
        f"{url}: ready: 2 of 2 desktops" for url in (one.url, two.url)
    )


def test_a_host_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    """What it says meanwhile is said once, not with each look."""
    port = free_port()
    path = fleet(tmp_path, f"https://127.0.0.1:{port}")
    found: list[Result] = []
    thread = threading.Thread(target=lambda: found.append(wait(path, "--timeout-s", "30")))
    pair = tls.issue(CA, ["127.0.0.1"], NOW)
    (tmp_path / "cert.pem").write_text(pair.certificate)
    (tmp_path / "key.pem").write_text(pair.key)
    thread.start()
    threading.Event().wait(0.5)  # it has looked at least once
    options = {"ssl_certfile": str(tmp_path / "cert.pem"), "ssl_keyfile": str(tmp_path / "key.pem")}
    with serving(FakeV1Host(1, TOKEN), port, **options):
        thread.join(30)
    (done,) = found
    assert done.exit_code == 0, done.stderr
    lines = done.stderr.splitlines()
    assert ["nothing listens" in lines[0], lines[-1]] == [
        True,
        f"https://127.0.0.1:{port}: ready: 1 of 1 desktops",
    ]
    assert len(lines) == len(set(lines))


def test_a_deadline_ends_it_and_names_who_is_away(tmp_path: Path) -> None:
    """Exit code 1: one that answers counts, one that does not is named with what it says."""
    with agent(tmp_path / "a") as one, agent(tmp_path / "b", replicas=0) as empty:
        away = f"https://127.0.0.1:{free_port()}"
        done = wait(fleet(tmp_path, one.url, empty.url, away), "--timeout-s", "0.5")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "1 of 3 hosts are ready" in done.stderr
    assert f"wait: {away}: nothing listens" in done.stderr
    assert f"wait: {empty.url}: answers, but has no desktop yet" in done.stderr
    assert "were not ready within 0.5 s" in done.stderr


def test_after_a_rotation_it_ends_at_once(tmp_path: Path) -> None:
    """Exit code 2, and what to do: another token; another authority, of which nothing is believed."""
    with agent(tmp_path / "a", token="the new one") as host:
        done = wait(fleet(tmp_path, host.url), "--timeout-s", "60")
        assert (done.exit_code, done.stdout) == (2, "")
        assert f"{host.url}: refuses the token" in done.stderr
        assert "osgym fleet export --out fleet.json" in done.stderr
    with agent(tmp_path / "a") as host:
        stranger = tls.make_ca("lab", NOW).certificate
        done = wait(fleet(tmp_path, host.url, ca=stranger), "--timeout-s", "60")
        assert (done.exit_code, done.stdout) == (2, "")
        assert "shows a certificate that is not of this fleet.json" in done.stderr
        assert host.host.calls == []


def test_a_file_that_cannot_be_used_is_bad_input(tmp_path: Path) -> None:
    """With its name; nothing is asked."""
    done = wait(tmp_path / "fleet.json")
    assert done.exit_code == 2
    assert f"--fleet: {tmp_path / 'fleet.json'} cannot be read" in done.stderr


def test_time_is_kept(tmp_path: Path) -> None:
    """It asks until the deadline and not after it, and sleeps no longer than is left."""
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    refused = HostUnreachable("nothing listens", host="a")
    answers: Mapping[str, Any] = {"a": refused}
    found = Wait(lambda: answers, lambda line: None, lambda: now[0], sleep).until_ready(5.0)
    assert found["a"].said is Said.NOT_YET
    assert (slept, now) == ([2.0, 2.0, 1.0], [5.0])
    assert judge(AuthError("no", host="a")).said is Said.NEVER
