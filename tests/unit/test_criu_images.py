"""What is changed in CRIU's images, and what CRIU is told: pure parts of branch points of `local`."""

from __future__ import annotations

import contextlib
import os
import shlex
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_host.runtimes.local.criu import commands, images, layer

HEAD = struct.pack("<II", 0x54564319, 0x55474906)
FIELDS = st.lists(
    st.one_of(
        st.tuples(st.integers(1, 200), st.just(0), st.integers(0, 2**64 - 1)),
        st.tuples(st.integers(1, 200), st.just(2), st.binary(max_size=300)),
        st.tuples(st.integers(1, 200), st.just(1), st.binary(min_size=8, max_size=8)),
        st.tuples(st.integers(1, 200), st.just(5), st.binary(min_size=4, max_size=4)),
    ),
    max_size=20,
)


def write(path: Path, message: bytes) -> None:
    path.write_bytes(HEAD + struct.pack("<I", len(message)) + message)


def message_of(path: Path) -> bytes:
    data = path.read_bytes()
    assert data[:8] == HEAD
    assert struct.unpack_from("<I", data, 8)[0] == len(data) - 12
    return data[12:]


@given(FIELDS)
def test_fields_are_read_as_they_were_written(of_message: list[images.Field]) -> None:
    """Any message comes back, field by field."""
    assert list(images.fields(images.encode(of_message))) == of_message


@given(st.binary(max_size=200))
def test_what_is_no_message_is_refused_or_read(data: bytes) -> None:
    """Any bytes are a message or `ImageMalformed`, and nothing else."""
    with contextlib.suppress(images.ImageMalformed):
        assert all(number >= 0 for number, _, _ in images.fields(data))


def test_ids_are_renumbered_in_both_maps(tmp_path: Path) -> None:
    """Where the range of the host began, the image's begins; length and first id inside stay."""

    def extent(lower: int) -> bytes:
        return images.encode([(1, 0, 0), (2, 0, lower), (3, 0, 65536)])

    write(tmp_path / "userns-13.img", images.encode([(1, 2, extent(700_000)), (2, 2, extent(700_000))]))
    images.renumber_ids(tmp_path, 100_000)
    expected = images.encode([(1, 2, extent(100_000)), (2, 2, extent(100_000))])
    assert message_of(tmp_path / "userns-13.img") == expected


@pytest.mark.parametrize("maps", [1, 3])
def test_another_shape_of_the_map_is_refused(tmp_path: Path, maps: int) -> None:
    """Ids in several ranges, or of users only, are nothing that a replica has."""
    write(tmp_path / "userns-13.img", images.encode([(1, 2, b"")] * maps))
    with pytest.raises(images.ImageMalformed):
        images.renumber_ids(tmp_path, 100_000)


def test_the_filter_is_taken_out_of_task_and_thread_and_nothing_else(tmp_path: Path) -> None:
    """Mode and filter go; registers, names and what has their numbers elsewhere stay."""
    inner: list[images.Field] = [(1, 0, 7), (6, 2, b"name"), (13, 2, b"thread")]
    filtered = images.encode([*inner, (11, 0, 2), (12, 0, 0)])
    registers = images.encode([(11, 0, 5), (12, 0, 6)])
    write(tmp_path / "core-1.img", images.encode([(2, 2, registers), (3, 2, filtered), (5, 2, filtered)]))
    images.drop_inherited(tmp_path)
    kept = images.encode(inner)
    expected = images.encode([(2, 2, registers), (3, 2, kept), (5, 2, kept)])
    assert message_of(tmp_path / "core-1.img") == expected


@pytest.mark.parametrize("data", [b"", HEAD, HEAD + struct.pack("<I", 9) + b"short"])
def test_a_file_that_is_cut_short_is_refused(tmp_path: Path, data: bytes) -> None:
    """A dump that broke off is no image."""
    (tmp_path / "core-1.img").write_bytes(data)
    with pytest.raises(images.ImageMalformed):
        images.drop_inherited(tmp_path)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("Version: 4.2.1\nGitID: v4.2.1\n", (4, 2)),
        ("Version: 3.17.1\n", (3, 17)),
        ("Version: 4.2\n", (4, 2)),
        ("criu: not found", None),
        ("", None),
    ],
)
def test_the_version_is_read(said: str, version: tuple[int, int] | None) -> None:
    """Major and minor number of what `criu --version` prints, None of what is no version."""
    assert commands.parse_version(said) == version


def test_old_ones_are_too_old() -> None:
    """4.2 is the first that will do."""
    assert [commands.older_than_needed(v) for v in ((3, 17), (4, 1), (4, 2), (5, 0))] == [
        True,
        True,
        False,
        False,
    ]


def test_the_errors_of_a_log_are_found() -> None:
    """They stand behind the time; one that means nothing is left out."""
    log = "(00.1) Warn  (x.c:1): w\n(00.2) Error (mount.c:12): no\n(00.3) Error (cr-dump.c:1): failed\n"
    log += "(00.4) Error (util.c:1): rlimit: Can't setup RLIMIT_NOFILE for self: x\n"
    assert commands.error_in(log) == "(mount.c:12): no; (cr-dump.c:1): failed"
    assert commands.error_in("(00.1) fine\n") == ""


def test_the_copy_of_the_layer_survives_any_folder() -> None:
    """A folder's name is no part of the shell's language."""
    outside = commands.Outside(commands.console_name(26, 255), 5)
    script = commands.copy_script("/a b/$(x)", "/c'd")
    words = shlex.split(script.splitlines()[-1])
    assert words == ["exec", "cp", "-a", "--reflink=auto", "/a b/$(x)", "/c'd"]
    argv = commands.dump_argv("criu", 7, "/i", outside, "/s")
    assert argv[argv.index("--action-script") + 1] == "/s"
    assert argv[argv.index("--external") + 1] == "file[1a:ff]"


def test_a_layer_is_told_from_another(tmp_path: Path) -> None:
    """Its digest changes with a file that is added, written, replaced by a copy, or given away."""
    (tmp_path / "folder").mkdir()
    file = tmp_path / "folder" / "file"
    file.write_text("one")
    seen = [layer.digest_of(tmp_path)]
    assert layer.digest_of(tmp_path) == seen[0]
    file.write_text("another")
    seen.append(layer.digest_of(tmp_path))
    (tmp_path / "link").symlink_to("nowhere")
    seen.append(layer.digest_of(tmp_path))
    copy = tmp_path / "copy"
    copy.write_text("another")
    os.utime(copy, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    copy.rename(file)
    seen.append(layer.digest_of(tmp_path))
    assert len(set(seen)) == 4


def test_the_pause_is_what_criu_measured(tmp_path: Path) -> None:
    """The time to stop the processes, and the time that they stood, in microseconds there."""
    of_dump = images.encode([(1, 0, 1500), (2, 0, 98000), (3, 0, 40000)])
    write(tmp_path / "stats-dump", images.encode([(1, 2, of_dump)]))
    assert images.pause_ms(tmp_path) == 99.5
    write(tmp_path / "stats-dump", images.encode([(1, 0, 7)]))
    with pytest.raises(images.ImageMalformed):
        images.pause_ms(tmp_path)


@given(FIELDS)
def test_open_files_in_proc_of_threads_become_those_of_first_threads(
    tmp_path_factory: pytest.TempPathFactory, others: list[images.Field]
) -> None:
    """Threads do not exist yet when CRIU opens files; nothing else of the list of files is changed."""
    folder = tmp_path_factory.mktemp("files")
    others = [field for field in others if field[0] != 3]
    names = {
        b"proc/127/task/139/schedstat": b"proc/127/task/127/schedstat",
        b"proc/127/task/139/syscall": b"proc/127/task/127/syscall",
        b"proc/127/task/139/comm": b"proc/127/task/139/comm",
        b"home/proc/1/task/2/syscall": b"home/proc/1/task/2/syscall",
    }

    def entries(of_names: list[bytes]) -> bytes:
        messages = [images.encode([*others, (3, 2, images.encode([(1, 0, 7), (6, 2, n)]))]) for n in of_names]
        return HEAD + b"".join(struct.pack("<I", len(m)) + m for m in messages)

    path = folder / "files.img"
    path.write_bytes(entries(list(names)))
    images.follow_first_threads(folder)
    assert path.read_bytes() == entries(list(names.values()))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(images.ImageMalformed):
        images.follow_first_threads(folder)
