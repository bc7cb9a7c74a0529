"""Hostile sets for `osgym task import`: links, paths, sizes, nesting, names, and any value in any place."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support import foreign_sets
from tests.support.foreign_sets import SETS, report, run, tasks, write

from osgym_cli.task.imports.source import MAX_FILES, SourceError, SourceFolder, parse_object
from osgym_cli.task.imports.writing import file_name


def test_links_and_paths_lead_nowhere(tmp_path: Path) -> None:
    """A link out of the folder, a link to a folder, a loop, a pipe: refused by name."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key.txt").write_text("key")
    for number, make in enumerate(
        (
            lambda path: path.symlink_to(secret / "key.txt"),
            lambda path: path.symlink_to(secret),
            lambda path: path.symlink_to(path),
            os.mkfifo,
            lambda path: path.symlink_to("/dev/zero"),
        )
    ):
        source = foreign_sets.cua_gym(tmp_path / f"set{number}")
        make(source / "count_apples/gt/evil.txt")
        (row,) = report("cua-gym", source, tmp_path / "out")["tasks"]
        assert row["outcome"] == "refused" and "evil.txt" in row["reason"], row
    assert tasks(tmp_path / "out") == []


def test_large_and_deep_files_are_refused(tmp_path: Path) -> None:
    """A file of gigabytes, deep objects, many files, and more than a request carries."""
    large = foreign_sets.cua_gym(tmp_path / "a")
    with (large / "count_apples/exec/huge.bin").open("wb") as file:
        file.truncate(1 << 34)
    deep = foreign_sets.cua_gym(tmp_path / "b")
    (deep / "count_apples/meta.json").write_text('{"id": ' + "[" * 100 + "]" * 100 + "}")
    deeper = foreign_sets.cua_gym(tmp_path / "c")
    (deeper / "count_apples/meta.json").write_text('{"a":' * 200_000)
    many = foreign_sets.cua_gym(tmp_path / "d")
    for number in range(MAX_FILES + 1):
        (many / f"count_apples/gt/{number}").touch()
    wide = foreign_sets.cua_gym(tmp_path / "e")
    for part in ("exec", "gt"):
        (wide / f"count_apples/{part}/half.bin").write_bytes(bytes(8 << 20))
    for source, words in (
        (large, "larger than"),
        (deep, "levels deep"),
        (deeper, "not JSON"),
        (many, f"more than {MAX_FILES} files"),
        (wide, "a task carries at most"),
    ):
        (row,) = report("cua-gym", source, tmp_path / "out")["tasks"]
        assert row["outcome"] == "refused" and words in row["reason"], row


def test_names_do_not_leave_the_output_folder(tmp_path: Path) -> None:
    """An id that is a path becomes a file's name; control characters do not reach the terminal."""
    source = foreign_sets.cua_gym(tmp_path / "set")
    write(
        source, {"half/meta.json": {"id": "\ud800"}, "half/check.sh": "", "half/instruction.md": "\x1b[31m"}
    )
    assert run("cua-gym", source, tmp_path / "half").exit_code == 1
    shutil.rmtree(source / "half")
    write(source, {"count_apples/meta.json": {"id": "../../../\x1b[31mevil"}})
    result = run("cua-gym", source, tmp_path / "out")
    assert result.exit_code == 0 and "\x1b[31m" not in result.output
    (path,) = (tmp_path / "out").rglob("*.json")
    assert path.parent == tmp_path / "out" / "cua-gym" and path.name.isascii()
    assert not list(tmp_path.rglob("evil"))


@given(st.text(min_size=1))
def test_any_id_has_a_name(text: str) -> None:
    """Never a path, never hidden, never empty; two ids never share one."""
    name = file_name(text)
    assert name and "/" not in name and not name.startswith(".") and name.isascii() and len(name) < 100
    assert file_name(text + "x") != name


def test_two_originals_of_one_id_and_files_of_others(tmp_path: Path) -> None:
    """The second of an id is refused; a task file of the user is not overwritten; a new edition is."""
    source, out = foreign_sets.cua_gym(tmp_path / "set"), tmp_path / "out"
    foreign_sets.cua_gym(source / "again")
    found = report("cua-gym", source, out)["tasks"]
    assert [row["outcome"] for row in found] == ["converted", "refused"]
    assert "is that of again/count_apples" in found[1]["reason"]
    (path,) = out.rglob("*.json")
    before = json.loads(path.read_bytes())["imported"]["digest"]
    for one in ("count_apples", "again/count_apples"):
        (source / one / "instruction.md").write_text("Another instruction.")
    assert "updated" in {row["change"] for row in report("cua-gym", source, out)["tasks"]}
    assert json.loads(path.read_bytes())["imported"]["digest"] != before
    path.write_text("{}")
    assert any("was not imported" in str(row["reason"]) for row in report("cua-gym", source, out)["tasks"])
    assert path.read_text() == "{}"
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    report("cua-gym", source, out)
    assert not (tmp_path / "elsewhere").exists()


def test_a_digest_is_of_names_and_contents(tmp_path: Path) -> None:
    """It changes with each, and not with the order of reading."""
    write(tmp_path, {"a": "1", "b": "2"})
    folder = SourceFolder(tmp_path)

    def digest(*names: str) -> str:
        folder.begin()
        for name in names:
            folder.text(name)
        return folder.digest()

    assert digest("a", "b") == digest("b", "a") != digest("a")
    before = digest("a")
    (tmp_path / "a").write_text("3")
    assert digest("a") != before
    for name in ("../x", "/etc/passwd", "a\0", "gone"):
        with pytest.raises(SourceError):
            folder.file(name)
    with pytest.raises(SourceError, match="not UTF-8"):
        write(tmp_path, {"c": b"\xff"})
        folder.text("c")


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | st.floats() | st.text(max_size=9) | st.just("/a/../b"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FILES = {
    "cua-gym": ("count_apples/meta.json",),
    "gym-anything": ("fruit_env/env.json", "fruit_env/tasks/count/task.json"),
    "opencomputer": ("tasks/mousepad_count/task.json",),
    "osworld": ("examples/mousepad/7f3a-osworld.json",),
}


@pytest.mark.parametrize("layout", FILES)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_value_in_any_place_is_converted_or_refused(
    layout: str, tmp_path: Path, data: st.DataObject
) -> None:
    """A set whose JSON has one value replaced ends in a report, never in an error of Python."""
    source = SETS[layout](tmp_path / "set")
    path = source / data.draw(st.sampled_from(FILES[layout]))
    content = json.loads(path.read_text())
    owner, place = data.draw(st.sampled_from(list(_places(content))))
    owner[place] = data.draw(ANY)
    path.write_text(json.dumps(content))
    result = run(layout, source, tmp_path / "out", "--json")
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert result.exit_code in {0, 1, 2}


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place of a JSON value: its container, and the key or index there."""
    if isinstance(value, dict | list):
        for place in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, place
            yield from _places(value[place])


@given(st.text(max_size=40))
def test_any_text_is_an_object_or_refused(text: str) -> None:
    """No other end."""
    with contextlib.suppress(SourceError):
        assert isinstance(parse_object(text, "x"), dict)
