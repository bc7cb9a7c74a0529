"""Access to EC2 instances. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import ClassVar

from osgym_infra.links.access import ProgramAccess
from osgym_protocol.fleet_file import FleetFile, FleetHost

INSTANCE_ID = re.compile(r"i-[0-9a-f]{8,17}")
"""Form of an instance's id (EC2 API reference, Instance)."""
REGION = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


@dataclass(frozen=True, slots=True)
class SsmAccess(ProgramAccess):
    """An EC2 instance, entered through Systems Manager with the `aws` command."""

    instance: str
    region: str
    chatter: ClassVar[tuple[str, ...]] = ("Starting session with SessionId", "Exiting session with sessionId")
    passes_exit_code: ClassVar[bool] = False

    def shell_argv(self) -> list[str]:
        # Systems Manager user guide, "Start a session".
        return ["aws", "ssm", "start-session", "--target", self.instance, "--region", self.region]

    def command_argv(self, command: str) -> list[str]:
        parameters = json.dumps({"command": [command]})
        document = ["--document-name", "AWS-StartNonInteractiveCommand"]
        return [*self.shell_argv(), *document, "--parameters", parameters]

    def console_argv(self) -> list[str]:
        argv = ["aws", "ec2", "get-console-output", "--latest", "--output", "json"]
        return [*argv, "--instance-id", self.instance, "--region", self.region]

    def console_text(self, printed: str) -> str:
        try:
            return str(json.loads(printed)["Output"])
        except (ValueError, KeyError, TypeError):
            return ""


def access_of(host: FleetHost, fleet: FleetFile) -> SsmAccess | None:
    """Return how a host of fleet.json is entered; None where its id is no instance's."""
    if INSTANCE_ID.fullmatch(host.id) and REGION.fullmatch(fleet.region):
        return SsmAccess(host.id, fleet.region)
    return None
