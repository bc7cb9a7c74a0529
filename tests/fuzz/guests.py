"""Guest protocol v1 against both guests for real: our agent on an X server, and a machine without one.

Only /v1 is asked: what is beside it runs commands, and there is no replica around this agent.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from osgym_protocol.codes import GuestErrorCode
from osgym_protocol.records import decode_record
from tests.fuzz.connections import REFUSALS
from tests.fuzz.engine import MEMORY_MIB, Run, Target
from tests.fuzz.mutation import after, mutate
from tests.support.guest_kits import agentless
from tests.support.guest_rig import Guest, desktop

PATHS = ("/v1/step", "/v1/observe", "/v1/final", "/v1/ready", "/v1/release", "/v1/step", "/v1/step")
_TIMES = {
    "duration_ms": 20,
    "timeout_ms": 20,
    "pause_ms": 20,
    "max_ms": 50,
    "quiet_ms": 10,
    "timeout_s": 0.05,
}
"""Longest times that are asked for: a guest that waits as it was told is right, and slow."""
_DEFAULTS: dict[str, dict[str, Any]] = {
    "/v1/step": {"settle": {"policy": "fixed", "pause_ms": 1}},
    "/v1/final": {"timeout_ms": 10},
    "/v1/ready": {"timeout_s": 0.01},
}
_TYPED_CHARS = 200


def _hastened(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: min(inner, _TIMES[key])
            if key in _TIMES and isinstance(inner, (int, float)) and not isinstance(inner, bool)
            else inner[:_TYPED_CHARS]
            if key == "text" and isinstance(inner, str)
            else _hastened(inner)
            for key, inner in value.items()
        }
    return [_hastened(inner) for inner in value[:300]] if isinstance(value, list) else value


def _feed(guest: Guest, resident_mib: Callable[[], float]) -> Run:
    seq = guest.json("GET", "/v1/health")["last_seq"]
    before_mib = resident_mib()

    def run(data: bytes) -> None:
        nonlocal seq
        path, body = PATHS[data[0] % len(PATHS)] if data else "/v1/step", data[1:]
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(body)
            if isinstance(value, dict) and value.get("seq") == 1 and not isinstance(value["seq"], bool):
                value["seq"] = seq + (path == "/v1/step")
            if isinstance(value, dict) and path in _DEFAULTS:
                value = {**_DEFAULTS[path], **value}
            body = json.dumps(_hastened(value)).encode("utf-8", "surrogatepass")
        status, said = guest.raw("POST", path, body)
        if status == 200 and path in ("/v1/step", "/v1/observe", "/v1/final"):
            decode_record(said)
        elif status != 200:
            assert status in REFUSALS | {504}, f"{path}: {status} {said[:500]!r}"
            GuestErrorCode(json.loads(said)["code"])
        seq = guest.json("GET", "/v1/health")["last_seq"]
        assert resident_mib() - before_mib < MEMORY_MIB, "the guest's memory grows"

    return run


def _resident_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


@contextlib.contextmanager
def agent_protocol() -> Iterator[Run]:
    """The guest agent; without a window manager, so that keys reach no menu of this machine's."""
    with tempfile.TemporaryDirectory() as folder, desktop(Path(folder), size=(320, 200), wm=False) as rig:
        assert rig.agent is not None
        pid = rig.agent.pid
        yield _feed(rig.guest, lambda: _resident_mib(pid))


@contextlib.contextmanager
def agentless_protocol() -> Iterator[Run]:
    """A machine's firmware on a screen, seen and used by QMP; the guest is in this process."""
    with tempfile.TemporaryDirectory() as folder, agentless(Path(folder)) as kit:
        yield _feed(kit.guest, lambda: 0.0)


GUESTS = [
    Target("agent_protocol", agent_protocol, mutation=after(1, mutate), traced=False),
    Target("agentless_protocol", agentless_protocol, mutation=after(1, mutate), traced=False),
]
