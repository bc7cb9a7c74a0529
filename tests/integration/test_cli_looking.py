"""`osgym host events`, `top` and `support-bundle` against a running service (over fake replicas)."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_runtime import TASK, FakeImage, Served
from tests.support.host_process import OSGYM, osgym

from osgym_host.runtimes.kind import ImageRef
from osgym_sdk import Client

HOSTILE = "a\x1b[2J[bold]"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "host") as running:
        yield running


def test_events_are_lines_and_objects(served: Served) -> None:
    """The newest of what happened; nothing of a task's name reaches the terminal."""
    env = {"OSGYM_HOSTS": served.urls[0]}
    with Client(served.urls[0]) as client, client.episode({**TASK, "id": HOSTILE}):
        lines = osgym("host", "events", **env).stdout.splitlines()
        rows = [json.loads(line) for line in osgym("host", "events", "--json", **env).stdout.splitlines()]
    assert len(lines) == len(rows) > 3
    assert not any("\x1b" in line for line in lines)
    assert any(
        re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  episode +\S+ +active +replica=", line) for line in lines
    )
    newest = osgym("host", "events", "-n", "2", **env).stdout.splitlines()
    assert len(newest) == 2
    assert osgym("host", "events", "-n", "0", **env).stdout == ""


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_events_are_followed_over_a_restart(tmp_path: Path) -> None:
    """It waits for a host that is away, and goes on with its new count; Ctrl-C is 130."""
    argv = [OSGYM, "host", "events", "-f", "--json", "-n", "1"]
    with contextlib.ExitStack() as ends:
        with Served(tmp_path / "one") as first:
            port = int(first.urls[0].rpartition(":")[2])
            env = {**os.environ, "OSGYM_HOSTS": first.urls[0], "PYTHONUNBUFFERED": "1"}
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            following = ends.enter_context(subprocess.Popen(argv, env=env, text=True, **pipes))
            ends.callback(following.kill)
            assert following.stdout is not None
            following.stdout.readline()  # the newest event before: from now on none is missed
            with Client(first.urls[0]) as client, client.episode(TASK) as episode:
                seen = _until(following.stdout, "episode_id", episode.episode_id)
            assert seen["state"] == "active"
        assert following.stderr is not None
        assert "retrying" in following.stderr.readline()
        with Served(tmp_path / "two", ports=[port]) as second:
            assert "answers again" in following.stderr.readline()
            with Client(second.urls[0]) as client, client.episode(TASK) as episode:
                _until(following.stdout, "episode_id", episode.episode_id)
            following.send_signal(signal.SIGINT)
            assert following.wait(10) == 130
    gc.collect()  # a connection that came in while the first host ended


def _until(stream: Any, name: str, value: str) -> dict[str, Any]:
    """The first event that has this, read by line."""
    end = time.monotonic() + 40
    while time.monotonic() < end:
        event: dict[str, Any] = json.loads(stream.readline())
        if event.get(name) == value:
            return event
    raise AssertionError(f"no event has {name}={value}")


def test_top_once_shows_hosts_and_desktops(served: Served) -> None:
    """A host that does not answer is a row, and the exit code says so; task names move no cursor."""
    url = served.urls[0]
    with Client(url) as client, client.episode({**TASK, "id": HOSTILE}) as episode:
        alone = osgym("host", "top", "--once", COLUMNS="200", OSGYM_HOSTS=url)
        both = osgym("host", "top", "--once", "--host", f"{url},http://127.0.0.1:9", COLUMNS="200")
        raw = json.loads(osgym("host", "top", "--json", OSGYM_HOSTS=url).stdout)
    assert alone.returncode == 0, alone.stderr
    assert "serving" in alone.stdout and episode.replica_id in alone.stdout
    assert "\x1b" not in alone.stdout and "\\x1b[2J[bold]" in alone.stdout
    assert both.returncode == 1 and "127.0.0.1:9" in both.stdout and "failed" in both.stdout
    assert raw[0]["state"]["capacity"]["leased"] == 1


def test_top_shows_the_images_of_a_host(tmp_path: Path) -> None:
    """A row for each, where a host serves several."""
    more = [ImageRef(FakeImage("f" * 64), "full")]
    with (
        Served(tmp_path, more_images=more, warm=2) as two,
        Client(two.urls[0]) as client,
        client.episode(image="full"),
    ):
        shown = osgym("host", "top", "--once", COLUMNS="200", OSGYM_HOSTS=two.urls[0]).stdout
    (row,) = [line.split() for line in shown.splitlines() if "f" * 12 in line]
    assert row[1:4] == ["full", "f" * 12, "1"]
    assert "0" * 12 in shown


def test_top_refreshes_in_a_terminal(served: Served) -> None:
    """It shows a new episode by itself, and Ctrl-C gives the screen back."""
    terminal, theirs = pty.openpty()
    env = {**os.environ, "OSGYM_HOSTS": served.urls[0], "TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
    argv = [OSGYM, "host", "top", "--every", "0.5"]
    try:
        with subprocess.Popen(argv, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as process:
            try:
                _read_until(terminal, b"LEASED")
                with Client(served.urls[0]) as client, client.episode({**TASK, "id": "shown-by-itself"}):
                    _read_until(terminal, b"shown-by-itself")
                process.send_signal(signal.SIGINT)
                rest = _read_until(terminal, b"\x1b[?1049l")
                assert b"Traceback" not in rest
                assert process.wait(10) == 130
            finally:
                process.kill()
    finally:
        os.close(terminal)
        os.close(theirs)


def _read_until(terminal: int, wanted: bytes) -> bytes:
    seen, end = b"", time.monotonic() + 40
    while wanted not in seen:
        assert select.select([terminal], [], [], max(0.0, end - time.monotonic()))[0], seen[-2000:]
        seen += os.read(terminal, 65536)
    return seen


def test_a_bundle_has_what_helps_and_no_secret(served: Served, tmp_path: Path) -> None:
    """The token of the environment stands nowhere; what could not be had says why; nobody else reads it."""
    file = tmp_path / "bundle.tar.gz"
    secret = 'pass"word-of-somebody'
    env = {"OSGYM_HOSTS": served.urls[0], "OSGYM_TOKEN": "t0ken-of-somebody", "DB_PASSWORD": secret}
    env["HTTPS_PROXY_NOTE"] = "http://me:hidden@proxy:3128"
    with Client(served.urls[0]) as client, client.episode({**TASK, "id": f"x-{secret}"}):
        done = osgym("host", "support-bundle", "--log-hours", "0.1", "-o", str(file), **env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(file) and file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as archive:
        parts = {name.rpartition("/")[2]: archive.extractfile(name) for name in archive.getnames()}
        texts = {name: part.read().decode() for name, part in parts.items() if part is not None}
    assert {
        "versions.json",
        "doctor.json",
        "settings.json",
        "host.json",
        "events.json",
        "metrics.txt",
    } <= set(texts)
    for name, text in texts.items():
        assert not re.search(r"of-somebody|hidden", text), name
    assert "***" in texts["replicas.json"]
    assert json.loads(texts["settings.json"])["token"] == "**********"
    assert "osgym_" in texts["metrics.txt"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="missing: bash")
def test_a_shell_completes_commands_and_options() -> None:
    """Bash itself, with what `osgym completion bash` printed."""
    script = osgym("completion", "bash").stdout
    ask = (
        f"{script}\nCOMP_WORDS=(osgym {{words}}); COMP_CWORD={{at}}; _osgym_completion osgym; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    path = f"{Path(OSGYM).parent}:{os.environ['PATH']}"

    def completed(words: str, at: int) -> list[str]:
        script = ask.replace("{words}", words).replace("{at}", str(at))
        done = subprocess.run(
            ["bash", "-c", script],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    assert completed("host su", 2) == ["support-bundle"]
    assert "--follow" in completed("host events --", 3)


def test_a_bundle_without_a_host_says_so(tmp_path: Path) -> None:
    """It is made all the same: somebody whose agent does not start needs it most."""
    file = tmp_path / "bundle.tar.gz"
    done = osgym("host", "support-bundle", "-o", str(file), OSGYM_HOSTS="http://127.0.0.1:9", OSGYM_RAM="no")
    assert done.returncode == 0, done.stderr
    with tarfile.open(file) as archive:
        names = {name.rpartition("/")[2] for name in archive.getnames()}
    assert {"host.json.error", "versions.json", "doctor.json"} <= names
    nowhere = osgym(
        "host", "support-bundle", "-o", str(tmp_path / "no" / "x.tar.gz"), OSGYM_HOSTS="http://127.0.0.1:9"
    )
    assert nowhere.returncode == 1 and "cannot be written" in nowhere.stderr
