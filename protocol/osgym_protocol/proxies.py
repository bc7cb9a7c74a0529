"""Choice of the proxy for a request. Pure: no request is made here, and no name is looked up.

`environment_route` is the rule for servers of others, such as those of models: it follows `HTTP_PROXY`,
`HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`. `host_route` is the rule for host agents: requests to them carry a
token, which a proxy reads where the URL is `http://`, so only that of `OSGYM_PROXY` is used. Both rules
connect to loopback addresses directly, because a proxy elsewhere would connect to its own machine.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

HOST_PROXY_VARIABLE = "OSGYM_PROXY"
"""Variable with the proxy through which clients and commands reach host agents; unset for none."""
_DEFAULT_PORTS = {"http": 80, "https": 443}
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Exemption:
    """One entry of `NO_PROXY`.

    Attributes:
        network: Addresses that the entry names; None when it names hosts.
        domain: Name that is exempt with all its subdomains; empty: every host.
        port: Only port that is exempt; None: all.
    """

    network: Network | None = None
    domain: str = ""
    port: int | None = None

    def covers(self, host: str, address: Address | None, port: int | None) -> bool:
        """Return whether a server is exempt from proxies."""
        if self.port is not None and self.port != port:
            return False
        if self.network is not None:
            return address is not None and address in self.network
        return not self.domain or host == self.domain or host.endswith(f".{self.domain}")


@dataclass(frozen=True)
class ProxyRoute:
    """Proxies by scheme of the request, and the servers that are reached directly.

    Attributes:
        proxies: URL of the proxy for `http` and for `https`; a scheme that is absent has none.
        exemptions: Entries of `NO_PROXY`.
    """

    proxies: Mapping[str, str] = field(default_factory=dict)
    exemptions: tuple[Exemption, ...] = ()

    def proxy_for(self, url: str) -> str | None:
        """Return the URL of the proxy for a request, or None where it is sent directly."""
        parts = urlsplit(url)
        proxy = self.proxies.get(parts.scheme)
        host = (parts.hostname or "").rstrip(".")
        if proxy is None or not host:
            return None
        address = _address(host)
        if _is_loopback(host, address):
            return None  # also where a user named a proxy: it would connect to its own machine
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
        return None if any(entry.covers(host, address, port) for entry in self.exemptions) else proxy


DIRECT = ProxyRoute()
"""Route without proxies, for metadata services of clouds and this machine's own services."""


def is_loopback_url(url: str) -> bool:
    """Return whether a URL names this machine: 127.0.0.0/8, ::1, 0.0.0.0, ::, localhost."""
    host = (urlsplit(url).hostname or "").rstrip(".")
    return _is_loopback(host, _address(host))


def host_route(environ: Mapping[str, str], proxy: str | None = None) -> ProxyRoute:
    """Return the route to host agents: the given proxy, else that of `OSGYM_PROXY`, else none.

    `HTTP_PROXY` and its kind are ignored: they were not set with a fleet's token in mind.
    """
    found = _proxy_url(proxy or environ.get(HOST_PROXY_VARIABLE, ""))
    return ProxyRoute(dict.fromkeys(_DEFAULT_PORTS, found)) if found else DIRECT


def environment_route(environ: Mapping[str, str]) -> ProxyRoute:
    """Return the route that `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` describe.

    A variable's lower-case name takes precedence over its upper-case name, also when it is empty.
    `HTTP_PROXY` is ignored in CGI scripts, where the header `Proxy` of a request sets it.
    """
    proxies = {}
    for scheme in _DEFAULT_PORTS:
        if proxy := _proxy_url(_variable(environ, f"{scheme}_proxy") or _variable(environ, "all_proxy")):
            proxies[scheme] = proxy
    return ProxyRoute(proxies, parse_exemptions(_variable(environ, "no_proxy")))


def parse_exemptions(text: str) -> tuple[Exemption, ...]:
    """Parse a `NO_PROXY`: names with their subdomains, addresses, CIDR blocks, `*`.

    A name or address may have a port (`host:8080`, `[::1]:8080`), a name a leading `.` or `*.`, which changes
    nothing. Other entries are ignored: `NO_PROXY` is shared with other programs.
    """
    entries = (_exemption(word) for word in text.replace(",", " ").split())
    return tuple(entry for entry in entries if entry is not None)


def _exemption(word: str) -> Exemption | None:
    if word == "*":
        return Exemption()
    try:
        return Exemption(network=ipaddress.ip_network(word.strip("[]"), strict=False))
    except ValueError:
        pass  # a name, or an address with a port
    try:
        parts: SplitResult = urlsplit(word if "://" in word else f"//{word}")
        name, port = (parts.hostname or "").strip("."), parts.port
    except ValueError:
        return None
    address = _address(name)
    if address is not None:
        return Exemption(network=ipaddress.ip_network(address), port=port)
    domain = name.removeprefix("*.")
    return Exemption(domain=domain, port=port) if domain and "*" not in domain else None


def _variable(environ: Mapping[str, str], name: str) -> str:
    upper = name.upper()
    if name in environ:
        return environ[name]
    return "" if upper == "HTTP_PROXY" and "REQUEST_METHOD" in environ else environ.get(upper, "")


def _proxy_url(text: str) -> str:
    text = text.strip()
    return text if "://" in text or not text else f"http://{text}"


def _address(host: str) -> Address | None:
    """Return the address of a host that is written as one, in any notation that connecting understands."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        try:
            address = ipaddress.IPv4Address(socket.inet_aton(host))  # 127.1, 0x7f000001
        except (OSError, ValueError):
            return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_loopback(host: str, address: Address | None) -> bool:
    if address is None:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_unspecified  # connecting to 0.0.0.0 reaches this machine
