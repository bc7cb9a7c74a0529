"""Hosts by ``fleet.json``, which is read again whenever it was written."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from osgym_protocol.fleet_file import FleetFile, FleetFileError, read_fleet_file
from osgym_sdk._config import DEFAULT_PORT, parse_hosts
from osgym_sdk._daemon import in_thread
from osgym_sdk._exceptions import ConfigError
from osgym_sdk.host_sources import (
    FoundHost,
    HostDefaults,
    HostSource,
    Listing,
    SourceFailed,
    Trust,
)

FileMark = tuple[int, int, int, int]
Trusted = tuple[str, str | None]
"""The authority's certificate and the token, to tell whether they are others than before."""


def mark_of(path: Path) -> FileMark | None:
    """Return what tells one content of a file from the next; None where there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)


class FleetFileSource(HostSource):
    """The hosts that the file names; with ``discover`` only until the source named there has answered.

    A file that cannot be read, as one that is half written, is a failure: what it said before holds.
    """

    most_pause_s = 10.0

    def __init__(
        self,
        fleet: FleetFile,
        mark: FileMark | None,
        trusted: Trusted,
        discovers: Callable[[str, HostDefaults], HostSource],
        trusts: Callable[[FleetFile], tuple[Trusted, Trust]],
    ) -> None:
        """Take what was read already, when the file was as ``mark`` says.

        Args:
            discovers: makes a source of a URL.
            trusted: authority and token that the client begins with.
            trusts: reads both anew.
        """
        self.name = str(fleet.path)
        self._fleet = fleet
        self._mark = mark
        self._secrets = _secrets_mark(fleet)
        self._discovers = discovers
        self._trusts = trusts
        self._inner = self._inner_of(fleet)
        self._trusted = trusted
        self._new_trust: Trust | None = None
        self.pause_s = 1.0 if self._inner is None else self._inner.pause_s
        self.limit_s = 15.0 + (0.0 if self._inner is None else self._inner.limit_s)

    def _inner_of(self, fleet: FleetFile) -> HostSource | None:
        return self._discovers(fleet.discover, host_defaults(fleet)) if fleet.discover else None

    async def look(self) -> Listing | None:
        """Return all hosts, None where neither file nor source says anything new."""
        changed = await in_thread(self._read_again)
        hosts = named(self._fleet)
        if self._inner is not None:
            found = await self._inner.look()
            hosts = found.hosts if found is not None else hosts
        elif not changed:
            return None
        trust, self._new_trust = self._new_trust, None
        return Listing(hosts, trust)

    def _read_again(self) -> bool:
        """Read the file where it, or the token's, is another than before; return whether it was."""
        mark, path = mark_of(self._fleet.path), self._fleet.path
        if mark is not None and mark == self._mark and _secrets_mark(self._fleet) == self._secrets:
            return False
        try:
            fleet = read_fleet(path)
            trusted, trust = self._trusts(fleet)
            if (fleet.discover, host_defaults(fleet)) != (self._fleet.discover, host_defaults(self._fleet)):
                self._inner = self._inner_of(fleet)
        except ConfigError as exc:
            raise SourceFailed(f"the fleet file is ignored until it is corrected: {exc.message}") from exc
        # The mark is of before the reading: what was written meanwhile is read at the next look.
        self._fleet, self._mark, self._secrets = fleet, mark, _secrets_mark(fleet)
        if trusted != self._trusted:
            self._trusted, self._new_trust = trusted, trust
        return True


def read_fleet(path: Path) -> FleetFile:
    """Read and check a ``fleet.json``; URLs of its hosts are as clients write them.

    Raises:
        ConfigError: it cannot be read, is of another version, or names no host.
    """
    try:
        fleet = read_fleet_file(path)
    except FleetFileError as exc:
        raise ConfigError(str(exc)) from exc
    urls = parse_hosts([host.url for host in fleet.hosts]) if fleet.hosts else ()
    hosts = tuple(replace(host, url=url) for host, url in zip(fleet.hosts, urls, strict=True))
    return replace(fleet, hosts=hosts)


def named(fleet: FleetFile) -> tuple[FoundHost, ...]:
    """Return the hosts in the file itself."""
    return tuple(FoundHost(host.url, host.server_name) for host in fleet.hosts)


def host_defaults(fleet: FleetFile) -> HostDefaults:
    """Return what discovered hosts are like: as those that the file names, else by its authority."""
    if not fleet.hosts:
        return HostDefaults("https" if fleet.ca else "http", server_name=fleet.server_name)
    first = urlsplit(fleet.hosts[0].url)
    name = fleet.server_name or fleet.hosts[0].server_name
    return HostDefaults(first.scheme, first.port or DEFAULT_PORT, name)


def _secrets_mark(fleet: FleetFile) -> FileMark | None:
    where = fleet.token_path
    return None if where is None or os.environ.get("OSGYM_TOKEN") else mark_of(where)
