"""Hosts that are discovered: at AWS (moto's server), at Google Cloud (a stand-in), by real name servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dnslib import QTYPE, RR, A
from dnslib import SRV as SrvData
from dnslib.server import BaseResolver, DNSLogger, DNSServer
from tests.support import ROOT
from tests.support.fake_compute import PROJECT, FakeGoogle, fake_google
from tests.support.fake_v1_host import FakeV1Host, Running, serving
from tests.support.moto_server import REGION, FakeAws, fake_aws
from tests.support.waiting import stays, until

from osgym_sdk import AsyncClient, HostPhase, HostUnreachable, Timeouts

pytestmark = pytest.mark.usefixtures("no_client_settings")

QUICK = Timeouts(connect_s=2.0, control_s=10.0, step_s=5.0, setup_s=5.0, evaluate_s=5.0, retry_s=1.0)
POLL_S = 0.2


@pytest.fixture
def two() -> Iterator[tuple[Running, Running]]:
    """Two hosts at two addresses, with one port."""
    with serving(FakeV1Host(2), address="127.0.0.11") as first:
        port = int(first.url.rsplit(":", 1)[1])
        with serving(FakeV1Host(2), port, "127.0.0.12") as second:
            yield first, second


def port_of(host: Running) -> str:
    """Its port."""
    return host.url.rsplit(":", 1)[1]


async def policy(obs: Any, task: Any, step: int) -> str:
    """Four steps with some thought before each."""
    await asyncio.sleep(0.05)
    return "click(1,1)" if step < 3 else "finish()"


async def follows(
    client: AsyncClient, first: Running, second: Running, add: Callable[[], Any], end: Callable[[], Any]
) -> None:
    """A batch begins on the first host; the second appears, the first goes; no task is lost or repeated."""
    done = []
    async for result in client.run([{"id": f"t{i}"} for i in range(24)], policy, concurrency=4, wait_s=20):
        done.append(result)
        if len(done) == 4:
            assert client.hosts == (first.url,)
            await asyncio.to_thread(add)
            await until(lambda: (found := client._fleet.find(second.url)) and found.known)
        if len(done) == 10:
            await asyncio.to_thread(end)
            await until(lambda: not first.host.live())
    assert len(done) == 24 and all(result.ok and result.attempts == 1 for result in done)
    await until(lambda: client.hosts == (second.url,))
    gone = (await client.host_states(gone=True))[first.url]
    assert gone.phase is HostPhase.GONE
    assert len(first.host.episodes) + len(second.host.episodes) == 24


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAws]:
    """moto's server."""
    with fake_aws(monkeypatch) as cloud:
        yield cloud


async def test_instances_with_a_tag_are_used_as_they_come_and_go(
    aws: FakeAws, two: tuple[Running, Running], caplog: pytest.LogCaptureFixture
) -> None:
    """Those of others, and those that stop, are not; an API that fails for a while changes nothing."""
    first, second = two
    subnet = aws.loopback_subnet()
    old = aws.run_instance(subnet, "127.0.0.11", **{"osgym-fleet": "prod"})
    aws.run_instance(subnet, "127.0.0.13", **{"osgym-fleet": "other"})
    source = f"aws-tag://osgym-fleet=prod?region={REGION}&port={port_of(first)}&scheme=http"
    async with AsyncClient.from_fleet(source, poll_s=POLL_S, timeouts=QUICK) as client:
        await follows(
            client,
            first,
            second,
            lambda: aws.run_instance(subnet, "127.0.0.12", **{"osgym-fleet": "prod"}),
            lambda: aws.client("ec2").terminate_instances(InstanceIds=[old]),
        )
        assert "127.0.0.13" not in caplog.text


async def test_what_is_wrong_at_aws_is_said_at_once(aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials, no region: the first episode does not wait for them for minutes."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    async with AsyncClient.from_fleet(f"aws-tag://a=b?region={REGION}", timeouts=QUICK) as client:
        with pytest.raises(HostUnreachable, match="no AWS credentials"):
            await client.episode(wait_s=60).start()
    async with AsyncClient.from_fleet("aws-tag://a=b", timeouts=QUICK) as client:
        with pytest.raises(HostUnreachable, match="region"):
            await client.episode(wait_s=60).start()
        assert await client.host_states() == {}


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeGoogle]:
    """The stand-in, and the credentials of a service account of it."""
    with fake_google() as cloud:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(cloud.credentials(tmp_path / "key.json")))
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", f"{cloud.url}/compute/v1/")
        monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
        yield cloud


async def test_instances_with_a_label_are_used_as_they_come_and_go(
    google: FakeGoogle, two: tuple[Running, Running], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By a fleet.json that says where to look, over pages and zones; a failing API takes no host away."""
    first, second = two
    old = google.add("a", "127.0.0.11", **{"osgym-fleet": "prod"})
    google.add("b", "127.0.0.13", **{"osgym-fleet": "other"})
    for i in range(3):
        google.add(f"stopped-{i}", f"127.0.0.{20 + i}", "us-central1-b", **{"osgym-fleet": "prod"})[
            "status"
        ] = "TERMINATED"
    path = tmp_path / "fleet.json"
    source = f"gcp-label://osgym-fleet=prod?port={port_of(first)}&address=private"
    path.write_text(json.dumps({"schema_version": 1, "discover": source, "ca": "", "token_secret": ""}))

    def end() -> None:
        google.broken = 503
        count = len(google.asked)
        while len(google.asked) < count + 2:
            pass
        old["status"] = "STOPPING"
        google.broken = 0

    async with AsyncClient.from_fleet(path, poll_s=POLL_S, timeouts=QUICK) as client:
        await follows(
            client,
            first,
            second,
            lambda: [
                google.add("c", "127.0.0.12", "us-central1-c", **{"osgym-fleet": "prod"}),
                *(google.add(f"d{i}", "127.0.0.12", **{"osgym-fleet": "prod"}) for i in range(3)),
            ],
            end,
        )
    assert any("pageToken=" in asked for asked in google.asked)
    assert caplog.text.count("the known hosts stay") == 1
    assert "HTTP 503" in caplog.text and "hosts are discovered from" in caplog.text


async def test_what_is_wrong_at_google_is_said_at_once(
    google: FakeGoogle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another project, no permission, no credentials."""
    async with AsyncClient.from_fleet("gcp-label://a=b?project=nobodys", timeouts=QUICK) as client:
        with pytest.raises(HostUnreachable, match="projects/nobodys"):
            await client.episode(wait_s=60).start()
    google.broken = 403
    async with AsyncClient.from_fleet(f"gcp-label://a=b?project={PROJECT}", timeouts=QUICK) as client:
        with pytest.raises(HostUnreachable, match=r"compute\.instances\.list"):
            await client.episode(wait_s=60).start()
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent.json")
    async with AsyncClient.from_fleet("gcp-label://a=b", timeouts=QUICK) as client:
        with pytest.raises(HostUnreachable, match="application-default login"):
            await client.episode(wait_s=60).start()


class Zone(BaseResolver):
    """A zone of a real name server (dnslib's)."""

    def __init__(self) -> None:
        self.records: list[tuple[str, Any]] = []

    def resolve(self, request: Any, handler: Any) -> Any:
        reply = request.reply()
        for name, data in self.records:
            kind = type(data).__name__
            if request.q.qname.matchGlob(name) and QTYPE[request.q.qtype] in (kind, "ANY"):
                reply.add_answer(RR(name, getattr(QTYPE, kind), rdata=data, ttl=1))
        return reply


@contextlib.contextmanager
def name_server(zone: Zone) -> Iterator[str]:
    """Runs one on loopback; gives its address and port."""
    server = DNSServer(zone, address="127.0.0.1", port=0, logger=DNSLogger(logf=lambda text: None))
    server.start_thread()
    try:
        yield f"127.0.0.1:{server.server.server_address[1]}"
    finally:
        server.stop()
        server.server.server_close()
        server.thread.join(10)


async def test_a_names_addresses_are_used_as_they_change(two: tuple[Running, Running]) -> None:
    """A records, by a resolver of one's own."""
    first, second = two
    zone = Zone()
    zone.records = [("hosts.lab", A("127.0.0.11"))]
    with name_server(zone) as resolver:
        source = f"dns://hosts.lab:{port_of(first)}?scheme=http&resolver={resolver}"
        async with AsyncClient.from_fleet(source, poll_s=POLL_S, timeouts=QUICK) as client:
            await follows(
                client,
                first,
                second,
                lambda: zone.records.append(("hosts.lab", A("127.0.0.12"))),
                lambda: zone.records.pop(0),
            )
            zone.records.clear()  # a name without addresses is a fault of its zone, not an empty fleet
            await stays(lambda: client.hosts == (second.url,), 5 * POLL_S)


async def test_srv_records_name_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hosts of one address."""
    zone = Zone()
    with name_server(zone) as resolver, serving(FakeV1Host(1)) as first, serving(FakeV1Host(1)) as second:
        zone.records = [("desk.lab", A("127.0.0.1"))]
        zone.records += [
            ("_osgym._tcp.lab", SrvData(0, 0, int(port_of(host)), "desk.lab")) for host in (first, second)
        ]
        source = f"dns://_osgym._tcp.lab?scheme=http&resolver={resolver}"
        async with (
            AsyncClient.from_fleet(source, poll_s=POLL_S, timeouts=QUICK) as client,
            client.episode(wait_s=10),
            client.episode(wait_s=10),
        ):
            assert (len(first.host.live()), len(second.host.live())) == (1, 1)


BY_SYSTEM = """
    import asyncio, sys
    from dnslib import A
    from dnslib.server import DNSLogger, DNSServer
    sys.path.insert(0, sys.argv[1])
    from tests.integration.test_sdk_discovery import POLL_S, QUICK, Zone, follows, port_of
    from tests.support.fake_v1_host import FakeV1Host, serving
    from osgym_sdk import AsyncClient

    async def main():
        zone = Zone()
        zone.records = [("hosts.lab", A("127.0.0.11"))]
        DNSServer(zone, address="127.0.0.1", port=53, logger=DNSLogger(logf=lambda text: None)).start_thread()
        with serving(FakeV1Host(2), address="127.0.0.11") as first:
            with serving(FakeV1Host(2), int(port_of(first)), "127.0.0.12") as second:
                source = f"dns://hosts.lab:{port_of(first)}?scheme=http"
                async with AsyncClient.from_fleet(source, poll_s=POLL_S, timeouts=QUICK) as client:
                    await follows(
                        client, first, second,
                        lambda: zone.records.append(("hosts.lab", A("127.0.0.12"))),
                        lambda: zone.records.pop(0),
                    )
        print("followed")

    asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="missing: root, for a network namespace with a name server")
def test_the_systems_resolver_is_asked_where_no_other_is_named(tmp_path: Path) -> None:
    """In a namespace whose /etc/resolv.conf names a real name server; nothing of ours but getaddrinfo."""
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:2\n")
    (tmp_path / "nsswitch.conf").write_text("hosts: files dns\n")
    shell = (
        f"mount --bind {tmp_path}/resolv.conf /etc/resolv.conf; "
        f"test ! -e /etc/nsswitch.conf || mount --bind {tmp_path}/nsswitch.conf /etc/nsswitch.conf; "
        'ip link set lo up; exec "$@"'
    )
    argv = ["unshare", "--net", "--mount", "sh", "-c", shell, "sh"]
    argv += [sys.executable, "-c", textwrap.dedent(BY_SYSTEM), str(ROOT)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=90, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "followed"
