"""Reads URLs of sources of hosts, as ``aws-tag://KEY=VALUE?region=...``. Pure."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, unquote

from osgym_sdk._exceptions import ConfigError
from osgym_sdk.host_sources import HostDefaults

FORMS = (
    "the path of a fleet.json, aws-tag://KEY=VALUE?region=..., gcp-label://KEY=VALUE?project=... "
    "or dns://NAME:PORT"
)
NO_DEFAULTS = HostDefaults()
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
"""Compute Engine, "Organize resources by using labels", requirements; but for letters of other scripts."""
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_PROJECT = re.compile(r"[a-z0-9.:-]{1,100}")
_REGION = re.compile(r"[a-z0-9-]{1,40}")
_MOST_TAG_CHARS = (128, 256)
"""EC2 user guide, "Tag restrictions": of key and value."""


class Kind(enum.StrEnum):
    """Kind of a source of hosts."""

    AWS_TAG = "aws-tag"
    GCP_LABEL = "gcp-label"
    DNS = "dns"


class AddressChoice(enum.StrEnum):
    """Which address of an instance is used."""

    AUTO = "auto"
    """The public one where there is one."""
    PUBLIC = "public"
    PRIVATE = "private"

    def choose(self, public: str, private: str) -> str:
        """Return one of an instance's addresses; empty where it has none of that kind."""
        return {self.AUTO: public or private, self.PUBLIC: public, self.PRIVATE: private}[self]


_COMMON = ("port", "scheme", "server_name")
_OPTIONS = {
    Kind.AWS_TAG: (*_COMMON, "region", "address"),
    Kind.GCP_LABEL: (*_COMMON, "project", "address"),
    Kind.DNS: ("scheme", "server_name", "resolver"),
}


@dataclass(frozen=True, slots=True)
class SourceAddress:
    """A source of hosts, read from its URL.

    Attributes:
        pairs: tags or labels that a host has, all of them.
        dns_name: the name that is looked up.
        scheme: ``https`` or ``http``: what hosts speak.
        server_name: the name in the hosts' certificates; empty: their address, with DNS the name looked up.
        resolver: address (and port) of a name server; empty: the system's.
    """

    text: str
    kind: Kind
    port: int
    scheme: str
    server_name: str
    pairs: tuple[tuple[str, str], ...] = ()
    region: str = ""
    project: str = ""
    address: AddressChoice = AddressChoice.AUTO
    dns_name: str = ""
    resolver: str = ""

    @property
    def is_srv(self) -> bool:
        """True: SRV records are looked up, which name ports too (RFC 2782)."""
        return self.dns_name.startswith("_")

    def url(self, address: str, port: int | None = None) -> str:
        """Return the URL of a host."""
        shown = f"[{address}]" if ":" in address else address
        return f"{self.scheme}://{shown}:{self.port if port is None else port}"


def is_source(text: str) -> bool:
    """Tell the URL of a source from the path of a file."""
    return "://" in text


def parse_source(text: str, defaults: HostDefaults = NO_DEFAULTS) -> SourceAddress:
    """Read the URL of a source.

    Args:
        defaults: what holds unless the URL says it.

    Raises:
        ConfigError: it is not one; the message names what is wrong.
    """
    scheme, _, rest = text.partition("://")
    kind = Kind(scheme)
    body, _, query = rest.partition("?")
    options = _options(text, kind, query)
    found = SourceAddress(
        text=text,
        kind=kind,
        port=_port(text, options.get("port", str(defaults.port))),
        scheme=_one_of(text, "scheme", options.get("scheme", defaults.scheme), ("https", "http")),
        server_name=options.get("server_name", defaults.server_name),
        region=_matching(text, "region", options.get("region", ""), _REGION),
        project=_matching(text, "project", options.get("project", ""), _PROJECT),
        address=AddressChoice(_one_of(text, "address", options.get("address", "auto"), tuple(AddressChoice))),
        resolver=options.get("resolver", ""),
    )
    if kind is Kind.DNS:
        name, port = _dns_target(text, body, defaults.port)
        return replace(found, dns_name=name, port=port)
    return replace(found, pairs=_pairs(text, kind, body))


def _dns_target(text: str, body: str, default_port: int) -> tuple[str, int]:
    name, colon, port = body.partition(":")
    if not name or len(name) > 253 or not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
        raise ConfigError(f"{text}: write dns://NAME:PORT, or dns://_SERVICE._tcp.NAME for SRV records")
    if name.startswith("_") and colon:
        raise ConfigError(f"{text}: SRV records name the port themselves")
    return name.rstrip("."), _port(text, port) if colon else default_port


def _pairs(text: str, kind: Kind, body: str) -> tuple[tuple[str, str], ...]:
    found = []
    for part in body.split(","):
        key, equals, value = (unquote(piece) for piece in part.partition("="))
        if not key or not equals:
            raise ConfigError(f"{text}: write {kind}://KEY=VALUE, several separated by commas")
        if kind is Kind.GCP_LABEL and not (_LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)):
            raise ConfigError(
                f"{text}: a label may have lowercase letters, digits, _ and - only, not {part!r}"
            )
        if kind is Kind.AWS_TAG and any(
            len(piece) > most for piece, most in zip((key, value), _MOST_TAG_CHARS, strict=True)
        ):
            raise ConfigError(f"{text}: a tag has at most 128 characters, its value 256")
        found.append((key, value))
    return tuple(found)


def _options(text: str, kind: Kind, query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError as exc:
        raise ConfigError(f"{text}: the part after the ? must be NAME=VALUE&NAME=VALUE") from exc
    allowed = _OPTIONS[kind]
    for name, _ in pairs:
        if name not in allowed:
            raise ConfigError(f"{text}: {kind} has no option {name!r}; valid options: {', '.join(allowed)}")
    if len(dict(pairs)) != len(pairs):
        raise ConfigError(f"{text}: the same option is given twice")
    return dict(pairs)


def _port(text: str, port: str) -> int:
    if not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 65536:
        raise ConfigError(f"{text}: {port!r} is not a port")
    return int(port)


def _one_of(text: str, name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ConfigError(f"{text}: {name} must be one of {', '.join(allowed)}, not {value!r}")
    return value


def _matching(text: str, name: str, value: str, pattern: re.Pattern[str]) -> str:
    if value and not pattern.fullmatch(value):
        raise ConfigError(f"{text}: {value!r} is not a {name}")
    return value
