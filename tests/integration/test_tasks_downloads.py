"""Downloads of tasks against real HTTP servers: cached, bounded, and never where they must not go."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import http.server
import resource
import socket
import ssl
import subprocess
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from osgym_host.tasks.downloads import DownloadCache, cache_name, refusal, safe_name
from osgym_host.tasks.errors import DeadlineExceeded, DownloadFailed, RefusedByPolicy
from osgym_host.tasks.policy import TaskPolicy

BOMBS = {"/gzip": "gzip", "/gzip-twice": "gzip, gzip", "/deflate": "deflate", "/unknown": "br, zstd"}
REDIRECTS = {
    "/redirect-port": "http://127.0.0.1:99999/",
    "/redirect-letters": "http://127.0.0.1:abc/",
    "/redirect-long": "http://" + "a" * 300 + "/",
    "/redirect-user": "http://a:b@127.0.0.1/",
    "/redirect-bracket": "http://[::1/",
    "/redirect-label": "http://" + "a" * 80 + ".example/",
}


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
FLOODS = {
    "/interim": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "/headers": (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"),
    "/header": (b"HTTP/1.1 200 OK\r\na: ", b"b"),
    "/status": (b"HTTP/1.1 200 ", b"x"),
    "/crumbs": (CHUNKED, b"1\r\nx\r\n"),
    "/extension": (CHUNKED + b"1;", b"x"),
    "/trailers": (CHUNKED + b"0\r\n", b"a: b\r\n"),
    "/garbage": (b"", b"\0\xff"),
}


@functools.cache
def bomb() -> bytes:
    """1 GiB of zeros, compressed twice: some thousand bytes."""
    once = zlib.compressobj(9, zlib.DEFLATED, 31)
    inner = b"".join(once.compress(bytes(1 << 20)) for _ in range(1024)) + once.flush()
    return gzip.compress(inner, 9)


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves what the path says."""

    served: list[str]
    encodings: list[str | None]

    def do_GET(self) -> None:
        self.served.append(self.path)
        self.encodings.append(self.headers.get("Accept-Encoding"))
        if self.path == "/redirect-inside":
            return self.redirect("/file")
        if self.path == "/redirect-metadata":
            return self.redirect("http://169.254.169.254/latest/meta-data/")
        if self.path == "/redirect-file":
            return self.redirect("file:///etc/passwd")
        if self.path == "/redirect-loop":
            return self.redirect("/redirect-loop")
        if self.path in FLOODS:
            return self.flood(FLOODS[self.path])
        if self.path == "/missing":
            return self.send_error(404)
        if self.path in REDIRECTS:
            return self.redirect(REDIRECTS[self.path])
        self.send_response(200)
        if self.path in BOMBS:
            self.send_header("Content-Encoding", BOMBS[self.path])
        if self.path == "/announced":
            self.send_header("Content-Length", str(1 << 40))
        self.end_headers()
        try:
            if self.path in BOMBS:
                self.wfile.write(bomb())
                return None
            if self.path == "/endless":
                while True:
                    self.wfile.write(b"x" * 65536)
            if self.path == "/stalls":
                self.wfile.write(b"x")
                self.wfile.flush()
                self.server.shutting.wait(10)  # type: ignore[attr-defined]  # set by the fixture
            self.wfile.write(b"hello")
        except OSError:
            pass
        return None

    def flood(self, parts: tuple[bytes, bytes]) -> None:
        """Send the second part for ever."""
        with contextlib.suppress(OSError):
            self.wfile.write(parts[0])
            while True:
                self.wfile.write(parts[1] * 1000)

    def redirect(self, where: str) -> None:
        """A 302."""
        self.send_response(302)
        self.send_header("Location", where)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on standard error."""


@pytest.fixture
def server() -> Iterator[str]:
    """A server on loopback."""
    Handler.served, Handler.encodings = [], []
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.shutting = threading.Event()  # type: ignore[attr-defined]  # a handler waits for it
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{made.server_address[1]}"
    made.shutting.set()  # type: ignore[attr-defined]  # the same
    made.shutdown()
    thread.join()
    made.server_close()


def cache(folder: Path, **changes: object) -> DownloadCache:
    """A cache that may reach loopback."""
    settings = {"allow_private_addresses": True, "max_file_bytes": 1 << 20, **changes}
    return DownloadCache(folder, TaskPolicy(**settings))  # type: ignore[arg-type]  # test values


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return [path.name for path in folder.iterdir()]


def soon(seconds: float = 20) -> float:
    """A deadline."""
    return asyncio.get_running_loop().time() + seconds


async def test_fetched_once_under_osworlds_name(server: str, tmp_path: Path) -> None:
    """A file is fetched once, however many ask at the same time, and found by OSWorld's name."""
    store = cache(tmp_path)
    url = f"{server}/redirect-inside"
    paths = await asyncio.gather(*(store.get(url, "/home/user/a b.txt", "t", soon()) for _ in range(5)))
    assert {p.read_bytes() for p in paths} == {b"hello"}
    assert {p.name for p in paths} == {cache_name(url, "a b.txt")}
    assert Handler.served == ["/redirect-inside", "/file"]
    assert names(tmp_path) == [paths[0].name]


async def test_gold_files_of_osworlds_cache_are_found(tmp_path: Path) -> None:
    """A file put where OSWorld's own cache has it needs no network."""
    store = cache(tmp_path, allow_downloads=False)
    (tmp_path / "task-1").mkdir()
    (tmp_path / "task-1" / "gold.xlsx").write_bytes(b"gold")
    got = await store.get("https://example.org/gold.xlsx", "gold.xlsx", "task-1", soon())
    assert got.read_bytes() == b"gold"
    with pytest.raises(RefusedByPolicy, match="downloads are off"):
        await store.get("https://example.org/other.xlsx", "other.xlsx", "task-1", soon())


@pytest.mark.parametrize(
    ("path", "error", "text"),
    [
        ("/redirect-metadata", RefusedByPolicy, "never fetched from"),
        ("/redirect-file", RefusedByPolicy, "only http and https"),
        ("/redirect-loop", DownloadFailed, "redirects more than"),
        ("/missing", DownloadFailed, "answered 404"),
        ("/endless", RefusedByPolicy, "larger than"),
    ],
)
async def test_what_must_not_or_cannot_be_fetched(
    server: str, tmp_path: Path, path: str, error: type[Exception], text: str
) -> None:
    """Redirects are checked like URLs, sizes are bounded, and nothing half-done stays."""
    with pytest.raises(error, match=text):
        await cache(tmp_path).get(server + path, "f", "t", soon())
    assert names(tmp_path) == []


async def test_a_stalled_download_ends_by_its_deadline(server: str, tmp_path: Path) -> None:
    """A server that stops sending costs the time that was given, no more."""
    with pytest.raises(DownloadFailed, match="did not arrive"):
        await cache(tmp_path).get(f"{server}/stalls", "f", "t", soon(0.5))
    with pytest.raises(DeadlineExceeded):
        await cache(tmp_path).get(f"{server}/file", "f", "t", soon(-1))
    assert names(tmp_path) == []


async def test_private_addresses_are_refused_by_default(server: str, tmp_path: Path) -> None:
    """Without being allowed to, a task reaches nothing on this machine or its network."""
    store = DownloadCache(tmp_path, TaskPolicy())
    with pytest.raises(RefusedByPolicy, match="not a public address"):
        await store.get(f"{server}/file", "f", "t", soon())
    with pytest.raises(RefusedByPolicy, match="not a public address"):
        await store.get("http://localhost/file", "f", "t", soon())
    assert Handler.served == []


@pytest.mark.parametrize("path", BOMBS)
async def test_what_is_encoded_is_refused_and_never_decoded(server: str, tmp_path: Path, path: str) -> None:
    """Two thousand bytes that stand for a gigabyte cost neither memory nor the time of others."""
    bomb()
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DownloadFailed, match="content encoding"):
        await cache(tmp_path).get(server + path, "f", "t", soon())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 20 << 10
    assert Handler.encodings == ["identity"]
    assert names(tmp_path) == []


async def test_a_size_that_is_announced_is_believed(server: str, tmp_path: Path) -> None:
    """What says that it is too large is not read."""
    with pytest.raises(RefusedByPolicy, match="larger than"):
        await cache(tmp_path).get(f"{server}/announced", "f", "t", soon())


async def test_a_disk_that_is_nearly_full_takes_no_downloads(server: str, tmp_path: Path) -> None:
    """They would fill it up to where replicas end."""
    with pytest.raises(DownloadFailed, match="disk is nearly full"):
        await cache(tmp_path, disk_reserve_bytes=1 << 60).get(f"{server}/file", "f", "t", soon())
    assert names(tmp_path) == []
    assert await cache(tmp_path, disk_reserve_bytes=1).get(f"{server}/file", "f", "t", soon())


@pytest.mark.parametrize("path", FLOODS)
async def test_floods_delay_nobody(server: str, tmp_path: Path, path: str) -> None:
    """Interim answers, headers, chunks without end: they end soon, and meanwhile the loop serves others."""
    store = cache(tmp_path)
    with contextlib.suppress(DownloadFailed):
        await store.get(f"{server}/missing", "f", "t", soon())  # what is loaded once is loaded
    longest_s = 0.0

    async def neighbour() -> None:
        nonlocal longest_s
        while True:
            begin_s = time.thread_time()
            await asyncio.sleep(0)
            longest_s = max(longest_s, time.thread_time() - begin_s)

    task = asyncio.create_task(neighbour())
    begin_s = time.thread_time()
    try:
        with pytest.raises(DownloadFailed):
            await store.get(server + path, "f", "t", soon())
    finally:
        task.cancel()
    assert longest_s < 0.02
    assert time.thread_time() - begin_s < 5
    assert names(tmp_path) == []


@pytest.fixture
def secure(server: str, tmp_path: Path) -> Iterator[tuple[str, ssl.SSLContext]]:
    """The port of the same handler behind TLS for `localhost`, and a context that trusts its certificate."""
    (tmp_path / "tls").mkdir()
    key, certificate = tmp_path / "tls" / "key.pem", tmp_path / "tls" / "certificate.pem"
    argv = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=localhost",
    ]
    argv += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate, key)
    made.socket = served.wrap_socket(made.socket, server_side=True)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield str(made.server_address[1]), ssl.create_default_context(cafile=str(certificate))
    made.shutdown()
    thread.join()
    made.server_close()


async def test_a_certificate_must_name_the_host(secure: tuple[str, ssl.SSLContext], tmp_path: Path) -> None:
    """The connection goes to the address that was checked, the certificate is judged by the URL's name."""
    port, trusting = secure
    store = cache(tmp_path / "cache")
    store._tls = trusting
    got = await store.get(f"https://localhost:{port}/file", "f", "t", soon())
    assert got.read_bytes() == b"hello"
    with pytest.raises(DownloadFailed, match="CERTIFICATE_VERIFY_FAILED"):
        await store.get(f"https://127.0.0.1:{port}/file", "f", "t", soon())
    with pytest.raises(DownloadFailed, match="CERTIFICATE_VERIFY_FAILED"):
        await cache(tmp_path / "cache").get(f"https://localhost:{port}/other", "f", "t", soon())


async def test_names_that_nobody_answers_for_hold_up_nothing_else(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Look-ups have threads of their own: those of everybody else stay free."""
    answered = threading.Event()
    real = socket.getaddrinfo

    def slow(host: str, *rest: Any, **more: Any) -> Any:
        if host == "slow.example":
            answered.wait(20)
        return real("127.0.0.1", *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    store = cache(tmp_path)
    waiting = [
        asyncio.create_task(store.get(f"http://slow.example/{n}", "f", "t", soon(0.5))) for n in range(40)
    ]
    try:
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            assert await asyncio.to_thread(lambda: 7) == 7
        failed = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(error) for error in failed} == {DownloadFailed}
    finally:
        answered.set()
    assert (await store.get(f"{server}/file", "f", "t", soon())).read_bytes() == b"hello"


@pytest.mark.parametrize("path", REDIRECTS)
async def test_where_a_redirect_must_not_lead(server: str, tmp_path: Path, path: str) -> None:
    """A server's redirect is read as strictly as a task's own URL, and fails as typed."""
    with pytest.raises((RefusedByPolicy, DownloadFailed)) as caught:
        await cache(tmp_path).get(server + path, "f", "t", soon())
    assert caught.value.code in {"task_unsupported", "setup_failed"}
    assert names(tmp_path) == []


@pytest.mark.parametrize("url", ["http://a:99999/", "http://a/\0", "http://" + "a" * 300, "file:///%00"])
async def test_what_is_no_url_is_refused(tmp_path: Path, url: str) -> None:
    """Also where it did not come from a task file."""
    policy = TaskPolicy(task_files_dir=tmp_path, allow_private_addresses=True)
    with pytest.raises(RefusedByPolicy):
        await DownloadCache(tmp_path / "cache", policy).get(url, "f", "t", soon())


ALWAYS_REFUSED = """
169.254.169.254 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe fd00:ec2::254 168.63.129.16
100.100.100.200 2002:a9fe:a9fe:: fe80::1%eth0 0.0.0.0 224.0.0.1 ::
"""


@pytest.mark.parametrize("address", ALWAYS_REFUSED.split())
def test_some_addresses_are_refused_always(address: str) -> None:
    """Metadata services and what is no machine's address stay out of reach, however they are written."""
    assert refusal(address, allow_private=True)


def test_ordinary_addresses() -> None:
    """Public addresses are fine; private ones only where allowed."""
    assert refusal("93.184.216.34", allow_private=False) is None
    assert refusal("10.1.2.3", allow_private=False)
    assert refusal("10.1.2.3", allow_private=True) is None


async def test_files_of_the_host_only_below_their_folder(tmp_path: Path) -> None:
    """file: URLs and local paths read the task-files folder and nothing else."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    (tmp_path / "secret").write_text("s")
    (folder / "link").symlink_to(tmp_path / "secret")
    store = DownloadCache(tmp_path / "cache", TaskPolicy(task_files_dir=folder))
    assert (await store.get("file:///a.txt", "x", "t", soon())).read_text() == "a"
    (folder / "circle").symlink_to(folder / "circle")
    for name in ("../secret", "/../secret", "link", "%2e%2e/secret", "circle", "a" * 3000):
        with pytest.raises((RefusedByPolicy, DownloadFailed)):
            await store.get(f"file:{name}", "x", "t", soon())
    with pytest.raises(RefusedByPolicy, match="no folder for such files"):
        DownloadCache(tmp_path / "cache", TaskPolicy()).local_file("a.txt")


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "a/../..", "..", ".", "", "a\\..\\b", "x" * 500, "\0\n"]
)
def test_names_in_the_cache_are_plain(name: str) -> None:
    """Whatever path a task gives a file, its name in the cache is a plain one."""
    plain = safe_name(name)
    assert plain not in {"", ".", ".."}
    assert "/" not in plain
    assert "\0" not in plain
    assert len(plain.encode()) <= 200
