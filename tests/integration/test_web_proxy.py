"""Egress by the host's proxy: real replicas without a network, and a small internet on loopback."""

# ruff: noqa: ASYNC110, ASYNC240 -- nobody tells us, and the only task of a test blocks nobody

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.runtime_probe import build_python_image, run_inside
from tests.support.small_internet import ADDRESS, ECHO_PORT, SITE, SmallInternet, small_internet
from tests.support.waiting import until

from osgym_host.core.egress import parse_allowlist
from osgym_host.runtimes.base import (
    Egress,
    ImageLike,
    Replica,
    ReplicaCreateFailed,
    ReplicaSpec,
    RuntimeUnsupported,
)
from osgym_host.runtimes.local.runtime import LocalRuntime
from osgym_host.runtimes.web.client import ProxyFailed, ReplicaProxy
from osgym_host.runtimes.web.listener import MAX_CONNECTIONS
from osgym_host.runtimes.web.options import TEST_WORLD, ProxyOptions


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> ImageLike:
    """A root file system whose session runs what it is sent."""
    return build_python_image(tmp_path_factory.mktemp("image") / "rootfs")


@pytest.fixture(scope="module")
def internet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallInternet]:
    """Sites that only the proxy knows."""
    with small_internet(tmp_path_factory.mktemp("internet")) as running:
        yield running


@pytest.fixture
def spec(image: ImageLike) -> ReplicaSpec:
    """A replica that may reach the internet."""
    return ReplicaSpec("r1", 1, image, egress=Egress.OPEN)


@pytest.fixture
async def runtime(
    internet: SmallInternet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[LocalRuntime]:
    """A started runtime with a proxy, policy open; afterwards nothing of it is left."""
    monkeypatch.setenv(TEST_WORLD, str(internet.world))
    internet.asked.clear()
    proxy = ReplicaProxy(ProxyOptions(Egress.OPEN))
    made = LocalRuntime(tmp_path, "web", proxy=proxy)
    await made.start()
    pid = proxy.pid
    try:
        yield made
    finally:
        await made.stop()
    assert not Path(f"/proc/{pid}").exists()


ASK = """
import socket
def ask(text, wait_s=5):
    with socket.create_connection(("127.0.0.1", 3128), timeout=wait_s) as end:
        data = b""
        try:
            end.sendall(text.encode("latin-1"))
            while piece := end.recv(65536):
                data += piece
        except OSError as exc:
            data += b"!" + type(exc).__name__.encode()
        return data.decode("latin-1")
result = [ask(text) for text in texts]
"""


async def ask(replica: Replica, *texts: str) -> list[str]:
    """What the proxy answers to these bytes, each over a connection of its own."""
    found: list[str] = await run_inside(replica, ASK, timeout_s=60, texts=list(texts))
    return found


def connect_to(authority: str) -> str:
    """The request for a tunnel."""
    return f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"


def get(url: str, *headers: str) -> str:
    """The request for a URL."""
    return "\r\n".join((f"GET {url} HTTP/1.1", *headers, "", ""))


def code_of(answer: str) -> str:
    """Status and code of a page of the proxy."""
    found = [line for line in answer.split("\r\n") if line.startswith("osgym-code: ")]
    return f"{answer[9:12]} {found[0].removeprefix('osgym-code: ') if found else '-'}"


async def test_the_proxy_is_the_only_way_out(
    runtime: LocalRuntime, spec: ReplicaSpec, internet: SmallInternet
) -> None:
    """By URL and by tunnel, with a body; there is no interface but loopback, and programs know the way."""
    replica = await runtime.create(spec)
    tunnelled = connect_to(f"{SITE}:80") + f"GET /count HTTP/1.1\r\nHost: {SITE}\r\nConnection: close\r\n\r\n"
    posted = f"POST http://{SITE}/post HTTP/1.1\r\nHost: evil.org\r\nTransfer-Encoding: chunked\r\n\r\n"
    posted += "3;x=y\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    by_url, by_tunnel, by_post = await ask(replica, get(f"http://{SITE}/style.css"), tunnelled, posted)
    assert by_url.startswith("HTTP/1.1 200 OK\r\n") and by_url.endswith("h1 { color: rgb(1, 2, 3) }")
    assert by_tunnel.startswith("HTTP/1.1 200 Connected\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert "connection: close" in by_post and by_post.endswith("\r\n\r\nabcde")
    method, path, headers = internet.asked[-1]
    assert (method, path, headers["host"], headers["transfer-encoding"]) == ("POST", "/post", SITE, "chunked")
    seen = await run_inside(
        replica,
        "import os, socket\n"
        "result = [[name for _, name in socket.if_nameindex()], os.environ['https_proxy'], "
        "os.environ['no_proxy'], open('/etc/apt/apt.conf.d/80osgym-proxy').read(), "
        "open('/etc/glib-2.0/settings/defaults').read()]",
    )
    assert seen[:3] == [["lo"], "http://127.0.0.1:3128", "localhost,127.0.0.1,::1"]
    assert 'Acquire::http::Proxy "http://127.0.0.1:3128";' in seen[3]
    assert "[system/proxy/https]\nhost='127.0.0.1'\nport=3128\n" in seen[4]


async def test_a_replica_that_the_proxy_does_not_serve_is_not_made(
    runtime: LocalRuntime, spec: ReplicaSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its creation fails as any other, and nothing of it is left."""

    async def refuse(key: str, listener: socket.socket) -> None:
        listener.close()
        raise ProxyFailed(f"{key} is not served")

    with monkeypatch.context() as patched:
        patched.setattr(runtime._egress.proxy, "open", refuse)
        with pytest.raises(ReplicaCreateFailed, match="not served"):
            await runtime.create(spec)
    assert runtime.replicas() == []
    [answer] = await ask(await runtime.create(spec), get(f"http://{SITE}/count"))
    assert code_of(answer) == "200 -"


async def test_with_egress_none_nobody_listens(runtime: LocalRuntime, spec: ReplicaSpec) -> None:
    """Beside replicas that have the proxy, one with egress none has neither it nor its settings."""
    replica = await runtime.create(replace(spec, egress=Egress.NONE))
    code = "import os, socket\nwith socket.socket() as s:\n  result = [s.connect_ex(('127.0.0.1', 3128)), "
    found = await run_inside(replica, code + "os.environ.get('http_proxy')]")
    assert found[0] != 0 and found[1] is None


PRIVATE = (
    "127.0.0.1:{agent}",
    "localhost:{agent}",
    "127.1:{agent}",
    "0:{agent}",
    "0.0.0.0:{agent}",
    "2130706433:{agent}",
    "0x7f000001:{agent}",
    "0177.0.0.1:{agent}",
    "[::1]:{agent}",
    "[::ffff:127.0.0.1]:{agent}",
    "[::ffff:10.0.0.1]:80",
    "10.0.0.1:80",
    "192.168.0.1:80",
    "100.64.0.1:80",
    "169.254.169.254:80",
    "[fd00:ec2::254]:80",
    "168.63.129.16:80",
    "255.255.255.255:80",
    "rebound.example.org:{agent}",
    "nowhere.example.org:80",
)


async def test_neither_host_nor_private_networks_nor_metadata_are_reached(
    runtime: LocalRuntime, spec: ReplicaSpec, internet: SmallInternet
) -> None:
    """In whatever form they are written, by tunnel and by URL, to a port at which somebody would answer."""
    replica = await runtime.create(spec)
    with socket.create_server(("0.0.0.0", 0)) as agent:
        agent.settimeout(0)
        places = [place.format(agent=agent.getsockname()[1]) for place in PRIVATE]
        answers = await ask(replica, *map(connect_to, places), *(get(f"http://{p}/") for p in places))
        for place, answer in zip(places * 2, answers, strict=True):
            assert code_of(answer) in ("403 egress_refused", "400 bad_request"), (place, answer[:200])
        with pytest.raises(BlockingIOError):  # nobody came
            agent.accept()
    assert internet.asked == []


async def test_this_hosts_own_address_is_not_reached(spec: ReplicaSpec, tmp_path: Path) -> None:
    """Also where an allowlist names the network that it is in."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("missing: a network")
        own = probe.getsockname()[0]
    allowed = parse_allowlist([f"{own}/32"])
    runtime = LocalRuntime(tmp_path, "web", proxy=ReplicaProxy(ProxyOptions(Egress.ALLOWLIST, allowed)))
    await runtime.start()
    try:
        replica = await runtime.create(replace(spec, egress=Egress.ALLOWLIST))
        with socket.create_server((own, 0)) as agent:
            agent.settimeout(0)
            port = agent.getsockname()[1]
            [answer] = await ask(replica, connect_to(f"{own}:{port}"))
            assert code_of(answer) == "403 egress_refused"
            with pytest.raises(BlockingIOError):
                agent.accept()
    finally:
        await runtime.stop()


async def test_the_allowlist_is_what_is_named(
    internet: SmallInternet, spec: ReplicaSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name below another, and nothing by its number; the header Host does not lead elsewhere."""
    monkeypatch.setenv(TEST_WORLD, str(internet.world))
    options = ProxyOptions(Egress.ALLOWLIST, parse_allowlist(["*.example.org"]))
    runtime = LocalRuntime(tmp_path, "web", proxy=ReplicaProxy(options))
    await runtime.start()
    try:
        replica = await runtime.create(replace(spec, egress=Egress.ALLOWLIST))
        internet.asked.clear()
        answers = await ask(
            replica,
            get(f"http://{SITE}/count", "Host: other.example.net"),
            get("http://other.example.net/count", f"Host: {SITE}"),
            get(f"http://{ADDRESS}/count", f"Host: {SITE}"),
        )
        assert [code_of(answer) for answer in answers] == [
            "200 -",
            "403 egress_refused",
            "403 egress_refused",
        ]
        assert [headers["host"] for _, _, headers in internet.asked] == [SITE]
        with pytest.raises(RuntimeUnsupported, match="without egress open"):
            await runtime.create(spec)
    finally:
        await runtime.stop()


async def test_smuggled_requests_are_refused(
    runtime: LocalRuntime, spec: ReplicaSpec, internet: SmallInternet
) -> None:
    """Two hosts, two lengths, odd line ends, and what follows a request within its connection."""
    replica = await runtime.create(spec)
    hidden = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
    url = f"http://{SITE}"
    refused = (
        get(f"{url}/hidden", f"Host: {SITE}", "Host: other.example.net"),
        get(f"{url}/hidden", "Content-Length: 5", "Transfer-Encoding: chunked") + f"0\r\n\r\n{hidden}",
        get(f"{url}/hidden", "Content-Length: 0", f"Content-Length: {len(hidden)}") + hidden,
        get(f"{url}/hidden", "A: b\nHost: other.example.net"),
        get(f"{url}/hidden", "Transfer-Encoding: chunked", "Transfer-Encoding: identity") + hidden,
        "POST /hidden HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    )
    answers = await ask(replica, *refused, get(f"{url}/count") + hidden)
    assert [code_of(answer) for answer in answers] == ["400 bad_request"] * len(refused) + ["200 -"]
    assert internet.paths() == ["/count"]


MANY = """
import builtins, socket, time
slow = socket.create_connection(("127.0.0.1", 3128), timeout=30)
slow.sendall(b"GET http://shop.example.org/ HTTP/1.1\\r\\nA: ")
ends = []
for _ in range(1000):
    end = socket.create_connection(("127.0.0.1", 3128), timeout=30)
    end.settimeout(0.0)
    ends.append(end)
builtins.ends = ends
refused = 0
deadline = time.monotonic() + 8
while time.monotonic() < deadline and refused < 1000 - most:
    refused = 0
    for end in ends:
        try:
            refused += end.recv(16, socket.MSG_PEEK)[:12] == b"HTTP/1.1 503"
        except BlockingIOError:
            pass
        except ConnectionResetError:
            refused += 1
    time.sleep(0.1)
for end in ends:
    end.close()
huge = socket.create_connection(("127.0.0.1", 3128), timeout=30)
huge.sendall(b"GET http://shop.example.org/ HTTP/1.1\\r\\nA: " + b"x" * 70000 + b"\\r\\n\\r\\n")
result = [refused, huge.recv(4096).decode(), slow.recv(4096).decode()]
"""


async def test_a_greedy_replica_harms_itself_only(
    runtime: LocalRuntime, spec: ReplicaSpec, internet: SmallInternet
) -> None:
    """A thousand connections, a head that never ends, one that is huge; meanwhile another one is served."""
    greedy, other = await runtime.create(spec), await runtime.create(replace(spec, replica_id="r2"))
    attack = asyncio.create_task(run_inside(greedy, MANY, timeout_s=60, most=MAX_CONNECTIONS))
    proxy = runtime._egress.proxy
    assert proxy is not None
    async with asyncio.timeout(20):
        while (await proxy.connections()).get("r1", 0) < MAX_CONNECTIONS:
            await asyncio.sleep(0.05)
    [answer] = await ask(other, get(f"http://{SITE}/count"))
    assert code_of(answer) == "200 -"
    refused, huge, slow = await attack
    assert refused == 1000 - (MAX_CONNECTIONS - 1)  # one is the slow one
    assert code_of(huge) == "431 bad_request"
    assert code_of(slow) == "408 bad_request"


async def test_a_replicas_end_ends_its_connections(
    runtime: LocalRuntime, spec: ReplicaSpec, internet: SmallInternet
) -> None:
    """A tunnel that nobody closes goes with its replica, also at the site's end."""
    replica = await runtime.create(spec)
    code = f"""
    import builtins, socket
    end = builtins.end = socket.create_connection(("127.0.0.1", 3128), timeout=5)
    end.sendall(b"CONNECT {SITE}:{ECHO_PORT} HTTP/1.1\\r\\n\\r\\n")
    assert end.recv(99).startswith(b"HTTP/1.1 200 ")
    end.sendall(b"hello")
    result = end.recv(9).decode()
    """
    assert await run_inside(replica, code) == "hello"
    assert internet.echoes == 1
    proxy = runtime._egress.proxy
    assert proxy is not None and (await proxy.connections())["r1"] == 1
    await runtime.destroy(replica)
    await until(lambda: internet.echoes == 0, what="the site's end of the tunnel is open")
    assert await proxy.connections() == {}


async def test_a_killed_proxy_is_started_again(runtime: LocalRuntime, spec: ReplicaSpec) -> None:
    """Replicas that were there before have it again; as root's, its process has no rights of root."""
    replica = await runtime.create(spec)
    proxy = runtime._egress.proxy
    assert proxy is not None
    first = proxy.pid
    status = Path(f"/proc/{first}/status").read_text()
    uids = {int(word) for line in status.splitlines() if line.startswith("Uid:") for word in line.split()[1:]}
    assert 0 not in uids and "NoNewPrivs:\t1" in status
    os.kill(first, signal.SIGKILL)
    await until(lambda: proxy.pid not in (0, first), 20, "a new proxy runs")
    async with asyncio.timeout(20):
        while code_of((await ask(replica, get(f"http://{SITE}/count")))[0]) != "200 -":
            await asyncio.sleep(0.1)


_AGENT = """
import asyncio, os
from osgym_host.runtimes.base import Egress
from osgym_host.runtimes.web.client import ReplicaProxy
from osgym_host.runtimes.web.options import ProxyOptions
async def main():
    proxy = ReplicaProxy(ProxyOptions(Egress.OPEN))
    await proxy.start()
    print(proxy.pid, flush=True)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""


async def test_the_proxy_of_a_killed_host_agent_ends() -> None:
    """By itself, as nobody holds the other end any more."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", _AGENT],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid = int(done.stdout)
    await until(lambda: not Path(f"/proc/{pid}").exists(), what="the proxy has ended")
