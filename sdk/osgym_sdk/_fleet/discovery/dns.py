"""Hosts by a name: all its addresses, or its SRV records."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from osgym_sdk._daemon import in_thread
from osgym_sdk._exceptions import ConfigError
from osgym_sdk._fleet.discovery.address import SourceAddress, parse_source
from osgym_sdk.host_sources import FoundHost, HostDefaults, HostSource, Listing, SourceFailed

if TYPE_CHECKING:
    import dns.resolver

DNS_PORT = 53
LOOK_UP_S = 5.0


def open_source(text: str, defaults: HostDefaults) -> HostSource:
    """Return the source of a URL."""
    return DnsSource(parse_source(text, defaults))


class DnsSource(HostSource):
    """Source of all addresses of a name; with dnspython also by another resolver, and of SRV records."""

    pause_s = 10.0
    most_pause_s = 60.0
    limit_s = 30.0

    def __init__(self, address: SourceAddress) -> None:
        """Ask nothing yet.

        Raises:
            ConfigError: dnspython is needed and not installed, or the resolver is not an address.
        """
        self.name = address.text
        self._address = address
        self._resolver = _resolver(address) if address.is_srv or address.resolver else None

    async def look(self) -> Listing | None:
        """Return the addresses of the name now. One without addresses is a failure, not an empty fleet."""
        look = self._by_system if self._resolver is None else self._by_resolver
        found = await in_thread(look)
        if not found:
            raise SourceFailed("the name has no addresses")
        return Listing(found)

    def _host(self, address: str, port: int | None = None, name: str = "") -> FoundHost:
        where = self._address
        shown = where.server_name or (name or where.dns_name if where.scheme == "https" else "")
        return FoundHost(where.url(address, port), shown)

    def _by_system(self) -> tuple[FoundHost, ...]:
        where = self._address
        try:
            answers = socket.getaddrinfo(where.dns_name, where.port, type=socket.SOCK_STREAM)
        except OSError as exc:
            raise SourceFailed(f"{where.dns_name}: {exc.strerror or exc}") from exc
        return tuple(dict.fromkeys(self._host(str(answer[4][0])) for answer in answers))

    def _by_resolver(self) -> tuple[FoundHost, ...]:
        import dns.exception
        import dns.resolver

        resolver, where = self._resolver, self._address
        assert resolver is not None
        try:
            if not where.is_srv:
                return tuple(self._host(address) for address in self._addresses(resolver, where.dns_name))
            found = []
            for record in resolver.resolve(where.dns_name, "SRV", lifetime=LOOK_UP_S):
                name = record.target.to_text(omit_final_dot=True)
                hosts = (self._host(one, record.port, name) for one in self._addresses(resolver, name))
                found += list(hosts)
            return tuple(found)
        except dns.exception.DNSException as exc:
            raise SourceFailed(str(exc)) from exc

    def _addresses(self, resolver: dns.resolver.Resolver, name: str) -> list[str]:
        answers = resolver.resolve_name(name, lifetime=LOOK_UP_S)
        return sorted(answers.addresses())


def _resolver(address: SourceAddress) -> dns.resolver.Resolver:
    try:
        import dns.resolver
    except ImportError as exc:
        raise ConfigError(f"{address.text} needs dnspython: pip install 'osgym-sdk[dns]'") from exc
    if not address.resolver:
        return dns.resolver.Resolver()
    server, _, port = address.resolver.rpartition(":") if address.resolver.count(":") == 1 else (
        address.resolver, "", str(DNS_PORT))  # fmt: skip
    found = dns.resolver.Resolver(configure=False)
    try:
        found.nameservers, found.port = [server], int(port)
    except ValueError as exc:
        raise ConfigError(f"{address.text}: {address.resolver!r} is not the address of a resolver") from exc
    return found
