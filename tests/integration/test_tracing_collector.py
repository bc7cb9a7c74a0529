"""Spans of steps through a real OpenTelemetry Collector, over both of its protocols."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.support.host_process import running_host
from tests.support.otlp import assert_tree, collecting, otelcol, otelcol_on_path

from osgym_host.images.store import Image
from osgym_sdk import Client
from osgym_sdk import _tracing as tracing

GRPC = "opentelemetry.exporter.otlp.proto.grpc"


def free_port() -> int:
    """A port of loopback that nobody has."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_step_arrives_as_one_tree(
    protocol: str, small_image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, from client to guest, with services and attributes as they were sent."""
    program = otelcol_on_path()
    if program is None:
        pytest.skip("missing: otelcol on PATH (the OpenTelemetry Collector)")
    if protocol == "grpc" and importlib.util.find_spec(GRPC) is None:
        pytest.skip("missing: opentelemetry-exporter-otlp-proto-grpc")
    ports = {"http/protobuf": free_port(), "grpc": free_port()}
    own: list[Any] = []
    monkeypatch.setattr(tracing, "_own", own)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{ports[protocol]}")
    with collecting() as arrived, otelcol(program, tmp_path, arrived.url, *ports.values()):
        with running_host(f"otelcol-{ports['grpc']}", log_dir=tmp_path) as host:
            with Client(host.url) as client, client.episode() as episode:
                episode.step("click(400,300)")
            spans = arrived.wait(lambda found: len(found) == 7)
        for tracer in own:
            tracer._tracer.span_processor.shutdown()
    (step,) = [span for span in spans if span.name == "osgym.step"]
    assert step.attributes["osgym.ops"] == ["click"]
    assert_tree(spans, step)
