"""The metadata services of EC2 (IMDSv2) and Compute Engine on loopback, as far as notices need them.

Paid clouds: what they answer is imitated, by their public documentation.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

AWS = "/latest/meta-data/"
GCP = "/computeMetadata/v1/instance/"


class FakeMetadata:
    """What the services say; a test changes it with `set` while they run."""

    def __init__(self) -> None:
        self.url = ""
        self.aws: dict[str, str] = {}
        self.gcp = {"preempted": "FALSE", "maintenance-event": "NONE"}
        self.broken = False
        self.tokens: set[str] = set()
        self.asked: list[str] = []
        self.stopped = False
        self._changed = threading.Condition()

    def set(self, **changes: str | None) -> None:
        """Changes `spot`, `rebalance` (texts; None: not there), `preempted`, `maintenance`, `broken`."""
        names = {"spot": "spot/instance-action", "rebalance": "events/recommendations/rebalance"}
        with self._changed:
            for name, text in changes.items():
                if name == "broken":
                    self.broken = text is not None
                elif name == "stopped":
                    self.stopped = True
                elif name in names and text is None:
                    self.aws.pop(names[name], None)
                elif text is not None and name in names:
                    self.aws[names[name]] = text
                elif text is not None:
                    self.gcp["maintenance-event" if name == "maintenance" else name] = text
            self._changed.notify_all()

    def interrupt(self, action: str, left_s: float) -> None:
        """EC2 says that it takes the machine in so many seconds."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + left_s))
        self.set(spot=json.dumps({"action": action, "time": at}))

    def answer(self, method: str, target: str, headers: Mapping[str, str]) -> tuple[int, str, str]:
        """Status, text and ETag."""
        path = urlsplit(target).path
        self.asked.append(f"{method} {path}")
        if self.broken:
            return 503, "not now", ""
        if (method, path) == ("PUT", "/latest/api/token"):
            if "x-aws-ec2-metadata-token-ttl-seconds" not in headers:
                return 400, "", ""
            self.tokens.add(token := secrets.token_hex(8))
            return 200, token, ""
        if path.startswith(AWS):
            if headers.get("x-aws-ec2-metadata-token") not in self.tokens:
                return 401, "", ""
            text = self.aws.get(path.removeprefix(AWS))
            return (404, "<html>not found</html>", "") if text is None else (200, text, "")
        if path.startswith(GCP):
            if headers.get("metadata-flavor") != "Google":
                return 403, "", ""
            return self._wait(path.removeprefix(GCP), parse_qs(urlsplit(target).query))
        return 404, "", ""

    def _wait(self, name: str, query: Mapping[str, list[str]]) -> tuple[int, str, str]:
        known = query.get("last_etag", ["0"])[0]
        wait_s = float(query["timeout_sec"][0]) if "wait_for_change" in query else 0.0
        with self._changed:
            self._changed.wait_for(
                lambda: self.stopped or self.broken or self.gcp[name].encode().hex() != known, wait_s
            )
            text = self.gcp[name]
        return (503, "", "") if self.broken else (200, text, text.encode().hex())


@contextlib.contextmanager
def serving_metadata() -> Iterator[FakeMetadata]:
    """The services, for the time of a block."""
    state = FakeMetadata()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, text, etag = state.answer(self.command, self.path, headers)
            data = text.encode()
            with contextlib.suppress(ConnectionError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                if etag:
                    self.send_header("ETag", etag)
                self.end_headers()
                self.wfile.write(data)

        do_GET = do_PUT = _any

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield state
    finally:
        state.set(stopped="")
        server.shutdown()
        thread.join()
        server.server_close()
