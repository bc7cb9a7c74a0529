"""What an identity may look like, and the program that carries it out, in namespaces of its own."""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import osgym_guest
from osgym_guest.http import HttpError
from osgym_guest.identity import Identities, parse_identity

NINE_NS = 1_767_258_000 * 10**9  # 2026-01-01 09:00 UTC
SOURCE = Path(osgym_guest.__file__).parents[1] / "native" / "identity.c"
MACHINE_ID = "0123456789abcdef0123456789abcdef"
BOOT_ID = "8c707660-a424-4479-a7a9-6e2766ec61dd"
GOOD: dict[str, Any] = {
    "generation": 7,
    "token": "t0ken",
    "hostname": "desktop-1",
    "machine_id": "fedcba98765432100123456789abcdef",
    "boot_id": "12345678-0000-4000-8000-00000000abcd",
    "seed": base64.b64encode(bytes(range(64))).decode(),
    "time_ns": time.time_ns(),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`osgym-identity`, compiled with all warnings as errors."""
    if shutil.which("cc") is None:
        pytest.skip("missing: a C compiler")
    path = tmp_path_factory.mktemp("helper") / "osgym-identity"
    flags = ["-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined"]
    subprocess.run(["cc", *flags, "-o", path, SOURCE], check=True)
    return path


class Helper:
    """The running program; it is root of a user namespace, with a host name of its own."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.socket = folder / "identity.sock"
        self.files = folder / "files"
        self.process = process
        self._opened: list[Identities] = []

    def identities(self, file: Path | None = None) -> Identities:
        """What an agent asks it with; closed at the end."""
        self._opened.append(Identities(self.socket, file))
        return self._opened[-1]

    def close(self) -> None:
        """Lets go of what asked it."""
        for identities in self._opened:
            identities.close()

    def inside(self, *argv: str) -> str:
        """What a program prints in its namespaces."""
        enter = ["nsenter", "--user", "--uts", "--preserve-credentials", "-t", str(self.process.pid)]
        return subprocess.run(
            [*enter, *argv], capture_output=True, text=True, check=True, timeout=20
        ).stdout.strip()


Starter = Callable[..., contextlib.AbstractContextManager[Helper]]


@pytest.fixture
def helper(program: Path, tmp_path: Path) -> Starter:
    """Starts it; `allowed` is the id that may ask besides root, `mapped` what the test's own id is there."""

    @contextlib.contextmanager
    def start(allowed: int = 1000, mapped: int = 0) -> Iterator[Helper]:
        (tmp_path / "files").mkdir()
        (tmp_path / "files/machine-id").write_text(MACHINE_ID + "\n")
        (tmp_path / "files/boot-id").write_text(BOOT_ID + "\n")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(tmp_path / "identity.sock"))
            listener.listen(8)
            spaces = ["unshare", "--user", f"--map-user={mapped}", "--uts"]
            process = subprocess.Popen(
                [*spaces, program, str(allowed), tmp_path / "files"],
                preexec_fn=lambda: os.dup2(listener.fileno(), 3, inheritable=True),
                pass_fds=[3, listener.fileno()],
                stderr=subprocess.PIPE,
            )
        made = Helper(tmp_path, process)
        try:
            yield made
        finally:
            made.close()
            process.kill()
            _, errors = process.communicate(timeout=10)
            if b"unshare" in errors:
                pytest.skip("missing: unprivileged user namespaces")
            assert errors == b""

    return start


def refusal(body: dict[str, Any]) -> HttpError:
    """The error that a body is refused with."""
    with pytest.raises(HttpError) as caught:
        parse_identity(body)
    return caught.value


@pytest.mark.parametrize(
    "change",
    [
        {"generation": 0},
        {"generation": "7"},
        {"generation": True},
        {"generation": 2**60},
        {"token": "with space"},
        {"token": "ünicode"},
        {"token": "x" * 300},
        {"token": None},
        {"hostname": "x" * 64},
        {"hostname": "é"},
        {"hostname": "a\0b"},
        {"machine_id": 5},
        {"seed": "not base64!"},
        {"seed": base64.b64encode(b"short").decode()},
        {"seed": None},
        {"time_ns": -1},
        {"time_ns": 1.5},
        {"surplus": 1},
    ],
)
def test_a_malformed_identity_is_refused(change: dict[str, Any]) -> None:
    """400, before anybody is asked to do anything."""
    assert refusal({**GOOD, **change}).status == 400


def test_the_helper_does_what_it_may(helper: Starter) -> None:
    """Names are changed; what needs the real root is reported as not done, and nothing hangs."""
    with helper() as running:
        identities = running.identities()
        taken = identities.assume(parse_identity(GOOD))
        assert running.inside("hostname") == socket.gethostname()  # not before the answer is out
        identities.settle()
        # Without rights on the whole machine neither its clock nor its random pool can be set.
        assert taken.applied == {
            "seed": False,
            "hostname": True,
            "machine_id": True,
            "boot_id": True,
            "time": False,
            "token": True,
        }
        assert (running.files / "machine-id").read_text() == GOOD["machine_id"] + "\n"
        assert (running.files / "boot-id").read_text() == GOOD["boot_id"] + "\n"
        assert running.inside("hostname") == "desktop-1"
    assert socket.gethostname() != "desktop-1"


def test_what_is_left_out_stays(helper: Starter) -> None:
    """Only what was asked for is in the answer."""
    with helper() as running:
        taken = running.identities().assume(
            parse_identity({"generation": 1, "token": "t", "hostname": "only-this"})
        )
        assert taken.applied == {"hostname": True, "token": True}
        assert (running.files / "machine-id").read_text() == MACHINE_ID + "\n"


@pytest.mark.parametrize(
    "change",
    [
        {"hostname": "-dash"},
        {"hostname": "dash-"},
        {"hostname": "Upper"},
        {"hostname": "a.b"},
        {"hostname": "a/b"},
        {"machine_id": "0" * 31},
        {"machine_id": "g" * 32},
        {"machine_id": "A" * 32},
        {"boot_id": "12345678000040008000000000000abcd"},
        {"boot_id": "12345678-0000-4000-8000-00000000abc/"},
        {"time_ns": 10**9},
        {"time_ns": 5 * 10**18},
    ],
)
def test_the_helper_refuses_an_identity_as_a_whole(helper: Starter, change: dict[str, Any]) -> None:
    """One bad text, and nothing of it is done; the identity is not taken."""
    with helper() as running:
        identities = running.identities()
        with pytest.raises(HttpError) as caught:
            identities.assume(parse_identity({**GOOD, **change}))
        assert caught.value.status == 400
        assert identities.last is None
        assert (running.files / "machine-id").read_text() == MACHINE_ID + "\n"
        assert running.inside("hostname") == socket.gethostname()


@pytest.mark.parametrize(
    "packet", [b"x", b"OSGYMID1", b"OSGYMGO1\0", b"\0" * 224, b"OSGYMID1" + b"\xff" * 216, b"z" * 9000]
)
def test_the_helper_survives_any_packet(helper: Starter, packet: bytes) -> None:
    """It answers each with a refusal and goes on."""
    with helper() as running:
        for _ in range(2):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
                sock.settimeout(10)
                sock.connect(str(running.socket))
                sock.send(packet)
                answer = sock.recv(100)
                assert answer == b"OSGYMID1" + errno.EINVAL.to_bytes(4, "little") * 5
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
            silent.connect(str(running.socket))
        assert (running.identities().assume(parse_identity(GOOD))).generation == 7


def test_a_stranger_is_sent_away(helper: Starter) -> None:
    """Another user of the guest gets no answer, and nothing is done."""
    with helper(allowed=1000, mapped=4711) as running:
        with pytest.raises(HttpError) as caught:
            running.identities().assume(parse_identity(GOOD))
        assert (caught.value.status, caught.value.code) == (503, "no_identity_helper")
        assert (running.files / "machine-id").read_text() == MACHINE_ID + "\n"


def test_the_same_identity_again_changes_nothing(helper: Starter, tmp_path: Path) -> None:
    """Also after a restart of the agent; another token for the same generation is stale."""
    with helper() as running:
        kept = tmp_path / "kept"
        identities = running.identities(kept)
        first, second = [identities.assume(parse_identity(GOOD)) for _ in range(2)]
        identities.settle()
        assert first == second
        assert kept.stat().st_mode & 0o777 == 0o600
        (running.files / "boot-id").write_text(BOOT_ID + "\n")
        identities.close()
        restarted = running.identities(kept)
        assert restarted.last == first
        assert restarted.assume(parse_identity(GOOD)) == first
        assert (running.files / "boot-id").read_text() == BOOT_ID + "\n"
        with pytest.raises(HttpError) as caught:
            restarted.assume(parse_identity({**GOOD, "token": "another"}))
        assert (caught.value.status, caught.value.code) == (409, "stale_identity")
        # A checkpoint may go on at a host that counts lower.
        assert (restarted.assume(parse_identity({**GOOD, "generation": 3}))).generation == 3


def test_half_an_identity_is_forgotten(helper: Starter, tmp_path: Path) -> None:
    """When the rest cannot be done after all, a restarted agent is who the template was."""
    with helper() as running:
        identities = running.identities(tmp_path / "kept")
        identities.assume(parse_identity(GOOD))
        identities.settle()
        identities.assume(parse_identity({**GOOD, "generation": 8}))
        os.kill(running.process.pid, signal.SIGSTOP)
        with pytest.raises(HttpError) as caught:
            identities.settle()
        os.kill(running.process.pid, signal.SIGCONT)
        assert caught.value.code == "no_identity_helper"
        assert running.identities(tmp_path / "kept").last is None


def test_without_the_helper_nothing_is_taken(tmp_path: Path) -> None:
    """503, and the agent stays who it was."""
    identities = Identities(tmp_path / "nobody.sock", tmp_path / "kept")
    with pytest.raises(HttpError) as caught:
        identities.assume(parse_identity(GOOD))
    assert (caught.value.status, caught.value.code) == (503, "no_identity_helper")
    assert identities.last is None and not (tmp_path / "kept").read_bytes().strip(b"\0")


def test_a_broken_file_is_no_identity(tmp_path: Path) -> None:
    """The agent starts all the same."""
    for text in ("", "{", "{}", "[]", '{"generation": 1}', "\0"):
        (tmp_path / "kept").write_text(text)
        assert Identities(tmp_path / "s", tmp_path / "kept").last is None


def test_a_clock_of_its_own_stays(helper: Starter, tmp_path: Path) -> None:
    """A child of a fork keeps its parent's time: later identities leave the clock alone."""
    with helper() as running:
        identities = running.identities()
        with pytest.raises(HttpError) as caught:  # without rights on the machine's clock
            identities.set_clock(NINE_NS)
        assert caught.value.status == 503
        assert "time" in identities.assume(parse_identity({**GOOD, "generation": 1})).applied
    with setting_helper(tmp_path / "other.sock") as asked:
        kept = tmp_path / "kept"
        identities = Identities(tmp_path / "other.sock", kept)
        identities.assume(parse_identity({**GOOD, "generation": 2}))
        identities.set_clock(NINE_NS)
        identities.close()
        again = Identities(tmp_path / "other.sock", kept)  # the agent was started anew
        again.assume(parse_identity({**GOOD, "generation": 3}))
        again.settle()
        again.close()
    assert asked == [GOOD["time_ns"], NINE_NS, "go", 0, "go"]


@contextlib.contextmanager
def setting_helper(path: Path) -> Iterator[list[Any]]:
    """Stand for a helper that may set the clock; yields the times that it was asked for."""
    asked: list[Any] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(10)

        def serve() -> None:
            for _ in range(2):
                peer, _ = listener.accept()
                with peer:
                    while packet := peer.recv(1024):
                        go = packet == b"OSGYMGO1"
                        asked.append("go" if go else struct.unpack_from("<q", packet, 8)[0])
                        answers = (-1, 0, -1, -1, 0) if go else (0, -2, 0, 0, -2 if asked[-1] else -1)
                        peer.send(struct.pack("<8s5i", b"OSGYMID1", *answers))

        thread = threading.Thread(target=serve)
        thread.start()
        yield asked
        thread.join(20)
        assert not thread.is_alive()
