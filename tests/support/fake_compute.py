"""A stand-in for two REST APIs of Google Cloud: instances of Compute Engine, time series of Cloud Monitoring.

It refuses what they refuse: calls without a token that was given for a signed assertion, filters and time
series that are not of the documented form. Sources: Compute Engine API v1, `instances.aggregatedList`; Cloud
Monitoring API v3, `projects.timeSeries.create` and "Create custom metrics"; "Using OAuth 2.0 for Server to
Server Applications" (all read 2026-11).
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.support.local_http import serving_http

PROJECT = "lab-project"
EMAIL = f"osgym@{PROJECT}.iam.gserviceaccount.com"
TOKEN_URL = "https://oauth2.googleapis.com/token"
"""What assertions are meant for, wherever they are sent."""
_TERM = re.compile(r'\((labels\.([a-z][a-z0-9_-]*)|status) = "([^"]*)"\)')
_METRIC = re.compile(r"custom\.googleapis\.com(/[A-Za-z0-9_]+)+")


METADATA = {"instance/id": "5551234", "instance/zone": "projects/99/zones/us-central1-a"}
"""Of an instance, as its metadata service says it."""


@dataclass
class FakeGoogle:
    """What it holds, and what it was asked."""

    url: str = ""
    instances: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    series: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    broken: int = 0
    """A status that every call is answered with, if not 0."""
    page: int = 2
    tokens: set[str] = field(default_factory=set)
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    def add(self, name: str, address: str, zone: str = "us-central1-a", **labels: str) -> dict[str, Any]:
        """An instance that runs."""
        card = {"networkIP": address, "accessConfigs": []}
        made = {"name": name, "status": "RUNNING", "labels": labels, "networkInterfaces": [card]}
        self.instances.setdefault(f"zones/{zone}", []).append(made)
        return made

    def credentials(self, path: Path) -> Path:
        """The key file of a service account, whose tokens this server gives out."""
        pem = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()
        content = {
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": "1",
            "private_key": pem,
            "client_email": EMAIL,
            "token_uri": f"{self.url}/token",
        }
        path.write_text(json.dumps(content))
        return path

    def give_token(self, form: dict[str, list[str]]) -> dict[str, Any]:
        """A token for an assertion that is signed with the account's key, else ValueError."""
        header, claims, signature = form["assertion"][0].split(".")
        self.key.public_key().verify(
            _decoded(signature), f"{header}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256()
        )
        said = json.loads(_decoded(claims))
        if said["iss"] != EMAIL or said["aud"] != TOKEN_URL or not said.get("scope"):
            raise Refusal(400, "invalid_grant")
        token = f"ya29.{len(self.tokens)}"
        self.tokens.add(token)
        return {"access_token": token, "expires_in": 3600, "token_type": "Bearer"}

    def listed(self, project: str, query: dict[str, list[str]]) -> dict[str, Any]:
        """A page of instances."""
        if project != PROJECT:
            raise Refusal(404, f"The resource 'projects/{project}' was not found")
        wanted = query["filter"][0]
        terms = _TERM.findall(wanted)
        if " AND ".join(f'({left} = "{value}")' for left, _, value in terms) != wanted:
            raise Refusal(400, f"Invalid value for field 'filter': '{wanted}'.")
        if not 1 <= int(query["maxResults"][0]) <= 500:
            raise Refusal(400, "Invalid value for field 'maxResults'")
        matching = [
            (zone, one)
            for zone, ones in sorted(self.instances.items())
            for one in ones
            if all(
                (one["labels"].get(label) if label else one["status"]) == value for _, label, value in terms
            )
        ]
        start = int(query.get("pageToken", ["0"])[0])
        items: dict[str, Any] = {zone: {"warning": {"code": "NO_RESULTS_ON_PAGE"}} for zone in self.instances}
        for zone, one in matching[start : start + self.page]:
            items[zone] = {"instances": [*items[zone].get("instances", []), one]}
        more = start + self.page < len(matching)
        return {"items": items, **({"nextPageToken": str(start + self.page)} if more else {})}

    def written(self, project: str, body: dict[str, Any]) -> dict[str, Any]:
        """Time series taken in."""
        if project != PROJECT or not 0 < len(body["timeSeries"]) <= 200:
            raise Refusal(400, "Request contains an invalid argument.")
        for one in body["timeSeries"]:
            if not _METRIC.fullmatch(one["metric"]["type"]):
                raise Refusal(400, f"invalid metric type {one['metric']['type']}")
            resource = one["resource"]
            needed = {"project_id", "instance_id", "zone"}
            if resource["type"] != "gce_instance" or not {"instance_id", "zone"} <= set(resource["labels"]):
                raise Refusal(400, f"the resource lacks labels: {needed}")
            (point,) = one["points"]  # one only: "only one point can be written per time series"
            end = datetime.fromisoformat(point["interval"]["endTime"])
            key = (one["metric"], resource)
            for old in self.series:
                before = datetime.fromisoformat(old["points"][0]["interval"]["endTime"])
                if (old["metric"], old["resource"]) == key and (end - before).total_seconds() < 5:
                    raise Refusal(400, "One or more points were written more frequently than the maximum")
            float(point["value"]["doubleValue"])
            self.series.append(one)
        return {}


class Refusal(Exception):
    """Becomes an error answer."""

    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _handler(cloud: FakeGoogle) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._serve(b"")

        def do_POST(self) -> None:
            self._serve(self.rfile.read(int(self.headers["content-length"])))

        def _serve(self, data: bytes) -> None:
            cloud.asked.append(f"{self.command} {self.path}")
            try:
                status: int = 200
                body: dict[str, Any] | str = self._answer(data)
            except Refusal as exc:
                status, body = exc.status, {"error": {"code": exc.status, "message": exc.message}}
            text = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def _answer(self, data: bytes) -> dict[str, Any] | str:
            parts = urlsplit(self.path)
            if parts.path == "/token":
                return cloud.give_token(parse_qs(data.decode()))
            if found := re.fullmatch(r"/computeMetadata/v1/(.+)", parts.path):
                if self.headers.get("metadata-flavor") != "Google" or found[1] not in METADATA:
                    raise Refusal(403, "Forbidden")
                return METADATA[found[1]]
            if cloud.broken:
                raise Refusal(cloud.broken, "The service is currently unavailable.")
            if self.headers.get("authorization", "").removeprefix("Bearer ") not in cloud.tokens:
                raise Refusal(401, "Request had invalid authentication credentials.")
            if found := re.fullmatch(r"/compute/v1/projects/([^/]+)/aggregated/instances", parts.path):
                return cloud.listed(found[1], parse_qs(parts.query))
            if found := re.fullmatch(r"/v3/projects/([^/]+)/timeSeries", parts.path):
                return cloud.written(found[1], json.loads(data))
            raise Refusal(404, "Not Found")

        def log_message(self, format: str, *args: Any) -> None:
            return

    return Handler


@contextlib.contextmanager
def fake_google() -> Iterator[FakeGoogle]:
    """Runs it on loopback."""
    cloud = FakeGoogle()
    with serving_http(_handler(cloud)) as cloud.url:
        yield cloud
