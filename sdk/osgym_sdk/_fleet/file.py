"""``fleet.json``: the hosts of a fleet, or where to discover them, as ``osgym fleet export`` writes them."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osgym_sdk._config import parse_hosts
from osgym_sdk._exceptions import ConfigError

SCHEMA_VERSION = 1
_MOST_BYTES = 16 * 1024 * 1024
_MOST_TOKEN_BYTES = 4096


@dataclass(frozen=True, slots=True)
class FleetFile:
    """What a client needs of it.

    Attributes:
        hosts: URLs.
        server_names: by URL, the name in a host's certificate where that is not its address.
        ca: the only authority that is trusted, PEM; empty: those of the system.
        discover: URL of a source of hosts (``aws-tag://…``), beside or in place of ``hosts``; else empty.
        server_name: of the hosts that are found so.
        token_source: where the token is: ``file:PATH``, ``aws:ARN``, ``gcp:projects/…``; never the token.
    """

    path: Path
    hosts: tuple[str, ...]
    server_names: Mapping[str, str]
    ca: str
    token_source: str
    discover: str = ""
    server_name: str = ""

    @property
    def token_path(self) -> Path | None:
        """Where the token is, if in a file."""
        kind, _, name = self.token_source.partition(":")
        return self.path.parent / name if kind == "file" else None

    def context(self) -> ssl.SSLContext | None:
        """Return a TLS context that trusts the fleet's authority only; None where there is none.

        Raises:
            ConfigError: ``ca`` is not a certificate.
        """
        if not self.ca:
            return None
        try:
            return ssl.create_default_context(cadata=self.ca)
        except (ssl.SSLError, ValueError) as exc:
            raise ConfigError(f"{self.path}: ca is not a certificate: {exc}") from exc

    def token(self, environ: Mapping[str, str] = os.environ) -> str | None:
        """Return ``OSGYM_TOKEN``, or what is in the file of ``token_secret``; None where none is needed.

        Raises:
            ConfigError: the token is kept elsewhere, or its file cannot be read.
        """
        if token := environ.get("OSGYM_TOKEN"):
            return token
        if not self.token_source:
            return None
        hint = "pass token=..., or set OSGYM_TOKEN"
        where = self.token_path
        if where is None:
            raise ConfigError(
                f"the token of {self.path} is the secret {self.token_source}: read it, and {hint}"
            )
        try:
            with where.open(encoding="utf-8") as file:
                return file.read(_MOST_TOKEN_BYTES).strip()
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigError(
                f"the token of {self.path} cannot be read from {where} ({exc}): {hint}, or let "
                "`osgym fleet export --token-file` write it here"
            ) from exc


def read_fleet(path: str | Path) -> FleetFile:
    """Read and check a ``fleet.json``.

    Raises:
        ConfigError: it cannot be read, is of a later version, or names no host.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError) as exc:
        raise ConfigError(f"{path} cannot be read: {exc}") from exc
    if not isinstance(found, dict) or found.get("schema_version") != SCHEMA_VERSION:
        version = found.get("schema_version") if isinstance(found, dict) else None
        raise ConfigError(f"{path} has schema_version {version!r}; this SDK reads {SCHEMA_VERSION}")
    discover, server_name = (_optional_text(found, name, path) for name in ("discover", "server_name"))
    hosts = found.get("hosts")
    if hosts is None and discover:
        hosts = []
    if not isinstance(hosts, list) or not all(isinstance(host, dict) for host in hosts):
        raise ConfigError(f"{path}: hosts is not a list of objects")
    if not hosts and not discover:
        raise ConfigError(f"{path} names no hosts, and no source to discover them")
    parsed = parse_hosts([_text(host, "url", path) for host in hosts]) if hosts else ()
    names = {url: name for url, host in zip(parsed, hosts, strict=True) if (name := host.get("server_name"))}
    if not all(isinstance(name, str) for name in names.values()):
        raise ConfigError(f"{path}: a server_name is not a text")
    return FleetFile(
        path,
        parsed,
        names,
        _optional_text(found, "ca", path),
        _optional_text(found, "token_secret", path),
        discover,
        server_name,
    )


def _optional_text(found: Mapping[str, Any], name: str, path: Path) -> str:
    value = found.get(name) or ""
    if not isinstance(value, str):
        raise ConfigError(f"{path}: {name} is not a text")
    return value


def _text(host: Mapping[str, Any], name: str, path: Path) -> str:
    value = host.get(name)
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{path}: host {host.get('id', '?')} has no {name}")
    return value
