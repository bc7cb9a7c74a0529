"""The rule that is evaluated on traces is the rule that the guest agent follows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.guest_rig import Desktop, desktop

from osgym_host.calibration.replay import decide, read_rule, read_traces

SETTINGS = Path(__file__).resolve().parents[2] / "guest_agent/osgym_guest/data/settle.json"
TURN_MS = 8.0
"""Two turns of the loop and what a busy machine adds to them."""


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Desktop]:
    """A desktop whose agent writes traces."""
    with desktop(tmp_path, agent=False) as made:
        made.start_agent(OSGYM_SETTLE_TRACE=str(tmp_path / "trace.jsonl"))
        made.guest.json("POST", "/v1/ready", {"timeout_s": 20})
        yield made


@pytest.mark.parametrize("policy", ["exact", "fast"])
def test_the_replayed_decision_is_the_one_that_was_made(screen: Desktop, policy: str) -> None:
    """For each step the recorded signals give the wait that the agent reported."""
    file = screen.home / "text.txt"
    file.write_text("a few words\n" * 200)
    screen.open("mousepad", str(file))
    trace = screen.home / "trace.jsonl"
    start = trace.stat().st_size
    waits = []
    for keys in (["Down"], ["Next"], ["ctrl", "a"], ["ctrl", "f"], ["Escape"], ["ctrl", "End"], ["shift"]):
        meta, _ = screen.guest.step({"op": "key", "keys": keys}, settle={"policy": policy})
        waits.append(meta["settle"]["wait_ms"])
    rule = read_rule(json.loads(SETTINGS.read_text()), policy)
    traces = list(read_traces(trace.read_text()[start:].splitlines()))
    assert len(traces) == len(waits)
    replayed = [min(decide(one, rule), one.turns[-1].at_ms) for one in traces]
    # the agent asks the X server once more before it answers, and goes on when that shows a change
    assert all(again <= wait + TURN_MS for again, wait in zip(replayed, waits, strict=True))
    agreeing = sum(abs(again - wait) <= TURN_MS for again, wait in zip(replayed, waits, strict=True))
    assert agreeing >= len(waits) - 2, (replayed, waits)
