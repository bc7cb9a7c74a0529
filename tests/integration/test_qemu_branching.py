"""Forks, checkpoints and survival of episodes on real virtual machines, through service and SDK."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.host_process import HostProcess, start_host

from osgym_qemu.snapshots import Snapshot
from osgym_sdk import Client, Episode, Timeouts, Unsupported

pytestmark = pytest.mark.timeout(600)

BEGINNING, ENDING = "never saved, ", "then saved"
TASK: dict[str, Any] = {
    "id": "finish-the-line",
    "instruction": "Finish the line.",
    "config": [
        {"type": "launch", "parameters": {"command": ["xfce4-terminal", "--geometry=100x30+200+150"]}},
        {
            "type": "execute_with_verification",
            "parameters": {
                "command": ["true"],
                "verification": {"window_exists": "Terminal"},
                "max_wait_time": 60,
                "check_interval": 0.2,
            },
        },
    ],
    "evaluator": {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": ["cat", "/tmp/typed"]},
        "expected": {"type": "rule", "rules": {"expected": f"{BEGINNING}{ENDING}\n"}},
    },
}
PATIENT = Timeouts(step_s=180, retry_s=60, setup_s=300)


class Machines:
    """One host agent after the other with the runtime qemu."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.instance = f"branch-{os.getpid()}"
        self.host: HostProcess | None = None

    def start(self) -> str:
        port = self.host.port if self.host is not None else 0
        settings = ("runtime=qemu", "qemu.parked=2", "trajectory=off", "cpu_per_replica=0")
        self.host = start_host(
            self.instance,
            image="small",
            warm=0,
            max_replicas=6,
            port=port,
            log_dir=self.folder,
            settings=settings,
            wait=False,
        )
        return self.host.url

    def kill(self) -> list[int]:
        """Kills the agent alone; returns the processes of its machines."""
        assert self.host is not None
        pids = [row["pid"] for row in self.host.replicas() if row["pid"]]
        self.host.process.kill()
        self.host.process.wait(10)
        return pids


@pytest.fixture(scope="module")
def machines(small_snapshot: Snapshot, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """A running host; afterwards nothing of it is left."""
    made = Machines(tmp_path_factory.mktemp("host"))
    made.start()
    yield made
    assert made.host is not None
    assert made.host.stop() == 0, made.host.tail()
    made.host.assert_nothing_left()
    shutil.rmtree(made.host.data_dir / "state" / made.instance)


def begin(episode: Episode) -> None:
    """Types the beginning of a line that is not written anywhere before its end."""
    text = f"cat > /tmp/typed <<'EOT'\n{BEGINNING}"
    obs = episode.step([{"op": "click", "x": 500, "y": 350}, {"op": "type", "text": text}])
    assert obs.failed_index is None


def finish(episode: Episode, text: str) -> float | None:
    """Ends the line and scores it."""
    assert episode.step([{"op": "type", "text": f"{text}\nEOT\n"}]).failed_index is None
    evaluation = episode.evaluate()
    assert evaluation.failure is None, evaluation.failure
    return evaluation.reward


def test_children_go_on_with_unsaved_text_and_diverge(machines: Machines) -> None:
    """Each has the half line; what one adds no other sees; a child of a child has it too."""
    assert machines.host is not None
    with Client(machines.host.url, timeouts=PATIENT) as client, client.episode(TASK) as parent:
        begin(parent)
        first, second = parent.fork(2)
        (third,) = second.fork()
        assert len({e.generation for e in (parent, first, second, third)}) == 4
        assert finish(first, ENDING) == 1.0
        assert finish(second, "something else") == 0.0
        assert finish(third, ENDING) == 1.0
        assert finish(parent, "the parent's own") == 0.0
        assert third.trajectory.parent is not None
        assert third.trajectory.parent.episode_id == second.episode_id
        for child in (first, second, third):
            child.close()


def test_a_clock_of_its_own_goes_on_in_a_child(machines: Machines) -> None:
    """A machine's own clock is set, its child's runs on from there, and one that stands still is refused."""
    assert machines.host is not None

    def minute(episode: Episode) -> str:
        return episode.execute(["date", "+%FT%H:%M"]).stdout.strip()

    with Client(machines.host.url, timeouts=PATIENT) as client:
        with client.episode(clock="2031-05-05T09:00") as parent:
            assert minute(parent).startswith("2031-05-05T09:0")
            with parent.fork()[0] as child:
                assert minute(parent) <= minute(child) < "2031-05-05T09:59"
        with client.episode() as other:
            assert not minute(other).startswith("2031-")
        with pytest.raises(Unsupported, match="frozen"):
            client.episode(clock={"start": "2031-05-05T09:00", "frozen": True}).start()


def test_an_episode_outlives_its_agent_and_a_checkpoint_everything(machines: Machines) -> None:
    """kill -9 of the agent: the same machine goes on. kill -9 of all: the checkpoint is restored."""
    assert machines.host is not None
    with Client(machines.host.url, timeouts=PATIENT) as client:
        with client.episode(TASK, lease_ttl_s=300) as episode:
            begin(episode)
            checkpoint = episode.checkpoint(keep=True)
            before = episode.generation
            machines.kill()
            machines.start()
            assert finish(episode, ENDING) == 1.0
            assert episode.generation == before
        try:
            for pid in machines.kill():
                os.kill(pid, signal.SIGKILL)
            machines.start()
            began = time.monotonic()
            with client.restore(checkpoint) as restored:
                print(f"restored in {time.monotonic() - began:.2f} s")
                assert restored.observation.step == 1
                assert finish(restored, ENDING) == 1.0
        finally:
            checkpoint.delete()
        assert checkpoint.checkpoint_id not in {c.checkpoint_id for c in client.checkpoints()}
