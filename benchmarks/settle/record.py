"""Record the guest agent's signals for three seconds after each action, to try rules on.

Needs the benchmark's image baked with `--record`, and the right to read the replicas' files: it runs on the
host's own machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import httpx

from benchmarks.settle.actions import Action, Application
from benchmarks.settle.image import TRACE
from benchmarks.settle.live import task_for, wait_steady
from osgym_sdk import Client, SettleOptions, SettlePolicy

PAUSE = SettleOptions(SettlePolicy.FIXED, pause_ms=3000)


def labelled(lines: Sequence[str], app: str, actions: Sequence[Action]) -> Iterator[str]:
    """Yield a trace with the name of each action before its signals. Pure.

    Raises:
        ValueError: It is not one of these actions, each traced once.
    """
    begins = sum(line.startswith('{"begin"') for line in lines)
    if begins != len(actions):
        raise ValueError(f"{app}: {begins} traces of {len(actions)} actions")
    left = iter(actions)
    for line in lines:
        if line.startswith('{"begin"'):
            action = next(left)
            yield json.dumps({"app": app, "label": action.label, "kind": action.kind.value})
        yield line


def record(client: Client, app: Application, seed: int, out: Path) -> Path:
    """Play one application and write its trace into a folder; return the file.

    Raises:
        OSError: The replica's files cannot be read from here, or it writes no trace.
        ValueError: As `labelled`.
    """
    with client.episode(task_for(app), max_steps=10_000) as episode:
        wait_steady(episode)
        actions = app.actions(Random(seed))
        for action in actions:
            episode.step(action.send, settle=PAUSE)
        rows = httpx.get(f"{episode.host}/v1/replicas", timeout=30).raise_for_status().json()
        (pid,) = (row["pid"] for row in rows if row["replica_id"] == episode.replica_id)
        lines = Path(f"/proc/{pid}/root{TRACE}").read_text().splitlines()
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{app.name}-{seed}.jsonl"
    path.write_text("".join(f"{line}\n" for line in labelled(lines, app.name, actions)))
    return path
