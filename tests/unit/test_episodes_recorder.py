"""Trajectories on disk: what is kept, and the bounds."""

from __future__ import annotations

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
