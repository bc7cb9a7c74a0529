"""Cost of the guest agent: start, memory, idle CPU, and each part of a step on a busy screen.

Runs the agent on a bare Xvfb of 1920x1080 with a window manager and terminals full of coloured text. Needs
the Debian packages xvfb openbox xterm x11-utils. Prints a table; --out writes the raw series as JSON.

    python benchmarks/guest_agent.py --out out/guest_agent.json
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import argument_parser, machine, save
from osgym_protocol.guest_api import LISTEN_FD
from osgym_protocol.records import decode_record

SCREEN = (1920, 1080)
FRAME_BYTES = SCREEN[0] * SCREEN[1] * 4


class Agent:
    """One agent on an inherited socket, and a client with one kept connection."""

    def __init__(self, home: Path, listener: socket.socket, env: dict[str, str]) -> None:
        self.started = time.monotonic()
        inherited = os.dup(listener.fileno())
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-m", "osgym_guest"],
            env={**env, "LISTEN_FDS": "1"},
            pass_fds=[LISTEN_FD],
            preexec_fn=lambda: os.dup2(inherited, LISTEN_FD),
        )
        os.close(inherited)
        self._connection = http.client.HTTPConnection("guest", timeout=60)
        self._connection.sock = socket.socket(socket.AF_UNIX)
        self._connection.sock.connect(str(home / "agent.sock"))
        self.seq = 0

    def call(self, method: str, path: str, body: Any = None) -> bytes:
        self._connection.request(method, path, b"" if body is None else json.dumps(body))
        answer = self._connection.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {data[:300]!r}")
        return data

    def step(self, *actions: dict[str, Any], **options: Any) -> dict[str, Any]:
        """Return the next step's meta with `rtt_ms` and `bytes`."""
        self.seq += 1
        began = time.perf_counter()
        data = self.call("POST", "/v1/step", {"seq": self.seq, "actions": list(actions), **options})
        rtt_ms = (time.perf_counter() - began) * 1e3
        record = decode_record(data)
        return {**record.meta, "rtt_ms": rtt_ms, "bytes": len(record.blob)}

    def close(self) -> None:
        self._connection.close()
        self.process.terminate()
        self.process.wait(10)


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process so far, in clock resolution."""
    return time.clock_gettime((~pid << 3) | 2)


def memory(pid: int) -> dict[str, float]:
    """Return PSS in MiB: all of it, and without the frame buffers (the X server's file and our copy)."""
    total = buffers = 0
    size, name = 0, ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = re.match(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \S+\s*(.*)", line)
        if head:
            size, name = int(head[2], 16) - int(head[1], 16), head[3]
        elif line.startswith("Pss:"):
            pss = int(line.split()[1]) * 1024
            total += pss
            ours = not name and FRAME_BYTES <= size < FRAME_BYTES + 65536
            buffers += pss if ours or "Xvfb_screen" in name else 0
    return {"pss_mib": total / 2**20, "pss_without_frames_mib": (total - buffers) / 2**20}


@contextlib.contextmanager
def desktop(home: Path) -> Iterator[dict[str, str]]:
    """Run Xvfb, openbox and four terminals full of text; yield the environment for clients."""
    children: list[subprocess.Popen[bytes]] = []
    quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    try:
        reader, writer = os.pipe()
        (home / "fb").mkdir()
        screen = f"{SCREEN[0]}x{SCREEN[1]}x24"
        argv = ["Xvfb", "-displayfd", str(writer), "-screen", "0", screen, "-fbdir", str(home / "fb")]
        argv += ["-nolisten", "tcp"]
        children.append(subprocess.Popen(argv, pass_fds=[writer], stderr=subprocess.DEVNULL))
        os.close(writer)
        with os.fdopen(reader) as pipe:
            display = f":{pipe.readline().strip()}"
        env = {"PATH": os.environ["PATH"], "DISPLAY": display, "HOME": str(home), "LANG": "C.UTF-8"}
        env |= {"OSGYM_FBDIR": str(home / "fb"), "OSGYM_STATE_DIR": str(home)}
        children.append(subprocess.Popen(["openbox"], env=env, **quiet))
        wait_until(lambda: "not found" not in root_property(env, "_NET_SUPPORTING_WM_CHECK"))
        some_lines = "ls -l --color=always /usr/bin /etc | shuf -n 45 --random-source=/bin/sh"
        text = f"while :; do {some_lines}; read -r k; done"
        for number in range(4):
            place = f"100x32+{(number % 2) * 950}+{(number // 2) * 530}"
            argv = ["xterm", "-fa", "Monospace", "-fs", "11", "-geometry", place, "-e", "bash", "-c", text]
            children.append(subprocess.Popen(argv, env=env, **quiet))
        wait_until(lambda: root_property(env, "_NET_CLIENT_LIST").count("0x") == 4)
        yield env
    finally:
        for child in reversed(children):
            child.terminate()
            child.wait(10)


def root_property(env: dict[str, str], name: str) -> str:
    argv = ["xprop", "-root", name]
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False).stdout


def wait_until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Poll for a condition of the set-up."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the desktop did not come up")
        time.sleep(0.02)


def measure_starts(
    home: Path, listener: socket.socket, env: dict[str, str], count: int
) -> dict[str, list[float]]:
    """Return times from the start of the process to the first answer, and to a ready desktop."""
    serving, ready = [], []
    for _ in range(count):
        agent = Agent(home, listener, env)
        agent.call("GET", "/v1/health")
        serving.append((time.monotonic() - agent.started) * 1e3)
        agent.call("POST", "/v1/ready", {"timeout_s": 20})
        ready.append((time.monotonic() - agent.started) * 1e3)
        agent.close()
        (home / "osgym-guest.seq").unlink(missing_ok=True)
    return {"serving_ms": serving, "ready_ms": ready}


def measure_steps(agent: Agent, count: int) -> dict[str, list[dict[str, float]]]:
    """Measure steps of several kinds; `cost_ms` is all that is not waiting for the screen."""
    kinds: dict[str, Callable[[int], list[dict[str, Any]]]] = {
        "nothing": lambda i: [{"op": "screenshot"}],
        "move": lambda i: [{"op": "move", "x": 100 + 37 * i % 1700, "y": 100 + 91 * i % 900}],
        "key": lambda i: [{"op": "key", "keys": ["x"]}],
        "click another window": lambda i: [{"op": "click", "x": (300, 1300)[i % 2], "y": 400}],
        "redraw a quarter": lambda i: [{"op": "key", "keys": ["Return"]}],
        "type 40 characters": lambda i: [{"op": "type", "text": "the quick brown fox jumps over lazy dogs"}],
    }
    series: dict[str, list[dict[str, float]]] = {}
    for name, make in kinds.items():
        rows = []
        for i in range(count):
            meta = agent.step(*make(i))
            timing = meta["timing_ms"]
            rows.append(
                {
                    "rtt_ms": meta["rtt_ms"],
                    "cost_ms": meta["rtt_ms"] - timing["settle"],
                    "input_ms": timing["input"],
                    "settle_ms": timing["settle"],
                    "capture_ms": timing["capture"],
                    "encode_ms": timing["encode"],
                    "bytes": meta["bytes"],
                }
            )
        series[name] = rows
    return series


def measure_full_frames(env: dict[str, str], count: int) -> list[dict[str, float]]:
    """Measure capture and encode of a frame of which every part is new (a fresh connection knows nothing)."""
    code = (
        "import json,sys,time\nfrom osgym_guest._native import Display\n"
        f"d=Display(None,{env['OSGYM_FBDIR']!r})\nt=[time.perf_counter()]\n"
        "for f in (d.capture,d.frame_hash,d.png):\n r=f()\n t.append(time.perf_counter())\n"
        "print(json.dumps({'capture_ms':(t[1]-t[0])*1e3,'hash_ms':(t[2]-t[1])*1e3,'encode_ms':(t[3]-t[2])*1e3,"
        "'bytes':len(r)}))"
    )
    argv = [sys.executable, "-c", code]
    runs = [subprocess.run(argv, env=env, capture_output=True, check=True) for _ in range(count)]
    return [json.loads(run.stdout) for run in runs]


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--count", type=int, default=40, help="steps of each kind")
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--idle-s", type=float, default=20.0)
    args = parser.parse_args()
    result: dict[str, Any] = {"machine": machine(), "screen": SCREEN}
    with tempfile.TemporaryDirectory() as name, contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
        home = Path(name)
        listener.bind(str(home / "agent.sock"))
        listener.listen(16)
        with desktop(home) as env:
            result["start"] = measure_starts(home, listener, env, args.starts)
            agent = Agent(home, listener, env)
            agent.call("POST", "/v1/ready", {"timeout_s": 20})
            result["memory_at_start"] = memory(agent.process.pid)
            result["steps"] = measure_steps(agent, args.count)
            result["full_frames"] = measure_full_frames(env, 10)
            result["memory_after_steps"] = memory(agent.process.pid)
            before = cpu_s(agent.process.pid)
            time.sleep(args.idle_s)
            result["idle_cpu_percent"] = (cpu_s(agent.process.pid) - before) / args.idle_s * 100
            agent.close()
    report(result)
    if args.out:
        save("guest_agent", result, args.out)


def report(result: dict[str, Any]) -> None:
    def median(rows: list[dict[str, float]], key: str) -> float:
        return statistics.median(row[key] for row in rows)

    start = result["start"]
    serving = start["serving_ms"]
    print(f"start to serving    {statistics.median(serving):7.1f} ms (max {max(serving):.0f})")
    print(f"start to ready      {statistics.median(start['ready_ms']):7.1f} ms")
    for when in ("memory_at_start", "memory_after_steps"):
        pss = result[when]
        without, all_of_it = pss["pss_without_frames_mib"], pss["pss_mib"]
        print(f"{when:19s} {without:7.1f} MiB PSS without frames, {all_of_it:.1f} with")
    print(f"idle CPU            {result['idle_cpu_percent']:7.3f} % of a core")
    full = result["full_frames"]
    print(
        f"whole new frame     capture {median(full, 'capture_ms'):.2f}, hash {median(full, 'hash_ms'):.2f}, "
        f"encode {median(full, 'encode_ms'):.2f} ms, {median(full, 'bytes') / 1024:.0f} KiB"
    )
    print(f"{'step (median ms)':24s}     all  waiting    cost   input capture  encode")
    for kind, rows in result["steps"].items():
        values = [median(rows, key) for key in ("rtt_ms", "settle_ms", "cost_ms", "input_ms")]
        values += [median(rows, key) for key in ("capture_ms", "encode_ms")]
        print(f"{kind:24s} {values[0]:7.1f} {values[1]:8.1f} " + " ".join(f"{v:7.2f}" for v in values[2:]))


if __name__ == "__main__":
    main()
