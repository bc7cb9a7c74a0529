"""What callers write: tasks of a batch, short names of options; and what they copy: observations."""

from __future__ import annotations

import copy
import io
import json
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from osgym_sdk import AsyncObservation, ConfigError, Observation, SyncObservation, Timing, wire
from osgym_sdk._inputs.options import as_observe, as_settle, as_task
from osgym_sdk._inputs.tasks import as_tasks


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Task files in folders, a list of tasks, and a file that is none."""
    for name in ("b/two.json", "a/one.json", "a/deep/three.json"):
        path = tmp_path / "tasks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"id": path.stem}))
    (tmp_path / "tasks" / "README.md").write_text("no task")
    (tmp_path / "list.json").write_text('\n [{"id": "x"}, {"id": "y"}]')
    (tmp_path / "empty").mkdir()
    return tmp_path


def ids(tasks: Any) -> list[Any]:
    """The ids of what a batch would go through."""
    return [(as_task(task) or {}).get("id") for task in as_tasks(tasks)]


def test_a_folder_a_file_a_pattern_and_a_list_of_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never the characters of a path, never the keys of a task."""
    everything = ["three", "one", "two"]
    assert ids(str(folder / "tasks")) == ids(folder / "tasks") == everything
    assert ids(folder / "tasks" / "b" / "two.json") == ["two"]
    assert ids(str(folder / "tasks" / "*" / "*.json")) == ["one", "two"]
    assert ids(str(folder / "tasks" / "**" / "*.json")) == everything
    assert ids(folder / "list.json") == ["x", "y"]
    assert ids({"id": "itself"}) == ["itself"]
    assert ids([folder / "tasks" / "b", {"id": "z"}, None]) == ["two", "z", None]
    assert ids(iter([{"id": "z"}])) == ["z"]
    monkeypatch.chdir(folder)
    assert ids("tasks") == ids("tasks/") == everything


@pytest.mark.parametrize(
    "bad", ["/no/such/dir", "no/*.json", "empty", "", b"x", 5, None, "a\0b", ["gone.json"]]
)
def test_a_path_that_leads_to_no_task_is_said_before_anything_runs(
    bad: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the path, and what may be given."""
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError, match="task"):
        as_tasks(bad)


@pytest.mark.parametrize(
    ("convert", "bad", "said"),
    [
        (as_settle, "quick", "valid values: exact, fast, certain, fixed"),
        (as_settle, "exakt", "valid values: exact, fast, certain, fixed; did you mean 'exact'"),
        (as_settle, "fixed", "pause_ms"),
        (as_settle, {"policy": "fats"}, "settle.policy: .*did you mean 'fast'"),
        (as_settle, {"quiet": 5}, "settle has no field 'quiet'"),
        (as_settle, {"quiet_ms": "5"}, "quiet_ms"),
        (as_settle, 5, "settle must be an object"),
        (as_observe, "jpg", "valid values: png, jpeg, webp, none; did you mean 'jpeg'"),
        (as_observe, {"format": "gif"}, "observe.format: unknown value 'gif'; valid values: png"),
        (as_observe, {"siez": (1, 1)}, "observe has no field 'siez'"),
        (as_observe, {"size": 5}, "size"),
    ],
)
def test_a_misspelt_option_is_answered_with_what_there_is(convert: Any, bad: Any, said: str) -> None:
    """And with the most similar name, where there is one."""
    with pytest.raises(ConfigError, match=said):
        convert(bad)


def observation(kind: type[Observation] = Observation) -> Observation:
    """One with an image, of a class of ours."""
    out = io.BytesIO()
    Image.new("RGB", (4, 3), (200, 10, 20)).save(out, "PNG")
    frame = wire.FrameInfo("h", wire.ImageFormat.PNG, 4, 3, (8, 6))
    answer = wire.StepAnswer(wire.Observation(frame), 3, ({"op": "click", "x": 1},), None, {"host": 1.0})
    obs = kind.__new__(kind)
    Observation.__init__(obs, answer, out.getvalue(), Timing(1, 1, 0, 0, 0, 0, 0, 0, 0))
    obs.refused = "why"
    return obs


def look(obs: Observation) -> tuple[Any, ...]:
    """What another process sees of it."""
    return type(obs).__name__, obs.image.getpixel((0, 0)), obs.step, obs.actions, obs.refused, obs.size


@pytest.mark.parametrize("kind", [Observation, AsyncObservation, SyncObservation])
async def test_observations_can_be_copied_and_pickled(kind: type[Observation]) -> None:
    """With image and meta, also after the image was decoded; a copy belongs to no episode."""
    obs = observation(kind)
    obs.image.load()
    obs.episode = object()  # type: ignore[attr-defined] # what cannot be pickled
    copies = [pickle.loads(pickle.dumps(obs, n)) for n in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    for made in (*copies, copy.copy(obs), copy.deepcopy(obs)):
        assert look(made) == look(obs) and made.answer == obs.answer and made.timing == obs.timing
        if kind is AsyncObservation:
            with pytest.raises(ValueError, match="not belong to an open episode"):
                await made.final()
        if kind is SyncObservation:
            with pytest.raises(ValueError, match="not belong to an open episode"):
                made.final()


def test_observations_go_to_other_processes() -> None:
    """Started anew, as multiprocessing and Ray do it."""
    obs = [observation(kind) for kind in (Observation, AsyncObservation, SyncObservation)]
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(look, obs)) == [look(o) for o in obs]
