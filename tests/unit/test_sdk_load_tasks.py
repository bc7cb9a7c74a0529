"""Task files in the SDK: the shipped ones are complete without the host's package; no other file is read."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support import ROOT

from osgym_host.tasks.shipped import load_shipped
from osgym_protocol.task_files import MAX_INLINED_BYTES, task_digest
from osgym_sdk import ConfigError, certified_digests, load_tasks
from osgym_sdk._inputs.options import as_task


def upload(local_path: Any) -> dict[str, Any]:
    """A task that uploads one file."""
    files = [{"path": "/home/user/a", "local_path": local_path}]
    return {"id": "t", "config": [{"type": "upload_file", "parameters": {"files": files}}]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """``tasks/app`` with a file of each kind beside it."""
    app = tmp_path / "tasks" / "app"
    for name in ("app/own.bin", "app/files/a.bin", "other/files/b.bin", "other/private.bin"):
        path = tmp_path / "tasks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    (tmp_path / "secret").write_bytes(b"secret")
    return app


def loaded(folder: Path, local_path: Any) -> dict[str, Any]:
    """The one file of a task that names it so."""
    (folder / "t.json").write_text(json.dumps(upload(local_path)))
    (task,) = load_tasks(folder / "t.json")
    file: dict[str, Any] = task["config"][0]["parameters"]["files"][0]
    return file


def test_all_shipped_tasks_are_as_the_host_loads_them() -> None:
    """None names a file any more, and no oracle is taken for a task."""
    tasks = load_tasks(ROOT / "tasks")
    assert sorted(tasks, key=lambda task: str(task["id"])) == sorted(
        (shipped.task for shipped in load_shipped()), key=lambda task: str(task["id"])
    )
    assert "local_path" not in json.dumps(tasks)
    assert load_tasks(str(ROOT / "tasks" / "*" / "*.json")) == tasks


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("own.bin", b"app/own.bin"),
        ("files/a.bin", b"app/files/a.bin"),
        ("app/files/a.bin", b"app/files/a.bin"),
        ("other/files/b.bin", b"other/files/b.bin"),
    ],
)
def test_files_beside_a_task_are_put_into_it(folder: Path, name: str, content: bytes) -> None:
    file = loaded(folder, name)
    assert (base64.b64decode(file["data_base64"]), set(file)) == (content, {"path", "data_base64"})


OTHERS = ["", "/etc/hostname", "../../secret", "other/files/../../../secret", "other/private.bin"]
OTHERS += ["no", "out", "a\0b", "files"]


@pytest.mark.parametrize("name", OTHERS)
def test_no_other_file_of_this_machine_is_read(folder: Path, name: str) -> None:
    """The message has the task's file and the field."""
    (folder / "out").symlink_to(folder.parent.parent / "secret")
    field = "config[0].parameters.files[0].local_path"
    with pytest.raises(ConfigError, match=re.escape(f"t.json: {field}: ")) as caught:
        loaded(folder, name)
    assert caught.value.details == {"field": field}


def test_what_is_too_large_for_a_request_is_refused(folder: Path) -> None:
    with (folder / "large").open("wb") as file:
        file.truncate(MAX_INLINED_BYTES + 1)
    with pytest.raises(ConfigError, match="together"):
        loaded(folder, "large")


def test_lists_and_what_is_no_task(folder: Path) -> None:
    """A list's tasks are beside its file; what has another form is the host's to refuse."""
    (folder / "list.json").write_text(json.dumps([upload("own.bin"), {"config": 5, "evaluator": []}]))
    first, second = load_tasks(folder / "list.json")
    assert "data_base64" in first["config"][0]["parameters"]["files"][0] and second["config"] == 5
    (folder / "list.json").write_text("[[]]")
    with pytest.raises(ConfigError, match=r"list\.json: \[0\] is not a JSON object"):
        load_tasks(folder / "list.json")
    with pytest.raises(ConfigError, match="not int"):
        load_tasks(5)  # type: ignore[arg-type]  # the mistake itself


def test_an_episode_of_a_path_takes_its_files_along(folder: Path) -> None:
    """Those that are not here are left: the host may have them."""
    for name, key in (("own.bin", "data_base64"), ("on-the-host.bin", "local_path")):
        (folder / "t.json").write_text(json.dumps(upload(name)))
        task = as_task(folder / "t.json")
        assert task is not None and key in task["config"][0]["parameters"]["files"][0]


def test_only_certified_tasks_are_loaded(tmp_path: Path) -> None:
    """By their content: a task that was changed since has no certificate; the newest one counts."""
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"id": name, "instruction": name}))
    digests = [task_digest(task) for task in load_tasks(tmp_path)]
    record = tmp_path / "certificates.jsonl"

    def line(digest: str, verdict: str, image: str = "1f") -> str:
        return json.dumps({"digest": digest, "image": image, "verdict": verdict}) + "\n"

    record.write_text(
        line(digests[0], "certified") + line(digests[1], "certified") + line(digests[1], "faulty") + '{"torn'
    )
    assert [task["id"] for task in load_tasks(tmp_path, certified=record)] == ["a"]
    assert certified_digests(record, image="2") == frozenset()
    (tmp_path / "a.json").write_text(json.dumps({"id": "a", "instruction": "other"}))
    with pytest.raises(ConfigError, match="certifies no task"):
        load_tasks(tmp_path, certified=record)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_tasks(tmp_path, certified=tmp_path / "none.jsonl")
