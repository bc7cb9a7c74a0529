"""Spans of steps: from the client's over the host's to the guest's, as a real exporter sends them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.host_process import HostProcess, osgym, running_host, wait_until
from tests.support.otlp import Collector, assert_tree, children, collecting

from osgym_host.images.store import Image
from osgym_protocol.telemetry import TelemetryError, exporter_of, provider_from
from osgym_sdk import Client, ConfigError, InvalidAction
from osgym_sdk import _tracing as tracing

KEY, MOVE = [{"op": "key", "keys": ["ctrl", "a"]}], [{"op": "move", "x": 5, "y": 5}]
QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "100"}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that this process's clients, and hosts that it starts, send to."""
    with collecting() as running:
        for name, value in {**QUICK, "OTEL_EXPORTER_OTLP_ENDPOINT": running.url}.items():
            monkeypatch.setenv(name, value)
        own: list[Any] = []
        monkeypatch.setattr(tracing, "_own", own)
        yield running
        for tracer in own:
            tracer._tracer.span_processor.shutdown()


def test_a_step_is_one_tree_from_client_to_guest(
    small_image: Image, collector: Collector, tmp_path: Path
) -> None:
    """Alone, in a batch, refused: its parts lie within each other, as long as the observation says."""
    with running_host(f"tracing-{os.getpid()}", log_dir=tmp_path) as host:
        with Client(host.url) as client, client.episode() as one, client.episode() as other:
            alone = one.step([{"op": "click", "x": 400, "y": 300}])
            assert len(list(client.step_many([(one, KEY), (other, MOVE)]))) == 2
            with pytest.raises(InvalidAction):
                one.step([{"op": "fly"}])
        spans = collector.wait(
            lambda found: (
                sum(span.name == "guest.encode" for span in found) == 3
                and sum(span.name == "osgym.step" for span in found) == 4
            )
        )
    steps = [span for span in spans if span.name == "osgym.step"]
    assert len({span.trace_id for span in steps}) == 4
    assert [span.attributes["osgym.ops"] for span in steps if span.failed] == [["fly"]]
    for step in (span for span in steps if not span.failed):
        assert_tree(spans, step)
    [clicked] = [span for span in steps if span.attributes["osgym.ops"] == ["click"]]
    [at_host] = children(spans, clicked)
    settled = children(spans, children(spans, at_host)[0])[1]
    assert alone.settle is not None and settled.ms == pytest.approx(alone.settle.wait_ms, abs=0.01)


def test_a_programs_own_spans_are_the_parents(
    host: HostProcess, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever traces a training loop finds our steps in it; a host without a collector sends none."""
    provider = provider_from({"OTEL_TRACES_EXPORTER": "otlp"}, "trainer")
    assert provider is not None
    # What a program does with `trace.set_tracer_provider`, which a process can do once only.
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    iteration_span = provider.get_tracer("trainer").start_as_current_span("iteration")
    with Client(host.url) as client, client.episode() as episode, iteration_span:
        episode.step("wait()")
    provider.shutdown()
    [step, iteration] = collector.wait(lambda found: len(found) == 2)
    assert (step.name, iteration.name, step.service) == ("osgym.step", "iteration", "trainer")
    assert children([step], iteration) == [step]


def test_nobody_waits_for_a_collector_that_is_not_there(small_image: Image, tmp_path: Path) -> None:
    """Steps go on; the host agent stops within seconds, and has said why there are no spans."""
    nowhere = {**QUICK, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    traceparent = f"00-{'1' * 32}-{'2' * 16}-01"
    with running_host(f"untraced-{os.getpid()}", warm=1, log_dir=tmp_path, env=nowhere) as host:
        with Client(host.url) as client, client.episode() as episode:
            url = f"{host.url}/v1/episodes/{episode.episode_id}/step"
            for seq in (1, 2, 3):
                body = {"lease": episode.lease, "seq": seq, "actions": MOVE, "traceparent": traceparent}
                assert httpx.post(url, json=body).status_code == 200
        wait_until(lambda: "Connection refused" in host.log.read_text(), 10, "a word of the collector")
        began = time.monotonic()
        assert host.stop() == 0
        assert time.monotonic() - began < 8


def test_without_a_word_of_it_there_are_no_spans() -> None:
    """Off by default; what is wrong or not installed says so, before anything runs."""
    assert exporter_of({}) == exporter_of({"OTEL_TRACES_EXPORTER": "none"}) == ""
    assert exporter_of({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}) == ""
    assert exporter_of({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}) == "otlp"
    assert tracing.request_tracer({}) is None
    with pytest.raises(TelemetryError, match="otlp, console or none"):
        exporter_of({"OTEL_TRACES_EXPORTER": "zipkin"})
    with pytest.raises(ConfigError, match="http/protobuf or grpc"):
        tracing.request_tracer({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"})
    refused = osgym("host", "serve", OTEL_TRACES_EXPORTER="zipkin")
    assert refused.returncode == 2 and "otlp, console or none" in refused.stderr


def test_a_traceparent_is_checked(host: HostProcess) -> None:
    """It is somebody else's: another form is a 4xx, and nothing was done."""
    with Client(host.url) as client, client.episode() as episode:
        url = f"{host.url}/v1/episodes/{episode.episode_id}/step"
        body: dict[str, Any] = {"lease": episode.lease, "seq": 1, "actions": ["wait()"]}
        good = f"00-{'0' * 32}-{'0' * 16}-00"
        for wrong in ("", "00-1-2-3", "x" * 5000, 7, good + "\n", good.upper().replace("0", "A")):
            answer = httpx.post(url, json={**body, "traceparent": wrong})
            assert answer.status_code in (400, 422), answer.text
        assert httpx.post(url, json={**body, "traceparent": good}).status_code == 200
