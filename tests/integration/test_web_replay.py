"""Sites recorded and replayed: the process of the proxy, curl as its client, a small internet on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support.small_internet import ADDRESS, PAGE, SITE, SmallInternet, small_internet

from osgym_host.core.egress import parse_allowlist
from osgym_host.runtimes.base import Egress, RuntimeUnsupported
from osgym_host.runtimes.web import har
from osgym_host.runtimes.web.archive import Archive, Recording, open_archive
from osgym_host.runtimes.web.certificates import make_authority
from osgym_host.runtimes.web.client import ReplicaProxy
from osgym_host.runtimes.web.options import TEST_WORLD, ProxyOptions, WebMode

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="missing: curl")

AUTHORITY = make_authority()
ALLOWED = parse_allowlist(["*.example.org"])


@pytest.fixture
def internet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallInternet]:
    """Sites that only the proxy knows."""
    with small_internet(tmp_path) as running:
        monkeypatch.setenv(TEST_WORLD, str(running.world))
        yield running


class Desk:
    """A door of a proxy, and what a program behind it does."""

    def __init__(self, port: int, folder: Path, proxy_pid: int) -> None:
        self.port = port
        self.proxy_pid = proxy_pid
        self._authority = folder / "replay-authority.pem"
        self._authority.write_text(AUTHORITY.certificate)

    async def curl(self, *args: str) -> str:
        """What curl prints."""
        argv = ["curl", "-sS", "-m", "20", "--cacert", str(self._authority)]
        argv += ["--proxy", f"http://127.0.0.1:{self.port}", *args]
        process = await asyncio.create_subprocess_exec(
            *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        out, _ = await process.communicate()
        return out.decode("utf-8", "replace")

    async def status(self, *args: str) -> str:
        """Status and code of an answer."""
        found = await self.curl("-o", "/dev/null", "-w", "%{http_code} %header{osgym-code}", *args)
        return found.strip()


@contextlib.asynccontextmanager
async def proxy_in(mode: WebMode, archive: Path) -> AsyncIterator[Desk]:
    """A proxy with one door."""
    egress, allowed = (
        (Egress.ALLOWLIST, ALLOWED) if mode is WebMode.RECORD else (Egress.NONE, parse_allowlist([]))
    )
    proxy = ReplicaProxy(ProxyOptions(egress, allowed, mode, archive, AUTHORITY))
    await proxy.start()
    try:
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        await proxy.open("r1", listener)
        yield Desk(port, archive.parent, proxy.pid)
    finally:
        await proxy.stop()


def status_lines(pid: int) -> list[str]:
    """What the kernel says of a process."""
    return Path(f"/proc/{pid}/status").read_text().splitlines()


def memory_mib(pid: int) -> float:
    """Resident memory of a process."""
    return next(int(line.split()[1]) / 1024 for line in status_lines(pid) if line.startswith("VmRSS:"))


def address_bound(pid: int) -> int:
    """Return the address space limit of a process in bytes."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    return next(int(line.split()[3]) for line in lines if line.startswith("Max address space"))


async def test_a_site_is_recorded_once_and_replayed_without_it(
    internet: SmallInternet, tmp_path: Path
) -> None:
    """The same bytes, over TLS and without; asked for once, also by many at once; no cookie is kept."""
    archive = tmp_path / "shop.har"
    https, http = f"https://{SITE}", f"http://{SITE}"
    async with proxy_in(WebMode.RECORD, archive) as desk:
        assert await desk.curl(f"{https}/", "-H", "Cookie: me=secret", "-H", "Authorization: secret") == PAGE
        counts = await asyncio.gather(*(desk.curl(f"{https}/count") for _ in range(6)))
        assert set(counts) == {"1"}
        assert await desk.curl(f"{http}/gzip", "--compressed") == "packed" * 100
        assert "a cookie" in await desk.curl(f"{https}/cookie")
        assert await desk.status(f"{https}/redirect") == "302"
        assert await desk.status(f"{https}/dot.png") == "200"
        assert await desk.status(f"{https}/nowhere") == "404"
    asked = internet.paths()
    assert sorted(asked) == sorted(set(asked))
    assert all("cookie" not in headers and "authorization" not in headers for _, _, headers in internet.asked)
    assert b"secret" not in archive.read_bytes()
    internet.asked.clear()
    async with proxy_in(WebMode.REPLAY, archive) as desk:
        assert await desk.curl(f"{https}/") == PAGE
        assert await desk.curl(f"{https}/count", f"{https}/count") == "11"  # over one connection
        assert await desk.curl(f"{http}/gzip") == "packed" * 100
        assert await desk.status(f"{https}/redirect") == "302"
        assert await desk.status(f"{https}/nowhere") == "404"
        assert await desk.curl("-I", f"{https}/dot.png") == await desk.curl("-I", f"{https}/dot.png")
        assert "content-length: 264" in await desk.curl("-I", f"{https}/dot.png")
    assert internet.asked == []


async def test_what_was_not_recorded_says_so(internet: SmallInternet, tmp_path: Path) -> None:
    """With status 504, a code, the URL and what to do; and there is no way to any site."""
    archive = tmp_path / "shop.har"
    async with proxy_in(WebMode.RECORD, archive) as desk:
        await desk.curl(f"https://{SITE}/")
        assert await desk.status(f"https://{SITE}/post", "-d", "x") == "504 web_not_recorded"
        assert await desk.status(f"https://{SITE}/broken") == "502 unreachable"
        assert await desk.status("https://other.example.net/") == "403 egress_refused"
        assert await desk.status(f"https://{ADDRESS}/") == "403 egress_refused"
        assert await desk.status("https://rebound.example.org/") == "403 egress_refused"
    assert internet.paths() == ["/", "/broken"]
    assert len(json.loads(archive.read_text())["log"]["entries"]) == 1
    async with proxy_in(WebMode.REPLAY, archive) as desk:
        status = "\n".join(status_lines(desk.proxy_pid))
        assert "NoNewPrivs:\t1" in status and "Uid:\t0" not in status
        page = await desk.curl(f"https://{SITE}/missing?<b>")
        assert "web_not_recorded" in page and f"https://{SITE}/missing?&lt;b&gt;" in page
        assert "<code>web_not_recorded</code>" in page and "web: record" in page
        for url in (
            f"https://{SITE}/broken",
            "https://other.example.net/",
            "https://10.0.0.1/",
            f"http://{SITE}/",
        ):
            assert await desk.status(url) == "504 web_not_recorded", url
        assert await desk.status(f"https://{SITE}/", "-d", "x") == "504 web_not_recorded"
        assert await desk.status("http://127.0.0.1/") == "504 web_not_recorded"
    assert internet.paths() == ["/", "/broken"]


async def test_a_tunnel_to_a_site_is_to_that_site(internet: SmallInternet, tmp_path: Path) -> None:
    """A request in it cannot name another, and two hosts are refused there as well."""
    archive = tmp_path / "shop.har"
    async with proxy_in(WebMode.RECORD, archive) as desk:
        for request in (
            b"GET http://other.example.net/ HTTP/1.1\r\n\r\n",
            b"CONNECT other.example.net:443 HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            b"GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", desk.port)
            writer.write(f"CONNECT {SITE}:443 HTTP/1.1\r\n\r\n".encode())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            await writer.start_tls(
                ssl.create_default_context(cadata=AUTHORITY.certificate), server_hostname=SITE
            )
            writer.write(request)
            answer = await asyncio.wait_for(reader.read(), 10)
            assert answer.startswith(b"HTTP/1.1 400 "), answer
            writer.close()
    assert internet.asked == []


async def test_who_does_not_read_costs_no_memory(tmp_path: Path) -> None:
    """A hundred answers of 32 MiB that nobody takes are not in the proxy's memory; others are served."""
    archive = tmp_path / "big.har"
    recording = Recording(open_archive(archive, to_record=True), Archive())
    for path, body in (("big", bytes(32 << 20)), ("small", b"small")):
        line = har.write_entry(f"https://{SITE}/{path}", (), har.Answer(200, (), body), "2030-01-01", 1.0)
        recording.add(line)
    recording.close()
    async with proxy_in(WebMode.REPLAY, archive) as desk:
        before = memory_mib(desk.proxy_pid)
        writers = []
        for _ in range(100):
            reader, writer = await asyncio.open_connection("127.0.0.1", desk.port, limit=1024)
            writer.write(f"CONNECT {SITE}:443 HTTP/1.1\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            await writer.start_tls(
                ssl.create_default_context(cadata=AUTHORITY.certificate), server_hostname=SITE
            )
            writer.write(b"GET /big HTTP/1.1\r\n\r\n")
            assert (await reader.readexactly(12)) == b"HTTP/1.1 200"
            writers.append(writer)
        assert await desk.curl(f"https://{SITE}/small") == "small"
        assert memory_mib(desk.proxy_pid) - before < 100
        for writer in writers:
            writer.transport.abort()


async def test_the_proxys_memory_is_bounded(internet: SmallInternet, tmp_path: Path) -> None:
    """The kernel limits the proxy to 4 GiB, or to a quarter of a larger machine's memory."""
    async with proxy_in(WebMode.RECORD, tmp_path / "a.har") as desk:
        bound = address_bound(desk.proxy_pid)
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        assert bound == max(4 << 30, total // 4)
        assert await desk.curl(f"https://{SITE}/") == PAGE


@pytest.mark.parametrize("text", [None, "", "[1]", '{"log": {"entries": [{}]}}'])
async def test_a_bad_archive_is_refused_at_the_start(tmp_path: Path, text: str | None) -> None:
    """With its name and what is wrong."""
    archive = tmp_path / "bad.har"
    if text is not None:
        archive.write_text(text)
    with pytest.raises(RuntimeUnsupported, match=r"bad\.har"):
        async with proxy_in(WebMode.REPLAY, archive):
            pass
