"""Network namespaces that an ordinary user's host agent makes: nobody else connects into them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import ROOT
from tests.support.host_process import wait_until

USER = 65533
MODULES = ROOT / "qemu/osgym_qemu/machine"

# A server inside a namespace, which is then found again by another object, as by a next host agent.
_TRIAL = r"""
import os, socket, subprocess, sys
from kept_namespace import Keeper, KeptNamespace

SERVER = '''
import os, socket
listener = socket.create_server(("127.0.0.1", 5000))
print("up", flush=True)
rights = open("/proc/self/status").read().split("CapEff:")[1].split()[0]
while True:
    listener.accept()[0].sendall(f"{rights} {os.getuid()}".encode())
'''

def ask(namespace):
    with namespace.make_socket() as sock:
        sock.setblocking(True)
        sock.connect(("127.0.0.1", 5000))
        return sock.recv(100).decode()

made, other = KeptNamespace.make(), KeptNamespace.make()
argv = made.around([sys.executable, "-I", "-c", SERVER])
server = subprocess.Popen(argv, stdout=subprocess.PIPE)
try:
    assert server.stdout.readline().strip() == b"up"
    rights, user = ask(made).split()
    assert int(rights, 16) == 0 and int(user) == os.getuid(), (rights, user)
    for outside in (socket.socket(), other.make_socket()):
        with outside:
            outside.setblocking(True)
            try:
                outside.connect(("127.0.0.1", 5000))
            except ConnectionRefusedError:
                continue
            raise AssertionError("connected from outside")
    found = KeptNamespace.of_process(server.pid)
    assert ask(found).split()[1] == str(os.getuid())
    found.close()
    made.close()
    made.close()
    for closed in (lambda: made.around(["true"]), made.make_socket):
        try:
            closed()
        except OSError:
            continue
        raise AssertionError("used after it was closed")
finally:
    server.kill()
    server.wait()
print("well", Keeper.own()._process.pid)
"""


@pytest.fixture
def command() -> Iterator[list[str]]:
    """What runs a Python with the modules as an ordinary user; the program comes last."""
    with tempfile.TemporaryDirectory(prefix="osgym-kept-") as folder:
        for name in ("kept_namespace.py", "namespace_keeper.py"):
            shutil.copy(MODULES / name, folder)
        Path(folder).chmod(0o755)
        user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps=-all"]
        as_user = [*user, "--bounding-set=-all", "--"] if os.geteuid() == 0 else []
        python = "/usr/bin/python3" if os.geteuid() == 0 else sys.executable
        yield ["env", f"PYTHONPATH={folder}", *as_user, python]


def test_an_ordinary_users_namespaces_are_closed_to_others(command: list[str]) -> None:
    """What runs inside has no rights, and nobody connects but by the keeper, which ends with its owner."""
    spaces = [*command[:-1], "unshare", "--user", "--net", "true"]
    if shutil.which("nsenter") is None or subprocess.run(spaces, capture_output=True).returncode != 0:
        pytest.skip("missing: user namespaces of ordinary users, and nsenter")
    needed = "import sys; assert sys.version_info >= (3, 11)"
    if subprocess.run([*command, "-c", needed], capture_output=True).returncode != 0:
        pytest.skip("missing: a Python of at least 3.11 that every user may run")
    ended = subprocess.run([*command, "-c", _TRIAL], capture_output=True, text=True, timeout=60, cwd="/")
    assert ended.returncode == 0, ended.stderr
    word, keeper = ended.stdout.split()
    assert word == "well"
    wait_until(lambda: not is_keeper(keeper), 5, "the keeper ends with its owner")


def is_keeper(pid: str) -> bool:
    """Whether a process is a keeper of namespaces."""
    try:
        return b"namespace_keeper" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
