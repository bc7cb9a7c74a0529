"""Where the number goes: CloudWatch, Cloud Monitoring, a file for the process beside us.

What is here blocks, each call within its own deadlines; `publish` runs it in a thread.
"""

from __future__ import annotations

import json
import math
import os
import time
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from osgym_host.errors import OsgymHostError
from osgym_host.whole_file import write_whole
from osgym_protocol.http_clients import make_client
from osgym_protocol.proxies import DIRECT

NAMESPACE, METRIC, DIMENSION = "OSGym", "lease_pressure_percent", "fleet"
GCP_METRIC = f"custom.googleapis.com/osgym/{METRIC}"
MONITORING_URL = "https://monitoring.googleapis.com/"
OVERRIDE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_MONITORING"
"""What gcloud takes for another endpoint."""
SCOPE = "https://www.googleapis.com/auth/monitoring.write"
CONNECT_S, READ_S, ATTEMPTS = 3, 7, 2
MOST_FILE_BYTES = 4096
EXTRAS = {"cloudwatch": "boto3", "gcp": "google-auth"}


class PublishFailed(Exception):
    """The number did not arrive; the next one may."""


class PublisherUnavailable(OsgymHostError):
    """What `metrics_to` names cannot be used on this host."""


class Publisher(ABC):
    """One place that takes the number.

    Attributes:
        name: For messages.
    """

    name: str

    @abstractmethod
    def put(self, percent: float | None) -> None:
        """Hand the number over, or that there is none now.

        Raises:
            PublishFailed: It did not arrive.
        """


class CloudWatch(Publisher):
    """One metric of the fleet at CloudWatch, with the credentials of boto3's default chain."""

    name = "CloudWatch"

    def __init__(self, fleet: str, region: str = "") -> None:
        """Send nothing yet; without a region, to that of boto3's configuration.

        Raises:
            PublisherUnavailable: boto3 is not installed.
        """
        try:
            import boto3  # here, at start, not in the middle of somebody's step
            from botocore.config import Config
        except ImportError as error:
            raise _missing("cloudwatch") from error
        self._fleet = fleet
        self._region = region or None
        self._session = boto3.session.Session
        self._config = Config(
            connect_timeout=CONNECT_S,
            read_timeout=READ_S,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        )
        self._client: Any = None

    def put(self, percent: float | None) -> None:
        """Hand the number over."""
        from botocore.exceptions import BotoCoreError, ClientError

        if percent is None:
            return
        try:
            if self._client is None:
                session = self._session(region_name=self._region)
                self._client = session.client("cloudwatch", config=self._config)
            self._client.put_metric_data(
                Namespace=NAMESPACE,
                MetricData=[
                    {
                        "MetricName": METRIC,
                        "Dimensions": [{"Name": DIMENSION, "Value": self._fleet}],
                        "Value": percent,
                        "Unit": "Percent",
                    }
                ],
            )
        except (BotoCoreError, ClientError, ValueError) as error:
            raise PublishFailed(str(error)) from error


class CloudMonitoring(Publisher):
    """One time series of this instance at Cloud Monitoring, with Google's default credentials."""

    name = "Cloud Monitoring"

    def __init__(self, fleet: str, metadata_url: str) -> None:
        """Send nothing yet.

        Raises:
            PublisherUnavailable: google-auth is not installed.
        """
        try:
            import google.auth.transport.requests
        except ImportError as error:
            raise _missing("gcp") from error
        self._google = google.auth
        self._fleet = fleet
        self._metadata_url = metadata_url
        self._session: Any = None
        self._instance: dict[str, str] = {}
        self._project = ""

    def put(self, percent: float | None) -> None:
        """Hand the number over."""
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
        """Learn who we are."""
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
        """A time series has one writer, so it is this instance's: the group's autoscaler averages them."""
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


class PressureFile(Publisher):
    """A file that another account may read: this one's must not reach the cloud's credentials."""

    def __init__(self, path: Path) -> None:
        """Write nothing yet."""
        self.name = str(path)
        self._path = path

    def put(self, percent: float | None) -> None:
        """Write the number, with the time."""
        text = json.dumps({METRIC: percent, "at": round(time.time(), 3)})
        try:
            write_whole(self._path, text.encode(), 0o644)
        except OSError as error:
            raise PublishFailed(f"{error.strerror}: {self._path}") from error


def read_pressure(path: Path, most_age_s: float, now: float) -> float | None:
    """Return the number in a file, None where it is old or says that there is none.

    Raises:
        PublishFailed: There is no such file, or it is something else.
    """
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(MOST_FILE_BYTES))
        percent, at = found[METRIC], float(found["at"])
        if percent is not None and not (math.isfinite(percent) and percent >= 0):
            raise ValueError(f"{percent} is no percentage")
        return None if percent is None or now - at > most_age_s else float(percent)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PublishFailed(f"{path} says nothing: {error}") from error


def publisher_of(setting: str, fleet: str, metadata_url: str) -> Publisher | None:
    """Return what a setting names: `none`, `cloudwatch[:REGION]`, `gcp` or `file:/PATH`.

    Raises:
        PublisherUnavailable: What it needs is not installed.
        ValueError: The setting names none of them.
    """
    kind, _, path = setting.partition(":")
    match kind:
        case "none":
            return None
        case "cloudwatch":
            return CloudWatch(fleet, path)
        case "gcp" if not path:
            return CloudMonitoring(fleet, metadata_url)
        case "file" if path.startswith("/"):
            return PressureFile(Path(path))
    raise ValueError("one of none, cloudwatch, cloudwatch:REGION, gcp, file:/PATH")


def _missing(setting: str) -> PublisherUnavailable:
    return PublisherUnavailable(
        f"metrics_to: {setting} needs {EXTRAS[setting]}: pip install 'osgym-host[{setting}]'"
    )
