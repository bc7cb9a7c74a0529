"""An image whose guest agent runs what a test sends it, and a client for it.

Real namespaces, a real overlay and a real process inside; only the desktop is left out.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from osgym_host.guest_client.http import HttpClient
from osgym_host.images.idmap import IdMap
from osgym_host.runtimes.base import Replica
from osgym_host.runtimes.local.probe_image import ProbeImage, build_probe_image

PYTHON = Path(sys.executable).resolve()
PYTHON_LIB = f"{sys.base_prefix}/lib/python{sys.version_info.major}.{sys.version_info.minor}"

_SESSION = '''\
#!{python} -IS
"""PID 1: serves POST requests whose body is Python; answers with the JSON of `result`."""
import json, os, socket, sys, threading, traceback

HEALTH = {{"status": "ok", "version": "probe", "uptime_s": 0, "desktop_ready": True, "last_seq": 0}}

def serve(conn):
    stream = conn.makefile("rb")
    while True:
        length, line = 0, stream.readline()
        if not line:
            return
        while line.strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
            line = stream.readline()
        scope = {{}}
        try:
            exec(stream.read(length).decode(), scope)
            body = json.dumps({{**HEALTH, "result": scope.get("result")}})
        except Exception:
            body = json.dumps({{"error": traceback.format_exc()}})
        body = body.encode()
        conn.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)

print("probe session", os.environ["OSGYM_REPLICA_ID"], flush=True)
with socket.socket(fileno=3) as listener:
    while True:
        conn, _ = listener.accept()
        threading.Thread(target=serve, args=(conn,), daemon=True).start()
'''


def build_python_image(
    rootfs: Path,
    *,
    session: str | None = None,
    idmap: IdMap | None = None,
    programs: Sequence[Path] = (Path("/bin/sh"),),
) -> ProbeImage:
    """Make an image with this Python and a session that runs what it is sent."""
    return build_probe_image(
        rootfs,
        session or _SESSION.format(python=PYTHON),
        programs=[PYTHON, *Path(PYTHON_LIB).glob("lib-dynload/_ctypes.*.so"), *programs],
        trees={Path(PYTHON_LIB): PYTHON_LIB},
        idmap=idmap,
    )


async def run_inside(replica: Replica, code: str, timeout_s: float = 20.0, **values: object) -> Any:
    """Run Python inside a replica as its root and return what it assigns to `result`."""
    header = "".join(f"{name} = {value!r}\n" for name, value in values.items())
    client = HttpClient(replica.guest)
    try:
        body = (header + textwrap.dedent(code)).encode()
        answer = await client.request("POST", "/run", body, timeout_s=timeout_s)
    finally:
        client.close()
    decoded = json.loads(bytes(answer.body))
    if "error" in decoded:
        raise AssertionError(f"inside the replica: {decoded['error']}")
    return decoded["result"]
