"""The resource provider, for real: a machine behind sshd comes to serve and goes again, whatever happens."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support import host_fixtures
from tests.support.host_fixtures import TOKEN, FakeEngine
from tests.support.host_process import wait_until
from tests.support.ssh_hosts import SshMachine, missing, ssh_machine

from osgym_host.images.store import Image
from osgym_infra.hosts.spec import ObservedHost
from osgym_infra.hosts.worker import Worker
from osgym_infra.links.errors import (
    CommandFailed,
    FleetHostUnreachable,
    HostKeyMismatch,
    Interrupted,
    LoginRefused,
)
from osgym_infra.resources.provider import PartialFailure
from osgym_sdk import AsyncClient

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(600)]

LEFT = """
ls -d /opt/osgym /etc/osgym /var/lib/osgym /var/cache/osgym 2>/dev/null
ls -d /usr/local/lib/osgym* /etc/sysctl.d/60-osgym.conf /run/osgym.pid 2>/dev/null
getent passwd osgym; grep osgym /etc/subuid /etc/subgid
nft list tables | grep osgym
ps -eo user:20,args | grep '^osgym'
"""
BOOTSTRAPS = "ps -eo args | grep '[b]ootstrap.sh'"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshMachine]:
    """A plain Debian behind sshd."""
    if lacking := missing():
        pytest.skip(f"missing: {lacking}")
    with ssh_machine(tmp_path_factory.mktemp("machines")) as made:
        yield made


async def test_what_cannot_be_right_touches_nothing(machine: SshMachine, small_image: Image) -> None:
    """No server, another key, a login that is refused: each by name, and the machine is as it was."""
    given = host_fixtures.settings(small_image)
    shown = machine.host_key
    cases: list[tuple[dict[str, object], type[Exception], str]] = [
        ({"port": 9}, FleetHostUnreachable, f"root@{machine.address}:9: cannot be reached"),
        ({"hostKey": OTHER_HOST_KEY}, HostKeyMismatch, "another host key|host_key in osgym:hosts"),
        ({"user": "nobody"}, LoginRefused, "refuses the login"),
    ]
    for change, kind, says in cases:
        engine = FakeEngine(machine, given, **change)
        with pytest.raises(kind, match=says) as caught:
            await engine.create()
        assert TOKEN not in str(caught.value)
    with pytest.raises(HostKeyMismatch, match=shown.replace("+", "\\+").replace("/", "\\/")):
        await FakeEngine(machine, given, hostKey=OTHER_HOST_KEY).create()
    assert machine.inside(LEFT) == ""


OTHER_HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDxMUhWv/6bUWrDs6EYMvYCO2o4ZBIL9M4DpRyzYCdQy"


async def test_the_life_of_a_host(machine: SshMachine, small_image: Image, tmp_path: Path) -> None:
    """Out of disk, interrupted, rebooted, and yet it comes to serve; drifts, is put right, changes; goes.

    One test, since each stage begins where the one before left the machine.
    """
    engine = FakeEngine(machine, host_fixtures.settings(small_image))
    await _out_of_disk(machine, engine)
    await _interrupted(machine, engine)
    engine = FakeEngine(machine, host_fixtures.settings(small_image))
    await _rebooted_in_the_middle(machine, engine)
    await _serves(machine, engine, tmp_path)
    await _nothing_to_do(engine)
    await _drifts(machine, engine)
    await _changes(machine, engine)
    await _another_key(machine, engine)
    await engine.delete()
    assert machine.inside(LEFT) == ""
    await engine.delete()  # what is gone is gone


async def _out_of_disk(machine: SshMachine, engine: FakeEngine) -> None:
    """The step, the command and its output are named; the state keeps the host."""
    machine.inside("mount -t tmpfs -o size=8m tmpfs /opt")
    with pytest.raises(PartialFailure) as caught:
        await engine.create()
    cause = caught.value.cause
    assert isinstance(cause, CommandFailed)
    assert cause.step == "agent"
    assert cause.host == f"root@{machine.address}"
    assert "No space left on device" in cause.output
    assert "bootstrap.sh up agent" in str(caught.value)
    assert caught.value.resource_id == machine.address
    machine.inside("umount /opt")


async def _interrupted(machine: SshMachine, engine: FakeEngine) -> None:
    """Nothing runs on, on the host; it is reported as partly configured."""
    creating = asyncio.create_task(engine.create())
    await _until(lambda: "-m pip install" in machine.inside("ps -eo args"), creating)
    await engine.provider.cancel()
    with pytest.raises(
        PartialFailure, match="interrupted in step agent; the host is partly configured"
    ) as caught:
        await creating
    assert isinstance(caught.value.cause, Interrupted)
    await asyncio.to_thread(
        wait_until, lambda: machine.inside(BOOTSTRAPS) == "", 15, "the bootstrap is stopped"
    )
    with pytest.raises(Interrupted, match="before the host was changed"):
        await engine.create()


async def _rebooted_in_the_middle(machine: SshMachine, engine: FakeEngine) -> None:
    """The host goes away without a word in the middle of a step, and comes back: all goes on."""
    creating = asyncio.create_task(engine.create())
    await _until(lambda: "-m pip install" in machine.inside("ps -eo args"), creating)
    await asyncio.to_thread(machine.off)
    await asyncio.sleep(1)
    await asyncio.to_thread(machine.boot)
    await creating
    assert any("waiting for the host to come back" in line for line in engine.lines)
    assert engine.outputs["serving"] is True
    assert engine.outputs["problem"] == ""
    assert engine.outputs["image"] == engine.given["settings"]["OSGYM_IMAGE_DIGEST"]


async def _serves(machine: SshMachine, engine: FakeEngine, folder: Path) -> None:
    """HTTPS by the fleet's authority, to those with the token; a client of the fleet steps a desktop."""
    url = f"https://{machine.address}:20000"
    (folder / "token").write_text(TOKEN)
    host = {"id": "a", "zone": "", "url": url, "server_name": "", "capacity": 2, "market": "dedicated"}
    fleet = {"schema_version": 1, "hosts": [host], "ca": engine.ca.certificate, "token_secret": "file:token"}
    (folder / "fleet.json").write_text(json.dumps(fleet))
    async with AsyncClient.from_fleet(folder / "fleet.json") as client, client.episode() as episode:
        seen = await episode.step([{"op": "wait", "duration_ms": 50}])
        assert seen.screen == (1920, 1080)
    async with httpx.AsyncClient() as strangers:
        with pytest.raises(httpx.ConnectError, match=r"(?i)certificate"):
            await strangers.get(f"{url}/v1/health")
    trusted = ssl.create_default_context(cadata=engine.ca.certificate)
    async with httpx.AsyncClient(verify=trusted) as without_token:
        assert (await without_token.get(f"{url}/v1/host")).status_code == 401
    # The token: in two files of root's, in no process, in no log.
    holders = machine.inside(f"grep -rls '{TOKEN}' /etc /opt /usr/local /var/log /var/lib/osgym/state /run")
    assert sorted(holders.split()) == ["/etc/osgym/secret.env", "/etc/osgym/token"]
    assert (
        machine.inside("stat -c '%a %U' /etc/osgym/secret.env /etc/osgym/token").split("\n")[:2]
        == ["600 root"] * 2
    )
    assert TOKEN not in machine.inside("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert not any(TOKEN in line for line in engine.lines)
    assert engine.state["token"].is_secret
    assert engine.state["caKey"].is_secret


async def _nothing_to_do(engine: FakeEngine) -> None:
    """A second look finds no difference, and bringing it up again changes nothing."""
    assert (await engine.diff()).changes is False
    engine.lines.clear()
    await engine.create()
    assert engine.lines
    assert not [line for line in engine.lines if "changed" in line or "uploading" in line]


async def _drifts(machine: SshMachine, engine: FakeEngine) -> None:
    """Somebody stops the agent and takes the token away: refresh says so, update puts it right."""
    machine.inside(
        "kill -KILL $(cat /run/osgym.pid); echo OSGYM_TOKEN=somebody-elses-token > /etc/osgym/secret.env"
    )
    await engine.refresh()
    assert engine.outputs["serving"] is False
    assert "another token" in engine.outputs["problem"]
    assert "agent is not running" in engine.outputs["problem"]
    diff = await engine.diff()
    assert diff.changes
    assert not diff.replaces
    await engine.update()
    assert engine.outputs["serving"] is True
    await engine.refresh()
    assert engine.outputs["problem"] == ""


async def _changes(machine: SshMachine, engine: FakeEngine) -> None:
    """Another number of replicas is an update in place; another address is another host."""
    engine.given["settings"] = {**engine.given["settings"], "OSGYM_MAX": "1"}
    diff = await engine.diff()
    assert diff.changes
    assert (diff.replaces, list(diff.detailed_diff)) == ([], ["settings"])
    await engine.update()
    assert "max_replicas: 1" in machine.inside("cat /etc/osgym/agent.yaml")
    assert (await engine.diff()).changes is False
    elsewhere = FakeEngine(machine, engine.given["settings"], address="198.51.100.7")
    elsewhere.state, elsewhere.resource_id = engine.state, engine.resource_id
    assert (await elsewhere.diff()).replaces == ["address"]


async def _another_key(machine: SshMachine, engine: FakeEngine) -> None:
    """After a reboot it shows another key: nothing is sent to it until that key is configured."""
    machine.new_host_key()
    machine.off()
    machine.boot()
    await engine.refresh()
    assert "The connection may be intercepted" in engine.outputs["problem"]
    with pytest.raises(HostKeyMismatch):
        await engine.update()
    with pytest.raises(HostKeyMismatch, match="pulumi state delete"):
        await engine.delete()
    engine.given["hostKey"] = machine.host_key
    await engine.update()
    assert engine.outputs["serving"] is True


async def _until(condition: object, task: asyncio.Task[None]) -> None:
    """Waits for something to be so while a task runs."""
    assert callable(condition)

    def so() -> bool:
        return task.done() or bool(condition())

    await asyncio.to_thread(wait_until, so, 120, "the step begins")
    assert not task.done(), task.exception()


def test_a_look_never_trusts_what_it_sees() -> None:
    """Drift is judged by digests only; a host that lies about itself is merely not right."""
    assert ObservedHost(0, "debian", "12", "x86_64").unfit == ""
    assert "Debian and Ubuntu are supported" in ObservedHost(0, "alpine", "3", "x86_64").unfit
    assert "x86_64 is required" in ObservedHost(0, "debian", "12", "aarch64").unfit
    assert Worker.__doc__
