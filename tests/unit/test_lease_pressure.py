"""The number that a fleet is scaled by: what it is, when there is none, and that nobody waits for it."""

from __future__ import annotations

import asyncio
import builtins
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.waiting import until

from osgym_host.core.plan import lease_pressure_percent
from osgym_host.scaling import publish
from osgym_host.scaling.publish import PressurePublisher
from osgym_host.scaling.publishers import (
    PressureFile,
    Publisher,
    PublisherUnavailable,
    PublishFailed,
    publisher_of,
    read_pressure,
)
from osgym_host.settings import SettingsError, load


@given(leased=st.integers(0, 4096), waiting=st.integers(0, 9999), admitted=st.integers(0, 4096))
def test_it_is_over_100_where_clients_wait_and_everything_is_leased(
    leased: int, waiting: int, admitted: int
) -> None:
    """It grows with what is asked for, and says nothing of a host that gives nothing."""
    found = lease_pressure_percent(leased=leased, waiting=waiting, admitted=admitted, draining=False)
    if admitted == 0 and leased == 0:
        assert found is None
        return
    assert found is not None
    assert (found > 100) == (leased + waiting > max(1, admitted))
    more = lease_pressure_percent(leased=leased, waiting=waiting + 1, admitted=admitted, draining=False)
    assert more is not None and more > found
    assert lease_pressure_percent(leased=leased, waiting=waiting, admitted=admitted, draining=True) is None


def test_the_example_of_the_documents() -> None:
    """Twelve of 16 leased: 75 %; all leased and four wait: 125 %."""
    assert lease_pressure_percent(leased=12, waiting=0, admitted=16, draining=False) == 75
    assert lease_pressure_percent(leased=16, waiting=4, admitted=16, draining=False) == 125


def test_a_file_says_it_to_another_account_and_not_for_ever(tmp_path: Path) -> None:
    """Old, absent and broken files are told from one that says that there is no number."""
    path = tmp_path / "pressure"
    writer = PressureFile(path)
    writer.put(62.5)
    now = time.time()
    assert read_pressure(path, 180, now) == 62.5 and path.stat().st_mode & 0o777 == 0o644
    assert read_pressure(path, 180, now + 181) is None
    writer.put(None)
    assert read_pressure(path, 180, now) is None
    for text in ("", "[]", "{}", '{"lease_pressure_percent": -1, "at": 0}', json.dumps({"at": "x"}), "NaN"):
        path.write_text(text)
        with pytest.raises(PublishFailed, match="cannot be read"):
            read_pressure(path, 180, 0)
    path.unlink()
    with pytest.raises(PublishFailed, match="No such file"):
        read_pressure(path, 180, now)
    with pytest.raises(PublishFailed):
        PressureFile(tmp_path / "none" / "pressure").put(1.0)


class Slow(Publisher):
    """Takes as long as it is let."""

    name = "slow"

    def __init__(self) -> None:
        self.go = threading.Event()
        self.calls = 0
        self.error: Exception | None = None

    def put(self, percent: float | None) -> None:
        self.calls += 1
        self.go.wait(20)
        if self.error is not None:
            raise self.error


async def test_a_call_that_hangs_delays_no_one_and_is_not_joined_by_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The event loop goes on, no second call begins meanwhile, the end waits for none, recovery is said."""
    monkeypatch.setattr(publish, "LIMIT_S", 0.05)
    slow = Slow()
    publishing = PressurePublisher(slow, lambda: 50.0, 0.02)
    publishing.start()
    longest_s = 0.0
    end_s = time.monotonic() + 0.5
    while (before_s := time.monotonic()) < end_s:
        await asyncio.sleep(0.001)
        longest_s = max(longest_s, time.monotonic() - before_s)
    assert slow.calls == 1 and publishing.failures > 3 and longest_s < 0.3
    assert "has not ended yet" in publishing.why
    slow.go.set()
    await until(lambda: publishing.published)
    assert "again" in caplog.text and publishing.failures == 0
    slow.error = ZeroDivisionError("a fault of a library")
    await until(lambda: publishing.failures >= 2)
    slow.go.clear()
    await asyncio.wait_for(publishing.close(), 2)
    slow.go.set()


def test_what_is_missing_or_wrong_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra, when the agent starts; the setting that belongs to another."""
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] in ("boto3", "google"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    for setting in ("cloudwatch", "gcp"):
        with pytest.raises(PublisherUnavailable, match=rf"osgym-host\[{setting}\]"):
            publisher_of(setting, "prod", "http://127.0.0.1:9")
    monkeypatch.undo()
    assert publisher_of("none", "", "") is None
    with pytest.raises(SettingsError, match="metrics_fleet"):
        load(flags={"metrics_to": "cloudwatch"})
    with pytest.raises(SettingsError, match="metrics_to"):
        load(flags={"metrics_to": "statsd"})
