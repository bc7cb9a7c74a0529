"""Publisher to Google's Cloud Monitoring."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

import httpx

from osgym_host.scaling.publishers import (
    CONNECT_S,
    DIMENSION,
    METRIC,
    READ_S,
    Publisher,
    PublisherUnavailable,
    PublishFailed,
)
from osgym_protocol.http_clients import make_client
from osgym_protocol.proxies import DIRECT

GCP_METRIC = f"custom.googleapis.com/osgym/{METRIC}"
MONITORING_URL = "https://monitoring.googleapis.com/"
OVERRIDE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_MONITORING"
"""Variable with which gcloud, too, replaces the endpoint."""
SCOPE = "https://www.googleapis.com/auth/monitoring.write"


def publisher(fleet: str, argument: str, metadata_url: str) -> Publisher:
    """Return the publisher of `gcp`, which takes no argument.

    Raises:
        PublisherUnavailable: There is an argument, or google-auth is not installed.
    """
    if argument:
        raise PublisherUnavailable(f"metrics_to: gcp takes no argument, but has {argument!r}")
    return CloudMonitoring(fleet, metadata_url)


class CloudMonitoring(Publisher):
    """One time series of this instance at Cloud Monitoring, with Google's default credentials."""

    name = "Cloud Monitoring"

    def __init__(self, fleet: str, metadata_url: str) -> None:
        """Connect at the first call.

        Raises:
            PublisherUnavailable: google-auth is not installed.
        """
        try:
            import google.auth.transport.requests
        except ImportError as error:
            raise PublisherUnavailable(
                "metrics_to: gcp needs google-auth: pip install 'osgym-host[gcp]'"
            ) from error
        self._google = google.auth
        self._fleet = fleet
        self._metadata_url = metadata_url
        self._session: Any = None
        self._instance: dict[str, str] = {}
        self._project = ""

    def put(self, percent: float | None) -> None:
        import requests
        from google.auth.exceptions import GoogleAuthError

        if percent is None:
            return
        try:
            if self._session is None:
                self._begin()
            url = os.environ.get(OVERRIDE) or MONITORING_URL
            answer = self._session.post(
                f"{url.rstrip('/')}/v3/projects/{self._project}/timeSeries",
                json={"timeSeries": [self._series(percent)]},
                timeout=(CONNECT_S, READ_S),
            )
        except (GoogleAuthError, requests.RequestException, httpx.HTTPError, ValueError) as error:
            raise PublishFailed(f"{type(error).__name__}: {error}") from error
        if answer.status_code != 200:
            raise PublishFailed(f"HTTP {answer.status_code}: {answer.text[:300]}")

    def _begin(self) -> None:
        credentials, project = self._google.default(scopes=[SCOPE])
        with make_client(
            DIRECT,
            base_url=self._metadata_url,
            headers={"Metadata-Flavor": "Google"},
            timeout=CONNECT_S,
        ) as metadata:
            found = {}
            for name, path in (("instance_id", "instance/id"), ("zone", "instance/zone")):
                text = metadata.get(f"/computeMetadata/v1/{path}").raise_for_status().text
                found[name] = text.strip()[:200].rpartition("/")[2]
            project = project or metadata.get("/computeMetadata/v1/project/project-id").text[:100]
        self._instance, self._project = found, project
        self._session = self._google.transport.requests.AuthorizedSession(credentials)  # type: ignore[no-untyped-call]  # has no types

    def _series(self, percent: float) -> dict[str, Any]:
        """Return the time series of this instance, which the group's autoscaler averages with others."""
        end = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return {
            "metric": {"type": GCP_METRIC, "labels": {DIMENSION: self._fleet}},
            "resource": {
                "type": "gce_instance",
                "labels": {"project_id": self._project, **self._instance},
            },
            "metricKind": "GAUGE",
            "points": [{"interval": {"endTime": end}, "value": {"doubleValue": percent}}],
        }
