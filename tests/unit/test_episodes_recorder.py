"""Trajectories on disk: what is kept, and the bounds."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from osgym_host.episodes.recorder import RecordMode, TrajectoryRecorder


def test_lines_and_frames_come_back(tmp_path: Path) -> None:
    """One record per line, with its frame."""
    recorder = TrajectoryRecorder(tmp_path / "t", RecordMode.FRAMES, 10)
    recorder.start()
    recorder.add("e1", {"kind": "start", "step": 0}, b"one", "png")
    recorder.add("e1", {"kind": "step", "step": 1}, b"two", "jpeg")
    recorder.add("e1", {"kind": "end"})
    assert recorder.flush()
    lines = list(recorder.read("e1"))
    assert [(record.meta["kind"], record.blob) for record in lines] == [
        ("start", b"one"),
        ("step", b"two"),
        ("end", b""),
    ]
    assert (tmp_path / "t" / "e1" / "000001.jpeg").read_bytes() == b"two"
    recorder.close()


def test_steps_without_frames(tmp_path: Path) -> None:
    """The cheap mode keeps the lines only."""
    recorder = TrajectoryRecorder(tmp_path, RecordMode.STEPS, 10)
    recorder.start()
    recorder.add("e1", {"step": 1}, b"image", "png")
    recorder.close()
    assert [path.name for path in (tmp_path / "e1").iterdir()] == ["steps.jsonl"]


def test_nothing_is_written_when_it_is_off(tmp_path: Path) -> None:
    """Off means off."""
    recorder = TrajectoryRecorder(tmp_path / "t", RecordMode.OFF, 10)
    recorder.start()
    recorder.add("e1", {"step": 1}, b"image", "png")
    recorder.close()
    assert not (tmp_path / "t").exists()
    with pytest.raises(FileNotFoundError):
        list(recorder.read("e1"))


def test_the_oldest_episodes_go_when_the_bound_is_reached(tmp_path: Path) -> None:
    """1 MiB holds two episodes of 400 KiB; those of a former run count too."""
    frame = b"x" * 400 * 1024
    for turn in range(2):
        recorder = TrajectoryRecorder(tmp_path, RecordMode.FRAMES, 1)
        recorder.start()
        for number in range(3):
            recorder.add(f"e{turn}{number}", {"step": 0}, frame, "png")
        recorder.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e11", "e12"]


def test_one_episode_loses_its_own_frames_and_no_other_episode(tmp_path: Path) -> None:
    """Huge frames stop at the bound of one episode, with a note in each line; its short lines go on."""
    recorder = TrajectoryRecorder(tmp_path, RecordMode.FRAMES, 8, 2)
    recorder.start()
    for number in range(20):
        recorder.add(f"e{number}", {"kind": "step", "step": 0}, b"x" * (200 << 10), "png")
    for step in range(30):
        recorder.add("greedy", {"kind": "step", "step": step, "seq": step}, b"x" * (900 << 10), "png")
        assert recorder.flush()
    recorder.add("greedy", {"kind": "step", "step": 30, "seq": 30, "text": "x" * (3 << 20)})
    recorder.add("greedy", {"kind": "end"})
    assert recorder.flush()
    lines = [record.meta for record in recorder.read("greedy")]
    assert [line.get("dropped") for line in lines] == [None] * 2 + ["episode"] * 29 + [None]
    assert all(line["frame_dropped"] for line in lines[2:30])
    assert lines[30] == {"kind": "step", "step": 30, "seq": 30, "line_dropped": True, "dropped": "episode"}
    assert len(list(tmp_path.iterdir())) == 21
    assert _bytes_below(tmp_path) < 6 << 20
    recorder.close()


def test_the_bound_of_all_holds_whatever_one_records(tmp_path: Path) -> None:
    """Also with the bound of one left at more than there is in all."""
    recorder = TrajectoryRecorder(tmp_path, RecordMode.FRAMES, 2, 100)
    recorder.start()
    for number in range(12):
        recorder.add(f"e{number % 2}", {"step": number}, b"x" * (700 << 10), "png")
    recorder.close()
    assert _bytes_below(tmp_path) <= 2 << 20


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("mode", [RecordMode.FRAMES, RecordMode.STEPS])
def test_trajectories_are_for_their_owner_only(tmp_path: Path, mode: RecordMode) -> None:
    """New ones whatever the umask is, and those of an older version are mended at the start."""
    old = tmp_path / "t" / "old"
    old.mkdir(parents=True, mode=0o755)
    (old / "steps.jsonl").write_text("{}\n")
    (old / "steps.jsonl").chmod(0o644)
    (old / "000000.png").touch(0o666)
    (tmp_path / "secret").touch(0o644)
    (old / "link").symlink_to(tmp_path / "secret")
    before = os.umask(0)
    try:
        recorder = TrajectoryRecorder(tmp_path / "t", mode, 10)
        recorder.start()
        recorder.add("new", {"step": 0}, b"frame", "png")
        recorder.close()
    finally:
        os.umask(before)
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "t").rglob("*")}
    assert found.pop(old / "link") == 0o644
    assert stat.S_IMODE((tmp_path / "t").stat().st_mode) == 0o700
    assert {mode for path, mode in found.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in found.items() if path.is_file()} == {0o600}


def test_a_torn_line_and_a_lost_frame_do_not_hide_the_rest(tmp_path: Path) -> None:
    """A full disk cut a line short, and somebody removed a frame."""
    recorder = TrajectoryRecorder(tmp_path, RecordMode.FRAMES, 10)
    recorder.start()
    recorder.add("e1", {"kind": "start", "step": 0}, b"one", "png")
    assert recorder.flush()
    with (tmp_path / "e1" / "steps.jsonl").open("a") as lines:
        lines.write('{"kind": "st\n')
    recorder.add("e1", {"kind": "step", "step": 1}, b"two", "png")
    recorder.close()
    (tmp_path / "e1" / "000000.png").unlink()
    lines_back = list(recorder.read("e1"))
    assert [(record.meta["kind"], record.blob) for record in lines_back] == [("start", b""), ("step", b"two")]
    assert lines_back[0].meta["frame_dropped"] is True
    assert lines_back[0].meta["dropped"] == "gone"


def test_what_cannot_be_encoded_stops_nobody_else(tmp_path: Path) -> None:
    """The writer goes on after a line that is not text."""
    recorder = TrajectoryRecorder(tmp_path, RecordMode.STEPS, 10)
    recorder.start()
    recorder.add("e1", {"kind": "\ud800"})
    recorder.add("e2", {"kind": "end"})
    assert recorder.flush()
    assert [record.meta["kind"] for record in recorder.read("e2")] == ["end"]
    recorder.close()


@pytest.mark.parametrize("episode_id", ["..", "", "a" * 5000, "a/b", "\0", "²"])
def test_only_ids_are_looked_up(tmp_path: Path, episode_id: str) -> None:
    """Nothing else becomes a path."""
    with pytest.raises(FileNotFoundError):
        next(TrajectoryRecorder(tmp_path, RecordMode.STEPS, 10).read(episode_id))
