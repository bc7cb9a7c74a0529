"""Root beside the guest agent, or with its files, goes for the agent, whose answers decide the score.

Real desktops. Files are changed inside, by `sudo`, as a policy's own programs would. Nothing inside reaches
the agent's process (`test_session_isolation`), so what is aimed at it runs beside it. An honest desktop that
runs applications is scored as ever.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.harness import harness_processes, run_beside
from tests.support.host_process import HostProcess, wait_until

from osgym_host.episodes.agent_faults import EXCUSED
from osgym_protocol.codes import ErrorClass
from osgym_sdk import AsyncClient, AsyncEpisode

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(180)]

TAKE_OVER = Path(__file__).with_name("guest_take_over.py")
WAIT = {"op": "wait", "duration_ms": 2000}
PACKAGE = "/usr/local/lib/python3.11/dist-packages/osgym_guest"


def shell(command: str) -> dict[str, Any]:
    """A setup step; nothing tells it from what a policy types into a terminal."""
    return {"type": "execute", "parameters": {"command": command, "shell": True}}


def task(*config: dict[str, Any], wanted: str = "yes\n") -> dict[str, Any]:
    """A task whose end state is what a command prints."""
    result = {"type": "vm_command_line", "command": ["cat", "/home/user/answer"]}
    expected = {"type": "rule", "rules": {"expected": wanted}}
    evaluator = {"func": "exact_match", "result": result, "expected": expected}
    return {"id": "t", "instruction": "", "config": list(config), "evaluator": evaluator}


async def finding(episode: AsyncEpisode) -> str:
    """Assert an evaluation without a reward, since no policy has touched the desktop."""
    evaluation = await episode.evaluate()
    assert evaluation.reward is None
    assert not evaluation.valid_for_training
    assert evaluation.termination_reason == "evaluator_error"
    assert evaluation.error_class is ErrorClass.INFRA
    assert evaluation.failure is not None
    assert (evaluation.failure.code, evaluation.failure.details["cause"]) == (
        "evaluator_error",
        "guest_tampered",
    )
    return str(evaluation.failure.details["finding"])


async def finding_of_policy(episode: AsyncEpisode) -> str:
    """Assert a reward of 0 with the same cause, since the policy has acted."""
    evaluation = await episode.evaluate()
    assert (evaluation.reward, evaluation.valid_for_training, evaluation.failure) == (0.0, True, None)
    assert evaluation.error_class is ErrorClass.POLICY
    assert evaluation.loss is not None
    assert evaluation.loss.details["cause"] == "guest_tampered"
    return str(evaluation.loss.details["finding"])


async def test_an_honest_desktop_is_scored(client: AsyncClient) -> None:
    """Applications, sudo, files, a tree of widgets, a package's folder: nothing of it is tampering."""
    config = [
        shell("echo yes > ~/answer; sudo touch /usr/local/bin/mine /etc/mine; sudo mkdir -p /usr/lib/mine"),
        shell("sudo mount -t tmpfs none /mnt; sudo -n true; python3 -c 'import turtle' 2>/dev/null; true"),
        {"type": "launch", "parameters": {"command": ["mousepad"]}},
        shell("sudo mkdir -p /usr/local/lib/python3.11/dist-packages/numpy"),
    ]
    made = task(*config)
    tree = {"type": "accessibility_tree"}
    evaluator = made["evaluator"]
    evaluator["func"] = ["exact_match", "check_include_exclude"]
    evaluator["result"] = [evaluator["result"], tree]
    evaluator["expected"] = [evaluator["expected"], {"type": "rule", "rules": {"include": ["<"]}}]
    async with client.episode(made) as episode:
        for _ in range(2):
            await episode.step("click(400,300)")
        await episode.observe()
        evaluation = await episode.evaluate()
        assert (evaluation.reward, evaluation.failure) == (1.0, None), evaluation


@pytest.mark.parametrize("mode", ["", "nonsense"])
async def test_an_agent_that_was_taken_over_is_not_believed(
    mode: str, client: AsyncClient, host: HostProcess
) -> None:
    """Its socket in other hands: a forged answer earns nothing."""
    program = {"path": "/tmp/take_over.py", "text": TAKE_OVER.read_text()}
    upload = {"type": "upload_file", "parameters": {"files": [program]}}
    async with client.episode(task(upload, shell("echo no > ~/answer"))) as episode:
        row = row_of(episode, host)
        attack = f"setsid python3 /tmp/take_over.py {mode} >/dev/null 2>&1 &"
        async with ended_agent(episode, host):
            await asyncio.to_thread(run_beside, row["pid"], ["sh", "-c", attack])
        assert "started another one" in await finding(episode)


async def test_an_agent_that_was_started_again_is_another_one(client: AsyncClient, host: HostProcess) -> None:
    """Its shell starts it again when it dies; from outside nothing tells what the new one was told."""
    async with client.episode(task(shell("echo yes > ~/answer"))) as episode:
        async with ended_agent(episode, host) as agent:
            os.kill(agent, signal.SIGKILL)
        assert "started another one" in await finding(episode)


async def test_an_agent_that_crashed_is_not_held_against_the_policy(
    client: AsyncClient, host: HostProcess
) -> None:
    """No program inside can reach the agent, so its first two crashes in a task leave no reward."""
    for number in range(EXCUSED + 1):
        async with client.episode(task(shell("echo yes > ~/answer"))) as episode:
            await episode.step(WAIT)
            async with ended_agent(episode, host) as agent:
                os.kill(agent, signal.SIGKILL)
            excused = number < EXCUSED
            found = await (finding(episode) if excused else finding_of_policy(episode))
            assert "started another one" in found


async def test_an_agent_that_was_taken_over_after_a_step_is_a_0(
    client: AsyncClient, host: HostProcess
) -> None:
    """An agent that was replaced by another program is tampering, not a crash."""
    program = {"path": "/tmp/take_over.py", "text": TAKE_OVER.read_text()}
    upload = {"type": "upload_file", "parameters": {"files": [program]}}
    async with client.episode(task(upload, shell("echo no > ~/answer"))) as episode:
        await episode.step(WAIT)
        row = row_of(episode, host)
        async with ended_agent(episode, host):
            await asyncio.to_thread(
                run_beside, row["pid"], ["sh", "-c", "setsid python3 /tmp/take_over.py >/dev/null 2>&1 &"]
            )
        assert "started another one" in await finding_of_policy(episode)


def row_of(episode: AsyncEpisode, host: HostProcess) -> dict[str, Any]:
    """Return the host's row of an episode's replica."""
    (row,) = [r for r in host.replicas("leased") if r["replica_id"] == episode.replica_id]
    return row


@asynccontextmanager
async def ended_agent(episode: AsyncEpisode, host: HostProcess) -> AsyncIterator[int]:
    """Yield the PID of the agent; afterwards wait until the process is gone."""
    (agent,) = harness_processes(row_of(episode, host)["pid"], "osgym_guest.pyc")
    yield agent
    await asyncio.to_thread(wait_until, lambda: not command_line(agent), 20, "the agent ended")


def command_line(pid: int) -> bytes:
    """What a process was started with, nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("attack", "says"),
    [
        (f"sudo sh -c 'echo >> {PACKAGE}/api.py'", "was changed"),
        (f"sudo rm {PACKAGE}/api.py", "was changed"),
        (
            "sudo sh -c 'echo /tmp/x.so > /etc/ld.so.preload'; sudo rm /etc/ld.so.preload; "
            "sudo touch /usr/lib/osgym/new",
            "was changed",
        ),
    ],
    ids=["changed", "removed", "added"],
)
async def test_changed_files_are_found_before_scoring(client: AsyncClient, attack: str, says: str) -> None:
    """Root in the desktop can change files that the agent loads later."""
    async with client.episode(task(shell("echo yes > ~/answer"), shell(attack))) as episode:
        await episode.step(WAIT)
        found = await finding_of_policy(episode)
        assert re.search(says, found), found


ATTACKS = {
    "mounted": ("mount --bind /tmp /usr/lib/osgym", "mounted over"),
    "traced": (
        'setsid python3 -c "'
        "import ctypes, os, time;"
        "agent = int(os.popen('pgrep -f osgym_guest.pyc | head -1').read());"
        "libc = ctypes.CDLL(None);"
        "libc.ptrace(0x4206, agent, 0, 0);\n"
        'while True: libc.ptrace(7, agent, 0, os.WSTOPSIG(os.waitpid(agent, 0x40000000)[1]))" '
        ">/dev/null 2>&1 & sleep 1",
        "is being traced",
    ),
    "patched": (
        'python3 -c "'
        "import os, re;"
        "agent = int(os.popen('pgrep -f osgym_guest.pyc | head -1').read());"
        "lines = open(f'/proc/{agent}/maps').read().splitlines();"
        "line = [x for x in lines if 'libexpat' in x and 'r-x' in x][0];"
        "memory = open(f'/proc/{agent}/mem', 'r+b', 0);"
        "memory.seek(int(line.split('-')[0], 16) + 64);"
        "memory.write(b'x' * 8)\"",
        "changed in memory",
    ),
    "listens": (
        'setsid python3 -c "'
        "import ctypes, os, time;"
        "agent = int(os.popen('pgrep -f osgym_guest.pyc | head -1').read());"
        "ctypes.CDLL(None).syscall(438, os.pidfd_open(agent), 3, 0);"
        'time.sleep(60)" >/dev/null 2>&1 & sleep 1',
        "listening socket",
    ),
    "connected": (
        'setsid python3 -c "'
        "import ctypes, os, time;"
        "agent = int(os.popen('pgrep -f osgym_guest.pyc | head -1').read());"
        "libc = ctypes.CDLL(None); pidfd = os.pidfd_open(agent); held = []\n"
        "while True:\n"
        " new = [libc.syscall(438, pidfd, fd, 0) for fd in range(5, 40)]\n"
        " [os.close(fd) for fd in held if fd >= 0]; held = new\n"
        " open('/tmp/held', 'w').close(); time.sleep(0.02)\n"
        '" >/dev/null 2>&1 & while kill -0 $! 2>/dev/null && [ ! -e /tmp/held ]; do sleep 0.02; done',
        "connection|listening",
    ),
}
"""Attacks by root beside the agent, each with the finding."""


@pytest.mark.parametrize("name", ATTACKS)
async def test_tampering_is_found_before_scoring(client: AsyncClient, host: HostProcess, name: str) -> None:
    """Each kind of tampering that is visible from outside is found; else the desktop would be scored."""
    attack, says = ATTACKS[name]
    async with client.episode(task(shell("echo yes > ~/answer"))) as episode:
        await asyncio.to_thread(run_beside, row_of(episode, host)["pid"], ["sh", "-c", attack])
        found = await finding(episode)
        assert re.search(says, found), found


@pytest.mark.parametrize("name", ATTACKS)
async def test_the_same_inside_the_desktop_changes_nothing(client: AsyncClient, name: str) -> None:
    """The same attacks inside the desktop find no agent and cover none of its files; the score is right."""
    attack, _ = ATTACKS[name]
    quoted = attack.replace("'", "'\\''")
    config = [shell("echo yes > ~/answer"), shell(f"sudo sh -c '{quoted}'")]
    async with client.episode(task(*config)) as episode:
        await episode.step(WAIT)
        evaluation = await episode.evaluate()
        assert (evaluation.reward, evaluation.failure) == (1.0, None), evaluation


async def test_what_was_found_stays(client: AsyncClient, host: HostProcess) -> None:
    """Asked again the answer is the same, and the replica goes to nobody else."""
    async with client.episode(task(shell(f"sudo rm {PACKAGE}/api.py"))) as episode:
        first = await episode.evaluate()
        assert await episode.evaluate() == first
        replica_id = episode.replica_id
    assert replica_id not in [row["replica_id"] for row in host.replicas("ready")]
