"""Boards of the shelf as hosts."""

from __future__ import annotations

from typing import Any

import pulumi

from osgym_infra.components.common import authority_of, host_output, new_secret
from osgym_infra.components.hosts import ProviderHosts
from osgym_infra.config.readers import full_key
from osgym_infra.errors import BadInput

SECRET_FILE = "/etc/osgym/fleet-secret"  # noqa: S105 - a path


class Board(pulumi.CustomResource):
    """One board, started with a script and a secret."""

    def __init__(
        self, board: str, script: pulumi.Input[str], secret: pulumi.Input[str], opts: pulumi.ResourceOptions
    ) -> None:
        inputs = {"board": board, "userData": script, "files": {SECRET_FILE: secret}}
        super().__init__("shelf:index:Board", board, inputs, opts)


class ReplicaHosts(ProviderHosts):
    """As many boards as the plan asks for, in the order of the configuration."""

    provider = "shelf"

    def _make(self) -> list[pulumi.Output[dict[str, Any]]]:
        bundle = new_secret(self._args.server_name)
        self.token_source = pulumi.Output.from_input(f"file:{SECRET_FILE}")
        self.ca = authority_of(bundle)
        boards = list(self._config.own["boards"])
        wanted = [group for group in self._args.blueprint.groups for _ in range(group.count)]
        if len(wanted) > len(boards):
            raise BadInput(full_key("boards"), f"{len(boards)} boards, {len(wanted)} are planned", "more")
        self.discover = f"shelf://{','.join(boards)}?port={self._config.agent_port}"
        hosts = []
        for board, group in zip(boards, wanted, strict=False):
            Board(board, self._script(group), bundle, self._child)
            hosts.append(host_output(board, group, self._args, self._config.region, f"{board}.shelf.lab"))
        return hosts
