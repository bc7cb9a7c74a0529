"""Other ways to step a desktop, with the same actions on the same replica, in turns within one run.

    python -m venv cua && cua/bin/pip install cua-computer-server 'fastapi<0.116'
    python -m benchmarks.peers --cua cua/bin/python --image full --rounds 6

`exact` is ours through the SDK: input, wait until the screen is final, a full PNG. `osgym-api` is OSGym's
client pattern: `requests` to `/step` of the compatible API, the picture decoded, scaled and made a JPEG; its
actions are clicks, on a replica of its own, as that API leases one. `osworld` is OSWorld's PythonController:
pyautogui in a new interpreter, a pause of 2 s, GET `/screenshot`; `osworld-no-pause` goes without. `cua` is a
command and then `screenshot` by the HTTP API of `cua-computer-server`, with the pauses that it has itself.

Only the first two wait for the screen to be final; the others may show an old one. In each round each way
does the same actions, and another way begins. The server of `cua` runs outside the replica, as a process on
the display, since the image does not hold its environment; it takes screenshots by `scrot`. CPU of a step is
that of client, host agent, replicas and that server together, what it started included.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import dataclasses
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import httpx

from benchmarks.common import argument_parser, local_service, machine, save, summary
from benchmarks.data_server import TASK, RequestsEnv
from benchmarks.load_curve import TICK_S, Accounts
from benchmarks.settle.live import task_for, wait_steady
from benchmarks.settle.scenarios import Action, application
from benchmarks.step_path import KEYS, PAUSE_S, osworld
from osgym_host.images.store import default_data_dir
from osgym_host.runtimes.processes import pss_mib
from osgym_sdk import Client, Episode

WAYS = ("exact", "osgym-api", "osworld", "osworld-no-pause", "cua")
DISPLAYS = Path("/tmp/.X11-unix")
START_TIMEOUT_S = 120.0
Step = Callable[[int, Action], int]
"""Function that does one action and looks, and returns the size of the frame in bytes."""


def cua_command(send: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return an action as a command of `cua-computer-server`.

    Raises:
        ValueError: It has none.
    """
    match send["op"]:
        case "click":
            one = "right_click" if send.get("button") == "right" else "left_click"
            return ("double_click" if send.get("count", 1) == 2 else one), {"x": send["x"], "y": send["y"]}
        case "move":
            return "move_cursor", {"x": send["x"], "y": send["y"]}
        case "type":
            return "type_text", {"text": send["text"]}
        case "key":
            keys = [KEYS.get(key.lower(), key.lower()) for key in send["keys"]]
            return ("hotkey", {"keys": keys}) if len(keys) > 1 else ("press_key", {"key": keys[0]})
        case "scroll":
            return "scroll", {"x": 0, "y": -send["dy"]}
    raise ValueError(f"no command for {send['op']}")


class Cua:
    """A `cua-computer-server` on the display of a replica; a context manager."""

    def __init__(self, python: Path, xvfb_pid: int) -> None:
        self._python, self._xvfb_pid = python, xvfb_pid
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Cua:
        with self._stack:
            self._start()
            self._stack = self._stack.pop_all()
        return self

    def _start(self) -> None:
        DISPLAYS.mkdir(mode=0o1777, exist_ok=True)
        number = next(n for n in range(200, 400) if not os.path.lexists(DISPLAYS / f"X{n}"))
        link = DISPLAYS / f"X{number}"
        link.symlink_to(f"/proc/{self._xvfb_pid}/root/tmp/.X11-unix/X0")
        self._stack.callback(link.unlink, missing_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        argv = [str(self._python), "-m", "computer_server", "--host", "127.0.0.1", "--port", str(port)]
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        log = self._stack.enter_context(tempfile.TemporaryFile("w+"))  # noqa: SIM115 - the stack is one
        self.process = subprocess.Popen(
            [*argv, "--log-level", "error"],
            env={**kept, "DISPLAY": f":{number}", "XDG_SESSION_TYPE": "x11"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        self._stack.callback(self.process.wait, 20)
        self._stack.callback(self.process.terminate)
        self.http = self._stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60))
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if self.http.get("/status").is_success:
                    break
            if self.process.poll() is not None or time.monotonic() > deadline:
                log.seek(0)
                raise RuntimeError(f"cua-computer-server did not start:\n{log.read()[-2000:]}")
            time.sleep(0.1)
        self.image()

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def call(self, command: str, **params: Any) -> dict[str, Any]:
        """Return the answer to a command.

        Raises:
            RuntimeError: It failed there.
        """
        answer = self.http.post("/cmd", json={"command": command, "params": params}).raise_for_status()
        told: dict[str, Any] = json.loads(answer.text.removeprefix("data: "))
        if not told.get("success"):
            raise RuntimeError(f"{command}: {told.get('error')}")
        return told

    def image(self) -> int:
        """Take a screenshot; return its size in bytes."""
        return len(base64.b64decode(self.call("screenshot")["image_data"]))

    def step(self, index: int, action: Action) -> int:
        command, params = cua_command(action.send)
        self.call(command, **params)
        return self.image()

    def cpu_s(self) -> float:
        """Return the CPU time of the server so far, in s."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(fields[place]) for place in (11, 12, 13, 14)) * TICK_S


@dataclass(frozen=True, slots=True)
class Block:
    """Results of a way in one round. `cpu_ms` is per step, of all that took part."""

    way: str
    round: int
    steps: int
    steps_per_s: float
    cpu_ms: float
    step_ms: list[float]
    image_bytes: list[int]


def measured(way: str, number: int, step: Step, actions: list[Action], cpu_s: Callable[[], float]) -> Block:
    before, began = cpu_s(), time.monotonic()
    step_ms, sizes = [], []
    for index, action in enumerate(actions):
        at = time.perf_counter()
        sizes.append(step(index, action))
        step_ms.append(round((time.perf_counter() - at) * 1000, 3))
    seconds, used = time.monotonic() - began, cpu_s() - before
    rate = round(len(actions) / seconds, 3)
    return Block(way, number, len(actions), rate, round(1000 * used / len(actions), 2), step_ms, sizes)


def pid_in(accounts: Accounts, name: str) -> int:
    """Return the newest process of that name in a replica.

    Raises:
        LookupError: The replica runs no such process.
    """
    accounts.look()
    for pid in sorted(accounts.replicas, reverse=True):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                return pid
    raise LookupError(f"no process {name} in a replica")


def _xvfb_of(accounts: Accounts, replica_id: str) -> int:
    accounts.look()
    for pid in accounts.replicas:
        with contextlib.suppress(OSError):
            if (
                Path(f"/proc/{pid}/comm").read_text().strip() == "Xvfb"
                and replica_id in Path(f"/proc/{pid}/mountinfo").read_text()
            ):
                return pid
    return pid_in(accounts, "Xvfb")


def ways_of(episode: Episode, guest: httpx.Client, api: RequestsEnv, cua: Cua | None) -> dict[str, Step]:
    def ours(index: int, action: Action) -> int:
        return len(episode.step(action.send, settle="exact").data)

    def by_osworld(pause_s: float) -> Step:
        return lambda index, action: osworld(guest, "", index, action, pause_s).image_bytes

    def by_api(index: int, action: Action) -> int:
        x, y = action.send.get("x", 400), action.send.get("y", 400)
        told, _ = api.step(f"<|think_start|>.<|think_end|><|action_start|>click({x},{y})<|action_end|>")
        return len(told["obs"]) - len(told["prev_obs"])

    ways: dict[str, Step] = {
        "exact": ours,
        "osgym-api": by_api,
        "osworld": by_osworld(PAUSE_S),
        "osworld-no-pause": by_osworld(0.0),
    }
    return ways | ({"cua": cua.step} if cua else {})


@contextlib.contextmanager
def _peers(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    settings = {"warm": 1, "max_replicas": 3, "trajectory": "off"}
    with contextlib.ExitStack() as stack:
        url, pid = stack.enter_context(local_service(options.image, settings, timeout_s=180))
        client = stack.enter_context(Client(url))
        app = application(options.app)
        episode = stack.enter_context(
            client.episode(task_for(app), max_steps=100_000, reuse_frames=False, wait_s=120)
        )
        wait_steady(episode)
        run_dir = default_data_dir() / "run" / f"bench-{os.getpid()}"
        transport = httpx.HTTPTransport(uds=str(run_dir / "replicas" / episode.replica_id / "agent.sock"))
        guest = stack.enter_context(httpx.Client(transport=transport, base_url="http://replica", timeout=130))
        accounts = Accounts(pid)
        xvfb = _xvfb_of(accounts, episode.replica_id)
        cua = stack.enter_context(Cua(options.cua, xvfb)) if options.cua else None
        config = {"server_url": url, "max_step": 100_000, "timeout": 600, "tasks": [TASK]}
        api = RequestsEnv(config)
        stack.callback(api.close)
        began = time.monotonic()
        api.reset()
        reset_s = time.monotonic() - began
        actions = [a for a in app.actions(Random(1)) if a.send["op"] in ("click", "move", "type", "key")][
            : options.actions
        ]

        def cpu_s() -> float:
            return accounts.look() + time.process_time() + (cua.cpu_s() if cua else 0.0)

        memory = {"osgym_guest": _agent_pss(accounts)} | ({"cua": pss_mib([cua.process.pid])} if cua else {})
        yield {
            "ways": ways_of(episode, guest, api, cua), "actions": actions, "cpu_s": cpu_s, "memory": memory,
            "osgym_api_reset_s": reset_s,
        }  # fmt: skip


def _agent_pss(accounts: Accounts) -> float:
    found = []
    for pid in accounts.replicas:
        with contextlib.suppress(OSError):
            if b"osgym_guest.pyc" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pss_mib([pid]))
    return statistics.fmean(found) if found else float("nan")


def _arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__, image="full")
    parser.add_argument("--cua", type=Path, help="the Python of an environment with cua-computer-server")
    parser.add_argument("--app", default="mousepad", help="application to act in (mousepad)")
    parser.add_argument("--actions", type=int, default=10, help="actions of a block (10)")
    parser.add_argument("--rounds", type=int, default=6, help="blocks of each way (6)")
    return parser.parse_args()


def _version(python: Path) -> str:
    code = "import importlib.metadata as m; print(m.version('cua-computer-server'))"
    argv = [str(python), "-c", code]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def main() -> int:
    options = _arguments()
    described, blocks = machine(), []
    if not options.cua:
        print("without --cua, cua-computer-server is not measured", file=sys.stderr)
    with _peers(options) as made:
        names = list(made["ways"])
        for number in range(options.rounds):
            turn = number % len(names)
            for way in names[turn:] + names[:turn]:
                block = measured(way, number, made["ways"][way], made["actions"], made["cpu_s"])
                blocks.append(block)
                print(f"  {way:17} {block.steps_per_s:7.2f} steps/s {block.cpu_ms:8.1f} CPU-ms", flush=True)
    rows = {}
    for way in names:
        mine = [block for block in blocks if block.way == way]
        row = {
            "step_ms": summary([ms for block in mine for ms in block.step_ms]),
            "cpu_ms_median": statistics.median(block.cpu_ms for block in mine),
            "steps_per_s_median": statistics.median(block.steps_per_s for block in mine),
        }
        rows[way] = row
    result = {
        "machine": described,
        "load_after": os.getloadavg()[0],
        "options": {k: v for k, v in vars(options).items() if k not in ("out", "cua")},
        "cua_computer_server": _version(options.cua) if options.cua else None,
        "control_server_pss_mib": made["memory"],
        "osgym_api_reset_s": round(made["osgym_api_reset_s"], 3),
        "result": rows,
        "blocks": [dataclasses.asdict(block) for block in blocks],
    }
    for way, row in rows.items():
        step = row["step_ms"]
        print(
            f"{way:17} median {step['median']:8.1f} ms  {row['steps_per_s_median']:7.2f} steps/s  "
            f"{row['cpu_ms_median']:7.1f} CPU-ms a step"
        )
    print(f"control server, MiB PSS: {made['memory']}\nraw series: {save('peers', result, options.out)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
