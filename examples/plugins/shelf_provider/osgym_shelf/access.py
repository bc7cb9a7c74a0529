"""Access to boards: the shelf's own command, for `osgym fleet run`, `logs` and `ssh`."""

from __future__ import annotations

from dataclasses import dataclass

from osgym_infra.links.access import ProgramAccess
from osgym_protocol.fleet_file import FleetFile, FleetHost


@dataclass(frozen=True)
class BoardAccess(ProgramAccess):
    """A board, entered by `shelf enter`."""

    instance: str

    def shell_argv(self) -> list[str]:
        return ["shelf", "enter", self.instance]

    def command_argv(self, command: str) -> list[str]:
        return ["shelf", "enter", self.instance, "--", command]


def access_of(host: FleetHost, fleet: FleetFile) -> BoardAccess | None:
    """Return how a host of fleet.json is entered."""
    return BoardAccess(host.id) if host.id.startswith("board-") else None
