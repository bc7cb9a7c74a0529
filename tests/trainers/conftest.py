"""Fixtures of the trainers' tests: a folder with a task, and a host with its desktops."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.host_process import HostProcess, wait_until
from tests.support.trainer_rig import TASK

from osgym_sdk.integrations import _desktop


@pytest.fixture
def tasks(tmp_path: Path) -> str:
    """A folder with the task."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "say-hello.json").write_text(json.dumps(TASK))
    return str(folder)


@pytest.fixture
def desks(host: HostProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostProcess]:
    """The host, named by the environment; afterwards all its desktops are given back."""
    monkeypatch.setenv("OSGYM_HOSTS", host.url)
    yield host
    wait_until(lambda: not host.replicas("leased"), 20, "all desktops given back")
    for client in list(_desktop._CLIENTS.values()):
        client.close()
    _desktop._CLIENTS.clear()
