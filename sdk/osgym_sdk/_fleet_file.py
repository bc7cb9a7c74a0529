"""``fleet.json``: the hosts of a fleet, as ``osgym fleet export`` writes them."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
        token_source: where the token is: ``file:PATH``, ``aws:ARN``, ``gcp:projects/…``; never the token.
    """

    path: Path
    hosts: tuple[str, ...]
    server_names: Mapping[str, str]
    ca: str
    token_source: str

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
        kind, _, name = self.token_source.partition(":")
        if not kind:
            return None
        hint = "pass token=..., or set OSGYM_TOKEN"
        if kind != "file":
            raise ConfigError(
                f"the token of {self.path} is the secret {self.token_source}: read it, and {hint}"
            )
        where = self.path.parent / name
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
    hosts = found.get("hosts")
    if not isinstance(hosts, list) or not hosts or not all(isinstance(host, dict) for host in hosts):
        raise ConfigError(f"{path} names no hosts")
    urls = [_text(host, "url", path) for host in hosts]
    names = {url: name for url, host in zip(urls, hosts, strict=True) if (name := host.get("server_name"))}
    if not all(isinstance(name, str) for name in names.values()):
        raise ConfigError(f"{path}: a server_name is not a text")
    return FleetFile(
        path, tuple(urls), names, str(found.get("ca") or ""), str(found.get("token_secret") or "")
    )


def _text(host: Mapping[str, Any], name: str, path: Path) -> str:
    value = host.get(name)
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{path}: host {host.get('id', '?')} has no {name}")
    return value
