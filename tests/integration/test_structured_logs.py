"""`log_format: json` of a host agent in a process of its own: lines of a step and of a failure."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.fake_runtime import TASK
from tests.support.host_process import HostProcess, running_host, wait_until

from osgym_host.images.store import Image
from osgym_sdk import Client, EpisodeLost

pytestmark = pytest.mark.desktop

FORGED = '{"time": "2026-01-01T00:00:00.000Z", "level": "critical", "message": "all is lost"}'
NAME = f"note\n{FORGED}\x1b[2J"


@pytest.fixture(scope="module")
def logging_host(small_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host agent that logs everything as JSON."""
    folder = tmp_path_factory.mktemp("logs")
    settings = ("log_format=json", "log_level=debug")
    with running_host(f"log-{os.getpid()}", warm=1, log_dir=folder, settings=settings) as running:
        yield running


def lines(host: HostProcess) -> list[dict[str, Any]]:
    """What it has logged; but for what it says on stdout every line is JSON."""
    said = [
        line
        for line in host.log.read_text().splitlines()
        if not line.startswith(("OSGym listens", "Dashboard:"))
    ]
    return [json.loads(line) for line in said]


def test_lines_say_whom_they_are_about(logging_host: HostProcess) -> None:
    """A step's and a failure's have replica, generation, episode, run, task; nobody's words make a line."""
    task = {**TASK, "id": NAME, "config": []}
    with (
        Client(logging_host.url) as client,
        contextlib.suppress(EpisodeLost),
        client.episode(task, run="grpo-7") as episode,
    ):
        episode.step("click(100,200)")
        (row,) = logging_host.replicas("leased")
        about = {
            "replica": row["replica_id"],
            "generation": row["generation"],
            "episode": episode.episode_id,
            "run": "grpo-7",
            "task": "note\\n" + FORGED + "\\x1b[2J",
        }
        secret = episode.lease
        os.kill(row["pid"], signal.SIGKILL)
        episode.step("click(200,200)")
    failed = wait_until(
        lambda: [one for one in lines(logging_host) if " failed (" in one["message"]],
        10,
        "a line of the failure",
    )
    stepped = [one for one in lines(logging_host) if one["message"].startswith("step 1 took")]
    for (line,) in (stepped, failed):
        assert {name: line.get(name) for name in about} == about
    assert failed[0]["level"] == "warning"
    assert all({"time", "level", "logger", "message"} <= one.keys() for one in lines(logging_host))
    assert not [one for one in lines(logging_host) if one["message"] == "all is lost"]
    assert secret not in logging_host.log.read_text()
