"""Inputs of hosts: checks, and the consequence of a change. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from enum import Enum
from typing import Any

from osgym_infra.hosts import tls
from osgym_infra.hosts.spec import DRAIN_TIMEOUT_S, HostSpec, local_file
from osgym_infra.links.access import LOCAL, SshAccess
from osgym_infra.resources.values import UNKNOWN, has_unknown

SECRETS = frozenset({"token", "caKey"})
"""Inputs (and outputs under the same names) that are encrypted wherever they are kept."""

OUTPUTS = frozenset({"agent", "image", "serving", "certificateEnds", "problem", "admits"})
"""What a host answers, beside its inputs."""

JUMP_INPUTS = ("address", "port", "user", "hostKey", "sshKey")

COMPUTED = "bootstrap"
"""An input that `check` adds: the digest of the bootstrap's files, so that a change of them is a change."""

NEEDED_SETTINGS = frozenset(
    f"OSGYM_{name}" for name in ("AGENT_URI", "AGENT_SHA256", "IMAGE_URI", "IMAGE_SHA256", "IMAGE_DIGEST")
)


class Change(Enum):
    """Consequence of a changed input."""

    NEW_HOST = "another host: one is set up, the other taken down"
    IN_PLACE = "the host is brought to the new state; what is right on it is left alone"
    NONE = "nothing: it says how changes are made"


INPUTS: Mapping[str, tuple[type, Change]] = {
    "address": (str, Change.NEW_HOST),
    "port": (float, Change.IN_PLACE),
    "user": (str, Change.IN_PLACE),
    "hostKey": (str, Change.IN_PLACE),
    "sshKey": (str, Change.IN_PLACE),
    "jump": (dict, Change.IN_PLACE),
    "settings": (dict, Change.IN_PLACE),
    "entry": (dict, Change.IN_PLACE),
    "token": (str, Change.IN_PLACE),
    "caCertificate": (str, Change.IN_PLACE),
    "caKey": (str, Change.IN_PLACE),
    # In place, although nothing on the host depends on it: a later removal of the host goes by the state.
    "drainTimeoutS": (float, Change.IN_PLACE),
    "maxUnavailable": (float, Change.NONE),
    COMPUTED: (str, Change.IN_PLACE),
}
DEFAULTS: Mapping[str, Any] = {
    "port": 22.0,
    "user": "root",
    "hostKey": "",
    "sshKey": "",
    "jump": {},
    "entry": {},
    "drainTimeoutS": DRAIN_TIMEOUT_S,
    "maxUnavailable": 1.0,
}
"""`jump` is the machine through which the host is reached (`JUMP_INPUTS`); empty: none. `entry` is what
stands in fleet.json of this host; nothing on the host depends on it."""


def problems(values: Mapping[str, Any]) -> dict[str, str]:
    """Return what is wrong with a host's inputs, by input; secrets are not quoted."""
    found = {name: f"unknown input; valid inputs are {', '.join(INPUTS)}" for name in values.keys() - INPUTS}
    for name, (kind, _) in INPUTS.items():
        value = values.get(name, DEFAULTS.get(name))
        if value is None and name != COMPUTED:
            found[name] = "is missing"
        elif value is not None and value is not UNKNOWN and not isinstance(value, kind):
            found[name] = f"is not of type {kind.__name__}"
    if found:
        return found
    found |= _wrong_address(values)
    jump = values.get("jump") or {}
    if not has_unknown(jump) and jump:
        if strange := jump.keys() - JUMP_INPUTS:
            found["jump"] = (
                f"unknown input {', '.join(sorted(strange))}; valid inputs are {', '.join(JUMP_INPUTS)}"
            )
        else:
            in_jump = [f"{name} {says}" for name, says in _wrong_address(jump).items()]
            found |= {"jump": "; ".join(in_jump)} if in_jump else {}
    if wrong := _wrong_settings(values["settings"]):
        found["settings"] = wrong
    return found


def _wrong_address(values: Mapping[str, Any]) -> dict[str, str]:
    """Return what is wrong with a machine's login, by input."""
    found: dict[str, str] = {}
    address, port, key = (values.get(name, DEFAULTS.get(name, "")) for name in ("address", "port", "hostKey"))
    if has_unknown([address, port, key]):
        return found
    if port != int(port) or not 1 <= port <= 65535:
        found["port"] = f"{port:g} is not a TCP port"
    if not address or address.startswith("-") or not address.isprintable():
        found["address"] = "must be a name, an IP address or local"
    if key and not _is_key(key):
        found["hostKey"] = "is not a line like ssh-ed25519 AAAA…"
    return found


def _wrong_settings(settings: Any) -> str:
    """Return what is wrong with the bootstrap's settings; unknown ones are not judged."""
    if has_unknown(settings):
        return ""
    if missing := sorted(name for name in NEEDED_SETTINGS if not settings.get(name)):
        return f"{', '.join(missing)} is missing"
    if not all(isinstance(value, str) for value in settings.values()):
        return "must contain only texts"
    for name in ("OSGYM_AGENT_URI", "OSGYM_IMAGE_URI"):
        path = local_file(settings[name])
        if path is not None and not path.is_file():
            return f"{name}: there is no file {path} on this machine"
    return ""


def spec_of(values: Mapping[str, Any]) -> HostSpec:
    """Return the host that checked inputs describe; none of them is unknown."""
    whole = {**DEFAULTS, **values}
    jump = _address(whole["jump"], None) if whole["jump"] else None
    at = _address(whole, jump)
    return HostSpec(
        at,
        dict(whole["settings"]),
        whole["token"],
        tls.Credential(whole["caCertificate"], whole["caKey"]),
        float(whole["drainTimeoutS"]),
        int(whole["maxUnavailable"]),
    )


def _address(values: Mapping[str, Any], jump: SshAccess | None) -> SshAccess:
    whole = {**DEFAULTS, **values}
    key, key_file = whole["hostKey"], whole["sshKey"]
    return SshAccess(whole["address"], int(whole["port"]), whole["user"], key, key_file, jump)


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Change]:
    """Return inputs that differ, unknown ones included."""
    return {
        name: change
        for name, (_, change) in INPUTS.items()
        if change is not Change.NONE
        and old.get(name, DEFAULTS.get(name)) != new.get(name, DEFAULTS.get(name))
    }


def drifted(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return outputs of the last look that contradict the inputs."""
    if has_unknown(new.get("settings")):
        return []
    found = []
    if old.get("problem"):
        found.append("problem")
    if not old.get("serving", True):
        found.append("serving")
    return found


def host_id(values: Mapping[str, Any]) -> str:
    """Return the resource's id: the host's address."""
    port = int(values.get("port", DEFAULTS["port"]))
    address: str = values["address"]
    return address if address == LOCAL or port == 22 else f"{address}:{port}"


def _is_key(line: str) -> bool:
    parts = line.split()
    try:
        return len(parts) >= 2 and bool(base64.b64decode(parts[1], validate=True))
    except binascii.Error:
        return False
