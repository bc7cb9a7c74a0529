"""Root in a virtual machine's desktop reaches neither the machine nor what looks after the desktop.

Real machines. The attacks run inside, as what a policy types into a terminal would; afterwards the same guest
agent answers, and the score is the honest one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.settle.live import PANEL_HEIGHT_PX
from benchmarks.settle.truth import Box, difference
from tests.support.host_process import MACHINES, HostProcess, running_host, wait_until
from tests.support.session_attacks import (
    ATTACKS,
    MACHINE_ATTACKS,
    TAKE_THE_AGENTS_PLACE,
    answer_task,
    quoted,
    typed_by_policy,
)

from osgym_protocol.codes import ErrorClass
from osgym_qemu.snapshots import Snapshot
from osgym_sdk import Client, Episode

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(300)]

EVERYWHERE = ("names", "stop", "numbers", "proc", "first", "parent", "groups", "sockets", "all")
"""Attacks that do not need a kernel newer than the images'."""


@pytest.fixture(scope="module")
def machines(small_snapshot: Snapshot, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host with virtual machines."""
    folder = tmp_path_factory.mktemp("host")
    with running_host(f"vm-session-{os.getpid()}", log_dir=folder, warm=1, settings=MACHINES) as host:
        yield host


@pytest.fixture(scope="module")
def client(machines: HostProcess) -> Iterator[Client]:
    """A client of that host."""
    with Client(machines.url) as opened:
        yield opened


def test_the_manifest_says_that_sessions_are_isolated(small_snapshot: Snapshot) -> None:
    """Those of older disks and of disks of others do not."""
    assert small_snapshot.manifest.session_isolated


def attack(episode: Episode, text: str, who: str = "root") -> str:
    """Run a shell script inside, apart from the command that waits for it; what it printed."""
    command = f"setsid sh -c {quoted(text)}; sleep 0.1"
    argv = ["sudo", "-n", "sh", "-c", command] if who == "root" else ["sh", "-c", command]
    done = episode.execute(argv, timeout_s=90)
    return done.stdout


def assert_honest(episode: Episode, reward: float = 1.0) -> None:
    """The desktop answers and is scored for what was done."""
    assert episode.step("click(400,300)").image.size == (1920, 1080)
    assert "Desktop" in episode.execute("ls ~").stdout
    evaluation = episode.evaluate()
    assert (evaluation.reward, evaluation.failure, evaluation.loss) == (reward, None, None), evaluation


@pytest.mark.parametrize(
    ("name", "who"), [*((name, "root") for name in EVERYWHERE), ("all", "user"), ("sockets", "user")]
)
def test_what_looks_after_a_desktop_is_out_of_its_reach(client: Client, name: str, who: str) -> None:
    """Signals, tracing, other views of processes, sockets and control groups reach nothing of it."""
    with client.episode(answer_task(), wait_s=120) as episode:
        assert "stolen" not in attack(episode, ATTACKS[name], who)
        assert_honest(episode)


@pytest.mark.parametrize("name", MACHINE_ATTACKS)
def test_the_machine_is_out_of_the_reach_of_root_in_its_desktop(client: Client, name: str) -> None:
    """No power, disk, module or mount of the machine is root's in the session, nor what its root runs."""
    with client.episode(answer_task(), wait_s=120) as episode:
        assert "stolen" not in attack(episode, MACHINE_ATTACKS[name])
        assert_honest(episode)


def test_a_policy_that_takes_the_agents_place_earns_what_it_did(client: Client) -> None:
    """Stopping the desktop's unit and listening at its port, by a line in a terminal, gives no reward."""
    with client.episode(answer_task("no\n"), wait_s=120) as episode:
        episode.step([{"op": "key", "keys": ["ctrl", "alt", "t"]}])
        wait_until(lambda: any("Terminal" in one.title for one in episode.windows()), 60, "a terminal")
        episode.step([{"op": "wait", "duration_ms": 2000}])
        episode.step([{"op": "type", "text": f"{typed_by_policy(TAKE_THE_AGENTS_PLACE)}\n"}])
        done = episode.execute(
            "until [ -e /tmp/taken -o -e /tmp/refused ]; do sleep 0.1; done; ls /tmp", timeout_s=100
        )
        assert "refused" in done.stdout and "taken" not in done.stdout, done
        assert_honest(episode, 0.0)


@pytest.mark.parametrize("who", ["user", "root"])
def test_a_fork_bomb_leaves_the_guest_agent_room(client: Client, who: str) -> None:
    """Its processes are bounded and the agent gets most of the processor when both want it, so steps go on.

    A check that needs a program may find no room for it, which is the policy's 0.
    """
    bomb = "setsid sh -c 'f() { f | f & sleep 600; }; f' >/dev/null 2>&1 &"
    with client.episode(answer_task("no\n"), wait_s=120) as episode:
        episode.step("move(200,200)")
        episode.execute(["sudo", "sh", "-c", bomb] if who == "root" else ["sh", "-c", bomb], timeout_s=60)
        for x in (300, 400):
            assert episode.step(f"move({x},300)").image.size == (1920, 1080)
        evaluation = episode.evaluate()
        assert (evaluation.reward, evaluation.failure) == (0.0, None), evaluation
        assert evaluation.valid_for_training
        assert evaluation.loss is None or evaluation.loss.error_class is ErrorClass.POLICY


MEMORY = "python3 -c 'held = []\nwhile True: held.append(bytearray(b\"x\" * (1 << 24)))'"


def test_a_program_that_uses_up_the_memory_is_ended_alone(client: Client) -> None:
    """The kernel ends it before anything that looks after the desktop."""
    with client.episode(answer_task(), wait_s=120) as episode:
        episode.execute(["sudo", "-n", "sh", "-c", MEMORY], timeout_s=120)
        assert_honest(episode)


def test_root_in_the_desktop_is_root_of_files_and_ports(client: Client) -> None:
    """As tasks expect: owners, packages, folders at the top, low ports; what is written is read back."""
    script = """
    set -e
    echo written >/etc/osgym-test; echo program >/usr/bin/osgym-test
    chown user:user /usr/bin/osgym-test; chmod 4755 /usr/bin/osgym-test
    mkdir /top; rm /usr/share/doc/dash/copyright
    dpkg --purge --force-all mousepad >/dev/null 2>&1; ! command -v mousepad
    python3 -c 'import socket; socket.create_server(("", 80)).close()'
    id -u; stat -c '%u %a' /usr/bin/osgym-test /etc/shadow
    """
    with client.episode(answer_task(), wait_s=120) as episode:
        done = episode.execute(["sudo", "-n", "sh", "-c", script], timeout_s=120)
        assert done.stdout.split("\n")[:3] == ["0", "1000 4755", "0 640"], done
        assert episode.read_file("/etc/osgym-test") == b"written\n"
        assert episode.execute("cat /usr/bin/osgym-test; ls -d /top", cwd="/top").stdout == "program\n/top\n"
        episode.write_file("/home/user/there", b"1")
        assert episode.execute("cat /home/user/there").stdout == "1"
        episode.execute("sudo -n sh -c 'echo session >/etc/osgym-test'; ln -s /etc/osgym-test ~/link")
        assert episode.read_file("/home/user/link") == b"session\n"


def scored_file(path: str, command: str) -> dict[str, Any]:
    """A task whose check reads a JSON file that a command makes as root."""
    steps = [{"type": "execute", "parameters": {"command": ["sudo", "-n", "sh", "-c", command]}}]
    expected = {"type": "rule", "rules": {"expect": [{"key": ["a"], "method": "eq", "ref": 1}]}}
    evaluator = {
        "func": "check_json",
        "result": {"type": "vm_file", "path": path, "dest": "answer.json"},
        "expected": expected,
    }
    return {"id": "layer", "instruction": "", "config": steps, "evaluator": evaluator}


RIGHT = json.dumps({"a": 1})


@pytest.mark.parametrize(
    ("path", "command", "reward"),
    [
        ("/etc/a.json", f"echo '{RIGHT}' >/etc/a.json", 1.0),
        ("/usr/share/deep/a.json", f"mkdir /usr/share/deep; echo '{RIGHT}' >/usr/share/deep/a.json", 1.0),
        ("/top/a.json", f"mkdir /top; echo '{RIGHT}' >/top/a.json", 1.0),
        ("/etc/hostname", f"echo '{RIGHT}' >/etc/hostname; rm /etc/hostname", 0.0),
    ],
    ids=["new", "in a folder of the image", "at the top", "removed"],
)
def test_a_check_reads_what_the_session_wrote_over_the_image(
    client: Client, path: str, command: str, reward: float
) -> None:
    """From the disk, where the session's layer lies over the image's folders."""
    with client.episode(scored_file(path, command), wait_s=120, strict_setup=True) as episode:
        episode.step("move(5,5)")
        evaluation = episode.evaluate()
        assert (evaluation.reward, evaluation.failure) == (reward, None), evaluation


def test_programs_of_the_desktop_see_the_machine_that_a_clone_is(client: Client) -> None:
    """Names, ids and clock are those of the clone, in the session too."""
    told: set[str] = set()
    for _ in range(2):
        with client.episode(wait_s=120) as episode:
            told.update(episode.execute("cat /etc/machine-id /proc/sys/kernel/random/boot_id").stdout.split())
    assert len(told) == 4, told


def test_a_step_ends_when_the_programs_of_the_session_are_done(client: Client) -> None:
    """The guest agent, outside of the session's user namespace, sees what its threads wait for."""
    settle = {"policy": "certain", "max_ms": 20_000}
    for _ in range(2):
        with client.episode(wait_s=60) as episode:
            opened = episode.step([{"op": "key", "keys": ["ctrl", "alt", "t"]}], settle=settle)
            time.sleep(4)  # not a wait for something: what is measured is that nothing comes
            later = episode.observe().image
        panel = Box(0, later.height - PANEL_HEIGHT_PX, later.width, later.height)
        assert difference(opened.image, later, [panel]) is None, opened.settle
