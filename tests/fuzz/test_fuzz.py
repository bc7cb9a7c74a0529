"""Each fuzz target for a few seconds, corpus first: taken or refused by its own error, bounded, no hang."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from random import Random

import pytest

from tests.fuzz import engine
from tests.fuzz.engine import Run, Target, fuzz
from tests.fuzz.mutation import MAX_BYTES, mutate, mutate_record
from tests.fuzz.targets import TARGETS, missing

SECONDS = 1.5


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_nothing_breaks_the_promise(target: Target) -> None:
    """The committed inputs, and those that a few seconds make of them with a fixed seed."""
    if lacking := missing(target):
        pytest.skip(f"missing: {lacking}")
    report = fuzz(target, SECONDS, seed=1)
    assert not report.findings, "\n".join(map(str, report.findings))
    assert report.inputs >= len(target.corpus())
    assert report.lines > 0 or not target.traced


def test_a_crash_a_hang_and_what_grows_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine sees each way to break the promise."""
    hoard: list[bytes] = []

    def feed(data: bytes) -> None:
        if data == b"crash":
            raise KeyError("x")
        while data == b"hang":
            pass
        if data == b"hoard":
            hoard.append(b"x" * (300 << 20))

    @contextlib.contextmanager
    def opened() -> Iterator[Run]:
        yield feed

    monkeypatch.setattr(Target, "corpus", lambda self: [b"good", b"crash", b"hang", b"hoard"])
    monkeypatch.setattr(engine, "CPU_S", 0.2)
    found = fuzz(Target("none", opened, traced=False), 0, seed=1).findings
    assert [finding.data for finding in found] == [b"crash", b"hang", b""]
    assert "KeyError" in found[0].error and "CPU" in found[1].error and "MiB" in found[2].error


def test_inputs_are_made_alike_for_the_same_seed() -> None:
    """A finding's seed finds it again; no input is longer than the bound."""

    def made(seed: int) -> list[bytes]:
        random, last = Random(seed), b'{"a": [1, {"b": "c"}]}'
        found: list[bytes] = []
        for number in range(300):
            last = (mutate if number % 2 else mutate_record)(random, last, found) or b"{}"
            found.append(last)
        return found

    assert made(5) == made(5) != made(6)
    assert max(map(len, made(5))) <= MAX_BYTES
