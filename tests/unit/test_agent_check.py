"""Findings about a guest agent whose check takes too long."""

from __future__ import annotations

import os
import socket

import pytest

from osgym_host.runtimes.local import agent_check


@pytest.fixture
def listening() -> int:
    """Return the inode of a socket of this process."""
    with socket.socket() as sock:
        return os.fstat(sock.fileno()).st_ino


def test_a_host_that_gives_no_time_says_nothing_of_the_agent(
    listening: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If real time runs out first, the host is too busy, which is no evidence against the agent."""
    monkeypatch.setattr(agent_check, "SCAN_S", 0.0)
    with pytest.raises(agent_check.TooBusy):
        agent_check._holders([os.getpid()], {listening})


def test_more_descriptors_than_any_desktop_has_are_the_replicas_doing(
    listening: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If CPU time runs out first, the replica has more descriptors than any desktop."""
    monkeypatch.setattr(agent_check, "SCAN_CPU_S", 0.0)
    with pytest.raises(agent_check.Tampered, match="too many file descriptors"):
        agent_check._holders([os.getpid()], {listening})
