"""The message fleet.json: the hosts of a fleet, or a source of them, as `osgym fleet export` writes it."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SCHEMA_VERSION = 1
_MOST_BYTES = 16 * 1024 * 1024
_MOST_TOKEN_BYTES = 4096


class FleetFileError(Exception):
    """The file cannot be read or makes no sense, or its token cannot be had.

    Attributes:
        problem: What is wrong, with the path.
        remedy: What to do about it.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem, remedy)
        self.problem, self.remedy = problem, remedy

    def __str__(self) -> str:
        return f"{self.problem}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class FleetHost:
    """One host.

    Attributes:
        url: URL of its agent.
        server_name: Name in its certificate where that is not its address; empty otherwise.
        capacity: Number of replicas that it carries at most; 0: unknown.
        image_digest: Digest of the golden image that it should serve; empty: unknown.
    """

    id: str
    url: str
    server_name: str = ""
    zone: str = ""
    capacity: int = 0
    image_digest: str = ""

    @property
    def authority(self) -> str:
        """Address and port of its agent."""
        return urlsplit(self.url).netloc


@dataclass(frozen=True, slots=True)
class FleetFile:
    """A fleet.json that was read.

    Attributes:
        rows: Its hosts as they stand there, in the order of `hosts`.
        ca: Certificate of the only authority that is trusted, PEM; empty: those of the system.
        token_source: Place of the token: `file:PATH`, `aws:ARN`, `gcp:projects/…`; never the token.
        discover: URL of a source of hosts (`aws-tag://…`), beside or in place of `hosts`; else empty.
        server_name: Name in the certificates of hosts that are found so.
    """

    path: Path
    stack: str
    provider: str
    region: str
    hosts: tuple[FleetHost, ...]
    rows: tuple[Mapping[str, Any], ...]
    ca: str
    token_source: str
    discover: str = ""
    server_name: str = ""

    @property
    def token_path(self) -> Path | None:
        """Path of the token, if it is in a file."""
        kind, _, name = self.token_source.partition(":")
        return self.path.parent / name if kind == "file" else None

    def tls_context(self) -> ssl.SSLContext:
        """Return a TLS context that trusts the fleet's authority only; without one, those of the system.

        Raises:
            FleetFileError: `ca` is not a certificate.
        """
        try:
            return ssl.create_default_context(cadata=self.ca or None)
        except (ssl.SSLError, ValueError) as error:
            remedy = "run `osgym fleet export` again, which writes the certificate of the fleet's authority"
            raise FleetFileError(
                f"{self.path}: the field ca is not a PEM certificate, so no host can be verified: {error}",
                remedy,
            ) from error

    def token(self, environ: Mapping[str, str] = os.environ) -> str:
        """Return `OSGYM_TOKEN`, or the content of the file that holds the token; empty where none is needed.

        Raises:
            FleetFileError: The token is kept elsewhere, or its file cannot be read.
        """
        if token := environ.get("OSGYM_TOKEN"):
            return token
        if not self.token_source:
            return ""
        if self.token_path is None:
            problem = f"the token of {self.path} is stored in the secret {self.token_source}"
            raise FleetFileError(
                problem, "read the secret with the cloud's tools and set OSGYM_TOKEN to it (docs/fleet.md)"
            )
        try:
            with self.token_path.open(encoding="utf-8") as file:
                return file.read(_MOST_TOKEN_BYTES).strip()
        except (OSError, UnicodeDecodeError) as error:
            problem = f"the token of {self.path} cannot be read from {self.token_path} ({error})"
            remedy = "set OSGYM_TOKEN, or let `osgym fleet export --token-file` write the file here"
            raise FleetFileError(problem, remedy) from error


def read_fleet_file(path: Path) -> FleetFile:
    """Read and check a fleet.json.

    Raises:
        FleetFileError: It cannot be read, is of another version, or names neither hosts nor a source of them.
    """
    try:
        with path.open("rb") as file:
            data = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError) as error:
        remedy = "name a file that `osgym fleet export` wrote"
        raise FleetFileError(f"{path} cannot be read: {error}", remedy) from error
    return parse_fleet_file(data, path)


def parse_fleet_file(data: Any, path: Path) -> FleetFile:
    """Check the content of a fleet.json. Raises FleetFileError as for `read_fleet_file`."""
    version = data.get("schema_version") if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping) or version != SCHEMA_VERSION:
        raise FleetFileError(f"{path} has schema_version {version!r}", f"{SCHEMA_VERSION} is read here")
    names = ("stack", "provider", "region", "ca", "token_secret", "discover", "server_name")
    texts = {name: _text(data, name, str(path)) for name in names}
    rows = data.get("hosts")
    if rows is None and texts["discover"]:
        rows = []
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise FleetFileError(
            f"{path}: the field hosts must be a list of objects", '[{"id": "…", "url": "https://…"}]'
        )
    if not rows and not texts["discover"]:
        problem = f"{path} names neither hosts nor a source to discover them"
        raise FleetFileError(problem, "run `osgym fleet export` after `pulumi up`")
    return FleetFile(
        path=path,
        stack=texts["stack"],
        provider=texts["provider"],
        region=texts["region"],
        hosts=tuple(_host(row, path) for row in rows),
        rows=tuple(rows),
        ca=texts["ca"],
        token_source=texts["token_secret"],
        discover=texts["discover"],
        server_name=texts["server_name"],
    )


def _host(row: Mapping[str, Any], path: Path) -> FleetHost:
    where = f"{path}: host {str(row.get('id', '?'))[:60]}"
    url = _text(row, "url", where)
    if not url:
        raise FleetFileError(f"{where} has no url", "https://ADDRESS:PORT")
    capacity = row.get("capacity")
    return FleetHost(
        id=_text(row, "id", where) or url,
        url=url.rstrip("/"),
        server_name=_text(row, "server_name", where),
        zone=_text(row, "zone", where),
        capacity=capacity if isinstance(capacity, int) else 0,
        image_digest=_text(row, "image_digest", where).removeprefix("sha256:"),
    )


def _text(found: Mapping[str, Any], name: str, where: str) -> str:
    value = found.get(name) or ""
    if not isinstance(value, str):
        raise FleetFileError(f"{where}: {name} is not a text", "a text")
    return value
