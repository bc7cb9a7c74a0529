"""`POST /v1/identity` of a running guest agent: token and generation change, and survive a restart."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.guest_rig import Desktop, Guest, GuestFault, desktop, until, until_serving

import osgym_guest

SOURCE = Path(osgym_guest.__file__).parents[1] / "native" / "identity.c"
IDENTITY: dict[str, Any] = {"generation": 12, "token": "second", "machine_id": "f" * 32}


@pytest.fixture
def helper(tmp_path: Path) -> Iterator[Path]:
    """Socket of the helper, which has two files to write and no rights to anything else."""
    if shutil.which("cc") is None:
        pytest.skip("missing: a C compiler")
    subprocess.run(["cc", "-O1", "-o", tmp_path / "osgym-identity", SOURCE], check=True)
    for name in ("machine-id", "boot-id"):
        (tmp_path / name).write_text("-" * 36)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "identity.sock"))
        listener.listen(8)
        process = subprocess.Popen(
            [tmp_path / "osgym-identity", str(os.getuid()), tmp_path],
            preexec_fn=lambda: os.dup2(listener.fileno(), 3, inheritable=True),
            pass_fds=[3, listener.fileno()],
        )
    yield tmp_path / "identity.sock"
    process.kill()
    process.wait(timeout=10)


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Desktop]:
    """A small desktop whose agent is not started yet."""
    (tmp_path / "desktop").mkdir()
    with desktop(tmp_path / "desktop", size=(640, 480), agent=False) as made:
        yield made


def answers(guest: Guest) -> bool:
    """Whether an agent answers with whatever."""
    try:
        return guest.raw("GET", "/v1/health")[0] > 0
    except OSError:
        return False


def _start(screen: Desktop, helper: Path) -> Guest:
    return screen.start_agent(
        OSGYM_TOKEN="first",
        OSGYM_GENERATION="",
        OSGYM_IDENTITY_SOCKET=str(helper),
        OSGYM_STATE_DIR=str(screen.home),
    )


def test_token_and_generation_change_at_once_and_stay(screen: Desktop, helper: Path) -> None:
    """The old token is no good any more, numbers of steps go on, a restarted agent is who it was."""
    guest = _start(screen, helper)
    guest.json("POST", "/v1/ready", {"timeout_s": 20})
    guest.step()
    answer = guest.json("POST", "/v1/identity", IDENTITY)
    assert answer["applied"] == {"machine_id": True, "token": True}
    assert (answer["generation"], answer["last_seq"], answer["status"]) == ("12", 1, "ok")
    assert (helper.parent / "machine-id").read_text().startswith("f" * 32)
    with pytest.raises(GuestFault) as caught:
        guest.json("GET", "/v1/health")
    assert caught.value.status == 401

    now = Guest(screen.home / "agent.sock", "second")
    assert now.json("POST", "/v1/identity", IDENTITY)["applied"] == answer["applied"]
    now.json("GET", "/v1/health")  # served only when all that follows the answer is done
    assert screen.agent is not None
    screen.agent.send_signal(signal.SIGKILL)
    screen.agent.wait(timeout=10)
    _start(screen, helper)
    until_serving(now)
    health = now.json("GET", "/v1/health")
    assert (health["generation"], health["last_seq"]) == ("12", 1)


def test_an_agent_without_a_token_serves_nothing_but_its_next_identity(screen: Desktop, helper: Path) -> None:
    """A template before it is frozen is so, also when its agent is started anew; then one claims it."""
    guest = _start(screen, helper)
    guest.json("POST", "/v1/ready", {"timeout_s": 20})
    guest.json("POST", "/v1/identity", {"generation": 2**53 - 1, "token": ""})
    socket_path = screen.home / "agent.sock"
    tokens = ("first", "", "anything")

    def assert_closed() -> None:
        for token in tokens:
            for method, path in (("GET", "/v1/health"), ("POST", "/v1/step"), ("GET", "/screenshot")):
                with pytest.raises(GuestFault) as caught:
                    Guest(socket_path, token).json(method, path, {} if method == "POST" else None)
                assert caught.value.status == 401

    assert_closed()
    assert screen.agent is not None
    screen.agent.send_signal(signal.SIGKILL)
    screen.agent.wait(timeout=10)
    _start(screen, helper)
    until(lambda: answers(Guest(socket_path, "")))
    assert_closed()
    assert Guest(socket_path, "").json("POST", "/v1/identity", IDENTITY)["applied"]["machine_id"] is True
    tokens = ("first", "", "anything")
    assert_closed()
    with pytest.raises(GuestFault) as caught:
        Guest(socket_path, "").json("POST", "/v1/identity", {**IDENTITY, "generation": 13})
    assert caught.value.status == 401
    assert Guest(socket_path, "second").json("GET", "/v1/health")["generation"] == "12"


def test_a_guest_that_is_no_virtual_machine_has_no_such_endpoint(screen: Desktop) -> None:
    """404, as for any unknown path."""
    guest = screen.start_agent()
    until_serving(guest)
    with pytest.raises(GuestFault) as caught:
        guest.json("POST", "/v1/identity", IDENTITY)
    assert caught.value.status == 404


def test_a_stranger_cannot_give_an_identity(screen: Desktop, helper: Path) -> None:
    """It takes the token that the guest has now."""
    until_serving(_start(screen, helper))
    with pytest.raises(GuestFault) as caught:
        Guest(screen.home / "agent.sock", "wrong").json("POST", "/v1/identity", IDENTITY)
    assert caught.value.status == 401
    assert (helper.parent / "machine-id").read_text() == "-" * 36
