"""Attacks of a replica on its runtime, with a neighbour that must not notice."""

from __future__ import annotations

import os
import textwrap
from dataclasses import replace
from typing import Any

import pytest

from osgym_host.runtimes.base import Replica, ReplicaSpec
from osgym_host.runtimes.local.runtime import LocalRuntime
from tests.support.runtime_probe import run_inside

as_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="missing: root (an ordinary user's replicas share one range of ids)"
)

HOLD = """
import array, ctypes, errno, fcntl, os, resource, socket, threading, time
import builtins
kept = builtins.__dict__.setdefault("kept", [])  # outlives this request
libc = ctypes.CDLL(None, use_errno=True)
def last_error():
    return errno.errorcode[ctypes.get_errno()]
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
"""


async def two(runtime: LocalRuntime, spec: ReplicaSpec) -> tuple[Replica, Replica]:
    """An attacker and its neighbour."""
    return await runtime.create(spec), await runtime.create(replace(spec, replica_id="r2"))


async def attack(replica: Replica, code: str, **values: object) -> Any:
    """Run code whose list `kept` lives as long as the replica."""
    return await run_inside(replica, HOLD + textwrap.dedent(code), **values)  # type: ignore[arg-type]  # a name is no timeout
