"""OpenTelemetry provider that ends in time. Imported only when spans are wanted."""

from __future__ import annotations

import threading

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

_INTERRUPTED_S = 1.0


class SpanProvider(TracerProvider):
    """Makes spans, and sends them in batches in the background."""

    def __init__(self, resource: Resource, exporter: SpanExporter) -> None:
        """Send by an exporter; what is left is sent when the interpreter exits."""
        super().__init__(resource=resource, shutdown_on_exit=True)
        self._span_exporter = exporter
        self.add_span_processor(BatchSpanProcessor(exporter))

    def end(self, within_s: float) -> None:
        """Send the remaining spans within a time. Idempotent.

        `shutdown` would wait for whole sendings, with their repetitions: half a minute without a listener.
        """
        ending = threading.Thread(target=self.shutdown, name="osgym:end spans", daemon=True)
        ending.start()
        ending.join(within_s)
        if ending.is_alive():
            self._span_exporter.shutdown()  # ends the wait before the next repetition
            ending.join(_INTERRUPTED_S)
