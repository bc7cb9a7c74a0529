"""Addresses of pages: their comparison, their form in the address bar, their parts."""

from __future__ import annotations

import itertools
import re
from urllib.parse import parse_qs, unquote, urlsplit

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
_SECOND_LEVEL = frozenset({"ac", "co", "com", "edu", "gov", "go", "ne", "net", "or", "org"})
"""First labels of suffixes of two labels, such as `co.uk`."""
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_SHOWN = re.compile(r"^(?:https?://(?:www\.)?|file://)", re.IGNORECASE)


def same_url(a: str, b: str) -> bool:
    """Return whether two addresses are those of one page, by OSWorld's rule.

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
    """Return an address as Chrome's address bar shows it while it is not edited: no http(s), no `www.`."""
    text = _SHOWN.sub("", url)
    whole = _SCHEME.match(url) is not None and text != url
    return text[:-1] if whole and text.count("/") == 1 and text.endswith("/") and len(text) > 1 else text


def query_values(
    url: str, keys: list[str], renamed: dict[str, str], *, split: bool
) -> dict[str, str | list[str]]:
    """Return the first value of each key of an address's query, empty where there is none.

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


_HALF_OFF, _OTHERWISE = "50_PERCENT_ off & more", "not_50_PERCENT_ off & more"
_LESS_OFF = frozenset({"30_PERCENT_ off & more", "20_PERCENT_ off & more"})
_DISCOUNT = "Price_discount_range"
_FLAGS = {
    "shirts": ("shirts", "Product_department", frozenset({"shirts", "Shirts", "Shirt"})),
    "short_sleeve": ("short-sleeve", "Sleeve_length", frozenset({"short-sleeve", "Short Sleeve"})),
}
"""Flag of the result: what in the path sets it, or which filter with which values."""


def path_filters(url: str, keys: list[str]) -> dict[str, str | bool | None]:
    """Return the filters in the path of a shop's address, with OSWorld's names.

    Args:
        keys: Filters to give, of those that the path has; of the discount only whether it is half off alone.
    """
    try:
        path = unquote(urlsplit(url).path)
    except ValueError:
        path = ""
    filters = _filters(path)
    found: dict[str, str | bool | None] = {"mens_clothing": "mens-clothing" in path or None}
    for flag, (word, name, values) in _FLAGS.items():
        found[flag] = word in path or filters.get(name) in values or None
    for key in keys:
        if key == _DISCOUNT:
            ranges = {each.strip() for each in (filters.get(key) or "").split("|")}
            found[key] = _HALF_OFF if _HALF_OFF in ranges and not ranges & _LESS_OFF else _OTHERWISE
        elif key in filters or key == "Men_regular_size_t":
            found[key] = filters.get(key)
    return found


def _filters(path: str) -> dict[str, str | None]:
    """Return the first two adjacent parts of a path that both have commas: names, and their values."""
    parts = path.strip("/").split("/")
    for names, values in itertools.pairwise(parts):
        if "," in names and "," in values:
            cut = (text.split(",") for text in (names, values))
            pairs = zip(*cut, strict=False)
            return {name.strip(): value.strip() or None for name, value in pairs}
    return {}


def path_part(url: str, index: int, *, without_query: bool) -> str | None:
    """Return the part of an address between two slashes; None if it has fewer slashes."""
    parts = url.split("/")
    if not -len(parts) <= index < len(parts):
        return None
    return parts[index].partition("?")[0] if without_query else parts[index]


def without_query(url: str) -> str:
    head, hash_sign, fragment = url.partition("#")
    return head.partition("?")[0] + hash_sign + fragment
