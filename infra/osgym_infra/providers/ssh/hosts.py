"""Existing machines as hosts: a secret for all of them, and one resource for each.

The resources are of our own provider (`infra/provider`), which `Pulumi.yaml` names by path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi

from osgym_infra.components.hosts import ProviderHosts
from osgym_infra.config.ssh_hosts import SshHost, SshLogin
from osgym_infra.fleet.blueprint import HostGroup, slug
from osgym_infra.fleet.boot import LOCAL_DATA, FetchedArchives, environment
from osgym_infra.fleet.outputs import HostOutput, admitted
from osgym_infra.hosts.spec import TOKEN_FILE


class FleetSecrets(pulumi.CustomResource):
    """Token and certificate authority of a fleet; another `rotation` makes new ones.

    Attributes:
        token, ca_key: Encrypted in the state.
    """

    token: pulumi.Output[str]
    ca_key: pulumi.Output[str]
    ca_certificate: pulumi.Output[str]

    def __init__(self, name: str, fleet: str, rotation: int, opts: pulumi.ResourceOptions) -> None:
        made = {"token": None, "caKey": None, "caCertificate": None}
        hidden = pulumi.ResourceOptions(additional_secret_outputs=["token", "caKey"])
        super().__init__(
            "osgym:index:FleetSecrets",
            name,
            {"name": fleet, "rotation": rotation, **made},
            pulumi.ResourceOptions.merge(opts, hidden),
        )
        self.token = pulumi.Output.secret(self._output("token"))
        self.ca_key = pulumi.Output.secret(self._output("caKey"))
        self.ca_certificate = self._output("caCertificate")

    def _output(self, name: str) -> pulumi.Output[str]:
        found: pulumi.Output[str] = getattr(self, name)
        return found


class HostResource(pulumi.CustomResource):
    """Machine with the inputs of `osgym_infra.resources.host_inputs`.

    Attributes:
        admits: Number of replicas that its agent admitted at the last look; 0: unknown.
    """

    admits: pulumi.Output[float | None]

    def __init__(self, name: str, inputs: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        hidden = pulumi.ResourceOptions(additional_secret_outputs=["token", "caKey"])
        super().__init__(
            "osgym:index:SshHost",
            name,
            {**inputs, "admits": None},
            pulumi.ResourceOptions.merge(opts, hidden),
        )


class ReplicaHosts(ProviderHosts):
    """Machines that exist already; the token is a file on each that only root can read."""

    provider = "ssh"

    def _make(self) -> list[pulumi.Output[dict[str, Any]]]:
        secrets = FleetSecrets(f"{self._name}-secrets", self._args.stack, self._config.rotation, self._kept)
        self.token_source = pulumi.Output.from_input(f"file:{TOKEN_FILE}")
        self.ca = secrets.ca_certificate
        pairs = zip(self._config.hosts, self._args.blueprint.groups, strict=True)
        return [self._host(host, group, secrets) for host, group in pairs]

    def _host(self, host: SshHost, group: HostGroup, secrets: FleetSecrets) -> pulumi.Output[dict[str, Any]]:
        name = host_name(host)
        entry = self._args.fetched.apply(lambda found: self._entry(host, group, found).to_dict())
        resource = HostResource(
            f"{self._name}-{name}",
            {
                "address": host.address,
                "port": host.port,
                "user": host.user,
                "hostKey": host.host_key,
                "sshKey": host.ssh_key,
                "jump": _login(host.jump_of(self._config.jump)),
                "settings": self._args.fetched.apply(lambda found: self._settings(host, group, found)),
                "entry": entry,
                "token": secrets.token,
                "caCertificate": secrets.ca_certificate,
                "caKey": secrets.ca_key,
                "drainTimeoutS": self._config.drain_timeout_s,
                "maxUnavailable": self._config.max_unavailable.of(len(self._config.hosts)),
            },
            pulumi.ResourceOptions(parent=self, depends_on=[secrets]),
        )
        return pulumi.Output.all(resource.id, entry, resource.admits).apply(
            lambda known: admitted(dict(known[1]), known[2])
        )

    def _entry(self, host: SshHost, group: HostGroup, fetched: FetchedArchives) -> HostOutput:
        return HostOutput(
            id=host_name(host),
            zone="",
            url=f"https://{_in_url(host)}:{self._config.agent_port}",
            server_name="",
            capacity=group.replicas,
            market=group.market.value,
            image_digest=fetched.image_digest,
        )

    def _settings(self, host: SshHost, group: HostGroup, fetched: FetchedArchives) -> dict[str, str]:
        settings = environment(self._config, group, f"file:{TOKEN_FILE}", fetched)
        if host.is_local:
            # A laptop's agent is for that laptop: where nobody else gets, there is nobody to keep out.
            settings |= {"OSGYM_LISTEN": "127.0.0.1", "OSGYM_ALLOWED_CIDRS": "", "OSGYM_DATA": LOCAL_DATA}
        return settings


def host_name(host: SshHost) -> str:
    """Return a name that stays the same as long as the host is the same machine."""
    return slug(host.address if host.port == 22 else f"{host.address}-{host.port}")


def _login(jump: SshLogin | None) -> dict[str, object]:
    """Return a jump host as our resources take it; empty: none."""
    if jump is None:
        return {}
    found = {"address": jump.address, "port": jump.port, "user": jump.user}
    return {**found, "hostKey": jump.host_key, "sshKey": jump.ssh_key}


def _in_url(host: SshHost) -> str:
    if host.is_local:
        return "127.0.0.1"
    return f"[{host.address}]" if ":" in host.address else host.address
