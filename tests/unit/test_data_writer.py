"""Data sets: what is written is read again, whatever it is, and whatever happens to the writer."""

from __future__ import annotations

import asyncio
import fcntl
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.data_episodes import LOST, observation, play, png
from tests.support.host_process import wait_until

from osgym_sdk import ConfigError, DatasetError
from osgym_sdk.data import COLUMNS, Dataset, DatasetWriter, _store
from osgym_sdk.data import _plain as plain
from osgym_sdk.data._frames import FrameWriter
from osgym_sdk.data._journal import Journal, read_journal

ROOT = Path(__file__).parents[2]


def rows(dataset: Dataset) -> list[dict[str, Any]]:
    """All steps as ordinary dicts."""
    return [dict(step) for step in dataset]


def test_an_episode_is_read_as_it_was_told(tmp_path: Path) -> None:
    """Every column that a trainer asks for, before and after the journal became Parquet."""
    task = {"id": "t1", "instruction": "Do it", "osgym": {"seed": 5}}
    info = {"text": "I click.", "tokens": [1, 2], "logprobs": [-0.5, -math.inf], "temperature": 0.7}
    with DatasetWriter(tmp_path, seed=9) as writer:
        play(writer, task, 2, infos=[info, "only words"])
        writer.sync()
        running = rows(Dataset.open(tmp_path))
    finished = Dataset.open(tmp_path)
    assert rows(finished) == running
    first, second = finished[0], finished[1]
    assert (first["text"], first["tokens"], first["logprobs"]) == ("I click.", [1, 2], [-0.5, -math.inf])
    assert first["info"] == {"temperature": 0.7} and second["text"] == "only words"
    assert first["requested"] == ["click(1,2)"] and first.actions == [{"op": "click", "x": 1, "y": 2}]
    assert (first["final"], first["changed_after_ms"], second["final"]) == (False, 40.0, None)
    assert (first["settle_reason"], first["total_ms"], first["settle_ms"]) == ("quiet", 10.0, 3.0)
    assert (first["image_digest"], first["runtime"], first["seed"]) == ("sha256:abc", "local", 5)
    assert (first["reward"], first["termination_reason"], first["complete"]) == (1.0, "done", True)
    assert first["task"] == task and (first["index"], first["attempt"], first["steps"]) == (3, 1, 2)
    assert finished.frame_bytes(first["frame"]) == png(1) and first["frame_before"] == second_before(finished)
    assert first.image.size == (64, 48) and list(tmp_path.glob("journal/*")) == []
    assert pq.read_table(tmp_path / "data").num_rows == 3


def second_before(dataset: Dataset) -> Any:
    """The first desktop's frame, by its row."""
    return next(dataset.episodes()).first["frame"]


def test_a_lost_episode_has_a_failure_and_no_reward(tmp_path: Path) -> None:
    """And one that never began has a row, too."""
    from osgym_sdk import EpisodeOutcome, Trajectory

    with DatasetWriter(tmp_path) as writer:
        play(writer, {"id": "a"}, 1, reward=None, failure=LOST)
        outcome = EpisodeOutcome(None, LOST, "no_capacity", False)
        writer.record({"id": "b"}).end(Trajectory("b"), outcome)
    lost, never = sorted(Dataset.open(tmp_path).episodes(), key=lambda e: str(e.task_id))
    assert (lost.reward, lost.values["error_class"], lost.first["failure_details"]) == (
        None,
        "infra",
        {"cause": "crash"},
    )
    assert (len(never), never.values["complete"], never.first.image) == (0, True, None)


def test_frames_are_stored_once(tmp_path: Path) -> None:
    """Ten episodes of the same pictures, two writers one after the other: each picture is there once."""
    for _ in range(2):
        with DatasetWriter(tmp_path) as writer:
            for _ in range(5):
                play(writer, {"id": "same"}, 3)
    dataset = Dataset.open(tmp_path)
    assert (dataset.episode_count, len(dataset), dataset.frame_count) == (10, 30, 4)
    assert sum(file.stat().st_size for file in tmp_path.glob("frames/*.blob")) == sum(
        len(png(number)) for number in range(4)
    )


HOSTILE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters()), inner, max_size=3),
    max_leaves=8,
)


@given(HOSTILE)
def test_anything_becomes_strict_json(value: Any) -> None:
    """Lone surrogates, NaN, bytes, numbers of any length."""
    import json

    found = plain.as_json(value)
    if value is not None:
        assert found is not None
        found.encode("utf-8")
        json.loads(found, parse_constant=lambda word: pytest.fail(word))


def test_hostile_values_survive(tmp_path: Path) -> None:
    """Values of tasks and models that break writers: none takes its row along."""

    class Evil:
        def __str__(self) -> str:
            raise RuntimeError("no")

        __repr__ = __str__

    deep: list[Any] = []
    deep.append(deep)
    infos = [
        {"text": "\ud800\x00\u202e", "tokens": [2**70], "logprobs": "no list"},
        {"text": 5, "tokens": [1.5], "evil": Evil(), 7: deep},
        Evil(),
        {"logprobs": [math.nan]},
    ]
    with DatasetWriter(tmp_path) as writer:
        play(writer, {"id": "../../etc/passwd\x00", "x": "\udfff"}, 4, infos=infos)
        writer.sync()
        assert len(Dataset.open(tmp_path)) == 4
    found = list(Dataset.open(tmp_path))
    assert found[0]["text"] == "\\ud800\x00\u202e" and found[0]["info"]["tokens"] == [2**70]
    assert found[1]["text"] is None and found[1]["info"]["text"] == 5 and "without a text" in found[2]["info"]
    assert math.isnan(found[3]["logprobs"][0]) and found[0]["task_id"] == "../../etc/passwd\x00"


def test_a_damaged_image_is_an_error(tmp_path: Path) -> None:
    """Of its own; the others are read."""
    with DatasetWriter(tmp_path) as writer:
        play(writer, {"id": "a"}, 1)
    blob = next(tmp_path.glob("frames/*.blob"))
    data = bytearray(blob.read_bytes())
    data[10] ^= 1
    blob.write_bytes(data)
    dataset = Dataset.open(tmp_path)
    assert dataset[0].image is not None
    with pytest.raises(DatasetError, match="damaged"):
        dataset.frame_bytes(dataset[0]["frame_before"])
    with pytest.raises(KeyError):
        dataset.frame("00" * 20)
    with pytest.raises(KeyError):
        dataset.frame("../../etc/passwd")


def test_it_is_a_map_style_dataset(tmp_path: Path) -> None:
    """Negative numbers, slices, filters, pickling with files open, a transform."""
    with DatasetWriter(tmp_path) as writer:
        for number in range(6):
            play(writer, {"id": f"t{number % 2}"}, 2, first_frame=10 * number, reward=float(number))
    dataset = Dataset.open(tmp_path, transform=lambda step: step["executed"][0]["x"])
    assert dataset[0:3] == [1, 2, 1] and dataset[-1] == 2
    with pytest.raises(IndexError):
        dataset[12]
    good = Dataset.open(tmp_path).filter(task_id=["t1"], min_reward=3.0)
    assert [episode.reward for episode in good.episodes()] == [3.0, 5.0]
    assert good[0].image.size == (64, 48)
    copy = pickle.loads(pickle.dumps(good))
    assert dict(copy[3]) == dict(good[3]) and copy[3].image == good[3].image
    with pytest.raises(ConfigError):
        good.filter(step=1)
    name = next(good.episodes()).name
    assert good.episode(name[:12]).name == name


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    """Not taken for a data set, nor one of a newer SDK."""
    with pytest.raises(DatasetError, match="not a data set"):
        Dataset.open(tmp_path)
    (tmp_path / "dataset.json").write_text('{"format": "osgym-dataset", "version": 99}')
    with pytest.raises(DatasetError, match="update"):
        DatasetWriter(tmp_path)


def test_the_journal_becomes_parquet_while_episodes_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is over moves, what goes on stays whole, and a reader in between misses nothing."""
    monkeypatch.setattr(_store, "MAX_ENDED", 3)
    with DatasetWriter(tmp_path) as writer:
        play(writer, {"id": "long"}, 4, end=False)
        for number in range(8):
            play(writer, {"id": f"t{number}"}, 2)
            writer.sync()
            assert Dataset.open(tmp_path).episode_count == number + 2
        assert len(list(tmp_path.glob("data/*.parquet"))) == 2
        assert len(list(tmp_path.glob("journal/*"))) == 1
    dataset = Dataset.open(tmp_path)
    long = next(one for one in dataset.episodes() if one.task_id == "long")
    assert (len(long), long.values["complete"], dataset.episode_count) == (4, False, 9)


KILLED = """
import os, select, signal, sys, time
from tests.support.data_episodes import play
from osgym_sdk.data import DatasetWriter, _store
_store.MAX_ENDED = 2

def write(folder, pipe):
    writer = DatasetWriter(folder)
    for number in range(10**6):
        play(writer, {"id": f"k{number}"}, 5, first_frame=number * 6)
        writer.sync()
        os.write(pipe, b".")

for number in range(int(sys.argv[2])):
    out, pipe = os.pipe()
    child = os.fork()
    if child == 0:
        write(sys.argv[1], pipe)
    os.close(pipe)
    acknowledged = os.read(out, 1)
    end = time.monotonic() + 0.011 * number
    while (left := end - time.monotonic()) > 0 and select.select([out], [], [], left)[0]:
        acknowledged += os.read(out, 100)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(out, 100):
        acknowledged += more
    os.close(out)
    print(len(acknowledged), flush=True)
    sys.stdin.readline()
"""
"""Kills writers, each a little later in its work than the one before; waits to be looked at in between."""


def test_a_killed_writer_loses_at_most_what_was_under_way(tmp_path: Path) -> None:
    """SIGKILL at many moments: what was acknowledged is there, whole, readable before and after recovery."""
    argv = [sys.executable, "-c", KILLED, str(tmp_path), "10"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as process:
        assert process.stdin is not None and process.stdout is not None
        complete = 0
        for line in process.stdout:
            found = [one for one in Dataset.open(tmp_path).episodes() if one.values["complete"]]
            assert len(found) >= complete + int(line)
            complete = len(found)
            process.stdin.write("\n")
            process.stdin.flush()
    assert process.returncode == 0 and complete >= 10
    DatasetWriter(tmp_path).close()
    dataset = Dataset.open(tmp_path)
    assert list(tmp_path.glob("journal/*")) == []
    names = [episode.name for episode in dataset.episodes()]
    assert len(names) == len(set(names))
    assert pq.read_table(tmp_path / "data").num_rows == len(dataset) + len(names)
    for name in {name for step in dataset for name in (step["frame"], step["frame_before"])}:
        assert dataset.frame(name).size == (64, 48)
    assert [len(one) for one in dataset.episodes() if one.values["complete"]] == [5] * complete


def test_a_journal_is_read_up_to_where_it_was_cut(tmp_path: Path) -> None:
    """Cut at every byte: all records before are there, and never half of one."""
    path = tmp_path / "a.journal"
    journal = Journal(path)
    for number in range(4):
        journal.add(b"record %d" % number)
    journal.close()
    whole = path.read_bytes()
    counts = []
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        found = list(read_journal(path))
        assert found == [b"record %d" % number for number in range(len(found))]
        counts.append(len(found))
    assert counts == sorted(counts) and counts[-1] == 4 and counts[-2] == 3


def test_an_index_is_read_up_to_where_it_was_cut(tmp_path: Path) -> None:
    """The same of frames."""
    frames = FrameWriter(tmp_path, "a")
    names = [frames.add(png(number)) for number in range(3)]
    frames.close()
    index = next(tmp_path.glob("*.idx"))
    index.write_bytes(index.read_bytes()[:-1])
    again = FrameWriter(tmp_path, "b")
    assert len(again.known) == 2 and again.add(png(2)) == names[2] and len(again.known) == 3
    again.close()


PROCESSES = """
import os, sys
from tests.support.data_episodes import play
from osgym_sdk.data import DatasetWriter
children = []
for name in "012":
    children.append(os.fork())
    if children[-1] == 0:
        with DatasetWriter(sys.argv[1]) as writer:
            for number in range(20):
                play(writer, {"id": name}, 3, first_frame=number)
                writer.sync()
        os._exit(0)
sys.exit(max(os.waitpid(child, 0)[1] for child in children))
"""


def test_a_journal_that_is_being_made_is_nobodys_to_take(tmp_path: Path) -> None:
    """Between its making and its lock it is empty; one that stayed so belonged to a writer that died."""
    DatasetWriter(tmp_path).close()
    made, died = tmp_path / "journal/1-a-000000.journal", tmp_path / "journal/2-b-000000.journal"
    made.touch()
    died.touch()
    os.utime(died, (0, 0))
    DatasetWriter(tmp_path).close()
    assert list(tmp_path.glob("journal/*")) == [made]


def test_a_journal_waits_for_who_looks_at_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock may be held for a moment by another writer, who looks whether it is dead."""
    path = tmp_path / "a.journal"
    looked = threading.Event()

    def looking(fd: int, operation: int) -> None:
        monkeypatch.undo()
        other = os.open(path, os.O_RDWR)
        fcntl.flock(other, fcntl.LOCK_EX)
        threading.Timer(0.1, let_go, (other,)).start()
        fcntl.flock(fd, operation)

    def let_go(other: int) -> None:
        looked.set()
        os.close(other)

    monkeypatch.setattr("osgym_sdk.data._journal.fcntl.flock", looking)
    journal = Journal(path)
    assert looked.is_set()
    journal.close()


def test_several_processes_write_to_one_folder(tmp_path: Path) -> None:
    """At the same time; a reader beside them sees whole episodes."""
    DatasetWriter(tmp_path).close()
    with subprocess.Popen([sys.executable, "-c", PROCESSES, str(tmp_path)], cwd=ROOT) as process:
        looks = 0
        while process.poll() is None:
            seen = Dataset.open(tmp_path)
            assert all(str(episode.task_id) in "012" for episode in seen.episodes())
            if len(seen):
                looks += 1
                assert seen[len(seen) // 2].image is not None
            time.sleep(0.02)
    assert process.returncode == 0 and looks > 0
    dataset = Dataset.open(tmp_path)
    assert dataset.episode_count == 60 and len(dataset) == 180 and list(tmp_path.glob("journal/*")) == []
    assert dataset.frame_count == 23


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real limit on the size of files: half an image is taken back, all is written once there is room."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    writer = DatasetWriter(tmp_path)
    try:
        play(writer, {"id": "before"}, 2)
        writer.sync()
        sizes = [file.stat().st_size for file in tmp_path.glob("frames/*.blob")]
        resource.setrlimit(resource.RLIMIT_FSIZE, (max(sizes) + 100, before[1]))
        play(writer, {"id": "during"}, 3, first_frame=100)
        with pytest.raises(DatasetError) as caught:
            writer.sync()
        assert caught.value.code == "dataset_io" and isinstance(caught.value.__cause__, OSError)
        assert writer.error is not None
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        writer.sync()
        assert writer.error is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, old)
        writer.close()
    dataset = Dataset.open(tmp_path)
    assert sorted(str(one.task_id) for one in dataset.episodes()) == ["before", "during"]
    assert all(step.image is not None for step in dataset) and len(dataset) == 5


async def test_the_loop_goes_on_while_much_is_written(tmp_path: Path) -> None:
    """Full-size frames faster than any disk: putting is quick, and a queue that is full makes steps wait."""
    frames = [os.urandom(400_000) for _ in range(16)]
    put_s: list[float] = []
    with DatasetWriter(tmp_path, queue_mib=1) as writer:
        recording = writer.record({"id": "big"})
        from osgym_sdk import Trajectory

        trajectory = Trajectory("big")
        first = observation(0, frames[0])
        recording.begin(trajectory, first, None)
        for seq in range(1, 200):
            await recording.room()
            assert writer._bytes <= 2 * 1024 * 1024
            obs = observation(seq, frames[seq % 16] + bytes([seq]))
            record = trajectory.add((), obs, False)
            began = time.perf_counter()
            recording.step(record, obs)
            put_s.append(time.perf_counter() - began)
            await asyncio.sleep(0)
        await writer.flush()
        assert sorted(put_s)[len(put_s) // 2] < 0.002
    assert not any(step["frame_lost"] for step in Dataset.open(tmp_path))


def test_after_a_fork_the_child_makes_its_own(tmp_path: Path) -> None:
    """And a closed writer takes nothing."""
    writer = DatasetWriter(tmp_path)
    writer.close()
    writer.close()
    play(writer, {"id": "late"}, 1)
    assert len(Dataset.open(tmp_path)) == 0
    assert not any(thread.name == "osgym-dataset" for thread in threading.enumerate())
    wait_until(lambda: not list(tmp_path.glob("journal/*")), 5, "the journal is gone")


def test_every_column_is_described() -> None:
    """Names are unique, meanings are there."""
    assert len({column.name for column in COLUMNS}) == len(COLUMNS) > 50
    assert all(column.meaning for column in COLUMNS)
