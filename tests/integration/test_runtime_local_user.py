"""The namespace runtime of an ordinary user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

USER = "osgym-test-user"
USER_RANGE = "231072-296607"

AS_USER = """
import asyncio, json, sys
from pathlib import Path
from tests.support.runtime_probe import build_python_image, run_inside
from osgym_host.runtimes.base import ReplicaSpec
from osgym_host.runtimes.local.runtime import LocalRuntime

async def main():
    data = Path(sys.argv[1])
    image = build_python_image(data / "image")
    runtime = LocalRuntime(data, "user")
    await runtime.start()
    replica = await runtime.create(ReplicaSpec("r1", 1, image))
    assert "As root" in runtime.ids_shared_because
    inside = await run_inside(replica, '''
import os
os.makedirs("/own/a/b/c")
open("/own/a/b/c/file", "wb").write(os.urandom(3 << 20))
os.chown("/own/a/b/c/file", 1000, 1000)
import builtins
builtins.held = open("/own/held", "wb", buffering=0)
builtins.held.write(os.urandom(4 << 20))
os.unlink("/own/held")
os.chmod("/own/a", 0)
import ctypes
libc = ctypes.CDLL(None)
inotify = 0
while inotify < 200 and libc.inotify_init() >= 0:
    inotify += 1
result = {"uid": os.getuid(), "pids": [p for p in os.listdir("/proc") if p.isdigit()], "inotify": inotify}
''')
    usage = await runtime.usage(replica)
    host_uid = Path(f"/proc/{replica.pid}/status").read_text().split("Uid:")[1].split()[0]
    await runtime.stop()
    left = [str(p) for p in (data / "run/user/replicas").iterdir()]
    print(json.dumps({"inside": inside, "host_uid": int(host_uid), "left": left,
                      "overlay_mib": usage.overlay_mib, "pss_mib": usage.pss_mib,
                      "reason": replica.exit_info.reason}))

asyncio.run(main())
"""


def subordinate_uid(user: str) -> int | None:
    """First subordinate id of a user."""
    for line in Path("/etc/subuid").read_text().splitlines():
        if line.split(":")[0] == user:
            return int(line.split(":")[1])
    return None


@pytest.fixture
def user() -> Iterator[str]:
    """A fresh user with subordinate ids, removed afterwards."""
    if os.geteuid() != 0:
        pytest.skip("missing: root, who can make a user")
    for tool in ("newuidmap", "useradd", "runuser"):
        if subprocess.run(["which", tool], capture_output=True, check=False).returncode != 0:
            pytest.skip(f"missing: {tool}")
    subprocess.run(["useradd", "--create-home", USER], check=True, capture_output=True)
    try:
        if subordinate_uid(USER) is None:  # not every system hands out a range by itself
            argv = ["usermod", "--add-subuids", USER_RANGE, "--add-subgids", USER_RANGE, USER]
            subprocess.run(argv, check=True, capture_output=True)
        yield USER
    finally:
        subprocess.run(["userdel", "--remove", USER], check=False, capture_output=True)


def user_python(user: str, home: Path) -> Path:
    """Make an interpreter that `user` may run and that imports this tree's host package."""
    probe = "import sys; sys.exit(sys.version_info < (3, 11))"
    for candidate in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        argv = ["runuser", "-u", user, "--", candidate, "-c", probe]
        if subprocess.run(argv, capture_output=True, cwd="/", check=False).returncode == 0:
            break
    else:
        pytest.skip("missing: an interpreter of 3.11 or later that other users may run")
    argv = [candidate, "-m", "venv", "--without-pip", str(home / "venv")]
    subprocess.run(argv, check=True, capture_output=True, cwd="/")
    root = Path(__file__).parents[2]
    for package in ("host_agent/osgym_host", "protocol/osgym_protocol"):
        shutil.copytree(root / package, home / "src" / Path(package).name)
    support = home / "src/tests/support"
    support.mkdir(parents=True)
    shutil.copy(root / "tests/support/runtime_probe.py", support)
    site = next((home / "venv/lib").glob("python3*")) / "site-packages"
    (site / "osgym.pth").write_text(f"{home}/src\n")
    return home / "venv/bin/python"


def test_an_ordinary_user_can_do_it_all(user: str) -> None:
    """Create, write as several ids, measure and remove, without any right of root."""
    home = Path("/home") / user
    python = str(user_python(user, home))
    program = textwrap.dedent(AS_USER)
    argv = ["runuser", "-u", user, "--", python, "-W", "error", "-c", program, f"{home}/data"]
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=120, check=False, cwd="/", env=environment
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    most = Path("/proc/sys/user/max_inotify_instances").read_text()
    bound = min(128, max(16, int(most) // 8))  # a share of what all of the user's replicas may have
    assert answer["inside"] == {"uid": 0, "pids": ["1"], "inotify": bound}
    assert answer["host_uid"] == subordinate_uid(user)
    assert answer["left"] == []
    assert answer["overlay_mib"] > 6.9
    assert answer["pss_mib"] > 1
    assert answer["reason"] == "destroyed"
