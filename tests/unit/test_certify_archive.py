"""Other contents of archives: members wrong as the name says, or the same files in another archive."""

from __future__ import annotations

import gzip
import io
import random
import tarfile
import warnings
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_certify.ends import archive, archive_files
from osgym_certify.ends.archive_files import Form
from osgym_certify.ends.base import GoldenFile, Must

FILES = {"work/a.txt": b"one\n", "work/b.txt": b"two, longer\n", "work/deep/c.bin": bytes(range(99))}
FORMS = ["zip", "tar", "tar.gz"]


def zip_of(files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip file."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as file:
        for name, data in files.items():
            file.writestr(zipfile.ZipInfo(name, (2026, 1, 2, 3, 4, 6)), data, compression)
    return out.getvalue()


def tar_of(files: dict[str, bytes], link: str = "", size: int | None = None) -> bytes:
    """A tar file, with a link if one is named, and a last member without content if its size is given."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as file:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
        if link:
            info = tarfile.TarInfo("link")
            info.type, info.linkname = tarfile.SYMTYPE, link
            file.addfile(info)
        if size is not None:
            info = tarfile.TarInfo("last")
            info.size = size
            file.fileobj.write(info.tobuf(tarfile.GNU_FORMAT))
    return out.getvalue()


def pack(form: str, files: dict[str, bytes]) -> bytes:
    """An archive of one of the forms."""
    if form == "zip":
        return zip_of(files)
    return gzip.compress(tar_of(files), mtime=0) if form == "tar.gz" else tar_of(files)


def unpack(data: bytes) -> dict[str, bytes]:
    """Files in an archive, by the standard library; paths as they come out of the folder of unpacking."""
    if zipfile.is_zipfile(io.BytesIO(data)) or data == zip_of({}):
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            assert file.testzip() is None
            return {name: file.read(name) for name in file.namelist() if not name.endswith("/")}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        found = {one.name.removeprefix("./"): tar.extractfile(one) for one in tar if one.isfile()}
        return {name: stream.read() for name, stream in found.items() if stream is not None}


def mutants(golden: GoldenFile, seed: int = 1) -> dict[str, list[dict[str, bytes]]]:
    """Files of mutated archives by name."""
    made: dict[str, list[dict[str, bytes]]] = {}
    for one in archive.mutations(golden, random.Random(seed)):
        assert one.must is Must.EARN_NOTHING
        made.setdefault(one.name, []).append(unpack(one.data))
    return made


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_mutations_change_members_as_their_names_say(form: str, seed: int) -> None:
    """One member is removed, added, renamed, emptied, changed or moved, or all of them are."""
    made = mutants(GoldenFile("/a", pack(form, FILES)), seed)
    assert all(len(found) == 1 for found in made.values())
    one = {name: found[0] for name, found in made.items()}
    items = set(FILES.items())
    assert len(one["one member removed"]) == 2 and set(one["one member removed"].items()) < items
    [(name, data)] = set(one["one member added"].items()) - items
    assert name in ("work/another.txt", "work/deep/another.txt") and data == b"another file\n"
    assert len(one["one member added"]) == 4
    assert sorted(one["one member renamed"].values()) == sorted(FILES.values())
    assert len(one["one member renamed"].keys() & FILES.keys()) == 2
    assert items < set(one["one member copied under another name"].items())
    for name in ("one member emptied", "one member changed", "contents of two members exchanged"):
        assert one[name].keys() == FILES.keys()
    changed = [name for name, data in one["one member emptied"].items() if data != FILES[name]]
    assert len(changed) == 1 and one["one member emptied"][changed[0]] == b""
    [(name, data)] = set(one["one member changed"].items()) - items
    assert len(data) == len(FILES[name]) and sum(a != b for a, b in zip(data, FILES[name], strict=True)) == 1
    assert sorted(one["contents of two members exchanged"].values()) == sorted(FILES.values())
    [(name, _)] = set(one["one member moved to another folder"].items()) - items
    assert "/another/" in name
    assert one["all members moved to another folder"] == {
        f"another/{name}": data for name, data in FILES.items()
    }
    assert one["all members stored under absolute paths"] == {
        f"/tmp/{name}": data for name, data in FILES.items()
    }
    assert one["folders of members lost"] == {name.rpartition("/")[2]: data for name, data in FILES.items()}
    assert one["all members removed"] == {}
    assert one["saved as another type of archive"] == FILES


@pytest.mark.parametrize("form", FORMS)
def test_another_type_of_archive_has_the_name_of_the_first(form: str) -> None:
    """The bytes are those of another type."""
    golden = GoldenFile("/a", pack(form, FILES))
    [data] = [one.data for one in archive.mutations(golden, random.Random(1)) if "another type" in one.name]
    found, right = archive_files.read(data), archive_files.read(golden.data)
    assert found and right and found.form is not right.form
    assert (found.form is Form.ZIP) is (right.form is not Form.ZIP)


def test_each_changed_member_is_put_back_alone() -> None:
    """A changed, a new and a lost member."""
    before = {"a": b"1", "b": b"2", "gone": b"3"}
    golden = {"a": b"9", "b": b"2", "new": b"4"}
    made = mutants(GoldenFile("/a", zip_of(golden), zip_of(before)))["one changed member put back"]
    wanted = [{**golden, "a": b"1"}, {**golden, "gone": b"3"}, {"a": b"9", "b": b"2"}]
    assert sorted(made, key=str) == sorted(wanted, key=str)


@pytest.mark.parametrize("form", FORMS)
def test_equivalents_unpack_to_the_same_files(form: str) -> None:
    """Times, order, entries of folders, compression and the names that ``tar`` writes for a folder."""
    golden = GoldenFile("/a", pack(form, FILES))
    made = {one.name: one.data for one in archive.equivalents(golden, random.Random(1))}
    assert {name: unpack(data) for name, data in made.items()} == dict.fromkeys(made, FILES)
    assert {"other times of members", "order of members reversed", "entries of folders added"} <= made.keys()
    assert ("names begun with ./" in made) is (form != "zip")
    assert ("stored without compression" in made) is (form != "tar")
    again = archive.equivalents(GoldenFile("/a", made["entries of folders added"]), random.Random(1))
    [data] = [one.data for one in again if one.name == "entries of folders left out"]
    assert unpack(data) == FILES


def test_links_stay() -> None:
    """A link has the same target in every variant, and members keep their order."""
    golden = GoldenFile("/a", tar_of(FILES, link="work/a.txt"))
    made = [*archive.mutations(golden, random.Random(1)), *archive.equivalents(golden, random.Random(1))]
    assert not {"saved as another type of archive", "order of members reversed"} & {one.name for one in made}
    for one in made:
        with tarfile.open(fileobj=io.BytesIO(one.data)) as file:
            assert [info.linkname for info in file if info.issym()] == ["work/a.txt"] * (
                one.name != "all members removed" and one.name != "folders of members lost"
            )


def test_names_that_mutations_give_are_not_given_twice() -> None:
    """An archive that already has a member of such a name gets no second one."""
    files = {"another.txt": b"1", "copy-of-another.txt": b"2", "another-another.txt": b"3"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "one member added" not in mutants(GoldenFile("/a", zip_of(files)))


HOSTILE = [
    b"",
    b"text",
    b"PK",
    b"\x1f\x8b",
    zip_of(FILES)[:-30],
    gzip.compress(tar_of(FILES))[:-30],
    tar_of(FILES)[:1100],
    gzip.compress(bytes(65 << 20)),
    zip_of({"bomb": bytes(65 << 20)}),
    zip_of({str(number): b"" for number in range(2001)}),
    zip_of(FILES, zipfile.ZIP_LZMA),
    tar_of(FILES, size=1 << 40),
    tar_of({"a": b"1", "a/": b""}),
    tar_of({"n" * 1001: b"1"}),
]


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_archives_yield_nothing(data: bytes) -> None:
    """Archives that are cut off, too large, ambiguous, or compressed in a way without a bound of memory."""
    for variants in (archive.mutations, archive.equivalents):
        assert list(variants(GoldenFile("/a", data), random.Random(1))) == []


@given(
    st.sampled_from(FORMS),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=4),
    st.booleans(),
)
def test_damaged_archives_never_raise(form: str, damage: list[tuple[int, int]], inside: bool) -> None:
    """An archive with wrong bytes, before compression or after, yields archives or nothing."""
    data = bytearray(tar_of(FILES) if inside else pack(form, FILES))
    for place, byte in damage:
        data[place % len(data)] = byte
    golden = GoldenFile("/a", gzip.compress(bytes(data)) if inside else bytes(data))
    for variants in (archive.mutations, archive.equivalents):
        made = list(variants(golden, random.Random(1)))
        assert made == list(variants(golden, random.Random(1)))
        assert all(one.data != golden.data for one in made)
