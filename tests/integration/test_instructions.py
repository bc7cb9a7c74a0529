"""Hot paths take no more instructions than they did, however busy the machine is."""

from __future__ import annotations

import subprocess
import sys

import pytest
from benchmarks.common import ROOT
from benchmarks.instructions.__main__ import UNAVAILABLE, WAYS, Counted, check_versions, regressions
from benchmarks.instructions.native import Unavailable, inclusive


@pytest.mark.parametrize("way", WAYS)
def test_no_hot_path_takes_a_tenth_more(way: str) -> None:
    """Of the guest agent's native core, and of a step through SDK, protocol and host agent."""
    argv = [sys.executable, "-m", "benchmarks.instructions", "--only", way]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=170)
    if done.returncode == UNAVAILABLE:
        pytest.skip(f"missing: {done.stderr.strip()}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_regression_says_how_much_and_how_to_accept_it() -> None:
    """At 10 %, not before; so does a count that is new, or gone."""
    before = Counted({}, {"same": 100, "more": 100, "less": 100, "slower": 100, "gone": 1})
    now = Counted({}, {"same": 100, "more": 109, "less": 5, "slower": 110, "new": 1})
    found = regressions(before, now)
    assert [line.partition(":")[0] for line in found] == ["gone", "new", "slower"]
    assert "1.10 times the kept 100" in found[2]
    assert all("--accept" in line for line in found)


def test_counts_of_other_versions_are_not_compared() -> None:
    """It says which."""
    with pytest.raises(Unavailable, match=r"valgrind 2, kept is 1"):
        check_versions(Counted({"valgrind": "1"}, {}), Counted({"valgrind": "2"}, {}))


def test_what_a_function_calls_is_its_own_cost() -> None:
    """And what the functions around it cost is not."""
    text = "\n".join(
        [
            "fn=main",
            "10 5",
            "cfn=count_hash",
            "calls=1 0",
            "11 999",
            "",
            "fn=count_hash",
            "20 7",
            "+1 3",
            "cfn=og_frame_hash",
            "calls=1 0",
            "* 100",
            "fn=og_frame_hash",
            "1 100",
        ]
    )
    assert inclusive(text) == {"hash": 110}
