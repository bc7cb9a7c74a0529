"""A collector of spans on loopback: OTLP over HTTP, as OpenTelemetry's exporters send it."""

from __future__ import annotations

import contextlib
import gzip
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.support.local_http import serving_http


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
