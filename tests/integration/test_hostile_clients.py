"""Clients that never finish a request, or never stop one, against a real service with few descriptors.

The replicas are fakes; the service, its sockets and its limits are real. `prlimit` gives it 1,024
descriptors, as many systems do.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import os
import resource
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support import ROOT
from tests.support.host_process import HostProcess, running_host, wait_until

from osgym_host.connections import HEAD_S, MAX_HEAD_BYTES
from osgym_protocol.limits import MAX_BODY_BYTES
from osgym_sdk import Client

DESCRIPTORS = 1024
MANY = 1100
TOKEN = "a-token-of-this-test"
AUTH = f"Authorization: Bearer {TOKEN}\r\n".encode()
MAX_GROWTH_MIB = 20.0
ATTACKER = "127.0.0.9"
REQUEST = b"POST /v1/drain HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def host() -> Iterator[HostProcess]:
    data_dir = Path(tempfile.mkdtemp(prefix="osgym-"))  # short: unix sockets are in it
    command = ("prlimit", f"--nofile={DESCRIPTORS}", sys.executable, "-m", "tests.support.fake_runtime_host")
    settings = (f"token={TOKEN}", "ram_reserve_mib=0", "replica_ram_mib=64", "disk_reserve_mib=0")
    with running_host(
        f"clients-{os.getpid()}",
        warm=0,
        settings=settings,
        data_dir=data_dir,
        command=command,
        cwd=ROOT,
        wait=False,
    ) as running:
        yield running
    shutil.rmtree(data_dir, ignore_errors=True)


@pytest.fixture(scope="module", autouse=True)
def many_descriptors() -> Iterator[None]:
    """This process opens as many as it attacks with."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4 * MANY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4 * MANY, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(host: HostProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", host.port), 5)


def resident_mib(host: HostProcess) -> float:
    pages = int(Path(f"/proc/{host.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def health_s(host: HostProcess) -> float:
    """How long a new connection waits for an answer."""
    began = time.monotonic()
    assert httpx.get(f"{host.url}/v1/health", timeout=10).status_code == 200
    return time.monotonic() - began


def all_of(sock: socket.socket, timeout_s: float = 10.0) -> bytes:
    """What is answered until the other side closes."""
    sock.settimeout(timeout_s)
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := sock.recv(65536):
            data += part
    return data


def send_while_taken(sock: socket.socket, piece: bytes, most_bytes: int) -> int:
    """Send a piece again and again until the other side has enough; return how much it took."""
    sent = 0
    sock.settimeout(5)
    with contextlib.suppress(OSError):
        while sent < most_bytes:
            sent += sock.send(piece)
    return sent


def test_half_open_requests_keep_nobody_out(host: HostProcess) -> None:
    """More of them than descriptors: others are served, the log stays small, they end after a while."""
    log_before = host.log.stat().st_size
    with (
        Client(host.url, token=TOKEN) as client,
        client.episode() as episode,
        contextlib.ExitStack() as open_,
    ):
        episode.step("wait()")
        for _ in range(MANY):
            sock = open_.enter_context(connect(host))
            with contextlib.suppress(OSError):
                sock.send(b"GET /v1/health HTTP/1.1\r\nX-a")
        assert health_s(host) < 3
        began = time.monotonic()
        episode.step([{"op": "move", "x": 5, "y": 5}])
        assert time.monotonic() - began < 3
        with client.episode() as another:
            another.step([{"op": "move", "x": 6, "y": 6}])
        assert len(os.listdir(f"/proc/{host.process.pid}/fd")) < DESCRIPTORS * 3 // 4
        # Nobody comes any more; the deadline alone ends those that are left.
        wait_until(
            lambda: len(os.listdir(f"/proc/{host.process.pid}/fd")) < 100, HEAD_S + 10, "they are closed"
        )
    assert host.log.stat().st_size - log_before < 200_000


def test_an_unfinished_head_is_answered_and_closed(host: HostProcess) -> None:
    """After its time, with the reason; also on a connection that was used before."""
    with connect(host) as fresh, connect(host) as used:
        used.sendall(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n")
        seen = b""
        while not seen.endswith(b"}"):
            seen += used.recv(65536)
        assert seen.startswith(b"HTTP/1.1 200")
        began = time.monotonic()
        for sock in (fresh, used):
            sock.sendall(b"GET /v1/health HTTP/1.1\r\nX-a")
        for sock in (fresh, used):
            answer = all_of(sock, HEAD_S + 5)
            assert answer.startswith(b"HTTP/1.1 408")
            assert b"head took more than" in answer
        assert HEAD_S - 1 < time.monotonic() - began < HEAD_S + 5


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"GET /v1/health HTTP/1.1\r\nHost: x\r\n", b"X-a: " + b"b" * 1000 + b"\r\n"),
        (b"GET /v1/health HTTP/1.1\r\nHost: x\r\n", b"a: b\r\n" * 100),
        (b"GET /", b"a" * 4096),
        (b"GET / HTTP/1.1\r\nX: ", b"a" * 4096),
    ],
    ids=["headers", "tiny headers", "path", "one header"],
)
def test_an_endless_head_is_refused(host: HostProcess, begin: bytes, piece: bytes) -> None:
    """Soon, with its status, and without the memory for it."""
    before = resident_mib(host)
    with connect(host) as sock:
        sock.sendall(begin)
        send_while_taken(sock, piece, 64 << 20)
    with connect(host) as sock:  # a little over the bound, so that the answer can be read
        head = begin + piece * (MAX_HEAD_BYTES // len(piece) + 1)
        sock.sendall(head[: MAX_HEAD_BYTES + 1])
        assert all_of(sock).startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))
    assert resident_mib(host) - before < MAX_GROWTH_MIB
    assert health_s(host) < 2


PATHS = ["/v1/drain", "/v1/episodes", "/v1/leases/renew", "/v1/steps", "/reset", "/v1/nothing", "/v1/health"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("how", ["length", "chunks"])
def test_a_huge_body_is_refused_on_every_path(host: HostProcess, path: str, how: str) -> None:
    """By its announced length at once, else at the bound; never with the memory for it."""
    before = resident_mib(host)
    line = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
    with connect(host) as sock:
        if how == "length":
            sock.sendall(line + AUTH + b"Content-Length: 400000000\r\n\r\n")
            sent = send_while_taken(sock, b" " * 65536, 400_000_000)
            assert sent < 400_000_000
        else:
            sock.sendall(line + AUTH + b"Transfer-Encoding: chunked\r\n\r\n")
            sent = send_while_taken(sock, b"10000\r\n" + b" " * 65536 + b"\r\n", 400_000_000)
            assert sent < 400_000_000
    assert resident_mib(host) - before < MAX_GROWTH_MIB + MAX_BODY_BYTES / (1 << 20)
    answer = httpx.post(
        f"{host.url}{path}",
        content=b" " * (MAX_BODY_BYTES + 1),
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=20,
    )
    assert answer.status_code == (400 if path == "/reset" else 413)
    assert answer.json()["code"] == "bad_request"
    wait_until(lambda: resident_mib(host) - before < MAX_GROWTH_MIB, 5, "the memory is given back")


def test_a_body_without_a_token_is_not_read(host: HostProcess) -> None:
    """The answer comes before it, and what follows it is thrown away."""
    before = resident_mib(host)
    with connect(host) as sock:
        sock.sendall(REQUEST + b"Content-Length: 400000000\r\n\r\n")
        assert sock.recv(65536).startswith(b"HTTP/1.1 401")
        assert send_while_taken(sock, b" " * 65536, 400_000_000) < 400_000_000
    assert resident_mib(host) - before < MAX_GROWTH_MIB


def test_a_flood_of_requests_on_one_connection_delays_nobody(host: HostProcess) -> None:
    """A client that pipelines without reading answers is dropped; others are served meanwhile."""
    before = resident_mib(host)
    with connect(host) as sock:
        sock.settimeout(0.5)
        with contextlib.suppress(OSError):
            for _ in range(200):
                sock.send(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)
        assert health_s(host) < 2
    with connect(host) as sock:
        sock.sendall(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
        answers = b""
        sock.settimeout(5)
        while answers.count(b"HTTP/1.1 200") < 3:
            answers += sock.recv(65536)
    assert resident_mib(host) - before < MAX_GROWTH_MIB


def test_requests_that_come_in_pieces_are_served(host: HostProcess) -> None:
    """Head and body cut anywhere, one after the other on one connection."""
    body = b'{"leases":[]}'
    request = (
        b"POST /v1/leases/renew HTTP/1.1\r\nHost: localhost\r\n" + AUTH + b"Content-Length: 13\r\n\r\n" + body
    )
    with connect(host) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(5)
        for size in (1, 7, 50, len(request)):
            for begin in range(0, len(request), size):
                sock.sendall(request[begin : begin + size])
            answer = b""
            while b'"lost":[]}' not in answer:
                answer += sock.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200")


def test_tokens_are_not_guessed_over_many_connections(host: HostProcess) -> None:
    """However many guess at a time, few are looked at; who has called before is served as ever."""
    threads, each = 16, 100
    mine = {"Authorization": f"Bearer {TOKEN}"}
    answers: list[httpx.Response] = []

    def attack(number: int) -> None:
        transport = httpx.HTTPTransport(local_address=ATTACKER)
        with httpx.Client(base_url=host.url, transport=transport, timeout=20) as client:
            for guess in range(each):
                headers = {"Authorization": f"Bearer guess-{number}-{guess}", "Connection": "close"}
                answers.append(client.get("/v1/host", headers=headers))

    assert httpx.get(f"{host.url}/v1/host", headers=mine).status_code == 200
    before_mib = resident_mib(host)
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(attack, number) for number in range(threads)]:
            done.result()
    codes = collections.Counter((answer.status_code, answer.json()["code"]) for answer in answers)
    assert codes.keys() == {(401, "unauthorized"), (429, "rate_limited")}
    assert 30 <= codes[401, "unauthorized"] <= 60, codes
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in answers if answer.status_code == 429)
    assert resident_mib(host) - before_mib < MAX_GROWTH_MIB
    assert httpx.get(f"{host.url}/v1/host", headers=mine).status_code == 200
    with httpx.Client(base_url=host.url, transport=httpx.HTTPTransport(local_address=ATTACKER)) as client:
        assert client.get("/v1/host", headers=mine).status_code == 429, (
            "a guess that is right is not told apart"
        )
    assert "wrong tokens came from 127.0.0.9" in host.log.read_text()
