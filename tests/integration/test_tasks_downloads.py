"""Downloads of tasks against real HTTP servers: cached, bounded, and never where they must not go."""

from __future__ import annotations

import asyncio
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from osgym_host.tasks.downloads import DownloadCache, cache_name, refusal, safe_name
from osgym_host.tasks.errors import DeadlineExceeded, DownloadFailed, RefusedByPolicy
from osgym_host.tasks.policy import TaskPolicy


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves what the path says."""

    served: list[str]

    def do_GET(self) -> None:
        self.served.append(self.path)
        if self.path == "/redirect-inside":
            return self.redirect("/file")
        if self.path == "/redirect-metadata":
            return self.redirect("http://169.254.169.254/latest/meta-data/")
        if self.path == "/redirect-file":
            return self.redirect("file:///etc/passwd")
        if self.path == "/redirect-loop":
            return self.redirect("/redirect-loop")
        if self.path == "/missing":
            return self.send_error(404)
        self.send_response(200)
        self.end_headers()
        try:
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
    Handler.served = []
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
    for name in ("../secret", "/../secret", "link", "%2e%2e/secret"):
        with pytest.raises((RefusedByPolicy, DownloadFailed)):
            await store.get(f"file:{name}", "x", "t", soon())
    with pytest.raises(RefusedByPolicy, match="no task-files folder"):
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
