"""An HTTP proxy in a process of its own, which records its requests and sends all of them to one server.

`python -m tests.support.recording_proxy RECORD HOST PORT` prints its own port.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

VARIABLES = ("http_proxy", "https_proxy", "all_proxy")
MOST_HEAD_BYTES = 1 << 16


@dataclass(frozen=True)
class RecordingProxy:
    """The running proxy. `record` has the heads of its requests, a JSON string on each line."""

    url: str
    record: Path

    @property
    def heads(self) -> list[str]:
        """Heads of the requests so far."""
        return [json.loads(line) for line in self.record.read_text(encoding="utf-8").splitlines()]

    def environment(self) -> dict[str, str]:
        """Return all variables that send programs to it, in both spellings."""
        values = dict.fromkeys(VARIABLES, self.url) | {"no_proxy": ""}
        return values | {name.upper(): value for name, value in values.items()}


@contextlib.contextmanager
def recording_proxy(folder: Path, upstream: str = "http://127.0.0.1:9") -> Iterator[RecordingProxy]:
    """Run a proxy; whatever host it is asked for, it asks `upstream`."""
    folder.mkdir(exist_ok=True)
    record = folder / "proxy.jsonl"
    record.touch()
    to = urlsplit(upstream)
    argv = [sys.executable, "-m", __name__, str(record), str(to.hostname), str(to.port)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        try:
            assert process.stdout is not None
            yield RecordingProxy(f"http://127.0.0.1:{int(process.stdout.readline())}", record)
        finally:
            process.terminate()


async def _serve(record: Path, host: str, port: int) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await _one(reader, writer)
        writer.close()

    async def _one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        with record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(head) + "\n")
        method, target, version = head.split("\r\n", 1)[0].split(" ")
        from_server, to_server = await asyncio.open_connection(host, port)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            parts = urlsplit(target)
            path = parts._replace(scheme="", netloc="").geturl() or "/"
            lines = [line for line in head.split("\r\n")[1:] if line and not line.lower().startswith("host:")]
            # Host agents on loopback refuse other names, against pages that turn their own name to loopback.
            lines += [f"Host: {host}:{port}", "Connection: close"]
            to_server.write("\r\n".join([f"{method} {path} {version}", *lines, "", ""]).encode("latin-1"))
        await asyncio.gather(_copy(reader, to_server), _copy(from_server, writer))

    server = await asyncio.start_server(talk, "127.0.0.1", 0, limit=MOST_HEAD_BYTES)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
    with contextlib.suppress(OSError):
        sink.close()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
