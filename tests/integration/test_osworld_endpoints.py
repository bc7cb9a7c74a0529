"""OSWorld's endpoints on the agent's own server, with real processes and files; no desktop needed."""

# ruff: noqa: ASYNC240 -- reading /proc and small files in the only task of a test blocks nobody

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from osgym_guest import osworld
from osgym_guest.http import Router
from osgym_guest.osworld.process import CommandRunner
from osgym_guest.osworld.session import DesktopSession
from osgym_guest.server import Server

PNG = b"\x89PNG\r\n\x1a\n...."


class StillDesktop:
    """A desktop whose screen, size and pointer are given; the real one has tests of its own."""

    async def screenshot_png(self) -> bytes:
        return PNG

    def screen_size(self) -> tuple[int, int]:
        return 1920, 1080

    async def cursor_position(self) -> tuple[int, int]:
        return 12, 34


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Call = Callable[..., Awaitable[Answer]]


async def http(path: Path, method: str, target: str, body: bytes, content_type: str) -> Answer:
    """One request over the unix socket."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Type: {content_type}\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    head_text, _, payload = answer.partition(b"\r\n\r\n")
    lines = head_text.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return Answer(int(lines[0].split()[1]), headers, payload)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    (path / "Desktop").mkdir(parents=True)
    return path


@pytest.fixture
async def call(tmp_path: Path, home: Path) -> AsyncIterator[Call]:
    """POST (or GET) to a served agent: ``await call("/execute", {"command": …})``."""
    env = {"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "DISPLAY": ":47123", "WHERE": "here"}
    router = Router()
    context = osworld.register(router, StillDesktop(), DesktopSession(env, home))
    server = Server(router)
    path = tmp_path / "agent.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    server.listen(listener)

    async def call(
        target: str,
        body: Any = None,
        *,
        form: str | None = None,
        method: str = "POST",
        kind: str = "application/json",
    ) -> Answer:
        if form is not None:
            body, kind = form.encode(), "application/x-www-form-urlencoded"
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return await http(path, method, target, raw, kind)

    yield call
    await server.close()
    await context.close()
    for _ in range(250):  # what was launched has ended in each test; its end is yet to be noticed
        if not children():
            break
        await asyncio.sleep(0.02)


def children() -> list[str]:
    """Process ids of this process's children, zombies among them."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


async def vanished(pid: int) -> bool:
    """Wait until a process is gone (one that only waits for its new parent counts as gone)."""
    for _ in range(250):
        try:
            if " Z " in Path(f"/proc/{pid}/stat").read_text():
                return True
        except OSError:
            return True
        await asyncio.sleep(0.02)
    return False


async def test_execute_answers_with_all_that_the_command_did(call: Call) -> None:
    """Output, error and status come back with 200, whatever the status was."""
    answer = await call("/execute", {"command": "echo out; echo err >&2; exit 3", "shell": True})
    assert answer.status == 200
    assert answer.json == {"status": "success", "output": "out\n", "error": "err\n", "returncode": 3}
    assert (await call("/setup/execute", {"command": "echo out"})).json["output"] == "out\n"


async def test_execute_runs_in_the_users_session(call: Call, home: Path) -> None:
    """Home, directory and variables are the session's; input and descriptors are not the agent's."""
    script = 'pwd; echo "$HOME $WHERE"; cat; ls /proc/self/fd | wc -l; ps -o sid= -p $$; echo $$'
    lines = (await call("/execute", {"command": script, "shell": True})).json["output"].split("\n")
    assert lines[:2] == [str(home), f"{home} here"]
    assert int(lines[2]) == 4  # 0, 1, 2 and the listing's own
    assert lines[3].strip() == lines[4]


async def test_output_that_is_not_utf8_or_has_other_line_ends_is_text(call: Call) -> None:
    """Bytes that are no text are replaced, and line ends are normalised, as Python's text mode does."""
    answer = await call("/execute", {"command": ["printf", r"a\377\r\nb\rc"]})
    assert answer.json["output"] == "a\ufffd\nb\nc"


async def test_a_command_that_cannot_start_is_a_500_that_says_why(call: Call) -> None:
    """The shape of the error is the one that OSWorld's clients read."""
    answer = await call("/execute", {"command": ["no-such-program"]})
    assert answer.status == 500
    assert answer.json["status"] == "error"
    assert "no-such-program" in answer.json["message"]


async def test_a_command_out_of_time_dies_with_its_whole_group(call: Call, tmp_path: Path) -> None:
    """Children of a timed out command are gone when the answer comes."""
    script = f"sleep 300 & echo $! > {tmp_path}/pid; wait"
    answer = await call("/execute", {"command": script, "shell": True, "timeout": 0.5})
    assert answer.status == 500
    assert "timed out after 0.5 seconds" in answer.json["message"]
    pid = int((tmp_path / "pid").read_text())
    assert await vanished(pid)


async def test_a_background_child_neither_delays_nor_is_harmed(call: Call, tmp_path: Path) -> None:
    """A command that leaves a program behind answers at once; the program can go on writing."""
    script = f"(sleep 2; echo late && echo fine > {tmp_path}/late) & echo $! > {tmp_path}/pid; echo now"
    begin = time.monotonic()
    answer = await call("/execute", {"command": script, "shell": True})
    assert answer.json["output"] == "now\n"
    assert time.monotonic() - begin < 2.0
    for _ in range(200):
        if (tmp_path / "late").exists():
            return
        await asyncio.sleep(0.05)
    pytest.fail("the background program was ended by its closed output")


async def test_endless_output_is_bounded_and_marked(call: Call) -> None:
    """A command that prints more than the bound ends normally; the rest is thrown away."""
    answer = await call("/execute", {"command": "head -c 20000000 /dev/zero | tr '\\0' x", "shell": True})
    assert answer.json["returncode"] == 0
    assert answer.json["truncated"] is True
    assert len(answer.json["output"]) == 4 * 1024 * 1024


async def test_commands_are_reaped(call: Call) -> None:
    """Neither finished nor launched commands stay as zombies of the agent."""
    await call("/setup/launch", {"command": ["true"]})
    await call("/execute", {"command": ["true"]})
    for _ in range(100):
        states = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in children()]
        if "Z" not in states:
            return
        await asyncio.sleep(0.02)
    pytest.fail("a zombie is left")


async def test_many_commands_at_once_are_all_served(call: Call) -> None:
    """More commands than run at a time wait for their turn."""
    answers = await asyncio.gather(*(call("/execute", {"command": f"echo {n}"}) for n in range(30)))
    assert [answer.json["output"] for answer in answers] == [f"{n}\n" for n in range(30)]


async def test_launch_does_not_wait_and_detaches(call: Call, tmp_path: Path) -> None:
    """A launched program runs on in a session of its own, without input."""
    script = f"ps -o sid= -p $$ > {tmp_path}/sid; echo $$ > {tmp_path}/pid; cat; exec sleep 60"
    begin = time.monotonic()
    answer = await call("/setup/launch", {"command": script, "shell": True})
    assert (answer.status, answer.body.decode()) == (200, f"{script} launched successfully")
    assert time.monotonic() - begin < 5
    for _ in range(200):
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip():
            break
        await asyncio.sleep(0.02)
    pid = int((tmp_path / "pid").read_text())
    assert int((tmp_path / "sid").read_text()) == pid
    os.kill(pid, signal.SIGKILL)
    assert await vanished(pid)
    assert (await call("/setup/launch", {"command": ["no-such-program", "x"]})).status == 500
    assert (await call("/setup/launch", {"command": "sleep 0"})).body == b"sleep 0 launched successfully"


async def test_verification_waits_for_what_the_command_brings_about(call: Call, home: Path) -> None:
    """A check that holds after a while passes; one that never does is a 500 with the command's result."""
    body = {
        "command": "(sleep 0.3; touch there) >/dev/null 2>&1 & echo started",
        "shell": True,
        "verification": {"command_success": "test -e there"},
        "max_wait_time": 10,
        "check_interval": 0.05,
    }
    answer = await call("/execute_with_verification", body)
    assert answer.status == 200
    assert (answer.json["verification"], answer.json["output"]) == ("passed", "started\n")
    assert 0 < answer.json["wait_time"] < 10
    body |= {"verification": {"command_success": "false"}, "max_wait_time": 0.2}
    failed = await call("/setup/execute_with_verification", body)
    assert failed.status == 500
    assert failed.json["status"] == "verification_failed"
    assert failed.json["output"] == "started\n"
    plain = await call("/execute_with_verification", {"command": ["echo", "x"]})
    assert plain.json == {"status": "success", "output": "x\n", "error": "", "returncode": 0}


async def test_python_and_bash_scripts_answer_in_their_own_shapes(call: Call, home: Path) -> None:
    """The fields of both, for success and failure; standard error of bash is merged."""
    python = await call("/run_python", {"code": "import sys; print('ä'); print('e', file=sys.stderr)"})
    assert python.json == {
        "status": "success",
        "message": "ä\n\ne\n",
        "need_more": False,
        "output": "ä\n",
        "error": "e\n",
        "return_code": 0,
    }
    failed = await call("/run_python", {"code": "raise SystemExit(4)"})
    assert (failed.status, failed.json["status"], failed.json["return_code"]) == (200, "error", 4)
    assert failed.json["error"] == "Process exited with code 4"
    bash = await call(
        "/run_bash_script", {"script": "echo a; echo b >&2; pwd; exit 2", "working_dir": "~/Desktop"}
    )
    output = f"a\nb\n{home}/Desktop\n"
    assert bash.json == {"status": "error", "output": output, "error": "", "returncode": 2}
    late = await call("/run_bash_script", {"script": "sleep 60", "timeout": 0.3})
    assert (late.status, late.json["returncode"]) == (500, -1)
    assert "timed out" in late.json["output"]
    assert (await call("/run_bash_script", {"script": "true", "working_dir": "/nope"})).status == 400
    assert (await call("/run_bash_script", {})).json["output"]
    assert (await call("/run_python", {"code": ""})).status == 400
    assert not list(Path("/tmp").glob(f"osgym-*{os.getpid()}*"))


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


async def test_facts_about_the_screen_and_the_machine(call: Call, home: Path) -> None:
    """The small questions, each with its method and shape."""
    assert (await call("/screenshot", method="GET")).body == PNG
    assert (await call("/screenshot", method="GET")).headers["content-type"] == "image/png"
    assert (await call("/screen_size")).json == {"width": 1920, "height": 1080}
    assert (await call("/cursor_position", method="GET")).json == [12, 34]
    assert (await call("/platform", method="GET")).body == b"Linux"
    assert (await call("/desktop_path")).json == {"desktop_path": str(home / "Desktop")}
    (home / "Desktop").rmdir()
    assert (await call("/desktop_path")).status == 404


async def test_without_a_display_the_window_endpoints_fail_in_time(call: Call) -> None:
    """No X server is a 500 that says so, not a wait."""
    begin = time.monotonic()
    answers = [
        await call("/terminal", method="GET"),
        await call("/setup/activate_window", {"window_name": "x"}),
        await call("/window_size", form="app_class_name=x"),
        await call("/setup/open_file", {"path": "true"}),
    ]
    assert [answer.status for answer in answers] == [500] * 4
    assert all(b"display" in answer.body for answer in answers)
    assert time.monotonic() - begin < 10


async def test_without_an_accessibility_bus_the_tree_fails_in_time(call: Call) -> None:
    """The helper says that there is no bus; the answer is a 500 that passes it on."""
    answer = await call("/accessibility", method="GET")
    assert answer.status == 500
    assert "DBUS_SESSION_BUS_ADDRESS" in answer.json["message"]
    assert (await call("/accessibility?deadline_s=x", method="GET")).status == 400


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"\xff\xfe", b"null", b'{"command": "\xff"}', b"7", b'{"command": {"a": 1}}', b"{}"]
)
@pytest.mark.parametrize("path", ["/execute", "/setup/launch", "/run_python", "/list_directory"])
async def test_malformed_bodies_are_400(call: Call, path: str, body: bytes) -> None:
    """Whatever arrives instead of the right JSON is refused with a reason."""
    answer = await call(path, body)
    assert answer.status == 400
    assert answer.json["message"]


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


async def test_a_recording_that_cannot_be_made_says_so(call: Call) -> None:
    """Without a display (or ffmpeg) the start fails with the reason; nothing is left to end."""
    answer = await call("/start_recording")
    assert answer.status == 500
    assert answer.json["message"].startswith("Failed to start recording: ")
    assert (await call("/end_recording")).status == 400


async def test_open_file_says_what_is_wrong_with_its_path(call: Call) -> None:
    """A missing path is 400, an unknown one 404, both as text."""
    missing = await call("/setup/open_file", {})
    assert (missing.status, missing.body) == (400, b"Path not supplied!")
    unknown = await call("/setup/open_file", {"path": "no such application"})
    assert (unknown.status, unknown.body) == (404, b"Application/file not found: no such application")
    assert (await call("/setup/activate_window", {})).status == 400
    assert (await call("/setup/close_window", {"window_name": 3})).status == 400
    assert (await call("/setup/change_wallpaper", {"path": "/nope.png"})).status == 404
    assert (await call("/wallpaper")).status == 404


def upload_of(path: Path, content: bytes) -> tuple[bytes, str]:
    """The body of an upload and its content type."""
    head = f'--b\r\nContent-Disposition: form-data; name="file_path"\r\n\r\n{path}\r\n'
    head += '--b\r\nContent-Disposition: form-data; name="file_data"; filename="f"\r\n\r\n'
    return head.encode() + content + b"\r\n--b--\r\n", "multipart/form-data; boundary=b"


async def test_an_upload_waits_for_no_pipe_and_reaches_no_device(call: Call, home: Path) -> None:
    """What lies where a file is to be written is refused at once unless it is one, and is as it was then."""
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


WRITES_INTO_IT = """
import os, sys, time
until = time.monotonic() + 20
while time.monotonic() < until:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if file.read() != b"sleep\\x000.71\\x00":
                    continue
            for fd in (1, 2):
                try:
                    os.write(os.open(f"/proc/{pid}/fd/{fd}", os.O_WRONLY), b"forged")
                    print("written")
                except OSError as error:
                    print("refused", error.errno)
            sys.exit()
        except OSError:
            continue
"""


async def test_nobody_writes_into_the_output_of_an_isolated_command(call: Call) -> None:
    """A process of the same user opens it through /proc: a pipe is written, a check's output is not."""
    for isolated in (False, True):
        process = await asyncio.create_subprocess_exec(
            "python3", "-c", WRITES_INTO_IT, stdout=asyncio.subprocess.PIPE
        )
        answer = await call("/execute", {"command": ["sleep", "0.71"], "isolated": isolated})
        told, _ = await asyncio.wait_for(process.communicate(), 30)
        if isolated:
            assert told.split() == [b"refused", b"6"] * 2  # ENXIO
        else:
            assert told.split() == [b"written"] * 2
        assert (answer.json["output"], answer.json["error"]) == (
            ("", "") if isolated else ("forged", "forged")
        )


async def test_an_isolated_command_finds_the_images_programs(tmp_path: Path, home: Path) -> None:
    """Neither a folder of the user's nor a variable decides which program runs, or what it loads."""
    mine = home / ".local" / "bin"
    mine.mkdir(parents=True)
    (mine / "cat").write_text("#!/bin/sh\necho forged\n")
    (mine / "cat").chmod(0o755)
    (tmp_path / "sitecustomize.py").write_text("print('forged')")
    (tmp_path / "env").write_text("echo forged")
    env = {
        "HOME": str(home),
        "PATH": f"{mine}:/usr/bin:/bin",
        "PYTHONPATH": str(tmp_path),
        "BASH_ENV": str(tmp_path / "env"),
        "LD_LIBRARY_PATH": str(tmp_path),
        "DISPLAY": ":1",
    }
    runner = CommandRunner(DesktopSession(env, home))
    (home / "file").write_text("true\n")
    for isolated, said in ((False, "forged"), (True, "true")):
        for command in (["cat", "file"], ["bash", "-c", "/bin/cat file"], ["python3", "-c", "print('true')"]):
            result = await runner.run(command, isolated=isolated)
            assert result.output.split()[0] == said, command
    shown = (await runner.run(["env"], isolated=True)).output
    assert f"HOME={home}\n" in shown and "DISPLAY=:1\n" in shown
    large = await runner.run(["head", "-c", "3000000", "/dev/zero"], isolated=True)
    assert (len(large.output), large.returncode) == (3_000_000, 0)
    both = await runner.run("echo out; echo err >&2; exit 3", shell=True, isolated=True)
    assert (both.output, both.error, both.returncode) == ("out\n", "err\n", 3)
