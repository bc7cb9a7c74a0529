"""Export of spans by OpenTelemetry's standard variables. Imported only when spans are wanted.

https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/ (read 2026-11): of the
exporters `otlp` (over HTTP, or gRPC where its package is installed) and `console`; sampling, batches,
headers, certificates and timeouts are what OpenTelemetry's own packages read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from osgym_protocol.proxies import is_loopback_url

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

    from osgym_protocol.span_provider import SpanProvider

TRACEPARENT = r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}"
"""Header that names a span to those who make its children (W3C Trace Context, level 1)."""
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


class TelemetryError(ValueError):
    """Spans are wanted but impossible; the message has the remedy."""


def exporter_of(environ: Mapping[str, str]) -> str:
    """Return the wanted exporter, empty when none is: spans have to be asked for. Pure.

    Raises:
        TelemetryError: There is no such exporter.
    """
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ""
    default = "otlp" if any(environ.get(name) for name in _ENDPOINTS) else ""
    named = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() or default
    if named not in ("", "none", "otlp", "console"):
        raise TelemetryError(f"OTEL_TRACES_EXPORTER must be otlp, console or none, not {named[:40]!r}")
    return "" if named == "none" else named


def provider_from(environ: Mapping[str, str], service: str) -> SpanProvider | None:
    """Return a provider that sends spans in the background; None when no exporter is wanted.

    Args:
        service: Name of the service, unless `OTEL_SERVICE_NAME` has another.

    Raises:
        TelemetryError: The exporter is unknown, or its packages are not installed.
    """
    named = exporter_of(environ)
    if not named:
        return None
    protocol = next(filter(None, map(environ.get, _PROTOCOLS)), "http/protobuf").strip().lower()
    try:
        from opentelemetry.sdk.resources import Resource

        from osgym_protocol.span_provider import SpanProvider

        exporter = _exporter(named, protocol, environ)
    except ImportError as error:
        package = "osgym-sdk" if service == "osgym-client" else "osgym-host"
        needs = "opentelemetry-exporter-otlp-proto-grpc" if protocol == "grpc" else f"'{package}[otel]'"
        message = (
            f"the environment turns tracing on ({named}), but a package is missing: pip "
            f"install {needs} ({error})"
        )
        raise TelemetryError(message) from error
    attributes = {} if environ.get("OTEL_SERVICE_NAME") else {"service.name": service}
    return SpanProvider(Resource.create(attributes), exporter)


def _exporter(named: str, protocol: str, environ: Mapping[str, str]) -> SpanExporter:
    if named == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter()
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

        return GrpcExporter()
    if protocol != "http/protobuf":
        raise TelemetryError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf or grpc, not {protocol[:40]!r}"
        )
    import requests
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    session = requests.Session()
    # By itself requests sends spans for a collector on this machine to the proxy of the environment.
    session.trust_env = not is_loopback_url(_endpoint(environ))
    return OTLPSpanExporter(session=session)


def _endpoint(environ: Mapping[str, str]) -> str:
    return next(filter(None, map(environ.get, _ENDPOINTS)), "http://localhost:4318")
