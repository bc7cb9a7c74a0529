"""OSWorld's endpoints for files, with real files; no desktop needed."""

# ruff: noqa: ASYNC240 -- small files in the only task of a test block nobody

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.agent_endpoints import Call, served_endpoints


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
async def call(tmp_path: Path, home: Path) -> AsyncIterator[Call]:
    async with served_endpoints(tmp_path, home) as call:
        yield call


async def test_a_file_uploaded_comes_back_the_same(call: Call, home: Path) -> None:
    """Every byte of a multipart upload is written, folders are made, and `/file` gives it back."""
    content = bytes(range(256)) * 9000 + b"\r\n--not the boundary\r\n"
    boundary = "xyz"
    body = (
        (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file_path"\r\n\r\n'
            "~/new folder/$WHERE.bin\r\n"
            f'--{boundary}\r\nContent-Disposition: form-data; name="file_data"; filename="a"\r\n\r\n'
        ).encode()
        + content
        + f"\r\n--{boundary}--\r\n".encode()
    )
    answer = await call("/setup/upload", body, kind=f"multipart/form-data; boundary={boundary}")
    assert (answer.status, answer.body) == (200, f"File Uploaded: {len(content)} bytes".encode())
    assert (home / "new folder/here.bin").read_bytes() == content
    got = await call("/file", form="file_path=%7E%2Fnew+folder%2F%24WHERE.bin")
    assert (got.status, got.body) == (200, content)
    assert got.headers["content-disposition"] == 'attachment; filename="here.bin"'


async def test_files_that_cannot_be_had_are_told_apart(call: Call, home: Path) -> None:
    """Missing is 404, no regular file and no name are 400, and a device or pipe blocks nobody."""
    os.mkfifo(home / "pipe")
    assert (await call("/file", form="file_path=/nope")).status == 404
    assert (await call("/file", form="file_path=/nope/")).json["error"] == "File not found"
    for odd in (home, home / "pipe", Path("/dev/zero")):
        assert (await call("/file", form=f"file_path={odd}")).status == 400
    assert (await call("/file", form="path=/etc/hostname")).status == 400
    assert (await call("/file", {"file_path": "/etc/hostname"})).status == 400
    empty = home / "empty"
    empty.touch()
    assert (await call("/file", form=f"file_path={empty}")).body == b""
    assert (await call("/file", form="file_path=/proc/self/comm")).body


async def test_an_upload_without_its_parts_is_a_400(call: Call) -> None:
    """Neither an urlencoded form nor one without a file is taken."""
    assert (await call("/setup/upload", form="file_path=/tmp/x")).status == 400
    assert (await call("/setup/upload", {"file_path": "/tmp/x"})).status == 400


async def test_a_directory_is_listed_as_a_tree(call: Call, home: Path) -> None:
    """Types, names and children as OSWorld's server gives them; a loop of links ends."""
    (home / "Desktop/a.txt").touch()
    (home / "Desktop/loop").symlink_to(home)
    answer = await call("/list_directory", {"path": str(home)})
    assert answer.json["directory_tree"] == {
        "type": "directory",
        "name": "home",
        "children": [
            {
                "type": "directory",
                "name": "Desktop",
                "children": [
                    {"type": "file", "name": "a.txt"},
                    {"type": "directory", "name": "loop", "children": []},
                ],
            }
        ],
        "truncated": True,
    }
    assert (await call("/list_directory", {"path": "/etc/hostname"})).status == 400
    assert (await call("/list_directory", {})).json["error"] == "path is required, as a string"


@pytest.mark.skipif(shutil.which("curl") is None, reason="missing: curl")
async def test_a_file_is_downloaded_whole_or_not_at_all(call: Call, home: Path) -> None:
    """A URL becomes a file with its folders; what fails leaves no file and says why."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = 4 if b"/whole" in head else 400
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\nbody" % length)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        done = await call("/setup/download_file", {"url": f"{base}/whole", "path": "~/new/file"})
        assert (done.status, done.body) == (200, b"File downloaded successfully: 4 bytes")
        assert (home / "new/file").read_bytes() == b"body"
        cut = await call("/setup/download_file", {"url": f"{base}/cut", "path": "~/new/cut"})
    assert cut.status == 500
    assert not (home / "new/cut").exists()
    assert (await call("/setup/download_file", {"url": "file:///etc/passwd", "path": "x"})).status == 400
    assert (await call("/setup/download_file", {"url": base})).status == 400


def upload_of(path: Path, content: bytes) -> tuple[bytes, str]:
    """The body of an upload and its content type."""
    head = f'--b\r\nContent-Disposition: form-data; name="file_path"\r\n\r\n{path}\r\n'
    head += '--b\r\nContent-Disposition: form-data; name="file_data"; filename="f"\r\n\r\n'
    return head.encode() + content + b"\r\n--b--\r\n", "multipart/form-data; boundary=b"


async def test_an_upload_waits_for_no_pipe_and_reaches_no_device(call: Call, home: Path) -> None:
    """An upload onto a pipe, a device or a folder is refused at once and leaves it unchanged."""
    os.mkfifo(home / "pipe")
    (home / "folder").mkdir()
    for name, target in (("device", "/dev/full"), ("agent", "/proc/self/comm")):
        (home / name).symlink_to(target)
    before = Path("/proc/self/comm").read_text()
    for name in ("pipe", "folder", "device", "agent"):
        body, kind = upload_of(home / name, b"x" * 100)
        answer = await asyncio.wait_for(call("/setup/upload", body, kind=kind), 10)
        assert (answer.status, answer.json["code"]) == (500, "cannot_write"), name
    assert Path("/proc/self/comm").read_text() == before
    (home / "file").write_bytes(b"old and longer")
    (home / "link").symlink_to("file")
    body, kind = upload_of(home / "link", b"new")
    assert (await call("/setup/upload", body, kind=kind)).status == 200
    assert (home / "file").read_bytes() == b"new"
