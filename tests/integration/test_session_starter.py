"""The starter of a session's programs: the session cannot deceive it, and its failures are never scores.

Real desktops of the namespace runtime. Root in the session goes for programs while they are being started;
processes of the harness are stopped and ended from the host.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from benchmarks.harness import harness_processes, run_beside
from tests.support.host_process import HostProcess, wait_until

from osgym_host.runtimes.processes import processes_of
from osgym_sdk import AsyncClient, AsyncEpisode, Client, Episode, EpisodeLost, OSGymError, ReachFailed

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(180)]

AGENT = "osgym_guest.pyc"
SLOW_TO_FIND = {"PATH": ":".join(["/none"] * 16_000 + ["/usr/bin:/bin"])}
"""Environment of a program that is looked for in so many folders that it can be caught before it begins."""


def first_pid(host: HostProcess, episode: AsyncEpisode | Episode) -> int:
    """Return the host's PID of the first process of an episode's replica."""
    (row,) = [row for row in host.replicas("leased") if row["replica_id"] == episode.replica_id]
    return int(row["pid"])


def server_of(first: int) -> int:
    """Return the process that starts programs in the session."""
    (agent,) = harness_processes(first, AGENT)
    above = os.readlink(f"/proc/{agent}/ns/pid")
    candidates = harness_processes(first, "osgym-session")
    return [pid for pid in candidates if os.readlink(f"/proc/{pid}/ns/pid") == above][-1]


def bus_of(first: int) -> int:
    """Return the session bus."""
    return harness_processes(first, "dbus-daemon --session")[0]


def first_of_session(first: int) -> int:
    """Return the first process of the session's PID namespace."""
    (found,) = [p for p in processes_of(first) if Path(f"/proc/{p}/comm").read_text() == "osgym-first\n"]
    return found


def states_below(parent: int) -> str:
    """Return the state of each child of a process; `Z` is an unreaped one."""
    found = ""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found += fields[0]
    return found


def is_in_tmp(first: int, name: str) -> bool:
    """Return whether a replica has a file in its /tmp."""
    return Path(f"/proc/{first}/root/tmp/{name}").exists()


def command_task() -> dict[str, Any]:
    """Return a task that is scored by the output of a command."""
    result = {"type": "vm_command_line", "command": ["echo", "yes"]}
    expected = {"type": "rule", "rules": {"expected": "yes\n"}}
    evaluator = {"func": "exact_match", "result": result, "expected": expected}
    return {"id": "starter", "instruction": "", "config": [], "evaluator": evaluator}


CATCH = """
import ctypes, os, signal, struct, sys
libc = ctypes.CDLL(None)
done = False
open("/tmp/looking", "w").close()
while not done:
    for pid in os.listdir("/proc"):
        try:
            if not pid.isdigit() or pid == "1" or open(f"/proc/{pid}/comm").read() != "osgym-session\\n":
                continue
            os.kill(int(pid), signal.SIGSTOP)
            theirs = os.pidfd_open(int(pid))
            fd = libc.syscall(438, theirs, 3, 0)  # pidfd_getfd
            if fd < 0:
                os.kill(int(pid), signal.SIGCONT)
                continue
            os.write(fd, struct.pack("=2i", *map(int, sys.argv[1:3])))
            open("/tmp/caught", "w").write(pid)
            done = True
            break
        except OSError:
            continue
if sys.argv[3] == "flood":
    try:
        while True:
            os.write(fd, struct.pack("=2i", 0, 0) * 64)
    except OSError:
        pass
"""


@pytest.mark.parametrize(
    ("pid", "error", "then"), [(2, 2, ""), (1, 0, ""), (0, 0, "flood")], ids=["stopped", "pid", "flood"]
)
async def test_what_a_caught_program_reports_deceives_nobody(
    host: HostProcess, client: AsyncClient, pid: int, error: int, then: str
) -> None:
    """Root in the session stops a program's process before it executes, and forges its report."""
    async with client.episode(command_task()) as episode:
        first = first_pid(host, episode)
        before = server_of(first), harness_processes(first, AGENT), bus_of(first)
        await episode.write_file("/tmp/catch.py", CATCH.encode())
        catch = f"setsid sudo python3 /tmp/catch.py {pid} {error} '{then}' >/tmp/catch.log 2>&1 &"
        await episode.execute(catch + " until [ -e /tmp/looking ]; do sleep 0.05; done")
        while True:  # one that begins before it is caught ends at once
            try:
                await episode.execute(["true"], env=SLOW_TO_FIND, timeout_s=8)
            except OSGymError:
                break
            if is_in_tmp(first, "caught"):
                break
        wait_until(lambda: is_in_tmp(first, "caught"), 5, "it says that it has caught one")
        done = await asyncio.wait_for(episode.execute("echo on"), 15)
        assert done.stdout == "on\n"
        assert (server_of(first), harness_processes(first, AGENT), bus_of(first)) == before


async def test_a_session_that_hangs_is_nobodys_score_and_holds_nothing_up(
    host: HostProcess, client: AsyncClient
) -> None:
    """Meanwhile the agent answers other calls; a program that starts too late is killed."""
    async with client.episode(command_task()) as episode:
        first = first_pid(host, episode)
        server = server_of(first)
        os.kill(server, signal.SIGSTOP)
        try:
            waits = asyncio.create_task(episode.execute("exec sleep 31415"))
            for _ in range(3):
                await asyncio.wait_for(episode.windows(), 2)
                assert not waits.done()
            with pytest.raises(ReachFailed) as caught:
                await waits
            assert caught.value.details["guest_code"] == "guest_failed"
        finally:
            os.kill(server, signal.SIGCONT)
        assert (await episode.execute("echo on")).stdout == "on\n"
        wait_until(lambda: not harness_processes(first, "sleep 31415"), 5, "the late program is ended")


async def test_a_check_that_cannot_start_its_command_is_no_score(
    host: HostProcess, client: AsyncClient
) -> None:
    """A command that cannot start is no evidence about the desktop."""
    async with client.episode(command_task()) as episode:
        server = server_of(first_pid(host, episode))
        os.kill(server, signal.SIGSTOP)
        try:
            evaluation = await episode.evaluate()
        finally:
            os.kill(server, signal.SIGCONT)
        assert evaluation.reward is None, evaluation
        assert evaluation.failure is not None


IMPOSTOR = """
import os, socket
os.makedirs("/run/osgym/harness", exist_ok=True)
listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listening.bind("/run/osgym/harness/session.sock")
os.chmod("/run/osgym/harness/session.sock", 0o777)
listening.listen()
open("/tmp/listens", "w").close()
while True:
    peer, _ = listening.accept()
    if peer.recv(16):
        open("/tmp/fooled", "w").close()
"""


async def test_nobody_takes_the_place_of_the_sessions_socket(host: HostProcess, client: AsyncClient) -> None:
    """Root in the session ends the mount with the socket, and listens at its path."""
    async with client.episode(command_task()) as episode:
        first = first_pid(host, episode)
        await episode.write_file("/tmp/impostor.py", IMPOSTOR.encode())
        start = "sudo rm -rf /run/osgym/harness; setsid sudo python3 /tmp/impostor.py >/tmp/log 2>&1 &"
        await episode.execute(start + " until [ -e /tmp/listens ]; do sleep 0.05; done")
        server = server_of(first)
        os.kill(server, signal.SIGSTOP)
        try:
            with pytest.raises(OSGymError):
                await episode.execute("true")
        finally:
            os.kill(server, signal.SIGCONT)
        with pytest.raises(ReachFailed, match="another process listens"):
            await episode.execute("true")
        assert not is_in_tmp(first, "fooled")


@pytest.mark.parametrize("part", [server_of, bus_of, first_of_session])
def test_a_desktop_whose_session_is_lost_is_replaced(host: HostProcess, part: Any) -> None:
    """The replica ends at once, with the reason."""
    with Client(host.url) as client, client.episode(command_task()) as episode:
        first = first_pid(host, episode)
        os.kill(part(first), signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{first}").exists(), 5, "its first process has ended")
        with pytest.raises(EpisodeLost) as caught:
            episode.step("click(100,100)")
        assert "exit code 5" in caught.value.details["detail"]


TRACER = """
import ctypes, os, select, time
pid = int(open("/tmp/pid").read())
assert ctypes.CDLL(None).ptrace(0x4206, pid, 0, 0) == 0  # PTRACE_SEIZE
open("/tmp/gate", "w").close()
select.select([os.pidfd_open(pid)], [], [])
time.sleep(0.3)  # what a tracer is slow to take, the parent has to wait for
"""


def test_the_exit_code_of_a_traced_program_is_its_own(host: HostProcess) -> None:
    """The exit code arrives although a tracer reads it first, and slowly."""
    with Client(host.url) as client, client.episode(command_task()) as episode:
        episode.write_file("/tmp/trace.py", TRACER.encode())
        trace = "mkfifo /tmp/gate; echo $$ >/tmp/pid; setsid sudo python3 /tmp/trace.py >/dev/null 2>&1 &"
        done = episode.execute(f"{trace} read -r _ </tmp/gate; exit 7", timeout_s=20)
        assert done.returncode == 7


def test_what_an_agent_started_is_reaped_under_the_next_one(host: HostProcess) -> None:
    """Programs of an earlier agent are reaped when they end."""
    waits = "exec sh -c 'until [ -e /tmp/go ]; do sleep 0.05; done'"
    launched = {"type": "launch", "parameters": {"command": waits, "shell": True}}
    task = {**command_task(), "config": [launched]}
    with Client(host.url) as client, client.episode(task) as episode:
        first = first_pid(host, episode)
        server = server_of(first)
        (agent,) = harness_processes(first, AGENT)
        os.kill(agent, signal.SIGKILL)
        wait_until(lambda: harness_processes(first, AGENT) not in ([], [agent]), 10, "another agent")
        assert harness_processes(first, "/tmp/go")
        run_beside(first, ["touch", "/tmp/go"])
        wait_until(lambda: not harness_processes(first, "/tmp/go"), 5, "the launched program has ended")
        wait_until(lambda: "Z" not in states_below(server), 5, "it is reaped")


IN_FLIGHT = """
import array, resource, socket, sys, time
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
if sys.argv[1] == "hard":
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0] * 250))]
held = []
try:
    while True:
        held.append(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
        for _ in range(8):
            held[-1][0].sendmsg([b"x"], rights)
except OSError as error:
    open("/tmp/full", "w").write(str(error))
time.sleep(600)
"""


@pytest.mark.parametrize("limit", ["soft", "hard"])
def test_descriptors_in_flight_stop_no_command(host: HostProcess, limit: str) -> None:
    """The kernel counts descriptors in flight for the agent's user too, whose limit is higher."""
    with Client(host.url) as client, client.episode(command_task()) as episode:
        episode.write_file("/tmp/flight.py", IN_FLIGHT.encode())
        fill = f"setsid python3 /tmp/flight.py {limit} >/dev/null 2>&1 </dev/null &"
        episode.execute(f"{fill} until [ -s /tmp/full ]; do sleep 0.05; done", timeout_s=30)
        said = Path(f"/proc/{first_pid(host, episode)}/root/tmp/full").read_text()
        assert "Too many references" in said
        assert episode.execute("echo on").stdout == "on\n"
        assert episode.evaluate().reward == 1.0
