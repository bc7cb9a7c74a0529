"""OSGym's data server and ours on the same host agent: samples, CPU and memory on the trainer's side.

    python -m benchmarks.data_server --envs 4 --steps 100     # starts a service of its own (small image)
    python -m benchmarks.data_server --host http://127.0.0.1:20000

`theirs` is their loop, built anew from what their public code does (agiopen-org/osgym, 473ce36:
`examples/data_server.py`, `examples/osgym.py`): a process for each environment that calls `/reset` and
`/step` with `requests`, decodes a full-size screenshot, scales it, encodes it as JPEG, and sends the whole
history as text through a queue with each step. `ours` is `osgym_sdk.data_server`. Both make the same rows of
the same episodes, answered by the same fixed answers; tokens are bytes. Each runs in a process of its own.
CPU is that of the trainer's side, children included, the host's is not; memory is the proportional set size
of all its processes at the end, with the replay buffer full of what was played.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import multiprocessing
import os
import random
import resource
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import requests
from PIL import Image

from benchmarks.common import argument_parser, local_service, machine, save
from osgym_host.runtimes.processes import processes_of, pss_mib
from osgym_sdk.data_server import MultiTurnDataloader, OSGymEnv, ReplayBuffer
from osgym_sdk.data_server.batches import RowMaker, collate
from osgym_sdk.data_server.environment import cleaned

TASK: dict[str, Any] = {
    "id": "word",
    "instruction": "Leave the word hello in a file.",
    "config": [{"type": "execute", "parameters": {"command": ["sh", "-c", "echo hello > /tmp/word"]}}],
    "evaluator": {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": ["cat", "/tmp/word"]},
        "expected": {"type": "rule", "rules": {"expected": "hello\n"}},
    },
}
WAYS = ("theirs", "ours")
MAX_PROMPT = 4096
MAX_RESETS = 50


class ByteTokenizer:
    """A token is a byte, and 0 is none."""

    pad_token_id = 0

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [byte + 1 for byte in text.encode()]

    def decode(self, token_ids: Any) -> str:
        return bytes(int(token) - 1 for token in token_ids).decode(errors="replace")


class RequestsEnv:
    """Their environment: OSGym's API with `requests`, and the whole history in each observation."""

    def __init__(self, env_config: dict[str, Any], worker_id: int = 0) -> None:
        self._url = env_config["server_url"]
        self._max_step = env_config["max_step"]
        self._timeout = env_config["timeout"]
        self._tasks = env_config.get("tasks")
        self._files = [] if self._tasks else list(Path(env_config["json_dir"]).rglob("*.json"))
        self._vm_id: int | None = None

    def reset(self) -> tuple[dict[str, Any], dict[str, Any]]:
        self.close()
        for _ in range(MAX_RESETS):  # the other server never stops
            body = {"task_config": self._any_task(), "timeout": self._timeout}
            answer = requests.post(f"{self._url}/reset", json=body, timeout=1020)
            if answer.ok:
                break
        answer.raise_for_status()
        data = answer.json()
        self._vm_id = data["vm_id"]
        self._parts = [data["problem"], self._image(data["screenshot"])]
        self._uid, self._steps = str(uuid.uuid4()), 0
        return {"obs": "".join(self._parts), "done": False, "is_init": True}, {"uid": self._uid}

    def step(self, action: str) -> tuple[dict[str, Any], dict[str, Any]]:
        before = "".join(self._parts)
        said = cleaned(action)
        call = said.split("<|action_start|>")[1].split("<|action_end|>")[0]
        sent = "finish()" if self._steps >= self._max_step else _in_pixels(call)
        body = {"action": sent, "vm_id": self._vm_id}
        answer = requests.post(f"{self._url}/step", json=body, timeout=300)
        answer.raise_for_status()
        data = answer.json()
        self._steps += 1
        self._parts += [said, self._image(data["screenshot"])]
        done = data["is_finish"]
        if done:
            self._vm_id = None
        ret = {"prev_obs": before, "action": said, "obs": "".join(self._parts)}
        ret |= {"reward": data["reward"], "done": done, "is_init": False}
        return ret, {"uid": self._uid}

    def close(self) -> None:
        if self._vm_id is not None:
            requests.post(f"{self._url}/shutdown", json={"vm_id": self._vm_id}, timeout=60)
            self._vm_id = None

    def _any_task(self) -> Any:
        """Return any file below the folder; the server refuses one that is no task, and the next is tried."""
        return (
            random.choice(self._tasks) if self._tasks else json.loads(random.choice(self._files).read_text())
        )

    def _image(self, coded: str) -> str:
        image = Image.open(io.BytesIO(base64.b64decode(coded))).convert("RGB")
        out = io.BytesIO()
        image.resize((1260, 700)).save(out, format="JPEG", quality=80)
        return f"<|vision_start|>{base64.b64encode(out.getvalue()).decode()}<|vision_end|>"


def _in_pixels(call: str) -> str:
    if not call.startswith("click("):
        return call
    x, y = (int(part) for part in call[6:-1].split(","))
    return f"click({int(x / 1000 * 1920)},{int(y / 1000 * 1080)})"


def _env_process(config: dict[str, Any], actions: Any, returned: Any, worker_id: int) -> None:
    env = RequestsEnv(config, worker_id)
    while True:
        ret, meta = env.reset()
        returned.put((worker_id, ret, meta))
        while not ret["done"]:
            said = actions.get()
            if said is None:
                env.close()
                return
            ret, meta = env.step(said)
            returned.put((worker_id, ret, meta))


class Theirs:
    """A process for each environment, and queues."""

    def __init__(self, config: dict[str, Any], envs: int) -> None:
        context = multiprocessing.get_context("fork")
        self._returned = context.Queue()
        self._actions = [context.Queue() for _ in range(envs)]
        self.replay = ReplayBuffer(10000, 0.9)
        self._rows = RowMaker(ByteTokenizer(), None, True, MAX_PROMPT, 64)
        self._processes = [
            context.Process(target=_env_process, args=(config, actions, self._returned, index), daemon=True)
            for index, actions in enumerate(self._actions)
        ]
        for process in self._processes:
            process.start()

    def turn(self, say: Callable[[], str]) -> int:
        """Return the steps of one turn: one state, as a row, and its answer."""
        worker_id, ret, meta = item = self._returned.get(timeout=300)
        steps = not ret["is_init"]
        if steps:
            self.replay.add(item)
        if not ret["done"]:
            collate([self._rows.row(ret, worker_id, meta, response=False)], "np")
            self._actions[worker_id].put(say())
        return int(steps)

    def close(self) -> None:
        for actions in self._actions:
            actions.put(None)
        deadline = time.monotonic() + 30
        while any(process.is_alive() for process in self._processes) and time.monotonic() < deadline:
            while not self._returned.empty():
                self._returned.get()
            time.sleep(0.01)
        for process in self._processes:
            process.join(1)


class Ours:
    """The data loader of the SDK, a row at a time."""

    def __init__(self, config: dict[str, Any], envs: int) -> None:
        self._tokenizer = ByteTokenizer()
        self._loader = MultiTurnDataloader(
            OSGymEnv, [config] * envs, self._tokenizer, batch_size=1, max_prompt_length=MAX_PROMPT,
            max_response_length=64, tensors="np",
        )  # fmt: skip
        self.replay = self._loader.replay

    def turn(self, say: Callable[[], str]) -> int:
        """Play one state, as a row, and its answer."""
        answer(self._loader, next(self._loader), self._tokenizer, [say()])
        return 1

    def close(self) -> None:
        self._loader.close()


def answer(loader: MultiTurnDataloader, batch: dict[str, Any], tokenizer: Any, said: list[str]) -> None:
    """Answer the rows of a batch with texts, as a trainer does with tokens."""
    import numpy as np

    width = max(len(tokenizer.encode(text)) for text in said)
    rows = np.zeros((len(said), width), dtype=np.int64)
    mask = np.zeros_like(rows)
    for row, text in enumerate(said):
        ids = tokenizer.encode(text)
        rows[row, : len(ids)], mask[row, : len(ids)] = ids, 1
    loader.async_step(
        {
            "prompts": batch["input_ids"],
            "responses": rows,
            "attention_mask": np.concatenate([batch["attention_mask"], mask], axis=1),
            "worker_id": batch["worker_id"],
            "meta_info": batch["meta_info"],
        }
    )


def answers(seed: int = 1) -> Iterator[str]:
    rng = random.Random(seed)
    while True:
        x, y = rng.randrange(50, 950), rng.randrange(100, 950)
        yield f"<|think_start|>Look.<|think_end|><|action_start|>click({x},{y})<|action_end|>"


def run(way: str, url: str, envs: int, steps: int, max_step: int) -> dict[str, Any]:
    """Play `steps` steps in all, and measure."""
    config = {"server_url": url, "max_step": max_step, "timeout": 120, "tasks": [TASK]}
    made: Theirs | Ours = Theirs(config, envs) if way == "theirs" else Ours(config, envs)
    say = answers()
    try:
        while made.turn(lambda: next(say)) == 0:  # the first desktops are not part of it
            pass
        begun, cpu_s = time.perf_counter(), _cpu_s(resource.RUSAGE_SELF)
        done = 0
        while done < steps:
            done += made.turn(lambda: next(say))
        took_s = time.perf_counter() - begun
        memory_mib, kept = round(pss_mib(processes_of(os.getpid())), 1), len(made.replay)
    finally:
        made.close()
    # What children used before the first step (imports are shared by fork) is in it: a little too much.
    cpu_s = _cpu_s(resource.RUSAGE_SELF) - cpu_s + _cpu_s(resource.RUSAGE_CHILDREN)
    return {
        "way": way,
        "steps": done,
        "steps_per_s": round(done / took_s, 2),
        "cpu_ms_per_step": round(cpu_s / done * 1000, 2),
        "memory_mib": memory_mib,
        "steps_in_replay_buffer": kept,
    }


def _cpu_s(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def main(argv: list[str] | None = None) -> int:
    parser = argument_parser(__doc__, image="small")
    parser.add_argument("--host", help="URL of a host agent; one of its own by default")
    parser.add_argument("--envs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--max-step", type=int, default=20)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.way:
        print(json.dumps(run(args.way, args.host, args.envs, args.steps, args.max_step)))
        return 0
    with ExitStack() as stack:
        settings = {"warm": args.envs, "max_replicas": args.envs + 2}
        url = args.host or stack.enter_context(local_service(args.image, settings))[0]
        rows = []
        for way in WAYS:
            command = [sys.executable, "-m", "benchmarks.data_server", "--way", way, "--host", url]
            command += [
                "--envs",
                str(args.envs),
                "--steps",
                str(args.steps),
                "--max-step",
                str(args.max_step),
            ]
            done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)
            if done.returncode != 0:
                print(done.stderr[-3000:], file=sys.stderr)
                return 1
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            print(rows[-1], flush=True)
    series = {"envs": args.envs, "max_step": args.max_step, "rows": rows}
    print(f"saved to {save('data_server', {**machine(), **series}, args.out)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
