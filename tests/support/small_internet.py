"""A small internet on loopback: sites with HTTP and TLS, at addresses that only the proxy of a test knows."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from osgym_host.runtimes.web.certificates import Certificates, make_authority

ADDRESS = "93.184.216.34"
SITE = "shop.example.org"
NAMES = {
    SITE: [ADDRESS],
    "cdn.example.org": [ADDRESS],
    "other.example.net": [ADDRESS],
    "rebound.example.org": ["127.0.0.1", "10.0.0.1", "169.254.169.254"],
}
ECHO_PORT = 7

PAGE = (
    "<!doctype html><title>A small shop</title><link rel=stylesheet href=/style.css>"
    "<h1 id=head>A small shop</h1><img src=/dot.png>"
    "<script>fetch('/count').then(r => r.text()).then(t => document.title = 'Visit ' + t)</script>"
)


@dataclass
class SmallInternet:
    """What runs, and what it was asked.

    Attributes:
        world: File for `OSGYM_TEST_WEB`.
        asked: Method, path and headers (lower case) of each request.
        echoes: How many connections the echo server has now.
    """

    world: Path
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    echoes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def paths(self) -> list[str]:
        """Paths that were asked for, in order."""
        return [path for _, path, _ in self.asked]


def _handler(internet: SmallInternet) -> type[BaseHTTPRequestHandler]:
    class Site(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            with internet.lock:
                internet.asked.append(
                    (self.command, self.path, {k.lower(): v for k, v in self.headers.items()})
                )
                count = sum(path == self.path for path in internet.paths())
            status, kind, extra, body = 200, "text/plain; charset=utf-8", {}, b""
            match self.path:
                case "/":
                    kind, body = "text/html; charset=utf-8", PAGE.encode()
                case "/style.css":
                    kind, body = "text/css", b"h1 { color: rgb(1, 2, 3) }"
                case "/dot.png":
                    kind, body = "image/png", b"\x89PNG\r\n\x1a\n" + bytes(range(256))
                case "/count":
                    body = str(count).encode()
                case "/cookie":
                    extra, body = {"Set-Cookie": "session=secret"}, b"a cookie"
                case "/gzip":
                    extra, body = {"Content-Encoding": "gzip"}, gzip.compress(b"packed" * 100)
                case "/redirect":
                    status, extra = 302, {"Location": "/"}
                case "/broken":
                    status, body = 503, b"not now"
                case _:
                    status, body = 404, b"nothing here"
            self.send_response(status)
            for name, value in {"Content-Type": kind, **extra, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.headers.get("Transfer-Encoding") == "chunked":
                while size := int(self.rfile.readline(), 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            with internet.lock:
                internet.asked.append(("POST", self.path, {k.lower(): v for k, v in self.headers.items()}))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Site


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients go as they like."""


def _tls(authority_file: Path) -> ssl.SSLContext:
    authority = make_authority()
    authority_file.write_text(authority.certificate)
    authority_file.chmod(0o644)
    certificates = Certificates(authority)

    def choose(sock: ssl.SSLSocket | ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        sock.context = certificates.context(name or SITE)

    context = certificates.context("default.example.org")
    context.sni_callback = choose
    return context


def _echo(internet: SmallInternet, listener: socket.socket) -> None:
    def serve(end: socket.socket) -> None:
        with internet.lock:
            internet.echoes += 1
        with end, contextlib.suppress(OSError):
            while data := end.recv(4096):
                end.sendall(data)
        with internet.lock:
            internet.echoes -= 1

    with contextlib.suppress(OSError):
        while True:
            threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


@contextlib.contextmanager
def small_internet(folder: Path) -> Iterator[SmallInternet]:
    """Run it; what it is goes into a file in `folder` that every user may read."""
    internet = SmallInternet(folder / "world.json")
    plain, secure = (_Server(("127.0.0.1", 0), _handler(internet)) for _ in range(2))
    context = _tls(folder / "authority.pem")
    # The handshake is for the connection's own thread: one that never comes must not hold up the others.
    secure.socket = context.wrap_socket(secure.socket, server_side=True, do_handshake_on_connect=False)
    echo = socket.create_server(("127.0.0.1", 0))
    places = {
        f"{ADDRESS}:80": ["127.0.0.1", plain.server_port],
        f"{ADDRESS}:443": ["127.0.0.1", secure.server_port],
        f"{ADDRESS}:{ECHO_PORT}": ["127.0.0.1", echo.getsockname()[1]],
    }
    world = {"names": NAMES, "places": places, "ca": str(folder / "authority.pem")}
    internet.world.write_text(json.dumps(world))
    internet.world.chmod(0o644)
    threads = [threading.Thread(target=server.serve_forever, daemon=True) for server in (plain, secure)]
    threads.append(threading.Thread(target=_echo, args=(internet, echo), daemon=True))
    for thread in threads:
        thread.start()
    try:
        yield internet
    finally:
        for server in (plain, secure):
            server.shutdown()
            server.server_close()
        with contextlib.suppress(OSError):
            echo.shutdown(socket.SHUT_RDWR)  # closing alone wakes no accept
        echo.close()
        for thread in threads:
            thread.join()
