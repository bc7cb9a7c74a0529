"""Hosts by a tag of their EC2 instances."""

from __future__ import annotations

from typing import Any

from osgym_sdk._exceptions import ConfigError
from osgym_sdk._fleet.discovery.address import SourceAddress, parse_source
from osgym_sdk._fleet.discovery.cloud import CloudSource
from osgym_sdk.host_sources import HostDefaults, HostSource, SourceFailed

CONNECT_S, READ_S, ATTEMPTS = 5, 15, 2
PAGE = 500
"""EC2 API, DescribeInstances: at most 1000; requests with pages have the larger throttling bucket."""


def open_source(text: str, defaults: HostDefaults) -> HostSource:
    """Return the source of a URL."""
    return AwsTagSource(parse_source(text, defaults))


class AwsTagSource(CloudSource):
    """Instances that run and have all the tags. Credentials and region by boto3's default chain."""

    def __init__(self, address: SourceAddress) -> None:
        """Ask nothing yet. Raises ConfigError if boto3 is not installed."""
        try:
            import boto3  # noqa: F401 - whether it is there; imported again in the thread
        except ImportError as exc:
            raise ConfigError(f"{address.text} needs boto3: pip install 'osgym-sdk[aws]'") from exc
        super().__init__(address)
        self._client: Any = None

    def _instances(self) -> list[dict[str, Any]]:
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

        try:
            return self._ask()
        except NoRegionError as exc:
            raise SourceFailed("no region: add ?region=... or set AWS_DEFAULT_REGION") from exc
        except NoCredentialsError as exc:
            raise SourceFailed("no AWS credentials were found: set them up as for the aws command") from exc
        except ClientError as exc:
            code = exc.response.get("Error", {}).get("Code", "")
            hint = " (it needs ec2:DescribeInstances)" if code == "UnauthorizedOperation" else ""
            raise SourceFailed(f"{exc}{hint}") from exc
        except (BotoCoreError, ValueError) as exc:
            raise SourceFailed(str(exc)) from exc

    def _ask(self) -> list[dict[str, Any]]:
        import boto3
        from botocore.config import Config

        if self._client is None:
            config = Config(
                connect_timeout=CONNECT_S,
                read_timeout=READ_S,
                retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            )
            # A session of our own: the default one is not for several threads.
            session = boto3.session.Session(region_name=self._address.region or None)
            self._client = session.client("ec2", config=config)
        filters = [{"Name": f"tag:{key}", "Values": [value]} for key, value in self._address.pairs]
        filters.append({"Name": "instance-state-name", "Values": ["running"]})
        pages = self._client.get_paginator("describe_instances").paginate(
            Filters=filters, PaginationConfig={"PageSize": PAGE}
        )
        return [
            instance
            for page in pages
            for reservation in page.get("Reservations", [])
            for instance in reservation.get("Instances", [])
        ]

    @staticmethod
    def addresses_of(instance: dict[str, Any]) -> tuple[str, str]:
        """Return public and private address."""
        private = instance.get("PrivateIpAddress") or instance.get("Ipv6Address") or ""
        return str(instance.get("PublicIpAddress") or ""), str(private)
