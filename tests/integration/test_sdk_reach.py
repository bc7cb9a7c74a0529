"""Reach into real desktops past their screen: commands, files, tree, windows, ports, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import secrets
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.waiting import until

import osgym_sdk
from osgym_protocol.reach import CommandResult, ExecuteRequest
from osgym_sdk import AsyncClient, AsyncEpisode
from osgym_sdk._episode.tunnel import Exposure

pytestmark = pytest.mark.desktop

TASK: dict[str, Any] = {
    "id": "reach",
    "instruction": "Nothing to do.",
    "config": [],
    "evaluator": {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": ["echo", "yes"]},
        "expected": {"type": "rule", "rules": {"expected": "yes\n"}},
    },
}

SERVER = """
import asyncio, base64, hashlib, os, sys

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

async def serve(reader, writer):
    head = await reader.readuntil(b"\\r\\n\\r\\n")
    path = head.split()[1]
    headers = dict(line.split(b": ", 1) for line in head.split(b"\\r\\n")[1:] if b": " in line)
    if path == b"/flood":
        writer.write(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
        sent = 0
        while True:
            writer.write(bytes(65536))
            await writer.drain()
            sent += 65536
            open("/tmp/flooding", "w").write(str(sent))
            os.replace("/tmp/flooding", "/tmp/flooded")
    if path == b"/stall":
        await asyncio.sleep(3600)
    if b"Sec-WebSocket-Key" in headers:
        accept = base64.b64encode(hashlib.sha1(headers[b"Sec-WebSocket-Key"] + GUID).digest())
        writer.write(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\n"
                     b"Connection: Upgrade\\r\\nSec-WebSocket-Accept: " + accept + b"\\r\\n\\r\\n")
        while True:
            first = await reader.readexactly(2)
            size = first[1] & 127
            if size == 126:
                size = int.from_bytes(await reader.readexactly(2), "big")
            mask = await reader.readexactly(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(await reader.readexactly(size)))
            out = data.upper()
            length = bytes([len(out)]) if len(out) < 126 else b"\\x7e" + len(out).to_bytes(2, "big")
            writer.write(first[:1] + length + out)
    body = await reader.readexactly(int(headers.get(b"Content-Length", b"0")))
    answer = path + b" " + hashlib.sha256(body).hexdigest().encode()
    writer.write(b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n")
    writer.write(b"Content-Length: %d\\r\\n\\r\\n" % len(answer) + answer)
    await writer.drain()
    writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()

asyncio.run(main())
"""
PORT = 21777


@pytest.fixture
async def served(episode: AsyncEpisode) -> AsyncIterator[AsyncEpisode]:
    """An episode whose desktop runs a small HTTP and WebSocket server."""
    await episode.write_file("/tmp/server.py", SERVER)
    await episode.execute(f"python3 /tmp/server.py {PORT} >/tmp/server.log 2>&1 &")

    async def listens() -> bool:
        probe = f"import socket; socket.create_connection(('127.0.0.1', {PORT}), 1)"
        return (await episode.execute(["python3", "-c", probe])).returncode == 0

    await until(listens, what="the server listens")
    yield episode


async def exchange(where: Exposure, request: bytes, timeout_s: float = 20.0) -> bytes:
    """Sends bytes and returns all that comes back."""
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(where.host, where.port)
        try:
            writer.write(request)
            await writer.drain()
            return await reader.read(-1)
        finally:
            writer.close()


async def test_commands_end_with_what_they_said(episode: AsyncEpisode) -> None:
    """Output, status, signal, stdin, environment and folder; text by a shell, words without one."""
    said = await episode.execute(["printf", "%s|%s", "$HOME", "a b"])
    assert (said.returncode, said.stdout, said.stderr, said.timed_out) == (0, "$HOME|a b", "", False)
    said = await episode.execute("echo out; echo err >&2; exit 3")
    assert (said.returncode, said.stdout, said.stderr) == (3, "out\n", "err\n")
    assert said.output == "out\nerr\n"
    said = await episode.execute(
        'cat; echo "$ODD|$DISPLAY|$PWD"', stdin="Grüße", env={"ODD": "x=y"}, cwd="/tmp"
    )
    assert said.stdout.startswith("Grüßex=y|:")
    assert (await episode.execute(["pwd"], cwd="/usr/lib")).stdout == "/usr/lib\n"
    assert (await episode.execute("kill -9 $$")).returncode == -9
    assert (await episode.execute(["id", "-u"])).stdout != "0\n"


async def test_what_a_command_is_asked_wrongly_is_typed(episode: AsyncEpisode) -> None:
    """No such program, no such folder, not executable: each an error of its own, and nothing is lost."""
    with pytest.raises(osgym_sdk.CommandNotStarted):
        await episode.execute(["no-such-program"])
    with pytest.raises(osgym_sdk.CommandNotStarted):
        await episode.execute(["/etc/passwd"])
    with pytest.raises(osgym_sdk.PathNotFound):
        await episode.execute(["true"], cwd="/nowhere")
    with pytest.raises(osgym_sdk.BadRequest):
        await episode.execute(["true"], timeout_s=10_000)
    with pytest.raises(osgym_sdk.ConfigError):
        await episode.execute([])
    assert (await episode.step({"op": "screenshot"})).step == 1


async def test_a_command_without_end_is_ended_with_its_group(episode: AsyncEpisode) -> None:
    """What it had written is there; nothing of it runs on."""
    said = await episode.execute("echo before; sleep 3217 & sleep 3217", timeout_s=0.5)
    assert (said.timed_out, said.returncode, said.stdout) == (True, -9, "before\n")
    assert (await episode.execute(["pgrep", "-f", "sleep 3217"])).returncode == 1
    flood = await episode.execute("yes | head -c 30000000")
    assert flood.truncated and len(flood.stdout) == 1024 * 1024 and flood.returncode == 0


async def test_a_repeated_request_runs_nothing_again(episode: AsyncEpisode) -> None:
    """The same id gives the stored answer, also while the command still runs; another command is refused."""

    async def ask(request_id: str, *words: str) -> CommandResult:
        body = ExecuteRequest(request_id, episode.lease, words)
        return (await episode._session.call("POST", "/execute", body, 30.0)).message(CommandResult)

    script = "sleep 0.3; echo x >> /tmp/count"
    both = await asyncio.gather(ask("one", "sh", "-c", script), ask("one", "sh", "-c", script))
    third = await ask("one", "sh", "-c", script)
    assert sorted(answer.replayed for answer in (*both, third)) == [False, True, True]
    assert await episode.read_file("/tmp/count") == b"x\n"
    with pytest.raises(osgym_sdk.BadRequest):
        await ask("one", "echo", "other")


async def test_files_come_and_go_whole(episode: AsyncEpisode) -> None:
    """Odd names are taken as they are, bytes are bytes, 10 MB are no problem, modes are set."""
    large = os.urandom(10 * 1024 * 1024)
    await episode.write_file("/tmp/new/folder/large.bin", large)
    assert await episode.read_file("/tmp/new/folder/large.bin") == large
    for name in ("$HOME/~", "with \"quotes\" & 'more' %41 +", "Grüße ☃\n\t", "-rf", "a=b&path=c", "x" * 255):
        await episode.write_file(f"/tmp/odd/{name}", name)
        assert await episode.read_file(f"/tmp/odd/{name}") == name.encode()
    await episode.write_file("~/run.sh", "#!/bin/sh\necho ran\n", mode=0o755)
    assert (await episode.execute(["./run.sh"])).stdout == "ran\n"
    assert await episode.read_file("run.sh", max_bytes=100) == b"#!/bin/sh\necho ran\n"
    await episode.write_file("/tmp/empty", b"")
    assert await episode.read_file("/tmp/empty") == b""
    assert b"Linux" in await episode.read_file("/proc/version")


async def test_what_is_no_file_is_refused_with_a_reason(episode: AsyncEpisode) -> None:
    """Missing, a folder, a pipe, a device, no right, too large: typed, at once, and the episode goes on."""
    await episode.execute("mkfifo /tmp/pipe")
    with pytest.raises(osgym_sdk.PathNotFound):
        await episode.read_file("/tmp/nothing")
    with pytest.raises(osgym_sdk.PathNotFound):
        await episode.read_file("/etc/passwd/below")
    for path in ("/tmp", "/tmp/pipe", "/dev/zero", "/etc/shadow"):
        with pytest.raises(osgym_sdk.PathRefused):
            await episode.read_file(path)
        with pytest.raises(osgym_sdk.PathRefused):
            await episode.write_file(path, b"x")
    with pytest.raises(osgym_sdk.TooLarge) as refused:
        await episode.read_file("/bin/bash", max_bytes=1000)
    assert refused.value.details["size"] > 100_000
    with pytest.raises(osgym_sdk.BadRequest):
        await episode.read_file("x" * 300)
    with pytest.raises(osgym_sdk.ConfigError):
        await episode.write_file("/tmp/x", bytes(17 * 1024 * 1024))
    outcomes = [event.outcome for event in episode.trajectory.reaches]
    assert outcomes.count("path_refused") == 8
    assert (await episode.step({"op": "screenshot"})).step == 1


async def test_windows_and_the_tree_show_an_application(episode: AsyncEpisode) -> None:
    """Mousepad's window with its place and focus, and its elements with their boxes."""
    await episode.write_file("/tmp/note.txt", "remember the milk")
    await episode.execute("mousepad /tmp/note.txt >/dev/null 2>&1 &")

    async def focused() -> osgym_sdk.Window | None:
        return next((w for w in await episode.windows() if w.focused and "note.txt" in w.title), None)

    window = await until(focused, 60, "mousepad has the focus")
    assert window.app.lower() == "mousepad" and window.ordinary and not window.minimized
    assert window.width_px > 100 and window.height_px > 100 and window.pid
    assert any(not other.ordinary for other in await episode.windows()), "the panel or the desktop"

    async def text() -> osgym_sdk.A11yNode | None:
        tree = await episode.a11y()
        return next((node for node in tree.nodes() if "remember the milk" in node.text), None)

    node = await until(text, what="mousepad's text is in the tree")
    x, y, width, height = node.box
    assert window.x_px <= x and window.y_px <= y
    assert x + width <= window.x_px + window.width_px + 1 and y + height <= window.y_px + window.height_px + 1
    tree = await episode.a11y()
    lines = tree.to_text().splitlines()
    assert any(line.startswith(f"{node.role}\t") and "remember the milk" in line for line in lines)
    assert all(line.count("\t") == 4 for line in lines)
    small = await episode.a11y(max_nodes=5)
    assert small.truncated and len(list(small.nodes())) == 5
    cut = await episode.a11y(max_bytes=2000)
    assert cut.truncated and 0 < len(list(cut.nodes())) < len(list(tree.nodes()))


async def test_a_port_is_reached_by_http_and_websockets(served: AsyncEpisode) -> None:
    """Bytes both ways: large bodies up, a WebSocket that stays open, several connections at once."""
    where = await served.expose(PORT)
    host, port = where
    assert (host, where.url) == ("127.0.0.1", f"http://127.0.0.1:{port}")
    body = os.urandom(3 * 1024 * 1024)
    head = f"POST /digest HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    answers = await asyncio.gather(*(exchange(where, head + body) for _ in range(4)))
    wanted = b"/digest " + hashlib.sha256(body).hexdigest().encode()
    assert all(answer.endswith(wanted) for answer in answers)

    reader, writer = await asyncio.open_connection(where.host, where.port)
    key = base64.b64encode(secrets.token_bytes(16))
    hello = b"GET /ws HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: " + key
    writer.write(hello + b"\r\n\r\n")
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    for text in (b"hello", b"again" * 1000):
        size = bytes([0x80 | len(text)]) if len(text) < 126 else b"\xfe" + struct.pack(">H", len(text))
        writer.write(b"\x81" + size + b"\0\0\0\0" + text)
        first = await reader.readexactly(2)
        length = first[1] if first[1] < 126 else struct.unpack(">H", await reader.readexactly(2))[0]
        assert await reader.readexactly(length) == text.upper()
    assert (await served.step({"op": "screenshot"})).step == 1, "steps go on beside it"
    await served.aclose()
    assert await reader.read(1) == b"", "it ends with the episode"
    writer.close()
    with pytest.raises(OSError):
        await asyncio.open_connection(where.host, where.port)


async def test_a_port_where_nobody_listens_is_said_so(episode: AsyncEpisode) -> None:
    """The connection ends at once, and why is kept; later it may work."""
    where = await episode.expose(1)
    assert await exchange(where, b"hello") == b""
    assert isinstance(where.failure, osgym_sdk.PortClosed)
    with pytest.raises(osgym_sdk.ConfigError):
        await episode.expose(70000)
    with pytest.raises(osgym_sdk.ConfigError):
        await episode.expose(80, local_port=where.port)


async def test_a_server_that_floods_or_stalls_holds_up_nobody(served: AsyncEpisode) -> None:
    """What nobody reads is not sent on: little is under way, and steps and other connections go on."""
    where = await served.expose(PORT)
    silent = [await asyncio.open_connection(where.host, where.port) for _ in range(3)]
    for _, writer in silent:
        writer.write(b"GET /stall HTTP/1.1\r\n\r\n")
    flooded, flooder = await asyncio.open_connection(where.host, where.port, limit=65536)
    flooder.write(b"GET /flood HTTP/1.1\r\n\r\n")
    assert await flooded.readexactly(15) == b"HTTP/1.1 200 OK"

    async def sent() -> int:
        try:
            return int(await served.read_file("/tmp/flooded"))
        except osgym_sdk.PathNotFound:
            return 0

    seen: list[int] = []

    async def at_rest() -> bool:
        seen.append(await sent())
        return len(seen) > 10 and seen[-1] == seen[-10] > 0

    await until(at_rest, what="the flood waits for its reader")
    assert seen[-1] < 32 * 1024 * 1024
    assert (await served.step({"op": "screenshot"})).step == 1
    assert b"/x " in await exchange(where, b"GET /x HTTP/1.1\r\n\r\n")
    for _, writer in [*silent, (flooded, flooder)]:
        writer.transport.abort()
    await until(lambda: _no_tunnels(served), what="the desktop's connections are closed")
    assert b"/x " in await exchange(where, b"GET /x HTTP/1.1\r\n\r\n")


async def _no_tunnels(episode: AsyncEpisode) -> bool:
    shown = await episode.execute(f"ss -tn state established '( sport = :{PORT} )' | tail -n +2")
    return not shown.stdout.strip()


async def test_a_task_can_forbid_it_and_a_score_ends_it(client: AsyncClient) -> None:
    """The host refuses, not the client; setup and evaluation are not concerned; all is in the trajectory."""
    task = {**TASK, "osgym": {"flavor": "small", "reach": ["read_file", "windows"]}}
    async with client.episode(task) as episode:
        await episode.windows()
        assert await episode.read_file("/etc/hostname")
        for forbidden in (episode.execute("true"), episode.write_file("/tmp/x", b""), episode.a11y()):
            with pytest.raises(osgym_sdk.ReachForbidden):
                await forbidden
        where = await episode.expose(PORT)
        assert await exchange(where, b"x") == b""
        assert isinstance(where.failure, osgym_sdk.ReachForbidden)
        assert (await episode.evaluate()).reward == 1.0
        with pytest.raises(osgym_sdk.EpisodeEnded):
            await episode.read_file("/etc/hostname")
        kinds = [(event.kind, event.outcome) for event in episode.trajectory.reaches]
        assert kinds[:3] == [("windows", "ok"), ("read_file", "ok"), ("execute", "reach_forbidden")]
        again = osgym_sdk.Trajectory.from_dict(episode.trajectory.to_dict())
        assert again.reaches == episode.trajectory.reaches
    async with client.episode({**TASK, "osgym": {"flavor": "small", "reach": False}}) as episode:
        with pytest.raises(osgym_sdk.ReachForbidden):
            await episode.windows()
        assert (await episode.evaluate()).reward == 1.0


async def test_without_an_encoder_there_is_no_video(episode: AsyncEpisode) -> None:
    """The small image has no ffmpeg: that is said, and nothing else happens."""
    with pytest.raises(osgym_sdk.Unsupported):
        async with episode.record():
            raise AssertionError("it began")


async def test_a_scoring_ends_what_is_under_way(client: AsyncClient) -> None:
    """A command that runs while the check begins ends with a typed error; the check waits for nothing."""
    async with client.episode({**TASK, "osgym": {"flavor": "small"}}) as episode:
        running = asyncio.create_task(episode.execute("sleep 60", timeout_s=90))
        await until(lambda: _runs(episode, "sleep 60"), what="the command runs")
        assert (await episode.evaluate()).reward == 1.0
        with pytest.raises(osgym_sdk.EpisodeEnded):
            await running


async def test_a_command_ends_when_nobody_waits_for_it(episode: AsyncEpisode) -> None:
    """A command whose `execute` was cancelled ends once the time to ask for it again is over."""
    running = asyncio.create_task(
        episode.execute("while :; do date; sleep 1; done; sleep 3218", timeout_s=90)
    )
    await until(lambda: _matches(episode, "sleep 3218"), what="the command runs")
    running.cancel()
    await asyncio.wait((running,))
    await until(lambda: _matches(episode, "sleep 3218", runs=False), 40, "the command has ended")
    [cancelled] = [event for event in episode.trajectory.reaches if event.outcome == "cancelled"]
    assert cancelled.arguments["command"].endswith("sleep 3218")


async def test_a_command_of_osworlds_server_ends_with_its_caller(episode: AsyncEpisode) -> None:
    """A command of a client that leaves ends, through all relays between its port and the desktop."""
    body = json.dumps(
        {"command": "while :; do date >> /tmp/typed; sleep 0.1; done; sleep 3219", "shell": True}
    )
    where = await episode.expose(5000)
    _, writer = await asyncio.open_connection(where.host, where.port)
    head = f"POST /execute HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write((head + body).encode())
    await until(lambda: _matches(episode, "sleep 3219"), what="the command runs")
    writer.close()
    await until(lambda: _matches(episode, "sleep 3219", runs=False), what="the command has ended")
    size = (await episode.execute("stat -c %s /tmp/typed; sleep 0.5; stat -c %s /tmp/typed")).stdout.split()
    assert size[0] == size[1]


FALSE_SERVER = """
import http.server
class Forger(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"forged")
http.server.HTTPServer(("127.0.0.1", 5000), Forger).serve_forever()
"""


async def test_a_program_at_osworlds_port_is_given_no_connection(episode: AsyncEpisode) -> None:
    """OSWorld's harness is served by the guest agent, also where a program of the desktop listens."""
    await episode.write_file("/home/user/forger.py", FALSE_SERVER.encode())
    await episode.execute("setsid python3 ~/forger.py > /dev/null 2>&1 &")
    listens = "grep -q ':1388 .* 0A ' /proc/net/tcp"
    await until(lambda: _succeeds(episode, listens), what="the program listens at port 5000")
    where = await episode.expose(5000)
    reader, writer = await asyncio.open_connection(where.host, where.port)
    body = json.dumps({"command": ["echo", "honest"]})
    head = f"POST /execute HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write((head + body).encode())
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    assert b"honest" in answer and b"forged" not in answer


async def _succeeds(episode: AsyncEpisode, command: str) -> bool:
    return (await episode.execute(command)).returncode == 0


async def _matches(episode: AsyncEpisode, what: str, runs: bool = True) -> bool:
    pattern = what[:-1] + f"[{what[-1]}]"  # which does not match itself
    return ((await episode.execute(["pgrep", "-f", pattern])).returncode == 0) is runs


async def _runs(episode: AsyncEpisode, what: str) -> bool:
    return (await episode.execute(["pgrep", "-fx", what])).returncode == 0
