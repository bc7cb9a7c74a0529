"""Addresses of pages: when two are the same, and what the address bar shows of one."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
_SECOND_LEVEL = frozenset({"ac", "co", "com", "edu", "gov", "go", "ne", "net", "or", "org"})
"""What stands before a country's code in a suffix of two labels, such as `co.uk`."""
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_SHOWN = re.compile(r"^(?:https?://(?:www\.)?|file://)", re.IGNORECASE)


def same_url(a: str, b: str) -> bool:
    """Whether two addresses are one page's, by OSWorld's rule.

    A missing scheme is http; `www.`, a lone `/` and the suffix of a name (`.com`, `.co.uk`) do not count.
    """
    return _normal(a) == _normal(b)


def _normal(url: str) -> tuple[str, ...]:
    if not _SCHEME.match(url):
        url = f"http://{url}"
    try:
        parts = urlsplit(url)
    except ValueError:
        return ("", url)
    path = "" if parts.path == "/" else parts.path
    return (
        parts.scheme.lower(),
        _site(parts.netloc, parts.scheme.lower()),
        path,
        parts.query,
        parts.fragment,
    )


def _site(netloc: str, scheme: str) -> str:
    host, colon, port = netloc.lower().rpartition("@")[2].partition(":")
    tail = f":{port}" if colon and port != _DEFAULT_PORTS.get(scheme) else ""
    labels = host.split(".")
    if len(labels) == 1 or host.startswith("[") or labels[-1].isdigit():
        return host + tail
    of_country = len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _SECOND_LEVEL
    labels = labels[: -2 if of_country else -1]
    if len(labels) == 2 and labels[0] == "www":
        labels = labels[1:]
    return ".".join(labels) + tail


def shown(url: str) -> str:
    """What Chrome's address bar shows of an address that is not being edited: no http(s), no `www.`."""
    text = _SHOWN.sub("", url)
    whole = _SCHEME.match(url) is not None and text != url
    return text[:-1] if whole and text.count("/") == 1 and text.endswith("/") and len(text) > 1 else text


def query_values(
    url: str, keys: list[str], renamed: dict[str, str], *, split: bool
) -> dict[str, str | list[str]]:
    """The first value of each key of an address's query, empty where there is none.

    Args:
        renamed: New names of keys.
        split: Cut each value at its commas.
    """
    try:
        query = parse_qs(urlsplit(url).query, max_num_fields=1000)
    except ValueError:
        query = {}
    found: dict[str, str | list[str]] = {}
    for key in keys:
        value = query.get(key, [""])[0]
        found[renamed.get(key, key)] = value.split(",") if split else value
    return found


def path_part(url: str, index: int, *, without_query: bool) -> str | None:
    """The part of an address between two slashes; None when there are not so many."""
    parts = url.split("/")
    if not -len(parts) <= index < len(parts):
        return None
    return parts[index].partition("?")[0] if without_query else parts[index]


def without_query(url: str) -> str:
    """An address without its query."""
    head, hash_sign, fragment = url.partition("#")
    return head.partition("?")[0] + hash_sign + fragment
