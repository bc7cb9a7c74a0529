"""From a stack to fleet.json: the hosts that serve now, also after an unfinished `pulumi up`. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from osgym_infra.errors import OsgymInfraError
from osgym_infra.fleet.managed import ssh_entry
from osgym_infra.fleet.outputs import REMOVES, admitted
from osgym_protocol.fleet_file import SCHEMA_VERSION

HOST, SECRETS = "osgym:index:SshHost", "osgym:index:FleetSecrets"
_SECRET_MARK = "4dabf18193072939515e22adb298388d"  # noqa: S105 - a mark, no secret
"""How a stack's export marks a secret (Pulumi's sdk/go/common/resource/sig, `Key`)."""


class NothingToExport(OsgymInfraError):
    """The stack has no hosts that serve."""


@dataclass(frozen=True, slots=True)
class FleetExport:
    """Content for clients.

    Attributes:
        left_out: Hosts that do not serve, with the reason.
        token: Token of own machines; empty for clouds, whose secret the cloud's own tools read.
    """

    fleet: dict[str, Any]
    left_out: dict[str, str]
    token: str = field(repr=False)


def export(state: Mapping[str, Any], outputs: Mapping[str, Any]) -> FleetExport:
    """Return the content of fleet.json.

    Args:
        state: `pulumi stack export --show-secrets`.
        outputs: `pulumi stack output --json`.

    Raises:
        NothingToExport: There is no host to name.
    """
    resources: list[Mapping[str, Any]] = state.get("deployment", {}).get("resources") or []
    own = [one for one in resources if one.get("type") == HOST]
    fleet = {name: value for name, value in outputs.items() if name != REMOVES}
    left_out: dict[str, str] = {}
    token = ""
    if own:
        hosts = []
        for resource in own:
            found = resource.get("outputs", {})
            entry = found.get("entry") or {}
            why = _why_not(resource, found)
            if why:
                left_out[str(entry.get("id") or resource.get("id"))] = why
            else:
                entry = admitted(entry, found.get("admits")) if "capacity" in entry else entry
                hosts.append({**entry, **_access(resource.get("inputs") or found)})
        secrets: Mapping[str, Any] = next(
            (one.get("outputs", {}) for one in resources if one.get("type") == SECRETS), {}
        )
        token = str(plain(secrets.get("token", "")))
        # Outputs are put out by an `up` that finishes: what they say of hosts may be old, or missing.
        defaults = {
            "schema_version": SCHEMA_VERSION,
            "provider": "ssh",
            "ca": secrets.get("caCertificate", ""),
        }
        fleet = {**defaults, **fleet, "hosts": hosts, "capacity": _capacity(hosts)}
    if not fleet.get("hosts") and not fleet.get("discover"):
        reasons = "".join(f"\n{name}: {why}" for name, why in left_out.items())
        raise NothingToExport(f"no host of this stack is ready; check that `pulumi up` finished{reasons}")
    return FleetExport(fleet, left_out, token)


def _access(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the host is entered, for operators."""
    return {"ssh": ssh_entry(inputs)} if inputs.get("address") else {}


def plain(value: Any) -> Any:
    """Return a value of a stack's export, decrypted by `--show-secrets`."""
    if isinstance(value, Mapping) and _SECRET_MARK in value:
        return json.loads(value["plaintext"])
    return value


def _why_not(resource: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    errors = resource.get("initErrors") or []
    if errors:
        return str(errors[0])
    if not found.get("serving"):
        return str(found.get("problem") or "the host is not ready")
    return ""


def _capacity(hosts: Iterable[Mapping[str, Any]]) -> int:
    return sum(int(host.get("capacity", 0)) for host in hosts)
