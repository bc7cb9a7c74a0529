"""Publisher to CloudWatch."""

from __future__ import annotations

from typing import Any

from osgym_host.scaling.publishers import (
    ATTEMPTS,
    CONNECT_S,
    DIMENSION,
    METRIC,
    READ_S,
    Publisher,
    PublisherUnavailable,
    PublishFailed,
)

NAMESPACE = "OSGym"


def publisher(fleet: str, region: str, metadata_url: str) -> Publisher:
    """Return the publisher of `cloudwatch` or `cloudwatch:REGION`."""
    return CloudWatch(fleet, region)


class CloudWatch(Publisher):
    """One metric of the fleet at CloudWatch, with the credentials of boto3's default chain."""

    name = "CloudWatch"

    def __init__(self, fleet: str, region: str = "") -> None:
        """Connect at the first call; without a region, to that of boto3's configuration.

        Raises:
            PublisherUnavailable: boto3 is not installed.
        """
        try:
            import boto3  # here, at start, not in the middle of somebody's step
            from botocore.config import Config
        except ImportError as error:
            raise PublisherUnavailable(
                "metrics_to: cloudwatch needs boto3: pip install 'osgym-host[cloudwatch]'"
            ) from error
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
