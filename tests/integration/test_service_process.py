"""The service as a process over real desktops: commands, exit codes, dying replicas, the OSGym scripts."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import requests
from PIL import Image as Picture
from tests.support.host_process import HostProcess, osgym, running_host, start_host, wait_until

from osgym_host.images.store import Image, default_data_dir
from osgym_sdk import Client, EpisodeLost

pytestmark = pytest.mark.desktop

ROOT = Path(__file__).parents[2]
TASK = {
    "id": "make-a-file",
    "instruction": "Make a file.",
    "config": [{"type": "execute", "parameters": {"command": ["mkdir", "-p", "/home/user/work"]}}],
    "evaluator": {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": ["ls", "-d", "/home/user/work"]},
        "expected": {"type": "rule", "rules": {"expected": "/home/user/work\n"}},
    },
}


@pytest.fixture
def instance(request: pytest.FixtureRequest) -> Iterator[str]:
    """A name of its own for each host; its (empty) folders go afterwards."""
    name = f"svc-{os.getpid()}-{abs(hash(request.node.name)) % 10_000}"
    yield name
    for folder in ("run", "state"):
        for path in (default_data_dir() / folder).glob(f"*{name}*"):
            shutil.rmtree(path)


def test_ps_and_shot_show_the_replicas(host: HostProcess, tmp_path: Path) -> None:
    """The table has every replica with its memory; the picture is the desktop's."""
    wait_until(lambda: all(r["pss_mib"] for r in host.replicas("ready")), 20, "memory measured")
    listed = osgym("replica", "ls", "--host", host.url, "--json")
    rows = json.loads(listed.stdout)
    assert len(rows) >= 2
    assert all(20 < row["pss_mib"] < 1000 for row in rows if row["state"] == "ready")
    table = osgym("replica", "ls", "--host", host.url).stdout
    assert all(row["replica_id"] in table for row in rows)
    assert "MiB" in table
    out = tmp_path / "out.png"
    shot = osgym("replica", "screenshot", rows[0]["replica_id"], str(out), "--host", host.url)
    assert shot.returncode == 0, shot.stderr
    with Picture.open(out) as picture:
        assert picture.size == (1920, 1080)
        assert len(picture.convert("RGB").getcolors(1 << 24) or []) > 100
    wrong = osgym("replica", "screenshot", "nope", str(out), "--host", host.url)
    assert wrong.returncode != 0
    assert "no replica with that id" in wrong.stderr
    unreachable = osgym("replica", "ls", "--host", "http://127.0.0.1:9")
    assert unreachable.returncode != 0
    assert "osgym host serve" in unreachable.stderr


def test_exit_codes_say_what_is_wrong(small_image: Image, host: HostProcess, instance: str) -> None:
    """A wrong setting, a missing image, a port that is taken, a directory that is taken."""
    cases = [
        (["--set", "wram=3"], 2, "did you mean warm"),
        (["--host", "0.0.0.0"], 2, "refusing to listen"),
        (["--image", "nonesuch"], 3, "osgym image build"),
        (["--set", "egress=open", "--set", f"instance={instance}"], 3, "egress"),
        (["--image", "small", "--port", str(host.port)], 4, "cannot listen"),
        (["--image", "small", "--set", f"instance={host.instance}"], 4, "already runs"),
    ]
    for arguments, code, said in cases:
        port = [] if "--port" in arguments else ["--port", "0"]
        image = [] if "--image" in arguments else ["--image", "small"]
        ended = osgym("host", "serve", *image, *port, *arguments)
        assert (ended.returncode, said in ended.stderr) == (code, True), (arguments, ended)


def test_a_replica_that_is_killed_ends_its_episode_and_is_replaced(
    small_image: Image, instance: str, tmp_path: Path
) -> None:
    """kill -9 of its first process in the middle of a step: a typed loss within seconds."""
    with running_host(instance, log_dir=tmp_path, warm=1, max_replicas=3) as host:
        with Client(host.url) as client, client.episode() as victim, client.episode() as neighbour:
            victim.step("move(5,5)")
            (row,) = [r for r in host.replicas("leased") if r["replica_id"] == victim.trajectory.replica_id]
            os.kill(row["pid"], signal.SIGKILL)
            began = time.monotonic()
            with pytest.raises(EpisodeLost) as caught:
                victim.step("wait()")
            assert time.monotonic() - began < 3
            assert caught.value.cause in ("killed", "replica_lost")
            assert neighbour.step("move(6,6)").step == 1
            host.wait_ready(1)
        text = httpx.get(f"{host.url}/metrics", timeout=20).text
        assert 'osgym_replicas_retired_total{reason="killed"} 1.0' in text


def test_clean_stops_this_agent_and_no_other(small_image: Image, instance: str, tmp_path: Path) -> None:
    """A running one is stopped, a killed one is cleared up; one beside it goes on."""
    with running_host(f"beside-{instance}", log_dir=tmp_path, warm=1) as beside:
        one = start_host(instance, log_dir=tmp_path, warm=1)
        one.replicas()
        cleaned = osgym("host", "clean", "--instance", instance)
        assert cleaned.returncode == 0, cleaned.stderr
        assert f"process {one.process.pid}" in cleaned.stdout
        assert one.process.wait(10) == 0
        one.assert_nothing_left()

        killed = start_host(instance, log_dir=tmp_path, warm=1)
        killed.replicas()
        killed.process.kill()
        killed.process.wait(10)
        assert osgym("host", "clean", "--instance", instance).returncode == 0
        killed.assert_nothing_left()
        assert osgym("host", "clean", "--instance", instance).stdout == ""
        assert beside.replicas("ready")


def test_generations_go_on_after_a_restart(small_image: Image, instance: str, tmp_path: Path) -> None:
    """No vm_id or replica id is ever given out twice."""
    seen: set[int] = set()
    for _ in range(2):
        with running_host(instance, log_dir=tmp_path, warm=1) as host:
            generations = {r["generation"] for r in host.replicas()}
            assert not generations & seen
            seen |= generations


def test_the_osgym_scripts(small_image: Image, instance: str, tmp_path: Path) -> None:
    """`./start_workers.sh --local`, an episode with `requests`, `./clean.sh`."""
    env = {**os.environ, "OSGYM_INSTANCE": instance}
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [ROOT / "start_workers.sh", "--local", "--port", "0", "--image", "small", "--warm", "1"],
            cwd=tmp_path,
            env=env,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        found = wait_until(
            lambda: re.search(r"listens on (http://127\.0\.0\.1:\d+)", log.read_text()), 60, "listening"
        )
        url = found.group(1)
        reset = requests.post(f"{url}/reset", json={"task_config": TASK, "timeout": 100}, timeout=60)
        reset.raise_for_status()
        data = reset.json()
        with Picture.open(io.BytesIO(base64.b64decode(data["screenshot"]))) as picture:
            assert picture.size == (1920, 1080)
        for action in ("right_single(900,500)", "finish()"):
            answer = requests.post(f"{url}/step", json={"action": action, "vm_id": data["vm_id"]}, timeout=60)
            answer.raise_for_status()
            step = answer.json()
        assert (step["is_finish"], step["reward"]) == (True, 1.0)
    finally:
        cleaned = subprocess.run(
            [ROOT / "clean.sh"],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        code = process.wait(30)
    assert cleaned.returncode == 0, cleaned.stderr
    assert code == 0, log.read_text()


def test_off_loopback_the_scripts_need_addresses(instance: str) -> None:
    """Without OSGYM_ALLOWED_IPS or a token nothing is opened to the network."""
    env = {name: value for name, value in os.environ.items() if name != "OSGYM_TOKEN"}
    env["OSGYM_INSTANCE"] = instance
    ended = subprocess.run(
        [ROOT / "start_workers.sh"], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert "OSGYM_ALLOWED_IPS" in ended.stderr


def test_https(small_image: Image, instance: str, tmp_path: Path) -> None:
    """Two settings, and the service speaks TLS only."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    settings = [f"tls_cert={cert}", f"tls_key={key}"]
    host = start_host(instance, log_dir=tmp_path, warm=1, wait=False, settings=settings)
    try:
        assert host.url.startswith("https://")
        with Client(host.url, verify=str(cert)) as client, client.episode(wait_s=60) as episode:
            assert episode.step("move(5,5)").image.size == (1920, 1080)
        with pytest.raises(httpx.TransportError):
            httpx.get(host.url.replace("https:", "http:") + "/v1/health", timeout=5)
    finally:
        assert host.stop() == 0
    host.assert_nothing_left()
