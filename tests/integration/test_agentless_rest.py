"""Guests without an agent that rest when they are asked: nobody waits to see again what a step has seen."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.support.guest_kits import KITS, missing
from tests.support.guest_rig import GuestFault, until

READY_QUIET_S = 0.3


@pytest.mark.parametrize(
    ("name", "ready_s"),
    [
        pytest.param("agentless", 0.25, id="a machine that is seen to rest"),
        pytest.param("osworld", 0.8, id="a desktop whose work cannot be seen"),
    ],
)
def test_a_guest_that_rests_since_its_last_step_is_ready_at_once(
    tmp_path: Path, name: str, ready_s: float
) -> None:
    """The guest is ready in less time than a full watch for quiet takes."""
    if lacking := missing(name):
        pytest.skip(f"missing: {lacking}")
    with KITS[name](tmp_path) as kit:

        def is_ready() -> bool:
            try:
                kit.guest.json("POST", "/v1/ready", {"timeout_s": ready_s})
            except GuestFault as fault:
                assert fault.code == "not_ready"
                return False
            return True

        assert not is_ready(), "nothing is known of it before its first step"
        kit.guest.step({"op": "screenshot"})
        rested_s = time.monotonic()
        until(lambda: time.monotonic() - rested_s > READY_QUIET_S)
        until(is_ready)
