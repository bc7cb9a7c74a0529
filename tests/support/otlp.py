"""Collectors of spans on loopback, ours and OpenTelemetry's own, and what the spans of a step must be."""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.support.local_http import serving_http

IN_GUEST = ["guest.input", "guest.settle", "guest.capture", "guest.encode"]


@dataclass(frozen=True)
class CollectedSpan:
    """A span as it was sent."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    began_ns: int
    ended_ns: int
    failed: bool
    attributes: dict[str, Any]

    @property
    def ms(self) -> float:
        return (self.ended_ns - self.began_ns) / 1e6


def children(spans: list[CollectedSpan], of: CollectedSpan) -> list[CollectedSpan]:
    """Those of one span, as they began."""
    found = [span for span in spans if (span.trace_id, span.parent_id) == (of.trace_id, of.span_id)]
    return sorted(found, key=lambda span: span.began_ns)


def assert_tree(spans: list[CollectedSpan], step: CollectedSpan) -> None:
    """Below a client's step are the host's, the guest's and its parts, each within the one above."""
    [at_host] = children(spans, step)
    [at_guest] = children(spans, at_host)
    parts = children(spans, at_guest)
    assert [span.service for span in (step, at_host, at_guest)] == ["osgym-client", *["osgym-host"] * 2]
    assert (at_host.name, at_guest.name) == ("host.step", "guest.step")
    assert [part.name for part in parts] == IN_GUEST
    assert parts[1].attributes["osgym.settle.reason"]
    assert step.attributes["osgym.episode_id"] == at_host.attributes["osgym.episode_id"]
    assert at_host.ms <= step.ms
    for outer, inner in ((at_host, at_guest), *((at_guest, part) for part in parts)):
        assert outer.began_ns <= inner.began_ns and inner.ended_ns <= outer.ended_ns


@dataclass
class Collector:
    """What came in so far."""

    url: str = ""
    spans: list[CollectedSpan] = field(default_factory=list)

    def wait(
        self, enough: Callable[[list[CollectedSpan]], bool], timeout_s: float = 40.0
    ) -> list[CollectedSpan]:
        """The spans, once there are enough."""
        end = time.monotonic() + timeout_s
        while not enough(self.spans):
            assert time.monotonic() < end, [span.name for span in self.spans]
            time.sleep(0.05)
        return list(self.spans)

    def take(self, data: bytes) -> None:
        """Keep what a request holds."""
        for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
            about = _values(resource.resource.attributes)
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.spans.append(
                        CollectedSpan(
                            str(about.get("service.name")),
                            span.name,
                            span.trace_id.hex(),
                            span.span_id.hex(),
                            span.parent_span_id.hex(),
                            span.start_time_unix_nano,
                            span.end_time_unix_nano,
                            span.status.code == 2,
                            _values(span.attributes),
                        )
                    )


def _values(attributes: Any) -> dict[str, Any]:
    found = {}
    for item in attributes:
        kind = item.value.WhichOneof("value")
        value = getattr(item.value, kind)
        if kind == "array_value":
            value = [getattr(inner, inner.WhichOneof("value")) for inner in value.values]
        found[item.key] = value
    return found


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens on loopback."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                data = gzip.decompress(data)
            collector.take(data)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: Any) -> None:
            pass

    with serving_http(Handler) as collector.url:
        yield collector


OTELCOLS = ("otelcol", "otelcol-contrib")
"""Programs of the OpenTelemetry Collector, of its two distributions or built by its builder."""


def otelcol_on_path() -> str | None:
    """A real collector, where there is one."""
    return next(filter(None, map(shutil.which, OTELCOLS)), None)


@contextlib.contextmanager
def otelcol(program: str, folder: Path, forward_to: str, http: int, grpc: int) -> Iterator[None]:
    """A real collector that takes OTLP at two ports and sends on what it took, as OTLP over HTTP."""
    config = {
        "receivers": {
            "otlp": {
                "protocols": {
                    "http": {"endpoint": f"127.0.0.1:{http}"},
                    "grpc": {"endpoint": f"127.0.0.1:{grpc}"},
                }
            }
        },
        "exporters": {"otlphttp": {"endpoint": forward_to}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["otlphttp"]}},
        },
    }
    path, log = folder / "otelcol.yaml", folder / "otelcol.log"
    path.write_text(json.dumps(config))  # JSON is YAML
    with log.open("wb") as out:
        process = subprocess.Popen([program, "--config", str(path)], stdout=out, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + 30
        while "Everything is ready" not in log.read_text(errors="replace"):
            assert process.poll() is None and time.monotonic() < end, log.read_text(errors="replace")[-3000:]
            time.sleep(0.05)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    assert process.returncode == 0, log.read_text(errors="replace")[-3000:]
