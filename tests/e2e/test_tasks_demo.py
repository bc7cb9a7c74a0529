"""The demo as its users run it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image as Pillow
from tests.support.host_process import OSGYM, osgym, wait_until

from osgym_host.images.store import Image, default_data_dir

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(300)]


def demo_processes() -> list[int]:
    """Processes of the demo's host agent."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if b"instance=demo\0" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@pytest.fixture
def alone(small_image: Image) -> Iterator[None]:
    """Skips while somebody else runs a demo on this machine; afterwards nothing of ours is left."""
    if demo_processes():
        pytest.skip("missing: the place of the demo, another one runs on this machine")
    yield
    replicas = default_data_dir() / "run" / "demo" / "replicas"
    wait_until(lambda: not demo_processes() and not list(replicas.glob("*")), 15, "nothing left of the demo")


def test_table_sheet_and_trajectories(alone: None, tmp_path: Path) -> None:
    """Oracle and chance, a table with their rewards, a contact sheet, and every frame on disk."""
    run = osgym("demo", "--replicas", "2", "--only", "featherpad", "--out", str(tmp_path), timeout_s=200)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "trajectories per minute" in run.stdout
    (folder,) = tmp_path.iterdir()
    with Pillow.open(folder / "contact-sheet.png") as sheet:
        assert sheet.width > 1900
        assert len(sheet.convert("RGB").resize((64, 64)).getcolors(4096) or []) > 20
    for policy, reward in (("oracle", 1.0), ("random", 0.0)):
        trajectory = folder / "trajectories" / f"featherpad.cross-off.{policy}"
        head, *steps = [json.loads(line) for line in (trajectory / "steps.jsonl").read_text().splitlines()]
        assert (head["reward"], head["policy"]) == (reward, policy)
        assert steps
        frames = {step[when] for step in steps for when in ("before", "after")}
        assert len(frames) == len(steps) + 1
        assert all((trajectory / name).read_bytes().startswith(b"\x89PNG") for name in frames)


@pytest.mark.parametrize("after_frames", [0, 3])
def test_interrupt_leaves_nothing(alone: None, tmp_path: Path, after_frames: int) -> None:
    """Ctrl-C, pressed twice, at the start or in the middle, ends it with 130 and removes every desktop."""
    process = subprocess.Popen(
        [OSGYM, "demo", "--replicas", "2", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ,
    )
    try:
        wait_until(demo_processes, 60, "the demo's host agent")
        wait_until(lambda: len(list(tmp_path.rglob("*.png"))) >= after_frames, 60, "frames")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, output
    assert b"no process was left running" in output


def test_killed_demo_takes_its_host_along(alone: None, tmp_path: Path) -> None:
    """Even `kill -9` of the demo ends its host agent in order."""
    process = subprocess.Popen(
        [OSGYM, "demo", "--replicas", "1", "--out", str(tmp_path)], stdout=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: list(tmp_path.rglob("*.png")), 60, "frames")
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not demo_processes(), 30, "the host agent's end")
