"""Spans of a host's work for a client: children of the span that the client names in its request.

They are made after the answer, from its existing times: a step is no slower for them, and the guest is not
involved. OpenTelemetry's variables say where they are sent.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from osgym_protocol.observation import Observation
from osgym_protocol.telemetry import provider_from

if TYPE_CHECKING:
    from osgym_protocol.span_provider import SpanProvider

SERVICE = "osgym-host"
CLOSE_S = 3.0
_IN_GUEST = ("input", "settle", "capture", "encode")
"""Times of a step in the guest agent, in their order."""


@dataclass(frozen=True, slots=True)
class TracedStep:
    """Values of a step's spans.

    Attributes:
        guest_ms: Part of it from the request to the guest agent until its answer.
        after_ms: Part of it from then until the host was done.
    """

    episode_id: str
    replica_id: str
    generation: int
    task_id: str | None
    seq: int
    host_ms: float
    guest_ms: float
    after_ms: float
    observation: Observation | None


class StepTracer:
    """Makes spans and hands them over to a thread that sends them."""

    def __init__(self, provider: SpanProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("osgym_host")

    def step(self, traceparent: str, step: TracedStep) -> None:
        """Make the spans of a step that has just ended: the host's, the guest's, and the guest's parts."""
        ended_ns = time.time_ns()
        attributes = {
            "osgym.episode_id": step.episode_id,
            "osgym.replica_id": step.replica_id,
            "osgym.generation": step.generation,
            "osgym.task_id": step.task_id,
            "osgym.seq": step.seq,
        }
        began_ns = ended_ns - _ns(step.host_ms)
        host = self._span(
            "host.step", _parent_context(traceparent), began_ns, ended_ns, attributes, server=True
        )
        answered_ns = ended_ns - _ns(step.after_ms)
        asked_ns = answered_ns - _ns(step.guest_ms)
        guest = self._span("guest.step", host, asked_ns, answered_ns, {})
        if step.observation is not None:
            self._in_guest(step.observation, guest, asked_ns, answered_ns)

    def close(self) -> None:
        """Send the remaining spans, within `CLOSE_S`. Idempotent."""
        self._provider.end(CLOSE_S)

    def _in_guest(self, observation: Observation, parent: Any, asked_ns: int, answered_ns: int) -> None:
        """Make the spans of the guest agent's work.

        The guest reports durations and no times, so the spans are put one after another in the middle of its
        span.
        """
        took = {name: max(0.0, observation.timing_ms.get(name, 0.0)) for name in _IN_GUEST}
        spare_ns = answered_ns - asked_ns - _ns(sum(took.values()))
        if spare_ns < 0:  # no guest's word makes a child longer than its parent
            return
        at_ns = asked_ns + spare_ns // 2
        for name, took_ms in took.items():
            end_ns = at_ns + _ns(took_ms)
            self._span(f"guest.{name}", parent, at_ns, end_ns, _attributes_of(name, observation))
            at_ns = end_ns

    def _span(
        self,
        name: str,
        parent: Any,
        began_ns: int,
        ended_ns: int,
        attributes: Mapping[str, Any],
        *,
        server: bool = False,
    ) -> Any:
        from opentelemetry.trace import SpanKind, set_span_in_context

        span = self._tracer.start_span(
            name,
            context=parent,
            kind=SpanKind.SERVER if server else SpanKind.INTERNAL,
            attributes={key: value for key, value in attributes.items() if value is not None},
            start_time=began_ns,
        )
        span.end(ended_ns)
        return set_span_in_context(span)


def tracer_from(environ: Mapping[str, str]) -> StepTracer | None:
    """Return a tracer, None when OpenTelemetry's variables ask for none.

    Raises:
        TelemetryError: Spans are wanted but impossible.
    """
    provider = provider_from(environ, SERVICE)
    return None if provider is None else StepTracer(provider)


def _parent_context(traceparent: str) -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": traceparent})


def _attributes_of(name: str, observation: Observation) -> dict[str, Any]:
    settle, frame = observation.settle, observation.frame
    if name == "settle" and settle is not None:
        return {"osgym.settle.reason": settle.reason, "osgym.settle.policy": settle.policy}
    if name == "encode":
        return {"osgym.frame.format": frame.format, "osgym.frame.unchanged": frame.unchanged}
    return {}


def _ns(ms: float) -> int:
    return round(ms * 1e6)
