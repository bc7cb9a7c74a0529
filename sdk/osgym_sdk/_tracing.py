"""Spans of what a client asks of hosts; their children are the hosts' own (see ``docs/tracing.md``).

Off unless OpenTelemetry's variables ask for spans, or the program has set a tracer provider of its own: then
ours go where its others go.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from osgym_protocol.telemetry import TelemetryError, exporter_of, provider_from
from osgym_sdk._exceptions import ConfigError, OSGymError

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

SERVICE = "osgym-client"
NAME = "osgym_sdk"
_MAX_OPS = 20


@dataclass(frozen=True, slots=True)
class RequestSpan:
    """The span of one request, from before it is sent until its answer is taken.

    Attributes:
        traceparent: what the host is told, so that its spans are children of this one.
    """

    span: Span
    traceparent: str

    def end(self, attributes: Mapping[str, Any] | None = None, error: OSGymError | None = None) -> None:
        """End it; what comes after the first end changes nothing."""
        from opentelemetry.trace import Status, StatusCode

        for name, value in (attributes or {}).items():
            if value is not None:
                self.span.set_attribute(f"osgym.{name}", value)
        if error is not None:
            self.span.set_attribute("error.type", error.code)
            self.span.set_status(Status(StatusCode.ERROR, error.message[:500]))
        self.span.end()


class RequestTracer:
    """Makes spans of requests."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def begin(self, name: str, attributes: Mapping[str, Any]) -> RequestSpan:
        """Begin a span under the current one of the program, if there is one."""
        from opentelemetry.trace import SpanKind

        given = {f"osgym.{key}": value for key, value in attributes.items() if value is not None}
        span = self._tracer.start_span(f"osgym.{name}", kind=SpanKind.CLIENT, attributes=given)
        context = span.get_span_context()
        flags = int(context.trace_flags) & 0xFF
        return RequestSpan(span, f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}")


def ops_of(actions: Sequence[Any]) -> list[str]:
    """Return what a step's actions do, the first of them, without what they type; pure."""
    return [
        str(action.get("op", "?")) if isinstance(action, Mapping) else str(action).partition("(")[0][:20]
        for action in actions[:_MAX_OPS]
    ]


_own: list[RequestTracer] = []
"""Tracer of this process, made once, as each provider has a thread."""


def request_tracer(environ: Mapping[str, str] = os.environ) -> RequestTracer | None:
    """Return what makes spans, None when nobody wants them.

    Raises:
        ConfigError: they are wanted and cannot be had.
    """
    given = _of_the_program()
    if given is not None:
        return RequestTracer(given)
    try:
        if not exporter_of(environ):
            return None
        if not _own:
            provider = provider_from(environ, SERVICE)
            assert provider is not None
            _own.append(RequestTracer(provider.get_tracer(NAME)))
    except TelemetryError as error:
        raise ConfigError(str(error)) from error
    return _own[0]


def _of_the_program() -> Tracer | None:
    """The tracer of a provider that the program has set; to have set one it must have imported its module."""
    sdk, api = sys.modules.get("opentelemetry.sdk.trace"), sys.modules.get("opentelemetry.trace")
    if sdk is None or api is None:
        return None
    provider = api.get_tracer_provider()
    if not isinstance(provider, sdk.TracerProvider):
        return None
    tracer: Tracer = provider.get_tracer(NAME)
    return tracer
