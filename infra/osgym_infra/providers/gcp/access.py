"""Access to Compute Engine instances. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from osgym_infra.links.access import ProgramAccess
from osgym_protocol.fleet_file import FleetFile, FleetHost

RESOURCE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
"""Form of names of instances and zones (RFC 1035), and of projects by name or number."""


@dataclass(frozen=True, slots=True)
class IapAccess(ProgramAccess):
    """A Compute Engine instance, entered through Identity-Aware Proxy with the `gcloud` command."""

    instance: str
    zone: str
    project: str

    def shell_argv(self) -> list[str]:
        return [*self._argv(), "--strict-host-key-checking=ask"]

    def command_argv(self, command: str) -> list[str]:
        # A host key that is not known yet fails a command, which never asks.
        return [*self._argv(), "--strict-host-key-checking=yes", "--quiet", f"--command={command}"]

    def console_argv(self) -> list[str]:
        argv = ["gcloud", "compute", "instances", "get-serial-port-output", self.instance]
        return [*argv, f"--zone={self.zone}", f"--project={self.project}"]

    def _argv(self) -> list[str]:
        # Google Cloud SDK reference, gcloud compute ssh.
        place = [f"--zone={self.zone}", f"--project={self.project}"]
        return ["gcloud", "compute", "ssh", self.instance, *place, "--tunnel-through-iap"]


def access_of(host: FleetHost, fleet: FleetFile) -> IapAccess | None:
    """Return how a host of fleet.json is entered; None where a name is none of Compute Engine's."""
    project = _project(fleet.token_source)
    if all(map(RESOURCE_NAME.fullmatch, (host.id, host.zone, project))):
        return IapAccess(host.id, host.zone, project)
    return None


def _project(token_source: str) -> str:
    """Return the project in `gcp:projects/PROJECT/secrets/…`."""
    parts = token_source.removeprefix("gcp:").split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "projects" else ""
