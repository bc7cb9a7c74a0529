"""Own machines under the real engine: up, changed, drifted, interrupted, destroyed.

Skips without the `pulumi` CLI on PATH. State and passphrase lie in the test's folder.
"""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support import host_fixtures
from tests.support.host_process import wait_until
from tests.support.pulumi_stack import OwnStack
from tests.support.ssh_hosts import SshMachine, missing, own_machine, ssh_machine

from osgym_host.images.store import Image
from osgym_sdk import Client

pytestmark = [
    pytest.mark.skipif(shutil.which("pulumi") is None, reason="missing: the pulumi CLI on PATH"),
    pytest.mark.desktop,
    pytest.mark.timeout(900),
]

LEFT = "ls -d /opt/osgym /etc/osgym /usr/local/lib/osgym* /var/cache/osgym 2>/dev/null; getent passwd osgym"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDxMUhWv/6bUWrDs6EYMvYCO2o4ZBIL9M4DpRyzYCdQy"


@pytest.fixture(scope="module", autouse=True)
def _possible() -> None:
    if lacking := missing():
        pytest.skip(f"missing: {lacking}")


def configuration(image: Image, hosts: list[dict[str, Any] | str], **other: object) -> dict[str, object]:
    """A fleet of own machines."""
    given = host_fixtures.settings(image)
    # The network of `ssh_machine`; an agent of this machine's is on loopback.
    reached_from = {} if hosts == ["local"] else {"allowed_cidrs": ["198.18.0.0/15"]}
    return {
        "provider": "ssh",
        "owner": "lab",
        "replicas": 2,
        "runtime": "local",
        "hosts": hosts,
        "image_name": "small",
        "image_uri": given["OSGYM_IMAGE_URI"],
        "image_sha256": given["OSGYM_IMAGE_SHA256"],
        "image_digest": given["OSGYM_IMAGE_DIGEST"],
        "agent_uri": given["OSGYM_AGENT_URI"],
        "agent_sha256": given["OSGYM_AGENT_SHA256"],
        "max_replicas_per_host": 2,
        **reached_from,
        **other,
    }


def reached(machine: SshMachine, **other: object) -> dict[str, Any]:
    """A machine as it stands in the configuration."""
    key = {"host_key": machine.host_key, "ssh_key": str(machine.key_file)}
    return {"address": machine.address, **key, **other}


def test_hosts_behind_ssh(small_image: Image, tmp_path: Path) -> None:
    """One host serves though another is not there; it is used, drifts, is put right; a change is interrupted
    and taken up again; all is taken down, and no secret was ever in clear."""
    stack = OwnStack(tmp_path / "project")
    with ssh_machine(tmp_path) as machine:
        stack.make()
        away = {"address": "127.0.0.1", "port": 9, "host_key": KEY}
        stack.configure(configuration(small_image, [reached(machine), away], replicas=4))
        said = stack.up(ok=False)
        assert "host root@127.0.0.1:9: cannot be reached: Connection refused" in said
        assert "Traceback" not in said
        assert set(stack.hosts()) == {machine.address}

        fleet, warned = stack.export_fleet()
        assert [host["url"] for host in fleet["hosts"]] == [f"https://{machine.address}:20000"]
        assert (tmp_path / "project/token").stat().st_mode & 0o777 == 0o600
        token = (tmp_path / "project/token").read_text().strip()
        with Client.from_fleet(tmp_path / "project/fleet.json") as client, client.episode() as episode:
            assert episode.step([{"op": "wait", "duration_ms": 50}]).screen == (1920, 1080)

        stack.configure(configuration(small_image, [reached(machine)]))
        assert "1 unchanged" not in stack.up()
        assert "Resources:\n    4 unchanged" in stack.up()
        fleet, warned = stack.export_fleet()
        assert warned == ""
        assert fleet["capacity"] == 2
        _drift(stack, machine)
        _interrupt(stack, machine, small_image)
        fleet, _ = stack.export_fleet()
        renewed = (tmp_path / "project/token").read_text().strip()
        assert renewed != token
        with Client.from_fleet(tmp_path / "project/fleet.json") as client, client.episode() as episode:
            assert episode.observation.screen == (1920, 1080)

        stack.run("destroy", "--yes", "--suppress-progress")
        assert machine.inside(LEFT) == ""
        stack.assert_nowhere_in_clear(token)
        stack.assert_nowhere_in_clear(renewed)


def _drift(stack: OwnStack, machine: SshMachine) -> None:
    """Somebody stops the agent: refresh sees it, the export leaves the host out, up puts it right."""
    machine.inside("kill -KILL $(cat /run/osgym.pid)")
    stack.run("refresh", "--yes", "--suppress-progress")
    found = stack.hosts()[machine.address]["outputs"]
    assert (found["serving"], found["problem"]) == (False, "agent is not running")
    assert "1 updated" in stack.up()
    assert stack.hosts()[machine.address]["outputs"]["serving"] is True


def _interrupt(stack: OwnStack, machine: SshMachine, image: Image) -> None:
    """Ctrl-C while hosts get new secrets: reported, in the state, and the next up goes on."""
    # A desktop that cannot start keeps the last step waiting.
    machine.inside("mv /var/lib/osgym/images /var/lib/osgym/away")
    stack.configure(configuration(image, [reached(machine, max_replicas=1)], replicas=1, rotation=1))
    process = stack.start("up", "--yes", "--suppress-progress")

    def running() -> bool:
        return "bootstrap.sh up image" in machine.inside("ps -eo args")

    wait_until(lambda: process.poll() is not None or running(), 60, "the step image")
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    said = stack.finish(process, ok=False)
    assert time.monotonic() - began < 30
    assert f"host root@{machine.address}: interrupted in step image; the host is partly configured" in said
    wait_until(lambda: not running(), 15, "the bootstrap is stopped")
    host = stack.hosts()[machine.address]
    assert "interrupted in step image" in host["initErrors"][0]
    machine.inside("rm -rf /var/lib/osgym/images; mv /var/lib/osgym/away /var/lib/osgym/images")
    assert "1 updated" in stack.up()
    host = stack.hosts()[machine.address]
    assert "initErrors" not in host
    assert host["outputs"]["serving"] is True


def test_this_machine(small_image: Image, tmp_path: Path) -> None:
    """`local`: from `pulumi up` to an episode and back, on a copy of this machine that is thrown away."""
    agent, image = host_fixtures.archives(small_image.digest)
    with own_machine(tmp_path / "own", agent.path.parent, image.path.parent) as machine:
        stack = OwnStack(machine.shared / "project", machine.enter)
        stack.make()
        stack.configure(configuration(small_image, ["local"]))
        stack.up()
        fleet, _ = stack.export_fleet()
        assert [host["url"] for host in fleet["hosts"]] == ["https://127.0.0.1:20000"]
        script = (
            "import sys, osgym_sdk\nwith osgym_sdk.Client.from_fleet(sys.argv[1]) as c, c.episode() as e:\n"
        )
        script += "    print(e.step([{'op': 'wait', 'duration_ms': 50}]).screen)"
        assert "(1920, 1080)" in machine.python(script, str(stack.folder / "fleet.json"))
        stack.run("destroy", "--yes", "--suppress-progress")
        assert machine.inside(LEFT) == ""
        stack.assert_nowhere_in_clear((stack.folder / "token").read_text().strip())
