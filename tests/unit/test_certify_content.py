"""The kind of a file, and all other contents of it."""

from __future__ import annotations

import io
import json
import random
import zipfile

import docx
import openpyxl
import pptx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from osgym_certify.ends.base import MAX_FILE_BYTES, Content, GoldenFile, Must
from osgym_certify.ends.content import KINDS, MAX_DIVIDED_BYTES, contents, kind_of


def zipped(name: str) -> bytes:
    """A zip file with one member."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr(zipfile.ZipInfo(name), "content")
    return out.getvalue()


def drawn() -> bytes:
    """A small picture."""
    out = io.BytesIO()
    Image.linear_gradient("L").resize((8, 6)).save(out, "PNG")
    return out.getvalue()


def workbook() -> bytes:
    """A workbook with a small table."""
    made, out = openpyxl.Workbook(), io.BytesIO()
    assert made.active is not None
    for row in (["name", "sum"], ["Ada", 3], ["Bob", 4]):
        made.active.append(row)
    made.save(out)
    return out.getvalue()


def document() -> bytes:
    """A document of two paragraphs."""
    made, out = docx.Document(), io.BytesIO()
    made.add_paragraph("The first paragraph.")
    made.add_paragraph("The second one.")
    made.save(out)
    return out.getvalue()


def slides() -> bytes:
    """A presentation of one slide."""
    made, out = pptx.Presentation(), io.BytesIO()
    made.slides.add_slide(made.slide_layouts[0]).shapes.title.text = "A title"
    made.save(out)
    return out.getvalue()


HOME = "/home/user"
FILES = [
    (f"{HOME}/a.zip", zipped("a.txt"), "archive"),
    (f"{HOME}/a.odt", zipped("content.xml"), "document"),
    (f"{HOME}/a.xlsx", workbook(), "workbook"),
    (f"{HOME}/a.docx", document(), "document"),
    (f"{HOME}/a.pptx", slides(), "slides"),
    (f"{HOME}/a.png", drawn(), "picture"),
    (f"{HOME}/a.txt", drawn(), "picture"),
    (f"{HOME}/a.json", b"[1, 2]", "JSON"),
    (
        f"{HOME}/.config/chromium/Default/Bookmarks",
        b'{"roots": {"bar": {"children": [{"name": "a"}]}}}',
        "JSON",
    ),
    (f"{HOME}/list.txt", b"[1, 2]", "text"),
    (f"{HOME}/a.json", b"[1, 2", "text"),
    (f"{HOME}/Desktop/a.desktop", b"[Desktop Entry]\nName=A\n", "settings"),
    (f"{HOME}/.config/vlc/vlcrc", b"# comment\n[core]\nvolume=3\n", "settings"),
    (f"{HOME}/note.txt", b"[core]\nvolume=3\n", "text"),
    (f"{HOME}/a.csv", b"a,b\n1,2\n", "table"),
    (f"{HOME}/a.txt", b"a,b\n1,2\n", "text"),
    (f"{HOME}/a.txt", b"", "text"),
    (f"{HOME}/a.png", drawn()[:-30], "file"),
    (f"{HOME}/a.bin", b"\xff\0\xfe", "file"),
]


def made(golden: GoldenFile, seed: int = 1) -> dict[str, Content]:
    """The first content of each name."""
    found: dict[str, Content] = {}
    for one in contents(golden, random.Random(seed)):
        found.setdefault(one.name, one)
    return found


@pytest.mark.parametrize(("path", "data", "name"), FILES, ids=range(len(FILES)))
def test_kinds_go_by_bytes_and_ending(path: str, data: bytes, name: str) -> None:
    """Each file is of one kind, whose contents begin with its name."""
    golden = GoldenFile(path, data)
    assert kind_of(golden).name == name
    assert {one.partition(": ")[0] for one in made(golden)} <= {"file", name}
    assert KINDS[-1].recognises(golden)


@pytest.mark.parametrize("place", range(len(FILES)))
def test_kinds_have_wrong_and_right_contents(place: int) -> None:
    """Every kind has both; unknown files and a damaged document, which cannot be read, have no right ones."""
    path, data, name = FILES[place]
    found = contents(GoldenFile(path, data), random.Random(1))
    own = {one.must for one in found if one.name.startswith(f"{name}: ")}
    if name == "file" or path.endswith(".odt"):
        assert Must.EARN_ALL not in own
    elif data:
        assert own == {Must.EARN_NOTHING, Must.EARN_ALL}


def test_contents_of_any_file() -> None:
    """A file is emptied, cut off, doubled, replaced, and changed in one byte."""
    data = b"\xff\xfe" + bytes(range(1, 90))
    found = made(GoldenFile(f"{HOME}/a.bin", data))
    assert all(one.must is Must.EARN_NOTHING for one in found.values())
    assert found["file: emptied"].data == b""
    assert found["file: cut off in the middle"].data == data[:45]
    assert found["file: doubled"].data == data * 2
    other = found["file: replaced by other bytes of the same size"].data
    assert len(other) == len(data) and other != data
    changed = found["file: one byte changed"].data
    assert len(changed) == len(data) and sum(a != b for a, b in zip(changed, data, strict=True)) == 1


@pytest.mark.parametrize(("path", "data", "name"), FILES, ids=range(len(FILES)))
def test_contents_are_distinct_and_repeat(path: str, data: bytes, name: str) -> None:
    """Nothing is tried twice, nor the golden content or the one before, and one seed gives one list."""
    golden = GoldenFile(path, data, b"before")
    found = contents(golden, random.Random(3))
    assert found == contents(golden, random.Random(3))
    datas = [one.data for one in found]
    assert len(set(datas)) == len(datas) and data not in datas and b"before" not in datas


def test_readers_that_stop_at_the_end_of_a_file_see_no_doubled_one() -> None:
    """Pictures and archives are not doubled, and their idle bytes are not changed."""
    for path, data, _ in (FILES[0], FILES[2]):
        assert not {"file: doubled", "file: one byte changed"} & made(GoldenFile(path, data)).keys()


def test_moved_and_copied_files_have_no_right_content_but_their_own() -> None:
    """The last newline of a file that was only moved is its own."""
    golden = GoldenFile(f"{HOME}/a.txt", b"a\nb\n")
    assert any(one.must is Must.EARN_ALL for one in contents(golden, random.Random(1)))
    for moved, sources in ((golden, [b"a\nb\n"]), (GoldenFile(golden.path, golden.data, golden.data), [])):
        found = contents(moved, random.Random(1), sources)
        assert found and all(one.must is Must.EARN_NOTHING for one in found)


def test_large_files_are_changed_as_a_whole_only() -> None:
    """No content is larger than a desktop takes."""
    golden = GoldenFile(f"{HOME}/a.txt", b"word\n" * (MAX_DIVIDED_BYTES // 5 + 1))
    found = made(golden)
    assert found.keys() == {
        "file: emptied",
        "file: cut off in the middle",
        "file: replaced by other bytes of the same size",
        "file: doubled",
        "file: one byte changed",
    }
    assert all(len(one.data) <= MAX_FILE_BYTES for one in found.values())


def test_number_of_contents() -> None:
    """A usual file gets enough of them, and not too many."""
    note = "".join(f"{number} lines of a Note\n" for number in range(30)).encode()
    bookmarks = json.dumps(
        {"roots": {"bar": {"children": [{"name": "a"}, {"name": "b"}]}, "other": []}}
    ).encode()
    for path, data in ((f"{HOME}/a.txt", note), (f"{HOME}/a.json", bookmarks), FILES[0][:2], FILES[2][:2]):
        assert 10 <= len(contents(GoldenFile(path, data), random.Random(1))) <= 36


@given(
    st.sampled_from(FILES),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=4),
    st.none() | st.binary(max_size=20),
)
def test_damaged_files_never_raise(
    file: tuple[str, bytes, str], damage: list[tuple[int, int]], before: bytes | None
) -> None:
    """Whatever lies in a desktop has a kind."""
    data = bytearray(file[1])
    for place, byte in damage:
        if data:
            data[place % len(data)] = byte
    golden = GoldenFile(file[0], bytes(data), before)
    assert all(one.data != golden.data for one in contents(golden, random.Random(1)))
