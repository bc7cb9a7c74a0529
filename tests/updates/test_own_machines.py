"""Two machines behind sshd are updated under load: no episode is lost, a bad update stops, a host returns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import host_fixtures
from tests.support.host_fixtures import TOKEN, FakeEngine
from tests.support.host_process import wait_until
from tests.support.ssh_hosts import SshMachine, missing, ssh_machine

from osgym_host.images.store import Image
from osgym_infra.fleet.bootstrap import bootstrap_files
from osgym_infra.hosts.rollout import UpdateStopped
from osgym_infra.links.errors import Interrupted
from osgym_infra.resources.provider import OsgymProvider, PartialFailure
from osgym_sdk import AsyncClient, AsyncEpisode, OSGymError

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(600)]

WAIT = [{"op": "wait", "duration_ms": 1}]


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SshMachine]]:
    """Two plain Debians behind sshd."""
    if lacking := missing():
        pytest.skip(f"missing: {lacking}")
    folder = tmp_path_factory.mktemp("machines")
    with ssh_machine(folder) as one, ssh_machine(folder) as other:
        yield [one, other]


class OwnFleet:
    """Two hosts of one provider's process, as `pulumi up` has them, and a client that is never made anew."""

    def __init__(self, machines: list[SshMachine], image: Image) -> None:
        settings = host_fixtures.settings(image, OSGYM_HEALTH_TIMEOUT_S="30")
        first = FakeEngine(machines[0], settings, drainTimeoutS=120.0)
        self.ca = first.ca
        secrets = {"caCertificate": self.ca.certificate, "caKey": self.ca.key}
        self.engines = [first, FakeEngine(machines[1], settings, drainTimeoutS=120.0, **secrets)]
        self.urls = [f"https://{machine.address}:20000" for machine in machines]
        self.lines: list[tuple[str, str]] = []
        self.new_provider()

    def new_provider(self) -> None:
        """As another `pulumi up` begins."""

        async def say(urn: str, line: str) -> None:
            self.lines.append((urn, line))

        provider = OsgymProvider(bootstrap_files(), say)
        for engine in self.engines:
            engine.provider = provider

    def set(self, **settings: str) -> None:
        """Changes the configuration of both."""
        for engine in self.engines:
            engine.given["settings"] = {**engine.given["settings"], **settings}

    async def up(self) -> list[BaseException | None]:
        """Updates both at once; what each failed with."""
        return list(await asyncio.gather(*(one.update() for one in self.engines), return_exceptions=True))

    def said(self, number: int, text: str) -> bool:
        """Whether the engine was told that of a host."""
        return any(urn == self.engines[number].urn and text in line for urn, line in self.lines)

    async def says(self, number: int, text: str) -> None:
        await asyncio.to_thread(wait_until, lambda: self.said(number, text), 120, f"{text} of {number}")

    def write_file(self, folder: Path) -> Path:
        """fleet.json with the token beside it."""
        hosts = [
            {"id": url, "zone": "", "url": url, "server_name": "", "capacity": 2, "market": "dedicated"}
            for url in self.urls
        ]
        data = {"schema_version": 1, "hosts": hosts, "ca": self.ca.certificate, "token_secret": "file:token"}
        (folder / "token").write_text(TOKEN)
        (folder / "fleet.json").write_text(json.dumps(data))
        return folder / "fleet.json"


async def episode_on(client: AsyncClient, url: str) -> AsyncEpisode:
    """An episode on a certain host, as soon as the client gets one there by itself."""
    async with asyncio.timeout(90):
        while True:
            episode = client.episode(wait_s=60)
            await episode.start()
            if episode.host == url:
                return episode
            await episode.aclose()
            await asyncio.sleep(0.5)


async def test_updates_under_load(machines: list[SshMachine], small_image: Image, tmp_path: Path) -> None:
    """One test, since each stage begins where the one before left the machines."""
    fleet = OwnFleet(machines, small_image)
    await asyncio.gather(*(engine.create() for engine in fleet.engines))
    async with AsyncClient.from_fleet(fleet.write_file(tmp_path)) as client:
        await _no_episode_is_lost(fleet, client)
        await _a_bad_update_stops(fleet, client)
        await _interrupted_while_it_drains(fleet, client)
        await _installed_anew(fleet, client, machines[0])
    await asyncio.gather(*(engine.delete() for engine in fleet.engines))


async def _no_episode_is_lost(fleet: OwnFleet, client: AsyncClient) -> None:
    """One host after the other, each when its episode is over; the other one takes new ones meanwhile."""
    episodes = [await episode_on(client, url) for url in fleet.urls]
    fleet.set(OSGYM_MAX="1")
    fleet.new_provider()
    up = asyncio.create_task(fleet.up())

    def begun() -> bool:
        return fleet.said(0, "draining: 1") or fleet.said(1, "draining: 1")

    await asyncio.to_thread(wait_until, begun, 120, "a host drains")
    first = next(n for n in (0, 1) if fleet.said(n, "draining: 1"))
    second = 1 - first
    await fleet.says(second, "waiting for other hosts")
    for episode in episodes:
        await episode.step(WAIT)
    assert episodes[first].notice is not None
    assert episodes[second].notice is None
    assert not fleet.said(second, "draining")
    async with client.episode() as another:
        assert another.host == fleet.urls[second]
    await episodes[first].aclose()
    await fleet.says(second, "draining: 1")
    async with client.episode(wait_s=60) as another:
        assert another.host == fleet.urls[first], "the first is back"
        await another.step(WAIT)
    await episodes[second].step(WAIT)
    await episodes[second].aclose()
    assert await up == [None, None]
    assert [engine.outputs["problem"] for engine in fleet.engines] == ["", ""]


async def _a_bad_update_stops(fleet: OwnFleet, client: AsyncClient) -> None:
    """The first host does not come back: it is named with a remedy, the other serves, `up` again goes on."""
    fleet.set(OSGYM_FLAVOR="no-such-image")
    fleet.new_provider()
    ends = await fleet.up()
    broken = next(n for n in (0, 1) if isinstance(ends[n], PartialFailure))
    other = 1 - broken
    assert "step health" in str(ends[broken]) or "step service" in str(ends[broken])
    assert "no other host is changed" in str(ends[broken])
    assert "run `pulumi up` again" in str(ends[broken])
    stopped = ends[other]
    assert isinstance(stopped, UpdateStopped)
    assert f"stopped at host root@{fleet.engines[broken].given['address']}" in str(stopped)
    async with client.episode(wait_s=60) as episode:
        assert episode.host == fleet.urls[other]
        await episode.step(WAIT)
    await fleet.engines[other].refresh()
    assert fleet.engines[other].outputs["problem"] == "", "it is as the state says"
    fleet.set(OSGYM_FLAVOR="small")
    fleet.new_provider()
    assert await fleet.up() == [None, None]


async def _interrupted_while_it_drains(fleet: OwnFleet, client: AsyncClient) -> None:
    """Ctrl-C: the episode goes on, and the host takes new ones again."""
    episode = await episode_on(client, fleet.urls[0])
    fleet.set(OSGYM_MAX="2")
    fleet.new_provider()
    fleet.lines.clear()
    up = asyncio.create_task(fleet.engines[0].update())
    await fleet.says(0, "draining: 1")
    await fleet.engines[0].provider.cancel()
    with pytest.raises(PartialFailure, match="interrupted in step drain") as interrupted:
        await up
    assert isinstance(interrupted.value.cause, Interrupted)
    await episode.step(WAIT)
    assert (await _draining(client, fleet.urls[0])) is False
    await episode.aclose()
    await (await episode_on(client, fleet.urls[0])).aclose()
    fleet.new_provider()
    assert await fleet.up() == [None, None]


async def _installed_anew(fleet: OwnFleet, client: AsyncClient, machine: SshMachine) -> None:
    """The disk is empty: refresh says so, up makes it serve, and the client uses it without being told."""
    await asyncio.to_thread(machine.reinstall)
    await fleet.engines[0].refresh()
    assert "no agent" in fleet.engines[0].outputs["problem"]
    assert (await fleet.engines[0].diff()).changes
    async with client.episode(wait_s=60) as episode:
        assert episode.host == fleet.urls[1]
    fleet.new_provider()
    assert await fleet.up() == [None, None]
    episode = await episode_on(client, fleet.urls[0])
    await episode.step(WAIT)
    await episode.aclose()


async def _draining(client: AsyncClient, url: str) -> bool:
    async with asyncio.timeout(20):
        while True:
            state = (await client.host_states())[url]
            assert not isinstance(state, OSGymError)
            if not state.draining:
                return False
            await asyncio.sleep(0.2)
