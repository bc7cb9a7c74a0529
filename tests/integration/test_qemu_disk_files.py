"""Checks of virtual machines read files from the disk: what an agent says of a file does not count."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.host_process import MACHINES, running_host

from osgym_qemu.snapshots import Snapshot
from osgym_sdk import Client

pytestmark = pytest.mark.desktop

RIGHT, WRONG = json.dumps({"a": 1}), json.dumps({"a": 0})
FORGE = f"echo '{RIGHT}' > /run/forged && mount --bind /run/forged"


@pytest.fixture(scope="module")
def client(small_snapshot: Snapshot, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a host with virtual machines."""
    folder = tmp_path_factory.mktemp("host")
    name = f"vm-disk-{os.getpid()}"
    with running_host(name, log_dir=folder, warm=1, settings=MACHINES) as host, Client(host.url) as client:
        yield client


def task(path: str, *commands: str) -> dict[str, Any]:
    """A task that is solved when the JSON file at a path says that `a` is 1; commands run first, as root."""
    steps = [
        {"type": "execute", "parameters": {"command": ["sudo", "-n", "sh", "-c", text]}} for text in commands
    ]
    return {
        "id": "read-a-file",
        "instruction": "none",
        "config": steps,
        "evaluator": {
            "func": "check_json",
            "result": {"type": "vm_file", "path": path, "dest": "answer.json"},
            "expected": {
                "type": "rule",
                "rules": {"expect": [{"key": ["a"], "method": "eq", "ref": 1}]},
            },
        },
    }


@pytest.mark.parametrize(
    ("path", "commands", "reward", "said"),
    [
        ("/home/user/a.json", [f"echo '{RIGHT}' > /home/user/a.json"], 1.0, ""),
        ("/home/user/a.json", [f"echo '{WRONG}' > /home/user/a.json"], 0.0, ""),
        ("/home/user/ä b.json", [f"echo '{RIGHT}' > '/home/user/ä b.json'"], 1.0, ""),
        ("/home/user/none.json", [], 0.0, "/home/user/none.json does not exist"),
        ("/home/user/l", ["ln -s /srv/f /home/user/l", f"echo '{RIGHT}' > /srv/f"], 1.0, ""),
        ("/run/in-memory.json", [f"echo '{RIGHT}' > /run/in-memory.json"], 1.0, ""),
        ("/tmp/in-memory.json", [f"echo '{RIGHT}' > /tmp/in-memory.json"], 1.0, ""),
        (
            "/home/user/a.json",
            [f"echo '{WRONG}' > /home/user/a.json", f"{FORGE} /home/user/a.json"],
            0.0,
            "",
        ),
    ],
    ids=[
        "right",
        "wrong",
        "name",
        "missing",
        "link",
        "in memory: the agent is asked",
        "temporary, in memory",
        "forged",
    ],
)
def test_a_check_believes_the_disk(
    client: Client, path: str, commands: list[str], reward: float, said: str
) -> None:
    """Just written, through links, not at all; and what stands there for the agent only is not scored."""
    with client.episode(task(path, *commands), wait_s=60, strict_setup=True) as episode:
        episode.step("move(5,5)")
        evaluation = episode.evaluate()
        assert (evaluation.reward, evaluation.valid_for_training) == (reward, True), evaluation
        assert said in str(evaluation.details)


def test_several_files_and_forks_after_a_check(client: Client) -> None:
    """Two checks share one frozen disk, and the machine goes on."""
    one = task("/home/user/a.json", f"echo '{RIGHT}' > /home/user/a.json")
    check = one["evaluator"]
    both = {"func": [check["func"]] * 2, "result": [check["result"]] * 2, "expected": [check["expected"]] * 2}
    with client.episode({**one, "evaluator": both}, wait_s=60) as episode:
        episode.step("move(5,5)")
        assert episode.evaluate().reward == 1.0
        assert episode.observe().image.size == (1920, 1080)
