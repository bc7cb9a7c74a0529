"""Nothing that runs in a desktop, its root included, can see, signal, trace or stop what looks after it.

Real desktops of the namespace runtime. The attacks run inside, as what a policy types into a terminal would,
as the user and as root by `sudo`; afterwards the agent that was there before answers, and the score is the
honest one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from benchmarks.harness import agent_at, harness_processes
from tests.support.host_process import HostProcess
from tests.support.session_attacks import ATTACKS, answer_task, quoted

from osgym_host.images.store import Image
from osgym_host.runtimes.processes import processes_of
from osgym_sdk import Client, Episode

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(180)]

HARNESS = ("osgym_guest.pyc", "Xvfb", "osgym-session", "dbus-daemon --session", "osgym_guest.osworld.a11y")
"""Parts of the command lines of what must stay out of reach: agent, X server, starter, bus, helper."""


def row_of(host: HostProcess, episode: Episode) -> dict[str, Any]:
    """Return the host's row of an episode's replica."""
    (row,) = [row for row in host.replicas("leased") if row["replica_id"] == episode.replica_id]
    return row


def harness_of(host: HostProcess, episode: Episode) -> dict[str, list[int]]:
    """Return the host's PIDs of the processes of an episode's harness."""
    first = int(row_of(host, episode)["pid"])
    return {part: harness_processes(first, part) for part in HARNESS}


def states(pids: list[int]) -> str:
    """Return the state of each process: `T` is stopped, `t` traced."""
    return "".join(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids)


@pytest.mark.parametrize("who", ["user", "root"])
@pytest.mark.parametrize("name", ATTACKS)
def test_what_looks_after_a_desktop_is_out_of_its_reach(host: HostProcess, name: str, who: str) -> None:
    """The processes of the harness are the same as before and run, and the score is right."""
    with Client(host.url) as client, client.episode(answer_task()) as episode:
        episode.a11y()
        before = harness_of(host, episode)
        assert [len(pids) > 0 for pids in before.values()] == [True] * len(HARNESS), before
        sock = host.data_dir / "run" / host.instance / "replicas" / episode.replica_id / "agent.sock"
        agent = agent_at(sock)
        attack = f"setsid sh -c {quoted(ATTACKS[name])}; sleep 0.1"
        done = episode.execute(
            ["sudo", "sh", "-c", attack] if who == "root" else ["sh", "-c", attack], timeout_s=60
        )
        assert "stolen" not in done.stdout
        after = harness_of(host, episode)
        assert after == before
        assert not set(states([pid for pids in after.values() for pid in pids])) & {"T", "t"}
        assert agent_at(sock) == agent
        observation = episode.step("click(400,300)")
        assert observation.image.size == (1920, 1080)
        evaluation = episode.evaluate()
        assert (evaluation.reward, evaluation.failure) == (1.0, None), evaluation


@pytest.mark.parametrize("who", ["user", "root"])
def test_a_fork_bomb_ends_no_episode(host: HostProcess, who: str) -> None:
    """Programs of the desktop cannot fork any more; the agent answers, and the score is 0."""
    with Client(host.url) as client, client.episode(answer_task("no\n")) as episode:
        before = harness_of(host, episode)["osgym_guest.pyc"]
        bomb = "setsid sh -c 'f() { f | f & sleep 600; }; f' >/dev/null 2>&1 &"
        episode.execute(["sudo", "sh", "-c", bomb] if who == "root" else ["sh", "-c", bomb], timeout_s=30)
        for _ in range(3):
            assert episode.step("move(300,300)").image.size == (1920, 1080)
        evaluation = episode.evaluate()
        assert evaluation.reward == 0.0, evaluation
        assert harness_of(host, episode)["osgym_guest.pyc"] == before


ALL_CLIENTS = """
import socket, struct, time
held = []
while True:
    client = socket.socket(socket.AF_UNIX)
    client.connect("/tmp/.X11-unix/X0")
    client.send(struct.pack("<BxHHHHxx", ord("l"), 11, 0, 0, 0))
    if client.recv(8)[:1] != bytes([1]):
        break
    held.append(client)
open("/tmp/used-up", "w").write(str(len(held)))
time.sleep(600)
"""


def test_x_clients_used_up_end_no_call(host: HostProcess) -> None:
    """The X server accepts no new clients; the agent's calls use connections from the start."""
    with Client(host.url) as client, client.episode(answer_task()) as episode:
        episode.execute(f"setsid python3 -c {quoted(ALL_CLIENTS)} >/dev/null 2>&1 &")
        held = episode.execute(
            "until [ -s /tmp/used-up ]; do sleep 0.05; done; cat /tmp/used-up", timeout_s=30
        )
        assert int(held.stdout) > 100
        assert "Maximum number of clients" in episode.execute(["xdotool", "getmouselocation"]).stderr
        assert "tint2" in [window.title for window in episode.windows()]
        assert episode.step("click(400,300)").image.size == (1920, 1080)
        evaluation = episode.evaluate()
        assert (evaluation.reward, evaluation.failure) == (1.0, None), evaluation


def test_the_manifest_says_that_sessions_are_isolated(small_image: Image) -> None:
    """Those of older images do not."""
    assert small_image.manifest.session_isolated


def test_programs_know_themselves_by_their_own_numbers(host: HostProcess) -> None:
    """The PIDs that programs see, that windows have and that commands get are the same."""
    with Client(host.url) as client, client.episode(answer_task()) as episode:
        seen = episode.execute(["ps", "-eo", "pid,args"]).stdout
        for part in HARNESS[:2]:
            assert part not in seen
        assert (
            episode.execute(["sh", "-c", "kill -0 $$ && readlink /proc/self/exe"]).stdout
            == "/usr/bin/readlink\n"
        )
        assert episode.execute(["sudo", "-n", "id", "-u"]).stdout == "0\n"
        episode.execute(
            [
                "sh",
                "-c",
                "setsid mousepad >/dev/null 2>&1 & until wmctrl -l | grep -q Untitled; do sleep 0.1; done",
            ]
        )
        (window,) = [one for one in episode.windows() if "Mousepad" in one.title]
        assert episode.execute(["ps", "-o", "comm=", "-p", str(window.pid)]).stdout == "mousepad\n"
        assert "Untitled" in episode.a11y().to_text()


def test_a_desktops_programs_are_in_namespaces_of_their_own(host: HostProcess) -> None:
    """All namespaces but the user namespace differ; that is shared, so that `sudo` gives root over files."""
    with Client(host.url) as client, client.episode(answer_task()) as episode:
        first = int(row_of(host, episode)["pid"])
        (agent,) = harness_processes(first, "osgym_guest.pyc")
        (manager,) = harness_processes(first, "openbox --sm-disable")
        for name in ("pid", "mnt"):
            assert os.readlink(f"/proc/{agent}/ns/{name}") != os.readlink(f"/proc/{manager}/ns/{name}")
        assert os.readlink(f"/proc/{agent}/ns/user") == os.readlink(f"/proc/{manager}/ns/user")


def test_no_process_of_the_session_shares_a_group_with_the_harness(host: HostProcess) -> None:
    """A signal to a process group reaches all its processes, in any namespace."""
    with Client(host.url) as client, client.episode(answer_task()) as episode:
        first = int(row_of(host, episode)["pid"])
        (agent,) = harness_processes(first, "osgym_guest.pyc")
        above = os.readlink(f"/proc/{agent}/ns/pid")
        is_above = {pid: os.readlink(f"/proc/{pid}/ns/pid") == above for pid in processes_of(first)}
        groups = {os.getpgid(pid) for pid, above in is_above.items() if above}
        assert not groups & {os.getpgid(pid) for pid, above in is_above.items() if not above}


BUS_SERVICE = """[D-BUS Service]
Name=org.osgym.Killer
Exec=/bin/sh -c "touch /tmp/ran; kill -9 0"
"""
KILLER = "#!/bin/sh\ntouch /tmp/ran; kill -9 0\n"


@pytest.mark.parametrize("starter", ["bus", "window manager"])
def test_who_kills_its_own_process_group_ends_nothing_of_the_harness(host: HostProcess, starter: str) -> None:
    """Programs stay in the process group of what started them, unless they leave it."""
    with Client(host.url) as client, client.episode(answer_task()) as episode:
        episode.a11y()
        before = harness_of(host, episode)
        if starter == "bus":
            folder = "/home/user/.local/share/dbus-1/services"
            episode.execute(["mkdir", "-p", folder])
            episode.write_file(f"{folder}/org.osgym.Killer.service", BUS_SERVICE.encode())
            ping = "dbus-send --session --dest=org.osgym.Killer / org.freedesktop.DBus.Peer.Ping"
            episode.execute(ping)
        else:
            episode.write_file("/tmp/killer", KILLER.encode())
            episode.execute("sudo install -m 755 /tmp/killer /usr/bin/jgmenu")
            episode.step([{"op": "key", "keys": ["alt", "f2"]}])
        done = episode.execute("until [ -e /tmp/ran ]; do sleep 0.05; done", timeout_s=20)
        assert not done.timed_out
        assert harness_of(host, episode) == before
        assert episode.step("click(400,300)").image.size == (1920, 1080)
        evaluation = episode.evaluate()
        assert (evaluation.reward, evaluation.failure) == (1.0, None), evaluation


KEYMAP_COMPILER = """#!/bin/sh
exec >/tmp/above.part 2>&1
grep NoNewPrivs /proc/self/status
sudo -n id -u
mv /tmp/above.part /tmp/above
"""


def test_what_the_x_server_runs_gets_no_root_beside_the_agent(host: HostProcess) -> None:
    """A compiler of keymaps that root changed runs without root, and is found before scoring."""
    with Client(host.url) as client, client.episode(answer_task()) as episode:
        episode.step("click(400,300)")
        episode.write_file("/tmp/compiler", KEYMAP_COMPILER.encode())
        episode.execute("sudo install -m 755 /tmp/compiler /usr/bin/xkbcomp; setxkbmap us")
        wait = "until [ -e /tmp/above ]; do sleep 0.05; done; cat /tmp/above"
        said = episode.execute(wait, timeout_s=20).stdout
        assert "NoNewPrivs:\t1" in said
        assert "0" not in said.splitlines()
        evaluation = episode.evaluate()
        assert (evaluation.reward, evaluation.failure) == (0.0, None), evaluation
        assert evaluation.loss is not None
        assert evaluation.loss.details["finding"] == "/usr/bin/xkbcomp was changed"
