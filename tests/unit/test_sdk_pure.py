"""The pure parts of the SDK: settings, options, retries, placement, timing."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from osgym_sdk import (
    AsyncClient,
    ConfigError,
    InvalidAction,
    Observation,
    Progress,
    ProgressLine,
    SettlePolicy,
    Timing,
    wire,
)
from osgym_sdk._config import ClientConfig, make_config, parse_hosts
from osgym_sdk._fleet.fleet import _sample, choose
from osgym_sdk._fleet.host import FleetHost
from osgym_sdk._inputs.actions import as_actions
from osgym_sdk._inputs.options import as_observe, as_settle, as_task
from osgym_sdk._sync.client import Client
from osgym_sdk._transport.link import HostLink
from osgym_sdk._transport.retry import Deadline, RetryBackoff, next_delay


@pytest.mark.parametrize(
    ("given_hosts", "expected"),
    [
        ("desk1", ("http://desk1:20000",)),
        ("desk1:81, https://desk2/", ("http://desk1:81", "https://desk2")),
        (["http://[::1]:5"], ("http://[::1]:5",)),
        ("http://proxy/desk1", ("http://proxy/desk1",)),
    ],
)
def test_hosts_in_their_forms(given_hosts: Any, expected: tuple[str, ...]) -> None:
    """Short names, URLs, lists and comma separated text are understood."""
    assert parse_hosts(given_hosts) == expected


def test_hosts_come_from_the_environment_when_not_given() -> None:
    """Arguments win over OSGYM_HOSTS, which wins over the default."""
    assert parse_hosts(None, {"OSGYM_HOSTS": "a,b"}) == ("http://a:20000", "http://b:20000")
    assert parse_hosts("c", {"OSGYM_HOSTS": "a"}) == ("http://c:20000",)
    assert parse_hosts(None, {}) == ("http://127.0.0.1:20000",)


@pytest.mark.parametrize("bad", ["", "ftp://x", "http://", "http://u:p@h", "a,a", "http://h:99999", "h?x=1"])
def test_bad_hosts_are_config_errors(bad: str) -> None:
    """What is no host is refused when the client is made."""
    with pytest.raises(ConfigError):
        AsyncClient(bad)


def test_token_and_ca_come_from_the_environment() -> None:
    """OSGYM_TOKEN and OSGYM_CA are read once; the token is in no repr."""
    config = make_config("h", environ={"OSGYM_TOKEN": "s3cret", "OSGYM_CA": "/ca.pem"})
    assert (config.token, config.verify) == ("s3cret", "/ca.pem")
    assert "s3cret" not in repr(config)
    with pytest.raises(ConfigError, match="TLS"):
        AsyncClient("https://h", verify="/no/such/ca.pem")


def test_actions_in_their_forms() -> None:
    """One action or a list, text or objects; anything else is refused before it is sent."""
    assert as_actions("a") == ("a",)
    assert as_actions({"op": "wait"}) == ({"op": "wait"},)
    assert as_actions(["a", {"b": 1}]) == ("a", {"b": 1})
    for bad in (b"a", 5, None, ["a", 5]):
        with pytest.raises(InvalidAction):
            as_actions(bad)  # type: ignore[arg-type] # wrong on purpose


def test_tasks_settle_and_observe_in_their_forms(tmp_path: Any) -> None:
    """A path is read; short names become options; what is wrong says so."""
    path = tmp_path / "t.json"
    path.write_text('{"id": "x"}')
    assert as_task(path) == as_task(str(path)) == {"id": "x"}
    said_of = (("[]", "the file does not hold"), ("vm\n", "the file is not JSON"), (None, "No such file"))
    for text, said in said_of:
        path.unlink() if text is None else path.write_text(text)
        with pytest.raises(ConfigError, match=rf"t\.json: {said}"):
            as_task(path)
    assert as_settle("fast") == wire.SettleOptions(SettlePolicy.FAST)
    assert as_settle({"policy": "fixed", "pause_ms": 5}) == wire.SettleOptions(
        SettlePolicy.FIXED, pause_ms=5.0
    )
    assert as_observe("jpeg") == wire.ObserveOptions(wire.ImageFormat.JPEG)
    for function, value in ((as_settle, "soon"), (as_observe, "gif"), (as_observe, {"size": 5})):
        with pytest.raises(ConfigError):
            function(value)  # type: ignore[operator] # each takes its own kind


@given(st.integers(0, 10_000), st.integers())
def test_backoff_is_bounded_and_jittered(attempt: int, seed: int) -> None:
    """No delay is over the ceiling, none is under half of it."""
    backoff = RetryBackoff(0.1, 2.0, 3.0)
    ceiling = min(3.0, 0.1 * 2.0 ** min(attempt, 30))
    assert ceiling / 2 <= backoff.delay_s(attempt, random.Random(seed)) <= ceiling


@given(st.floats(0, 10), st.floats(0, 10), st.integers())
def test_no_attempt_starts_after_a_deadline(first: float, second: float, seed: int) -> None:
    """A retry that would start too late is not made."""
    delay = next_delay(3, RetryBackoff(), random.Random(seed), 0.0, Deadline(first), Deadline(second))
    assert delay is None or delay < min(first, second)


def _view(
    url: str, *, ready: int, leased: int, most: int = 10, placed: int = 0, draining: bool = False
) -> FleetHost:
    state = wire.HostState(
        "id",
        "1",
        "local",
        wire.HostImage("d", "small"),
        (1, 1),
        wire.HostCapacity(most, ready, leased),
        wire.HostLoad(1, 0.0, 1.0, 1.0),
        draining,
    )
    return FleetHost(HostLink(url, ClientConfig((url,))), state, 0.0)


def test_the_least_loaded_host_is_chosen() -> None:
    """Free replicas first, then the smaller share in use; our own placements count."""
    rng = random.Random(0)
    busy, idle = _view("http://a", ready=1, leased=9), _view("http://b", ready=5, leased=1)
    assert choose([busy, idle], rng) is idle
    idle.creating = 5  # all its ready ones are spoken for
    assert choose([busy, idle], rng) is busy
    drains = _view("http://c", ready=10, leased=0, draining=True)
    assert choose([busy, drains], rng) is busy
    assert choose([], rng) is None


def test_a_sample_of_many_hosts_is_of_those_that_serve() -> None:
    """Eight that take episodes, and one of those that drained, which may have come back."""
    serving = [_view(f"http://s{i}", ready=1, leased=0) for i in range(20)]
    drains = [_view(f"http://d{i}", ready=1, leased=0, draining=True) for i in range(20)]
    found = _sample([*drains, *serving], random.Random(2))
    assert [view.draining for view in found] == [False] * 8 + [True]
    assert [view.draining for view in _sample(drains, random.Random(2))] == [True]
    assert drains[0].believed_free() == 0
    serving[0].mark_draining()
    assert serving[0].draining


def test_ready_replicas_of_another_image_do_not_count() -> None:
    """A host with one ready replica of the image comes before one with many of another image."""
    rng = random.Random(0)

    def serving(url: str, small: int, full: int) -> FleetHost:
        host = _view(url, ready=small + full, leased=0)
        assert host.state is not None
        counts = {"small": small, "full": full}
        images = tuple(wire.ServedImage(name[0], name, ready, 0, 0, 0, 1) for name, ready in counts.items())
        host.state = replace(host.state, images=images)
        return host

    one, other = serving("http://a", small=9, full=0), serving("http://b", small=0, full=1)
    older = _view("http://c", ready=3, leased=0)
    assert [host.believed_free("full") for host in (one, other, older)] == [0, 1, 3]
    assert [host.believed_free() for host in (one, other, older)] == [9, 0, 3]
    assert choose([one, other], rng, "full") is other
    assert choose([one, other], rng, "f") is other
    assert choose([one, other], rng) is one


def test_a_sample_of_many_hosts_has_one_with_the_image() -> None:
    """Those known to lack it are left out; those that were never asked are not."""
    lacking = [_view(f"http://l{i}", ready=1, leased=0) for i in range(20)]
    for host in lacking:
        host.image_names = frozenset({"small"})
    unknown = [_view(f"http://u{i}", ready=1, leased=0) for i in range(200)]
    having = _view("http://h", ready=1, leased=0)
    having.image_names = frozenset({"full", "f"})
    for seed in range(20):
        found = _sample([*lacking, *unknown, having], random.Random(seed), "full")
        assert having in found and not any(host in lacking for host in found)
    assert set(map(id, _sample(lacking, random.Random(2), "full"))) <= set(map(id, lacking))


def test_equal_hosts_share_by_chance() -> None:
    """No host is favoured for its place in the list."""
    rng = random.Random(1)
    hosts = [_view(f"http://h{i}", ready=5, leased=0) for i in range(4)]
    chosen = {id(choose(hosts, rng)) for _ in range(100)}
    assert len(chosen) == 4


@given(
    st.floats(0, 1000),
    st.floats(0, 1000),
    st.dictionaries(st.sampled_from(["host", "guest"]), st.floats(0, 1000)),
    st.dictionaries(st.sampled_from(["input", "settle", "capture", "encode"]), st.floats(0, 1000)),
)
def test_timing_parts_are_never_negative(total: float, transfer: float, host: Any, guest: Any) -> None:
    """Whatever clocks say, no part is negative."""
    timing = Timing.split(total, transfer, host, guest)
    assert min(timing.client_ms, timing.network_ms, timing.host_ms, timing.guest_ms) >= 0


def test_timing_parts_sum_to_the_total() -> None:
    """Nested measurements become parts that do not overlap."""
    guest = {"input": 1.0, "settle": 50.0, "capture": 2.0, "encode": 5.0}
    timing = Timing.split(70.0, 68.0, {"host": 65.0, "guest": 60.0}, guest)
    assert (timing.client_ms, timing.network_ms, timing.host_ms, timing.guest_ms) == (2.0, 3.0, 5.0, 2.0)
    assert timing.overhead_ms == 20.0


def _observation(fmt: str, data: bytes) -> Observation:
    frame = wire.FrameInfo("h", wire.ImageFormat(fmt), 4, 3, (8, 6))
    return Observation(wire.StepAnswer(wire.Observation(frame)), data)


def test_the_image_of_an_observation() -> None:
    """Decoded when asked for, and to be had as PNG, base64 and data URL."""
    out = io.BytesIO()
    Image.new("RGB", (4, 3), (200, 10, 20)).save(out, "WEBP", lossless=True)
    obs = _observation("webp", out.getvalue())
    assert obs.image is obs.image
    assert (obs.size, obs.screen, obs.image.size) == ((4, 3), (8, 6), (4, 3))
    assert obs.png.startswith(b"\x89PNG")
    assert obs.data_url.startswith("data:image/webp;base64," + obs.base64[:8])
    png = _observation("png", obs.png)
    assert png.png is png.data
    with pytest.raises(ValueError, match="format none"):
        _observation("none", b"").image  # noqa: B018 - the access is the test


def test_the_progress_line() -> None:
    """On a terminal one line is rewritten; elsewhere only the last is printed."""
    progress = Progress(2, 1, 0, 2, 0.5, 7, 60.0)
    assert str(progress) == "2/2 done, 0 running · 7 steps · 2.0/min · reward 0.50 · 1 failed · 0 s left"
    plain = io.StringIO()
    line = ProgressLine(plain)
    early = [Progress(0, 0, n, None, None, 0, n / 10) for n in range(1, 101)]
    later = Progress(1, 0, 1, None, None, 3, 30.0)
    end = replace(later, elapsed_s=31.0, done=True)
    for told in (*early, later, end, end):
        line(told)
    assert plain.getvalue() == f"{early[0]}\n{later}\n{end}\n"
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign] # a terminal in memory
    shown = ProgressLine(terminal)
    shown(progress)
    shown(replace(progress, done=True))
    assert terminal.getvalue() == f"\r{progress}\r{progress}\n"
    plain.close()
    ProgressLine(plain)(progress)  # a stream that is gone ends no batch


def test_wrong_arguments_are_config_errors() -> None:
    """They are found before anything is leased."""
    client = AsyncClient("h")
    with pytest.raises(ConfigError):
        client.episode(lease_ttl_s=0)
    with pytest.raises(ConfigError):
        client.run([], lambda obs, task, step: None, concurrency=0)


@pytest.mark.parametrize("kind", [AsyncClient, Client])
def test_a_misspelt_argument_is_a_type_error(kind: Any) -> None:
    """Also where arguments are handed on."""
    with pytest.raises(TypeError, match="tokn"):
        kind("h", tokn="x")


def test_a_closed_sync_client_says_so() -> None:
    """Calls after close fail at once, closing twice is fine."""
    client = Client("h")
    client.close()
    client.close()
    with pytest.raises(ConfigError, match="closed"):
        client.host_states()
