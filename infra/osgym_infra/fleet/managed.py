"""A fleet for those who operate its hosts: what fleet.json says, and how each host is entered."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from osgym_infra.config.providers import Provider, installed
from osgym_infra.config.readers import ADDRESS
from osgym_infra.errors import BadInput
from osgym_infra.links.access import LOCAL, HostAccess, SshAccess
from osgym_protocol.fleet_file import FleetFile, FleetFileError, FleetHost, read_fleet_file

FIELD = "fleet.json"
MOST_ID_CHARS = 100


@dataclass(frozen=True, slots=True)
class ManagedHost(FleetHost):
    """Host with its access.

    Attributes:
        access: How it is entered; None: fleet.json does not say.
    """

    access: HostAccess | None = None


@dataclass(frozen=True, slots=True)
class ManagedFleet(FleetFile):
    """Fleet whose hosts can be entered."""

    hosts: tuple[ManagedHost, ...]

    def token(self, environ: Mapping[str, str] = os.environ) -> str:
        """Return the agents' token; empty where none is needed.

        Raises:
            BadInput: The token is kept elsewhere, or its file cannot be read.
        """
        try:
            return FleetFile.token(self, environ)
        except FleetFileError as error:
            raise BadInput("OSGYM_TOKEN", f"is not set, and {error.problem}", error.remedy) from error

    def select(self, patterns: Sequence[str]) -> tuple[ManagedHost, ...]:
        """Return the hosts whose id, address or URL matches a pattern; without patterns, all.

        Raises:
            BadInput: A pattern fits no host.
        """
        if not patterns:
            return self.hosts
        found: dict[str, ManagedHost] = {}
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


def read_fleet(path: Path) -> ManagedFleet:
    """Read and check a fleet.json.

    Raises:
        BadInput: It cannot be read, is of another version, or a host in it makes no sense.
    """
    try:
        return _managed(read_fleet_file(path))
    except FleetFileError as error:
        raise BadInput(FIELD, error.problem, f"{error.remedy}; --fleet names the file") from error


def _managed(fleet: FleetFile) -> ManagedFleet:
    pairs = zip(fleet.hosts, fleet.rows, strict=True)
    hosts = tuple(_host(host, row, fleet) for host, row in pairs)
    if len({host.id for host in hosts}) != len(hosts):
        raise BadInput(FIELD, f"two hosts of {fleet.path} have the same id", "give each host its own id")
    values = {field.name: getattr(fleet, field.name) for field in fields(fleet)}
    return ManagedFleet(**{**values, "hosts": hosts})


def ssh_entry(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object `ssh` of a host in fleet.json, from our resource's inputs in a stack's state."""
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


def _fits(host: ManagedHost, pattern: str) -> bool:
    address = urlsplit(host.url).hostname or ""
    ssh = host.access.address if isinstance(host.access, SshAccess) else address
    return any(fnmatchcase(name, pattern) for name in (host.id, address, ssh, host.authority, host.url))


def _host(host: FleetHost, row: Mapping[str, Any], fleet: FleetFile) -> ManagedHost:
    parts = urlsplit(host.url)
    if len(host.id) > MOST_ID_CHARS or not host.id.isprintable():
        raise BadInput(FIELD, f"a host has the id {host.id[:60]!r}", f"a text of at most {MOST_ID_CHARS}")
    if parts.scheme not in ("http", "https") or not parts.hostname or not host.url.isprintable():
        problem = f"host {host.id}: {host.url[:60]!r} is not a URL of an agent"
        raise BadInput(FIELD, problem, "https://ADDRESS:PORT")
    values = {field.name: getattr(host, field.name) for field in fields(host)}
    return ManagedHost(**values, access=_access(host, row, fleet))


def _access(host: FleetHost, row: Mapping[str, Any], fleet: FleetFile) -> HostAccess | None:
    """Return the access of the row's `ssh`, or the one that the provider derives from the host's name."""
    if row.get("ssh") is not None:
        return _ssh(f"host {host.id}: ssh", row["ssh"])
    part = Provider(fleet.provider).optional_part("access") if fleet.provider in installed() else None
    found: HostAccess | None = part.access_of(host, fleet) if part else None
    return found


def _ssh(where: str, given: Any) -> SshAccess:
    if not isinstance(given, Mapping):
        raise BadInput(FIELD, f"{where} is not an object", '{"address": "10.0.0.5", "user": "root"}')
    known = ("address", "port", "user", "host_key", "key_file", "jump")
    if unknown := sorted(set(given) - set(known)):
        raise BadInput(
            FIELD, f"{where} has the unknown field {unknown[0]!r}", f"valid fields are {', '.join(known)}"
        )
    address, port = given.get("address"), given.get("port", 22)
    user = given.get("user", "root")
    if not isinstance(address, str) or not ADDRESS.fullmatch(address):
        raise BadInput(
            FIELD, f"{where}.address: {str(address)[:60]!r} is not an address", "a name or IP address"
        )
    if not isinstance(port, int) or isinstance(port, bool) or not 1 <= port <= 65535:
        raise BadInput(FIELD, f"{where}.port: {str(port)[:60]!r} is not a port", "1 to 65535")
    if not isinstance(user, str) or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}", user):
        raise BadInput(FIELD, f"{where}.user: {str(user)[:60]!r} is not a user name", "e.g. root")
    texts = {name: given.get(name, "") for name in ("host_key", "key_file")}
    for name, value in texts.items():
        if not isinstance(value, str) or not value.isprintable():
            raise BadInput(FIELD, f"{where}.{name} is not a line of text", "")
    jump = given.get("jump")
    return SshAccess(
        address, port, user, texts["host_key"], texts["key_file"],
        _ssh(f"{where}.jump", jump) if jump is not None else None,
    )  # fmt: skip
