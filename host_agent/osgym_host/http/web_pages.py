"""Detection of calls that a foreign web page makes in somebody's browser. Pure.

A page has no token. But where an allowed address is enough, it could act with the rights of the person who
opened it: by a cross-site request, or by a domain name of its own that it lets point to this host's address
(DNS rebinding).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping

LOCAL_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))
"""Names and addresses of the local machine."""
_PRIVATE_SUFFIXES = (".internal", ".local", ".localhost")
"""Suffixes of names that nobody can register: RFC 6761, RFC 6762, ICANN's resolution 2024.07.29.06."""
_CROSS_SITES = frozenset(("cross-site", "same-site"))


def is_of_foreign_page(headers: Mapping[str, str], scheme: str) -> bool:
    """Return whether the headers say that a page of another origin makes the call.

    A link to this host that a person follows is no such call, since the page cannot read the answer.
    """
    origin = headers.get("origin")
    if origin is not None and origin != f"{scheme}://{headers.get('host', 'localhost')}":
        return True
    follows_link = headers.get("sec-fetch-dest") == "document"
    return headers.get("sec-fetch-site") in _CROSS_SITES and not follows_link


def host_name(host: str) -> str:
    """Return the name or address of a `Host` header, without its port and brackets, in lower case.

    >>> host_name("[::1]:20000")
    '::1'
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().rstrip(".")


def may_be_rebound(name: str, known: Collection[str]) -> bool:
    """Return whether a stranger could have registered this name and let it point to this host.

    Args:
        name: As `host_name` returns it.
        known: Names of this host, in lower case.
    """
    if name in known or name.endswith(_PRIVATE_SUFFIXES):
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "." in name or not name  # nobody can register a name without a dot
    return False
