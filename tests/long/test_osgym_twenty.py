"""Twenty episodes at once of OSGym's client and data server: over several ports, from a folder of tasks."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from tests.support.host_process import HostProcess, running_host, wait_until

pytest.importorskip("numpy", reason="missing: numpy")

from benchmarks.data_server import ByteTokenizer, RequestsEnv, answer

from osgym_host.tasks.shipped import default_folder
from osgym_sdk.data_server import MultiTurnDataloader, OSGymEnv
from osgym_sdk.data_server.environment import _tasks

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(900)]

EPISODES = 20
PORTS = 4
WORDS = [f"word{number}" for number in range(10)]
THEIR_FILE = os.environ.get("OSGYM_THEIR_CLIENT")
"""Their `examples/osgym.py`, to be run as it is."""


def write_task(folder: Path, word: str) -> None:
    """A note in an editor, brought by a file beside the task, which gets a word and is saved; its oracle."""
    path = f"/home/user/Documents/{word}.txt"
    there = {"command": ["true"], "verification": {"window_exists": word}, "max_wait_time": 400}
    made = {
        "id": word,
        "instruction": f"Type {word} into the note that is open, and save it.",
        "config": [
            {"type": "upload_file", "parameters": {"files": [
                {"path": path, "local_path": "mousepad/files/empty.txt"}]}},
            {"type": "launch", "parameters": {"command": ["mousepad", path]}},
            {"type": "execute_with_verification", "parameters": there},
        ],
        "evaluator": {
            "func": "exact_match",
            "result": {"type": "vm_command_line", "command": f"tr -d '\\n' < {path}", "shell": True},
            "expected": {"type": "rule", "rules": {"expected": word}},
        },
    }  # fmt: skip
    (folder / f"{word}.json").write_text(json.dumps(made))
    oracle = {"oracle": [[{"op": "done"}]], "near": [[{"op": "done"}]], "notes": ""}
    (folder / f"{word}.oracle.json").write_text(json.dumps(oracle))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `tasks/` is: task files, ways to solve them, files that they name."""
    made = tmp_path_factory.mktemp("tasks")
    (made / "mousepad" / "files").mkdir(parents=True)
    (made / "mousepad" / "files" / "empty.txt").touch()
    for word in WORDS:
        write_task(made / "mousepad", word)
    return made


@pytest.fixture(scope="module")
def desks(folder: Path, tmp_path_factory: pytest.TempPathFactory, small_image: Any) -> Iterator[HostProcess]:
    """A host with four ports and room for all episodes, and for the next of those that end."""
    options = {"warm": 4, "max_replicas": EPISODES + 4, "ports": PORTS}
    settings = [f"task_files_dir={folder}", "osgym_make_way_s=600", "osgym_wait_s=600", "setup_timeout_s=600"]
    where = tmp_path_factory.mktemp("host")
    with running_host(f"twenty-{os.getpid()}", log_dir=where, settings=settings, **options) as running:
        assert len(set(running.urls)) == PORTS
        yield running


class Unchanged:
    """Their class, from their file, as their data server makes it; where it asserts, an episode is lost."""

    def __init__(self, config: dict[str, Any], worker_id: int) -> None:
        spec = importlib.util.spec_from_file_location("their_osgym", str(THEIR_FILE))
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.DEBUG = False
        self._url, self._theirs = config["server_url"], module.OSGymEnvWorker(config)
        self.reset, self.step = self._theirs.reset, self._theirs.step

    def close(self) -> None:
        """Theirs cannot be closed: its desktop would stay until its time is over."""
        requests.post(f"{self._url}/shutdown", json={"vm_id": self._theirs.vm_id}, timeout=60)


CLIENTS = [
    pytest.param(OSGymEnv, id="ours"),
    pytest.param(RequestsEnv, id="theirs-built-anew"),
    pytest.param(
        Unchanged,
        id="theirs-unchanged",
        marks=pytest.mark.skipif(not THEIR_FILE, reason="missing: OSGym's osgym.py (OSGYM_THEIR_CLIENT)"),
    ),
]


def said(word: str, turn: int, right: bool) -> str:
    """A model's answer: types the word, or another, saves, finishes."""
    call = [f"type({word if right else 'another'})", "hotkey(ctrl,s)", "finish()"][turn]
    return f"<|think_start|>Look.<|think_end|><|action_start|>{call}<|action_end|>"


@pytest.mark.parametrize("env_class", CLIENTS)
def test_twenty_episodes_at_once_each_earn_their_own_reward(
    desks: HostProcess, folder: Path, env_class: Any
) -> None:
    """Every other one types the wrong word; `finish()` gives each what it earned, and no desktop is left."""
    configs = [
        {
            "server_url": desks.urls[number % PORTS], "json_dir": str(folder), "max_step": 10, "timeout": 600,
            "max_hist": 0, "img_w": 1920, "img_h": 1080, "settle": "fast",
        }
        for number in range(EPISODES)
    ]  # fmt: skip
    tokenizer = ByteTokenizer()
    words: dict[int, str] = {}
    with MultiTurnDataloader(
        env_class, configs, tokenizer, batch_size=EPISODES, max_prompt_length=512, max_response_length=128,
        tensors="np", step_timeout_s=600, ready_timeout_s=600,
    ) as loader:  # fmt: skip
        for turn in range(3):
            batch = next(loader)
            assert sorted(batch["worker_id"].tolist()) == list(range(EPISODES)), "one of them was lost"
            assert len(desks.replicas("leased")) == EPISODES
            texts = []
            for row, worker in enumerate(batch["worker_id"].tolist()):
                prompt = tokenizer.decode(batch["raw_prompt_ids"][row])
                found = re.match(r"Type (word\d) ", prompt)
                assert found is not None, prompt[:200]
                assert words.setdefault(worker, found[1]) == found[1]
                texts.append(said(found[1], turn, worker % 2 == 0))
            answer(loader, batch, tokenizer, texts)
        sample = loader.sample_from_buffer(3 * EPISODES)
        following = next(loader)
        assert sorted(following["worker_id"].tolist()) == list(range(EPISODES)), "each began another"
        assert loader.lost_episodes == 0
    assert len(set(words.values())) > 1, "tasks are chosen at random"
    rewards: dict[int, list[float]] = defaultdict(list)
    for worker, reward in zip(sample["worker_id"].tolist(), sample["reward"].tolist(), strict=True):
        rewards[worker].append(round(reward, 2))
    for worker in range(EPISODES):
        assert sorted(rewards[worker]) == ([0.81, 0.9, 1.0] if worker % 2 == 0 else [0.0] * 3), worker
    wait_until(lambda: not desks.replicas("leased"), 60, "all desktops given back")


def test_the_folder_of_this_projects_tasks_will_do(desks: HostProcess, tmp_path: Path) -> None:
    """Ours takes tasks only; what theirs takes for one is refused, and the next one begins."""
    shipped = tmp_path / "tasks"
    shutil.copytree(default_folder(), shipped, ignore=shutil.ignore_patterns("families", "*.md"))
    full = {path for path in shipped.rglob("*.json") if '"flavor": "full"' in path.read_text()}
    assert full
    for path in full:
        path.unlink()
    config = {"server_url": desks.url, "json_dir": str(shipped), "max_step": 5, "timeout": 60}
    names = {Path(path).name for path in _tasks(config)}
    assert "write-note.json" in names and not [name for name in names if "oracle" in name]
    instructions = {json.loads(path.read_text()).get("instruction") for path in shipped.rglob("*.json")}
    theirs = RequestsEnv(config)
    try:
        state, _ = theirs.reset()
        assert state["obs"].partition("<|vision_start|>")[0] in instructions
    finally:
        theirs.close()
