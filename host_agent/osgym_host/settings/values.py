"""Conversion of values from a file, a variable or the command line. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Annotated

from pydantic import Field, StringConstraints

from osgym_host.core.egress import parse_allowlist
from osgym_host.core.warm_apps import parse_warm_apps
from osgym_protocol.plugins import PluginGroup, plugin_names

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
HostName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,253}$", to_lower=True)]
Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(gt=0, le=86400)]


def as_list(value: object) -> object:
    """Convert `a,b` (the environment) to a list."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return [value] if isinstance(value, int) else value


def as_allowlist(value: object) -> object:
    """Refuse an entry from which no rule can be made, when it is read and not when it is used."""
    entries = as_list(value)
    if isinstance(entries, list):
        parse_allowlist(str(entry) for entry in entries)
    return entries


def as_warm_apps(value: object) -> object:
    """Refuse programs that cannot be kept open, when the setting is read."""
    entries = as_list(value)
    if isinstance(entries, list):
        parse_warm_apps([str(entry) for entry in entries])
    return entries


def as_notices(value: object) -> object:
    """Convert the `off` of YAML, which is false there, to the text."""
    return "off" if value is False else value


def known_place(group: PluginGroup, nowhere: str) -> Callable[[str], str]:
    """Return a check of a setting that is `nowhere`, `file:/PATH`, or an extension as `NAME[:ARGUMENT]`."""

    def check(value: str) -> str:
        kind = value.partition(":")[0]
        if value != nowhere and kind != "file" and kind not in plugin_names(group):
            raise ValueError(f"one of {nowhere}, {', '.join(plugin_names(group))}, file:/PATH")
        return value

    return check


def as_switch(value: object) -> object:
    """Convert the `on` and `off` of YAML, which are booleans there, to the texts."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def as_screen(value: object) -> object:
    """Convert `1920x1080` to width and height."""
    if isinstance(value, str):
        return value.lower().split("x")
    return value
