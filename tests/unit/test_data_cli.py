"""`osgym data`: what it shows and writes, and what it says of what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from PIL import Image
from tests.support.data_episodes import LOST, play, png

from osgym_cli.main import main
from osgym_sdk.data import COLUMNS, Dataset, DatasetWriter
from osgym_sdk.grammars import Context, parse

HOSTILE = '</script><script>alert(1)</script><img src=x onerror="x">\x1b[31m'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six episodes of two tasks, and one that was lost."""
    path = tmp_path_factory.mktemp("data") / "set"
    infos = [{"text": HOSTILE}, {"text": "Action: click(start_box='(10,10)')"}, None]
    with DatasetWriter(path) as writer:
        for number in range(6):
            task = {"id": f"t{number % 2}", "instruction": f"Do it {HOSTILE}"}
            play(writer, task, 3, reward=float(number % 3 > 0), first_frame=10 * number, infos=infos)
        play(writer, {"id": "t1"}, 1, reward=None, failure=LOST)
    return path


def run(*args: str | Path) -> Result:
    """The command in this process."""
    return CliRunner().invoke(main, ["data", *map(str, args)])


def test_stats_count_what_is_there(folder: Path) -> None:
    """A lost episode has no reward, so it counts in no rate."""
    shown = run("stats", folder)
    assert shown.exit_code == 0 and "episode_lost (infra)" in shown.output
    said = json.loads(run("stats", folder, "--json").output)
    assert (said["episodes"], said["steps"], said["finality"]["not final"]) == (7, 19, 12)
    assert said["tasks"]["t1"] == {
        "episodes": 4,
        "scored": 3,
        "solved": 2,
        "mean_reward": pytest.approx(2 / 3),
    }
    assert said["length"]["p50"] == 3.0


def test_view_lists_and_shows(folder: Path) -> None:
    """No control character of a guest or a model reaches the terminal."""
    listed = run("view", folder)
    name = listed.output.splitlines()[1].split()[0]
    shown = run("view", folder, name)
    assert shown.exit_code == 0 and "step 3" in shown.output and '"op": "click"' in shown.output
    assert "\x1b" not in shown.output and "alert(1)" in shown.output
    assert run("view", folder, "nosuch").exit_code == 1
    assert "the data set has 7 episodes; name one" in run("view", folder, "--out", "x.html").output


def test_chats_say_the_actions_in_the_grammar(folder: Path, tmp_path: Path) -> None:
    """Each conversation's answer reads as what was done, and its picture is there."""
    done = run(
        "export", folder, tmp_path / "chat", "--form", "chat", "--grammar", "uitars", "--min-reward", "1"
    )
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in (tmp_path / "chat" / "train.jsonl").read_text().splitlines()]
    assert len(lines) == 12 and {line["reward"] for line in lines} == {1.0}
    for line in lines:
        user, assistant = line["messages"]
        url = user["content"][1]["image_url"]["url"]
        with Image.open(tmp_path / "chat" / url) as image:
            assert image.size == (64, 48)
        actions = parse(assistant["content"], Context((64, 48), None, None, (64, 48)), "uitars").actions
        assert [action["op"] for action in actions] == ["click"]
    assert lines[1]["messages"][1]["content"] == "Action: click(start_box='(10,10)')"
    assert "Before:" in lines[1]["messages"][0]["content"][0]["text"]
    again = run("export", folder, tmp_path / "chat", "--form", "chat")
    assert again.exit_code == 1 and "is not empty" in again.output
    wrong = run("export", folder, tmp_path / "other", "--form", "chat", "--grammar", "klingon")
    assert wrong.exit_code == 1 and "klingon" in wrong.output


def test_webdataset_shards_are_tars_of_samples(folder: Path, tmp_path: Path) -> None:
    """Files of a sample share a key and lie together, as its readers expect."""
    assert run("export", folder, tmp_path / "w", "--form", "webdataset", "--all").exit_code == 0
    with tarfile.open(tmp_path / "w" / "steps-000000.tar") as tar:
        names = tar.getnames()
        first = json.load(tar.extractfile(names[2]))  # type: ignore[arg-type] # it is a file
        image = tar.extractfile(names[0])
        assert image is not None and image.read() == png(0)
    keys = [name.partition(".")[0] for name in names]
    assert (
        len(names) == 57
        and [keys[at] == keys[at + 1] == keys[at + 2] for at in range(0, 57, 3)] == [True] * 19
    )
    assert [name.partition(".")[2] for name in names[:3]] == ["before.png", "after.png", "json"]
    assert first["executed"] == [{"op": "click", "x": 1, "y": 2}]


def test_the_huggingface_folder_has_images_as_features(folder: Path, tmp_path: Path) -> None:
    """What `datasets` reads of a Parquet file's metadata."""
    assert run("export", folder, tmp_path / "hf").exit_code == 0
    part = pq.ParquetFile(tmp_path / "hf" / "data" / "train-00000.parquet")
    features = json.loads(part.schema_arrow.metadata[b"huggingface"])["info"]["features"]
    assert features["image"] == {"_type": "Image"} and set(features) == {c.name for c in COLUMNS} | {
        "image",
        "image_before",
    }
    rows = part.read().to_pylist()
    assert len(rows) == 18 and rows[0]["image_before"]["bytes"] == png(0)


def test_the_real_library_loads_it(folder: Path, tmp_path: Path) -> None:
    """Where `datasets` is installed: rows, pictures, lists."""
    datasets = pytest.importorskip("datasets", reason="missing: datasets")
    assert run("export", folder, tmp_path / "hf").exit_code == 0
    loaded = datasets.load_dataset(str(tmp_path / "hf"), split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded.num_rows == 18 and loaded[0]["image"].size == (64, 48)
    assert loaded[0]["task_id"] == "t0" and isinstance(loaded.features["image"], datasets.Image)


RECORDED = [
    {"kind": "start", "episode_id": "e1", "task_id": "t", "instruction": "Do it", "replica_id": "r",
     "generation": 4, "time": 1.0, "step": 0, "frame": "000000.png", "observation": None},
    {"kind": "step", "seq": 1, "time": 2.0, "step": 1, "frame": "000001.png",
     "actions": [{"op": "click", "x": 1, "y": 2}]},
    {"kind": "step", "seq": 2, "time": 3.0, "step": 2, "frame": "../../../etc/passwd",
     "actions": [], "done": "done"},
    {"kind": "evaluation", "reward": 1.0, "termination_reason": "done",
     "valid_for_training": True, "details": []},
    {"kind": "end", "termination_reason": "done", "cause": "closed", "time": 4.0},
]  # fmt: skip


def recording(folder: Path, frames: bool = True) -> None:
    """What a host agent leaves of an episode."""
    from tests.support.data_episodes import observation

    folder.mkdir(parents=True)
    lines = []
    for number, line in enumerate(RECORDED):
        if line["kind"] in ("start", "step"):
            line = {**line, "observation": observation(number, b"").meta.to_dict()}
        lines.append(json.dumps(line, separators=(",", ":")))
    (folder / "steps.jsonl").write_text("\n".join([*lines[:2], "{cut", '{"kind":"step"}', *lines[2:]]) + "\n")
    if frames:
        for number in range(2):
            (folder / f"{number:06d}.png").write_bytes(png(number))


def test_recordings_of_a_host_are_converted_once(tmp_path: Path) -> None:
    """With frames, damaged lines and names that lead elsewhere; what goes on is left for the next time."""
    recording(tmp_path / "trajectories" / "abc")
    running = tmp_path / "trajectories" / "going"
    running.mkdir()
    (running / "steps.jsonl").write_text('{"kind":"start"}\n')
    for added, present in ((1, 0), (0, 1)):
        said = f"{added} episodes added, {present} were already there, 1 are still running"
        done = run("convert", tmp_path / "trajectories", tmp_path / "set")
        assert done.exit_code == 0 and said in done.output, done.output
    episode = next(Dataset.open(tmp_path / "set").episodes())
    assert (episode.reward, episode.task_id, len(episode)) == (1.0, "t", 2)
    assert (episode.values["complete"], episode.values["termination_reason"]) == (True, "done")
    assert episode.steps[0].actions == [{"op": "click", "x": 1, "y": 2}]
    assert episode.steps[0].image is not None and episode.steps[1].image is None
    assert run("convert", tmp_path / "nowhere", tmp_path / "set").exit_code == 1


def test_what_is_wrong_is_a_line(tmp_path: Path) -> None:
    """No traceback, and an exit code that scripts can use."""
    done = run("stats", tmp_path)
    assert done.exit_code == 1 and "is not a data set" in done.output
    assert run("export", tmp_path).exit_code == 2
    for name in ("view", "stats", "export", "convert"):
        shown = run(name, "--help")
        assert shown.exit_code == 0 and len(shown.output.splitlines()) > 8


def test_without_pyarrow_it_says_what_to_install() -> None:
    """The extra's name, from the SDK and from the command."""
    code = "import sys; sys.modules['pyarrow'] = None; from osgym_cli.main import main; main()"
    argv = [sys.executable, "-c", code, "data", "stats", "."]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "pip install 'osgym-sdk[data]'" in done.stderr
