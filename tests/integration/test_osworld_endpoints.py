"""OSWorld's endpoints for commands and facts, with real processes; no desktop needed."""

# ruff: noqa: ASYNC240 -- reading /proc and small files in the only task of a test blocks nobody

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.agent_endpoints import PNG, Call, children, served_endpoints, vanished

from osgym_guest.osworld.process import CommandRunner
from osgym_guest.osworld.session import DesktopSession


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
async def call(tmp_path: Path, home: Path) -> AsyncIterator[Call]:
    async with served_endpoints(tmp_path, home) as call:
        yield call


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


WRITES_INTO_IT = """
import os, signal, sys, time
until = time.monotonic() + 20
while time.monotonic() < until:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if file.read() != b"sleep\\x0020.71\\x00":
                    continue
            for fd in (1, 2):
                try:
                    os.write(os.open(f"/proc/{pid}/fd/{fd}", os.O_WRONLY), b"forged")
                    print("written")
                except OSError as error:
                    print("refused", error.errno)
            os.kill(int(pid), signal.SIGTERM)
            sys.exit()
        except OSError:
            continue
"""


async def test_nobody_writes_into_the_output_of_an_isolated_command(call: Call) -> None:
    """A process of the same user can write to a pipe through /proc, but not to what a check prints."""
    for isolated in (False, True):
        process = await asyncio.create_subprocess_exec(
            "python3", "-c", WRITES_INTO_IT, stdout=asyncio.subprocess.PIPE
        )
        answer = await call("/execute", {"command": ["sleep", "20.71"], "isolated": isolated})
        told, _ = await asyncio.wait_for(process.communicate(), 30)
        if isolated:
            assert told.split() == [b"refused", b"6"] * 2  # ENXIO
        else:
            assert told.split() == [b"written"] * 2
        assert (answer.json["output"], answer.json["error"]) == (
            ("", "") if isolated else ("forged", "forged")
        )


async def test_an_isolated_command_finds_the_images_programs(tmp_path: Path, home: Path) -> None:
    """Neither folders of the user's nor variables change which program runs or what it loads."""
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
