"""The whole of it as an ordinary user: serve, lease, step, stop, with no right of root anywhere."""

from __future__ import annotations

import json
import os
import shutil
import site
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.host_process import running_host
from tests.support.small_internet import SITE, SmallInternet, small_internet
from tests.support.ssh_hosts import memory_will_do

from osgym_host.images.store import Image
from osgym_host.runtimes.web.options import TEST_WORLD
from osgym_sdk import Client

pytestmark = pytest.mark.desktop

USER = "osgym-e2e"
FIRST_ID = 700_000_000
"""Subordinate ids for the test's user, away from those that useradd hands out and from root's."""


@dataclass(frozen=True)
class Account:
    """A user of this machine who may do nothing special."""

    name: str
    home: Path
    uid: int
    first_id: int


@pytest.fixture(scope="module")
def account() -> Iterator[Account]:
    """A fresh user with subordinate ids, removed afterwards; the home is in memory if there is enough."""
    if os.geteuid() != 0:
        pytest.skip("missing: the right to make a user (the other tests run as this one anyway)")
    for tool in ("useradd", "usermod", "userdel", "newuidmap", "runuser", "setpriv"):
        if shutil.which(tool) is None:
            pytest.skip(f"missing: {tool}")
    home = Path("/home") / USER
    subprocess.run(["useradd", "--create-home", USER], check=True, capture_output=True)
    try:
        if memory_will_do(home):
            options = f"size=5g,mode=755,uid={home.stat().st_uid},gid={home.stat().st_gid}"
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(home)], check=True)
        if not _subordinate_ids(USER):
            ids = f"{FIRST_ID}-{FIRST_ID + 65_535}"
            argv = ["usermod", "--add-subuids", ids, "--add-subgids", ids, USER]
            subprocess.run(argv, check=True, capture_output=True)
        yield Account(USER, home, home.stat().st_uid, _subordinate_ids(USER))
    finally:
        for mounted in (home / "others", home):
            if mounted.is_mount():
                subprocess.run(["umount", str(mounted)], check=True)
        subprocess.run(["userdel", "--remove", USER], check=False, capture_output=True)


def _subordinate_ids(user: str) -> int:
    path = Path("/etc/subuid")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((int(line.split(":")[1]) for line in lines if line.split(":")[0] == user), 0)


def _give_image(image: Image, account: Account) -> Path:
    """Copies an image into the user's store, owned by the user's ids instead of root's."""
    data = account.home / ".cache" / "osgym"
    target = data / "images" / image.digest
    target.mkdir(parents=True)
    subprocess.run(["cp", "-a", "--reflink=auto", str(image.rootfs), str(target / "rootfs")], check=True)
    shift = account.first_id - image.manifest.uid_base
    for folder, folders, files in os.walk(target / "rootfs"):
        for name in (*folders, *files, "."):
            path = os.path.join(folder, name)
            known = os.lstat(path)
            if known.st_uid < image.manifest.uid_base or (name == "." and folder != str(target / "rootfs")):
                continue
            os.chown(path, known.st_uid + shift, known.st_gid + shift, follow_symlinks=False)
            if known.st_mode & (stat.S_ISUID | stat.S_ISGID) and not stat.S_ISLNK(known.st_mode):
                os.chmod(path, stat.S_IMODE(known.st_mode))  # chown takes these bits away
    manifest = json.loads((image.rootfs.parent / "manifest.json").read_text())
    manifest["uid_base"] = manifest["gid_base"] = account.first_id
    (target / "manifest.json").write_text(json.dumps(manifest))
    tags = data / "images" / "tags"
    tags.mkdir()
    (tags / image.flavor).write_text(image.digest + "\n")
    for path in (account.home / ".cache", data, data / "images", target, target / "manifest.json", tags):
        os.chown(path, account.uid, account.uid)
    os.chown(tags / image.flavor, account.uid, account.uid)
    return data


def _give_python(account: Account) -> list[str]:
    """The user's way to start `osgym`: a readable interpreter, our packages, and a view of all others."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        argv = ["runuser", "-u", account.name, "--", candidate, "-c", "pass"]
        if subprocess.run(argv, capture_output=True, cwd="/", check=False).returncode == 0:
            break
    else:
        pytest.skip(f"missing: a {version} that other users may run")
    root = Path(__file__).parents[2]
    code, others = account.home / "code", account.home / "others"
    others.mkdir()
    subprocess.run(["mount", "--bind", site.getsitepackages()[0], str(others)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(others)], check=True)
    for package in ("host_agent/osgym_host", "protocol/osgym_protocol"):
        shutil.copytree(root / package, code / Path(package).name)
    venv = account.home / "venv"
    subprocess.run([candidate, "-m", "venv", "--without-pip", str(venv)], check=True, cwd="/")
    (venv / "lib" / version / "site-packages" / "osgym.pth").write_text(f"{code}\n{others}\n")
    script = "import sys; sys.argv[0] = 'osgym'; from osgym_host.cli.main import main; main()"
    become = ["setpriv", f"--reuid={account.name}", f"--regid={account.name}", "--init-groups", "--"]
    return [*become, str(venv / "bin" / "python"), "-c", script]


@pytest.fixture
def internet(account: Account) -> Iterator[SmallInternet]:
    """Sites that only the proxy knows."""
    with small_internet(account.home) as running:
        yield running


def test_an_ordinary_user_runs_real_desktops(
    small_image: Image, account: Account, internet: SmallInternet, tmp_path: Path
) -> None:
    """Serve, lease, type, reach a site, score and stop; nothing of it belongs to root, nothing is left."""
    data = _give_image(small_image, account)
    command = _give_python(account)
    environment = {"HOME": str(account.home), "OSGYM_DATA_DIR": str(data)}
    environment[TEST_WORLD] = str(internet.world)
    options = {"warm": 1, "max_replicas": 2, "log_dir": tmp_path, "data_dir": data, "env": environment}
    options["settings"] = ["egress=open"]
    with running_host("plain", command=command, cwd=account.home, **options) as host:
        [replica] = host.replicas("ready")
        assert os.stat(f"/proc/{replica['pid']}").st_uid >= account.first_id
        task = {
            "id": "own",
            "instruction": "Be an ordinary user.",
            "config": [{"type": "execute", "parameters": {"command": "id -un > /tmp/who", "shell": True}}],
            "evaluator": {
                "func": "exact_match",
                "result": {"type": "vm_command_line", "command": ["cat", "/tmp/who"]},
                "expected": {"type": "rule", "rules": {"expected": "user\n"}},
            },
        }
        with Client(host.url) as client, client.episode(task, wait_s=30) as episode:
            before = episode.observation
            assert before.size == (1920, 1080)
            assert episode.step("right_single(1200,400)").hash != before.hash
            for url, status in ((f"http://{SITE}/count", 200), ("http://127.1:20000/", 403)):
                code = "import http.client as c; proxy = c.HTTPConnection('127.0.0.1', 3128); "
                code += f"proxy.request('GET', '{url}'); print(proxy.getresponse().status)"
                done = episode.execute(["python3", "-c", code])
                assert done.output.strip() == str(status), done
            evaluation = episode.evaluate()
            assert (evaluation.reward, evaluation.failure) == (1.0, None)
        change = {"type": "execute", "parameters": {"command": ["sudo", "touch", "/usr/lib/osgym/new"]}}
        with (
            Client(host.url) as client,
            client.episode({**task, "config": [*task["config"], change]}, wait_s=30) as episode,
        ):
            evaluation = episode.evaluate()
            assert evaluation.reward is None
            assert evaluation.failure is not None
            assert evaluation.failure.details["cause"] == "guest_tampered"
