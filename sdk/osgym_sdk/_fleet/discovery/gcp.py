"""Hosts by a label of their Compute Engine instances."""

from __future__ import annotations

import os
from typing import Any

from osgym_sdk._exceptions import ConfigError
from osgym_sdk._fleet.discovery.address import SourceAddress, parse_source
from osgym_sdk._fleet.discovery.cloud import CloudSource
from osgym_sdk.host_sources import HostDefaults, HostSource, SourceFailed

COMPUTE_URL = "https://compute.googleapis.com/compute/v1/"
OVERRIDE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"
"""Variable with which gcloud takes another endpoint (Private Service Connect), version included."""
SCOPE = "https://www.googleapis.com/auth/compute.readonly"
REQUEST_S = 15
PAGE, MOST_PAGES = 500, 100
FIELDS = "nextPageToken,items/*/instances(name,networkInterfaces(networkIP,ipv6Address,accessConfigs(natIP)))"


def open_source(text: str, defaults: HostDefaults) -> HostSource:
    """Return the source of a URL."""
    return GcpLabelSource(parse_source(text, defaults))


class GcpLabelSource(CloudSource):
    """Instances of a project that run and have all the labels. Credentials by Google's default chain."""

    def __init__(self, address: SourceAddress) -> None:
        """Ask nothing yet. Raises ConfigError if google-auth is not installed."""
        try:
            import google.auth.transport.requests  # noqa: F401 - whether it is there
        except ImportError as exc:
            raise ConfigError(f"{address.text} needs google-auth: pip install 'osgym-sdk[gcp]'") from exc
        super().__init__(address)
        self._session: Any = None
        self._project = address.project

    def _instances(self) -> list[dict[str, Any]]:
        import requests
        from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError

        try:
            return self._ask()
        except DefaultCredentialsError as exc:
            raise SourceFailed(
                "no Google Cloud credentials were found: run gcloud auth application-default login"
            ) from exc
        except (GoogleAuthError, requests.RequestException, ValueError) as exc:
            raise SourceFailed(f"{type(exc).__name__}: {exc}") from exc

    def _ask(self) -> list[dict[str, Any]]:
        import google.auth
        from google.auth.transport.requests import AuthorizedSession

        if self._session is None:
            credentials, default_project = google.auth.default(scopes=[SCOPE])
            self._project = self._project or default_project or ""
            if not self._project:
                raise SourceFailed("no project: add ?project=...")
            self._session = AuthorizedSession(credentials)  # type: ignore[no-untyped-call]  # has no types
        base = os.environ.get(OVERRIDE) or COMPUTE_URL
        url = f"{base.rstrip('/')}/projects/{self._project}/aggregated/instances"
        wanted = " AND ".join(f'(labels.{key} = "{value}")' for key, value in self._address.pairs)
        asked = {
            "filter": f'{wanted} AND (status = "RUNNING")',
            "fields": FIELDS,
            "maxResults": str(PAGE),
            # A zone that cannot be asked is an error: its hosts have not left.
            "returnPartialSuccess": "false",
        }
        found: list[dict[str, Any]] = []
        for _ in range(MOST_PAGES):
            answer = self._session.get(url, params=asked, timeout=REQUEST_S)
            if answer.status_code != 200:
                raise SourceFailed(_why(answer))
            body = answer.json()
            for zone in (body.get("items") or {}).values():
                found += zone.get("instances") or []
            if not body.get("nextPageToken"):
                return found
            asked["pageToken"] = body["nextPageToken"]
        raise SourceFailed(f"the answer has more than {MOST_PAGES} pages of instances")

    @staticmethod
    def addresses_of(instance: dict[str, Any]) -> tuple[str, str]:
        """Return public and private address of the first interface."""
        card: dict[str, Any] = next(iter(instance.get("networkInterfaces") or []), {})
        accesses = card.get("accessConfigs") or []
        public = next((str(one["natIP"]) for one in accesses if one.get("natIP")), "")
        return public, str(card.get("networkIP") or card.get("ipv6Address") or "")


def _why(answer: Any) -> str:
    try:
        message = str(answer.json()["error"]["message"])[:300]
    except (ValueError, KeyError, TypeError):
        message = answer.text[:200]
    hint = " (it needs compute.instances.list)" if answer.status_code == 403 else ""
    return f"HTTP {answer.status_code}: {message}{hint}"
