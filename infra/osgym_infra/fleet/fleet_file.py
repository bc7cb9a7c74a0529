"""`fleet.json` as those read it who operate the hosts: addresses, how each is entered, where the token is."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from osgym_infra.config.providers import Provider, installed
from osgym_infra.config.readers import ADDRESS
from osgym_infra.errors import BadInput
from osgym_infra.fleet.outputs import SCHEMA_VERSION
from osgym_infra.links.access import LOCAL, HostAccess, SshAccess

FIELD = "fleet.json"
MOST_BYTES = 16 * 1024 * 1024
MOST_TOKEN_BYTES = 4096
MOST_ID_CHARS = 100


@dataclass(frozen=True, slots=True)
class FleetHost:
    """One host.

    Attributes:
        server_name: the name in its certificate where that is not its address; empty otherwise.
        image_digest: of the golden image that it should serve; empty where nobody said.
        access: how it is entered; None: fleet.json does not say.
    """

    id: str
    url: str
    server_name: str = ""
    zone: str = ""
    capacity: int = 0
    image_digest: str = ""
    access: HostAccess | None = None

    @property
    def authority(self) -> str:
        """Address and port of its agent."""
        return urlsplit(self.url).netloc


@dataclass(frozen=True, slots=True)
class FleetFile:
    """All of them.

    Attributes:
        ca: the only authority that is trusted, PEM; empty: those of the system.
        token_source: `file:PATH`, `aws:ARN`, `gcp:projects/…`; never the token.
        discover: URL by which hosts that come and go are looked up; empty where they stay the same.
        server_name: of hosts that are found so.
    """

    path: Path
    stack: str
    provider: str
    hosts: tuple[FleetHost, ...]
    ca: str
    token_source: str
    discover: str = ""
    server_name: str = ""

    def token(self, environ: Mapping[str, str] = os.environ) -> str:
        """`OSGYM_TOKEN`, or what is in the file that fleet.json names; empty where none is needed.

        Raises:
            BadInput: the token is kept elsewhere, or its file cannot be read.
        """
        if token := environ.get("OSGYM_TOKEN"):
            return token
        kind, _, name = self.token_source.partition(":")
        if not kind:
            return ""
        if kind != "file":
            raise BadInput("OSGYM_TOKEN", f"is not set, and the token is the secret {self.token_source}",
                           "read it with the cloud's tools (docs/fleet.md)")  # fmt: skip
        try:
            with (self.path.parent / name).open(encoding="utf-8") as file:
                return file.read(MOST_TOKEN_BYTES).strip()
        except (OSError, UnicodeDecodeError) as error:
            fits = "set OSGYM_TOKEN, or let `osgym fleet export --token-file` write the file here"
            raise BadInput("OSGYM_TOKEN", f"is not set, and {name} cannot be read: {error}", fits) from error

    def select(self, patterns: Sequence[str]) -> tuple[FleetHost, ...]:
        """Hosts whose id, address or URL is one of these, or fits one as a glob; all of them without any.

        Raises:
            BadInput: a pattern fits no host.
        """
        if not patterns:
            return self.hosts
        found: dict[str, FleetHost] = {}
        for pattern in patterns:
            fits = [host for host in self.hosts if _fits(host, pattern)]
            if not fits:
                some = ", ".join(host.id for host in self.hosts[:5])
                more = ", …" if len(self.hosts) > 5 else ""
                raise BadInput(
                    "--host", f"{pattern!r} fits no host of {self.path}", f"there are {some}{more}"
                )
            found.update({host.id: host for host in fits})
        return tuple(host for host in self.hosts if host.id in found)


def read_fleet_file(path: Path) -> FleetFile:
    """Read and check a fleet.json.

    Raises:
        BadInput: it cannot be read, is of another version, or a host in it makes no sense.
    """
    try:
        with path.open("rb") as file:
            data = json.loads(file.read(MOST_BYTES))
    except (OSError, ValueError) as error:
        fits = "a file that `osgym fleet export` wrote; --fleet names it"
        raise BadInput(FIELD, f"{path} cannot be read: {error}", fits) from error
    return parse_fleet(data, path)


def parse_fleet(data: Any, path: Path) -> FleetFile:
    """The content of a fleet.json.

    Raises:
        BadInput: it is of another version, or a host in it makes no sense.
    """
    if not isinstance(data, Mapping) or data.get("schema_version") != SCHEMA_VERSION:
        version = data.get("schema_version") if isinstance(data, Mapping) else None
        raise BadInput(FIELD, f"{path} has schema_version {version!r}", f"schema_version {SCHEMA_VERSION}")
    rows = data.get("hosts")
    discover = str(data.get("discover") or "")
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise BadInput(FIELD, f"hosts of {path} is no list of objects", '[{"id": "…", "url": "https://…"}]')
    if not (rows or discover):
        raise BadInput(FIELD, f"{path} names no hosts", "a file of `osgym fleet export` after `pulumi up`")
    hosts = tuple(_host(row, data) for row in rows)
    if len({host.id for host in hosts}) != len(hosts):
        raise BadInput(FIELD, f"two hosts of {path} have the same id", "an id of its own for each")
    return FleetFile(
        path=path,
        stack=str(data.get("stack") or ""),
        provider=str(data.get("provider") or ""),
        hosts=hosts,
        ca=str(data.get("ca") or ""),
        token_source=str(data.get("token_secret") or ""),
        discover=discover,
        server_name=str(data.get("server_name") or ""),
    )


def ssh_entry(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The object `ssh` of a host in fleet.json, from the inputs of our resource in a stack's state."""
    entry = {
        "address": str(inputs.get("address") or ""),
        "port": int(inputs.get("port") or 22),
        "user": str(inputs.get("user") or "root"),
        "host_key": str(inputs.get("hostKey") or ""),
        "key_file": str(inputs.get("sshKey") or ""),
    }
    if entry["address"] == LOCAL:
        return {"address": LOCAL}
    jump = inputs.get("jump")
    return entry | ({"jump": ssh_entry(jump)} if isinstance(jump, Mapping) and jump.get("address") else {})


def _fits(host: FleetHost, pattern: str) -> bool:
    address = urlsplit(host.url).hostname or ""
    ssh = host.access.address if isinstance(host.access, SshAccess) else address
    return any(fnmatchcase(name, pattern) for name in (host.id, address, ssh, host.authority, host.url))


def _host(row: Mapping[str, Any], fleet: Mapping[str, Any]) -> FleetHost:
    name = str(row.get("id") or row.get("url") or "")
    url = str(row.get("url") or "")
    parts = urlsplit(url)
    if not name or len(name) > MOST_ID_CHARS or not name.isprintable():
        raise BadInput(FIELD, f"a host has the id {name[:60]!r}", f"a text of at most {MOST_ID_CHARS}")
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable():
        raise BadInput(FIELD, f"host {name}: {url[:60]!r} is no URL of an agent", "https://ADDRESS:PORT")
    capacity = row.get("capacity")
    return FleetHost(
        id=name,
        url=url.rstrip("/"),
        server_name=str(row.get("server_name") or ""),
        zone=str(row.get("zone") or ""),
        capacity=capacity if isinstance(capacity, int) else 0,
        image_digest=str(row.get("image_digest") or "").removeprefix("sha256:"),
        access=_access(name, row, fleet),
    )


def _access(name: str, row: Mapping[str, Any], fleet: Mapping[str, Any]) -> HostAccess | None:
    """Access by the row's `ssh`; without it, the access that the provider derives from its name."""
    ssh = row.get("ssh")
    if ssh is not None:
        return _ssh(f"host {name}: ssh", ssh)
    provider = str(fleet.get("provider") or "")
    part = Provider(provider).optional_part("access") if provider in installed() else None
    found: HostAccess | None = part.access_of(row, fleet) if part else None
    return found


def _ssh(where: str, given: Any) -> SshAccess:
    if not isinstance(given, Mapping):
        raise BadInput(FIELD, f"{where} is not an object", '{"address": "10.0.0.5", "user": "root"}')
    known = ("address", "port", "user", "host_key", "key_file", "jump")
    if unknown := sorted(set(given) - set(known)):
        raise BadInput(FIELD, f"{where} has the field {unknown[0]!r}", f"there are {', '.join(known)}")
    address, port = given.get("address"), given.get("port", 22)
    user = given.get("user", "root")
    if not isinstance(address, str) or not ADDRESS.fullmatch(address):
        raise BadInput(FIELD, f"{where}.address: {str(address)[:60]!r} is no address", "a name or IP address")
    if not isinstance(port, int) or isinstance(port, bool) or not 1 <= port <= 65535:
        raise BadInput(FIELD, f"{where}.port: {str(port)[:60]!r} is no port", "1 to 65535")
    if not isinstance(user, str) or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}", user):
        raise BadInput(FIELD, f"{where}.user: {str(user)[:60]!r} is no account", "e.g. root")
    texts = {name: given.get(name, "") for name in ("host_key", "key_file")}
    for name, value in texts.items():
        if not isinstance(value, str) or not value.isprintable():
            raise BadInput(FIELD, f"{where}.{name} is not a line of text", "")
    jump = given.get("jump")
    return SshAccess(
        address, port, user, texts["host_key"], texts["key_file"],
        _ssh(f"{where}.jump", jump) if jump is not None else None,
    )  # fmt: skip
