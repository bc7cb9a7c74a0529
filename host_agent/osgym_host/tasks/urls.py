"""URLs of task files: read strictly, before a name is looked up or a file is opened. Pure."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, urlsplit

MAX_URL_CHARS = 4000
MAX_HOST_CHARS = 253
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*\.?")
_PATH_SAFE = "%/:@!$&'()*+,;=~"
_DEFAULT_PORTS = {"http": 80, "https": 443}


class InvalidUrl(ValueError):
    """The URL is none that this host fetches; the message says why."""


@dataclass(frozen=True, slots=True)
class WebUrl:
    """An http or https URL.

    Attributes:
        host: In ASCII and lower case; an IPv6 address without brackets.
        given_port: None where the URL has none.
        parts: Of the URL as it was given.
    """

    host: str
    given_port: int | None
    parts: SplitResult

    @property
    def port(self) -> int:
        return self.given_port or _DEFAULT_PORTS[self.parts.scheme]

    @property
    def host_header(self) -> str:
        name = _bracketed(self.host)
        return name if self.given_port is None else f"{name}:{self.given_port}"

    @property
    def tls_name(self) -> str | None:
        """Host name that a certificate must have; None without TLS."""
        return self.host if self.parts.scheme == "https" else None

    @property
    def target(self) -> str:
        """Path and query as a request line takes them, without fragment."""
        path = quote(self.parts.path or "/", safe=_PATH_SAFE)
        return f"{path}?{quote(self.parts.query, safe=_PATH_SAFE + '?')}" if self.parts.query else path


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def check_text(text: str) -> str:
    """Return `text` if it can be a path or a URL.

    Raises:
        InvalidUrl: It is empty, too long, or has characters that neither may have.
    """
    if not 0 < len(text) <= MAX_URL_CHARS:
        raise InvalidUrl(f"must have 1 to {MAX_URL_CHARS} characters, not {len(text)}")
    if (found := _UNPRINTABLE.search(text)) is not None:
        code = ord(found.group())
        raise InvalidUrl(f"has the control character U+{code:04X} at position {found.start()}")
    return text


def check_url(text: str) -> str:
    """Return `text` if it is a URL that is well-formed by the rules of its scheme.

    Raises:
        InvalidUrl: It is not.
    """
    check_text(text)
    if scheme_of(text) in _DEFAULT_PORTS:
        parse_web_url(text)
    return text


def scheme_of(text: str) -> str:
    """Return the scheme of a URL in lower case; an empty text if there is none."""
    scheme, colon, _ = text.partition(":")
    return scheme.lower() if colon and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme) else ""


def parse_web_url(text: str) -> WebUrl:
    """Read an http or https URL.

    Raises:
        InvalidUrl: It is another URL, or none.
    """
    check_text(text)
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise InvalidUrl(f"is not a URL: {error}") from error
    if parts.scheme not in _DEFAULT_PORTS:
        raise InvalidUrl("only http and https URLs are fetched")
    if "@" in parts.netloc:
        raise InvalidUrl("has a user name or password, which no task may carry; leave out what is before @")
    if _BAD_PERCENT.search(parts.path + "?" + parts.query):
        raise InvalidUrl("has a % without two hexadecimal digits; write %25 for the character itself")
    return WebUrl(_host(parts), _port(parts), parts)


def _port(parts: SplitResult) -> int | None:
    try:
        port = parts.port
    except ValueError as error:
        raise InvalidUrl("its port is not a number from 1 to 65535") from error
    if port == 0:
        raise InvalidUrl("its port is not a number from 1 to 65535")
    return port


def _host(parts: SplitResult) -> str:
    name = parts.hostname
    if not name:
        raise InvalidUrl("names no host")
    if len(name) > MAX_HOST_CHARS:
        raise InvalidUrl(f"its host has {len(name)} characters; {MAX_HOST_CHARS} are allowed")
    if parts.netloc.startswith("["):
        try:
            if "%" in name or not re.fullmatch(r"\[[^]]*\](:[0-9]*)?", parts.netloc):
                raise InvalidUrl("its host is not an IPv6 address alone, without a zone")
            return str(ipaddress.IPv6Address(name))
        except ipaddress.AddressValueError as error:
            raise InvalidUrl(f"its host is not an IPv6 address: {name!r}") from error
    try:
        ascii_name = name.encode("idna").decode("ascii").lower()
    except UnicodeError as error:
        raise InvalidUrl(f"its host {name[:80]!r} is not a name: {error}") from error
    if not _NAME.fullmatch(ascii_name):
        raise InvalidUrl(f"its host {name[:80]!r} is not a name")
    return ascii_name
