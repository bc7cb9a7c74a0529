"""A policy breaks its own desktop from inside, with what an ordinary user may do: its 0, and no other try.

Real desktops of the runtime `local`. Each way once turned the 0 that the policy had earned into our failure.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from benchmarks.chaos.orders import X_CLIENTS
from tests.support.host_process import HostProcess, running_host

from osgym_host.images.store import Image
from osgym_protocol.codes import ErrorClass
from osgym_sdk import AsyncClient, Result

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(300)]

X_PICTURES = r"""
import socket, struct
server = socket.socket(socket.AF_UNIX)
server.connect("/tmp/.X11-unix/X0")
server.sendall(b"l\0\x0b\0\0\0\0\0\0\0\0\0")
head = server.recv(8, socket.MSG_WAITALL)
body = server.recv(struct.unpack("<H", head[6:8])[0] * 4, socket.MSG_WAITALL)
first_id = struct.unpack("<I", body[4:8])[0]
vendor, formats = struct.unpack("<H", body[16:18])[0], body[21]
root = struct.unpack("<I", body[32 + (vendor + 3 & ~3) + 8 * formats :][:4])[0]
for number in range(64):  # 64 MB each: CreatePixmap, CreateGC, PolyFillRectangle
    pixmap, gc = first_id + 2 * number + 1, first_id + 2 * number + 2
    server.sendall(struct.pack("<BBHIIHH", 53, 24, 4, pixmap, root, 4000, 4000))
    server.sendall(struct.pack("<BBHIIII", 55, 0, 5, gc, pixmap, 4, number + 1))
    server.sendall(struct.pack("<BBHIIhhHH", 70, 0, 5, pixmap, gc, 0, 0, 4000, 4000))
    server.sendall(struct.pack("<BBH", 43, 0, 1))
    server.recv(32, socket.MSG_WAITALL)
"""
MEMORY = "held = []\nwhile True: held.append(bytearray(b'x' * (1 << 24)))"
TERMINAL_MS = 1500
"""How long a terminal is given to open."""
ANSWER = {"type": "vm_command_line", "command": ["cat", "/home/user/answer"]}


@pytest.fixture(scope="module")
def host(small_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host whose desktops have little memory, few processes and little disk."""
    settings = ["replica_ram_mib=700", "replica_pids=400", "replica_disk_mib=96"]
    name = f"losses-{os.getpid()}"
    folder = tmp_path_factory.mktemp("host")
    with running_host(name, log_dir=folder, warm=1, max_replicas=2, settings=settings) as running:
        yield running


@pytest.fixture
async def client(host: HostProcess) -> AsyncIterator[AsyncClient]:
    """Yield a client of that host."""
    async with AsyncClient(host.url) as opened:
        yield opened


def task(result: dict[str, Any] | None = None, **evaluator: Any) -> dict[str, Any]:
    """A task that is done when a file says yes, or whose check asks the desktop for something else."""
    files = [{"path": "/home/user/x_clients.py", "text": X_CLIENTS}]
    files.append({"path": "/home/user/memory.py", "text": MEMORY})
    files.append({"path": "/home/user/x_pictures.py", "text": X_PICTURES})
    expected = {"type": "rule", "rules": {"expected": "yes\n"}}
    made = {"func": "exact_match", "result": result or ANSWER, "expected": expected, **evaluator}
    config = [{"type": "upload_file", "parameters": {"files": files}}]
    return {"id": "answer", "instruction": "Say yes.", "config": config, "evaluator": made}


async def played(client: AsyncClient, made: dict[str, Any], command: str, wait_ms: int = 1500) -> Result:
    """Run an episode whose policy types one command into a terminal, and says that it is done."""

    async def policy(obs: Any, task: Any, step: int) -> Any:
        if step == 0:
            return [{"op": "key", "keys": ["ctrl", "alt", "t"]}, {"op": "wait", "duration_ms": TERMINAL_MS}]
        if step == 1:
            return [{"op": "type", "text": f"{command}\n"}, {"op": "wait", "duration_ms": wait_ms}]
        return [{"op": "done"}]

    [result] = [one async for one in client.run([made], policy, retries=2)]
    return result


def assert_lost(result: Result, *causes: str) -> None:
    """Assert a valid reward of 0 with one of the causes, after a single attempt."""
    assert (result.reward, result.failure) == (0.0, None), result.failure
    assert result.valid_for_training
    assert result.attempts == 1
    assert result.loss is not None, result.trajectory.evaluation
    assert result.loss.error_class is ErrorClass.POLICY
    assert result.loss.details["cause"] in causes, result.loss


@pytest.mark.parametrize(
    ("command", "causes"),
    [
        ("python3 ~/x_pictures.py", ("out_of_memory",)),
        ("head -c 400M /dev/urandom > ~/full; sleep 60", ("disk",)),
    ],
    ids=["memory of the X server", "disk filled"],
)
async def test_a_policy_that_breaks_its_desktop_earns_0(
    client: AsyncClient, command: str, causes: tuple[str, ...]
) -> None:
    """The loss of the desktop is the policy's."""
    assert_lost(await played(client, task(), command, 6000), *causes)


FIRST_PROCESS = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.ptrace(16, 1, 0, 0)
os.waitpid(1, 0x40000000)
libc.ptrace(17, 1, 0, int(sys.argv[1]))
"""


@pytest.mark.parametrize(
    "command",
    [
        "sudo python3 ~/first.py 9",
        "sudo python3 ~/first.py 19; pkill -STOP -f osgym_guest.pyc",
        "sudo python3 -c 'import ctypes; ctypes.CDLL(None).reboot(0x1234567)'",
        "sudo kill -9 -1",
    ],
    ids=["first process killed", "first process stopped", "rebooted", "everything killed"],
)
async def test_root_inside_cannot_make_it_the_hosts_loss(client: AsyncClient, command: str) -> None:
    """Root inside can neither kill nor stop the first process, which only the host may do."""
    made = task()
    made["config"][0]["parameters"]["files"].append({"path": "/home/user/first.py", "text": FIRST_PROCESS})
    result = await played(client, made, command, 5000)
    assert (result.reward, result.failure, result.attempts) == (0.0, None, 1), result.failure


@pytest.mark.parametrize(
    "command",
    [
        "pkill -9 -f osgym_guest.pyc",
        "pkill -STOP -f osgym_guest.pyc",
        "pkill Xvfb",
        "killall -9 python3",
        "kill -9 -1",
        "python3 ~/memory.py",
    ],
)
@pytest.mark.parametrize(("before", "reward"), [("true", 0.0), ("echo yes > ~/answer", 1.0)])
async def test_a_policy_reaches_nothing_that_looks_after_its_desktop(
    client: AsyncClient, command: str, before: str, reward: float
) -> None:
    """The desktop goes on and is scored by its state."""
    result = await played(client, task(), f"{before}; {command}; sudo {command}")
    assert (result.reward, result.failure, result.loss, result.attempts) == (reward, None, None, 1), result


TREE = {"type": "rule", "rules": {"include": ["answer"]}}
FOLDER = {"type": "list_directory", "path": "/home/user/Documents"}
WALLPAPER = {"type": "vm_wallpaper", "dest": "w.png"}


def after(kind: str, **parameters: Any) -> dict[str, Any]:
    """Return a task whose check begins with a step of this kind."""
    return task(postconfig=[{"type": kind, "parameters": parameters}])


@pytest.mark.parametrize(
    ("made", "command"),
    [
        (task(FOLDER, func="check_include_exclude", expected=TREE), "chmod 000 ~"),
        (after("open", path="/home/user/Documents/x.txt"), "chmod 000 ~"),
        (after("change_wallpaper", path="/home/user/Pictures/x.png"), "chmod 000 ~"),
        (task(WALLPAPER), "mkdir -p ~/.config/pcmanfm/0/desktop-items-0.conf"),
        (
            task(WALLPAPER),
            "mkdir -p ~/.config/pcmanfm/0; echo wallpaper=/root/x > ~/.config/pcmanfm/0/desktop-items-0.conf",
        ),
    ],
    ids=[
        "folder without rights",
        "open without rights",
        "wallpaper without rights",
        "wallpaper's settings a folder",
        "wallpaper of root",
    ],
)
async def test_a_policy_that_breaks_its_check_earns_0(
    client: AsyncClient, made: dict[str, Any], command: str
) -> None:
    """The agent fails to get the result there, and gets it on an untouched desktop."""
    result = await played(client, made, command, 3000)
    assert (result.reward, result.failure, result.attempts) == (0.0, None, 1), result.failure
    assert result.valid_for_training
    assert result.loss is not None, result.trajectory.evaluation
    assert result.loss.error_class is ErrorClass.POLICY


@pytest.mark.parametrize(
    "made",
    [
        task({"type": "vm_window_size", "app_class_name": "nosuch"}),
        after("activate_window", window_name="zz"),
        task({"type": "vm_terminal_output"}),
    ],
    ids=["window size", "activate window", "terminal"],
)
async def test_a_check_of_windows_has_a_connection_when_all_others_are_used_up(
    client: AsyncClient, made: dict[str, Any]
) -> None:
    """The desktop is scored for what it shows, since the agent's connection is there from the start."""
    result = await played(client, made, "python3 ~/x_clients.py &", 3000)
    assert (result.reward, result.failure, result.loss, result.attempts) == (0.0, None, None, 1), result


@pytest.mark.parametrize(
    "command", ["b() { b | b & b; }; b", "mkfifo ~/answer"], ids=["fork bomb", "unreadable result"]
)
async def test_a_policy_that_spoils_its_result_earns_0(client: AsyncClient, command: str) -> None:
    """The desktop goes on, and its result scores 0."""
    result = await played(
        client, task({"type": "vm_file", "path": "/home/user/answer", "dest": "a"}), command
    )
    assert (result.reward, result.failure, result.attempts) == (0.0, None, 1), result.failure
    assert result.valid_for_training


async def test_a_policy_that_breaks_its_desktop_whenever_it_fails_gains_nothing(client: AsyncClient) -> None:
    """One try in three succeeds; breaking the desktop in the others gives the share of an honest policy."""

    def policy(way: int, otherwise: str) -> str:
        return "echo yes > ~/answer" if way == 0 else otherwise

    shares = {}
    for otherwise in ("true", "pkill -9 -f osgym_guest.pyc"):
        results = [await played(client, task(), policy(way, otherwise)) for way in range(3)]
        counted = [result.reward for result in results if result.reward is not None]
        shares[otherwise] = (sum(counted), len(counted))
    assert set(shares.values()) == {(1.0, 3)}, shares
