"""Hosts at Google Cloud: network, service account, secret, instance templates and instances."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_gcp as gcp

from osgym_infra.components.common import HOST_IMAGE_TAG, authority_of, host_output, new_secret
from osgym_infra.components.hosts import ProviderHosts
from osgym_infra.config.keys import AUTO
from osgym_infra.cost.price import Market
from osgym_infra.fleet.blueprint import HostGroup, host_names

DEBIAN = "projects/debian-cloud/global/images/family/debian-12"
SUBNET = "10.64.0.0/20"
ROOT_GIB = 30


class ReplicaHosts(ProviderHosts):
    """Hosts at Google Cloud."""

    provider = "gcp"

    def _make(self) -> list[pulumi.Output[dict[str, Any]]]:
        self._project = self._config.own["project"]
        # Rules of another stack in the same network are not for our hosts.
        self._tag = f"{self._name}-host"
        self._image = self._host_image()
        self._zone = self._config.zone or f"{self._config.region}-a"
        network, subnet = self._network()
        self._firewall(network)
        account = gcp.serviceaccount.Account(
            f"{self._name}-host",
            account_id=f"{self._name}-host"[:30],
            display_name="OSGym hosts",
            project=self._project,
            opts=self._child,
        )
        member = account.email.apply(lambda email: f"serviceAccount:{email}")
        secret, self.ca, grants = self._secret(member)
        self.token_source = pulumi.Output.concat("gcp:", secret)
        grants += self._bucket_grants(member)
        groups = self._args.blueprint.groups
        templates = {group.name: self._template(group, network, subnet, account.email) for group in groups}
        made = []
        for host, group in host_names(groups):
            instance = self._instance(host, templates[group.name], grants)
            address = instance.network_interfaces.apply(_address)
            made.append(host_output(host, group, self._args, instance.zone, address))
        return made

    def _bucket_grants(self, member: pulumi.Input[str]) -> list[pulumi.Resource]:
        """What lets hosts read image and agent."""
        buckets: dict[str, pulumi.Input[str]] = {bucket: bucket for bucket in self._args.buckets}
        if self._args.made_bucket is not None:
            buckets["archives"] = self._args.made_bucket
        return [
            gcp.storage.BucketIAMMember(
                f"{self._name}-{part}",
                bucket=bucket,
                role="roles/storage.objectViewer",
                member=member,
                opts=self._child,
            )
            for part, bucket in buckets.items()
        ]

    def _network(self) -> tuple[pulumi.Input[str], pulumi.Input[str]]:
        if self._config.network_id:
            return self._config.network_id, self._config.subnet_id
        network = gcp.compute.Network(
            f"{self._name}-network",
            auto_create_subnetworks=False,
            project=self._project,
            opts=self._kept,
        )
        subnet = gcp.compute.Subnetwork(
            f"{self._name}-subnet",
            network=network.id,
            ip_cidr_range=SUBNET,
            region=self._config.region,
            # Buckets and secrets are reached without leaving Google's network.
            private_ip_google_access=True,
            project=self._project,
            opts=pulumi.ResourceOptions(parent=network),
        )
        return network.id, subnet.id

    def _firewall(self, network: pulumi.Input[str]) -> None:
        gcp.compute.Firewall(
            f"{self._name}-agent",
            description="The OSGym agent's port, from the allowed networks only",
            network=network,
            direction="INGRESS",
            allows=[gcp.compute.FirewallAllowArgs(protocol="tcp", ports=[str(self._config.agent_port)])],
            source_ranges=list(self._config.allowed_cidrs),
            target_tags=[self._tag],
            project=self._project,
            opts=self._child,
        )

    def _secret(
        self, member: pulumi.Input[str]
    ) -> tuple[pulumi.Output[str], pulumi.Output[str], list[pulumi.Resource]]:
        """The secret's newest version, the authority's certificate, and the grant that lets hosts read it."""
        if self._config.token_secret:
            existing = pulumi.Output.from_input(self._config.token_secret)
            grant = self._reader(self._config.token_secret.split("/versions/")[0], member)
            return existing, pulumi.Output.from_input(""), [grant]
        secret = gcp.secretmanager.Secret(
            f"{self._name}-token",
            secret_id=f"{self._name}-token",
            replication=gcp.secretmanager.SecretReplicationArgs(
                auto=gcp.secretmanager.SecretReplicationAutoArgs()
            ),
            labels=self._args.tags,
            project=self._project,
            opts=self._kept,
        )
        version = gcp.secretmanager.SecretVersion(
            f"{self._name}-token",
            secret=secret.id,
            secret_data=new_secret(self._args.server_name),
            # The program makes a new one whenever it runs; the first stays until it is replaced on purpose.
            opts=pulumi.ResourceOptions(parent=secret, ignore_changes=["secretData"]),
        )
        grant = self._reader(secret.id, member)
        name: pulumi.Output[str] = secret.id.apply(lambda found: f"{found}/versions/latest")
        return name, authority_of(version.secret_data), [grant, version]

    def _reader(self, secret: pulumi.Input[str], member: pulumi.Input[str]) -> pulumi.Resource:
        grant: pulumi.Resource = gcp.secretmanager.SecretIamMember(
            f"{self._name}-token",
            secret_id=secret,
            role="roles/secretmanager.secretAccessor",
            member=member,
            project=self._project,
            opts=self._child,
        )
        return grant

    def _template(
        self,
        group: HostGroup,
        network: pulumi.Input[str],
        subnet: pulumi.Input[str],
        account: pulumi.Input[str],
    ) -> gcp.compute.InstanceTemplate:
        features = gcp.compute.InstanceTemplateAdvancedMachineFeaturesArgs(enable_nested_virtualization=True)
        return gcp.compute.InstanceTemplate(
            f"{self._name}-{group.name}",
            name_prefix=f"{self._name}-{group.name}-"[:37],
            machine_type=group.type,
            region=self._config.region,
            project=self._project,
            disks=self._disks(group),
            advanced_machine_features=features if group.nested else None,
            scheduling=_scheduling(group),
            network_interfaces=[
                gcp.compute.InstanceTemplateNetworkInterfaceArgs(
                    network=network,
                    subnetwork=subnet,
                    access_configs=[gcp.compute.InstanceTemplateNetworkInterfaceAccessConfigArgs()],
                )
            ],
            service_account=gcp.compute.InstanceTemplateServiceAccountArgs(
                email=account, scopes=["cloud-platform"]
            ),
            shielded_instance_config=gcp.compute.InstanceTemplateShieldedInstanceConfigArgs(
                enable_vtpm=True, enable_integrity_monitoring=True
            ),
            metadata={"block-project-ssh-keys": "true", "enable-oslogin": "TRUE"},
            metadata_startup_script=self._script(group),
            tags=[self._tag],
            labels={**self._args.tags, "group": group.name},
            opts=self._child,
        )

    def _host_image(self) -> pulumi.Input[str]:
        if self._config.host_image != AUTO:
            return self._config.host_image or DEBIAN
        own = gcp.compute.get_images_output(
            filter=f"labels.{HOST_IMAGE_TAG}:*",
            project=self._project,
            opts=pulumi.InvokeOutputOptions(parent=self),
        )

        def newest(images: Any) -> str:
            found = sorted(images or [], key=lambda image: str(image.creation_timestamp))
            return str(found[-1].self_link) if found else DEBIAN

        image: pulumi.Output[str] = own.images.apply(newest)
        return image

    def _disks(self, group: HostGroup) -> list[gcp.compute.InstanceTemplateDiskArgs]:
        disks = [
            gcp.compute.InstanceTemplateDiskArgs(
                boot=True,
                auto_delete=True,
                source_image=self._image,
                disk_type="pd-balanced",
                disk_size_gb=ROOT_GIB,
                labels=self._args.tags,
            )
        ]
        if not group.nvme:
            disks.append(
                gcp.compute.InstanceTemplateDiskArgs(
                    boot=False,
                    auto_delete=True,
                    device_name="osgym-data",
                    disk_type="pd-balanced",
                    disk_size_gb=group.volume_gib,
                    labels=self._args.tags,
                )
            )
        return disks

    def _instance(
        self, host: str, template: gcp.compute.InstanceTemplate, grants: list[pulumi.Resource]
    ) -> gcp.compute.InstanceFromTemplate:
        return gcp.compute.InstanceFromTemplate(
            f"{self._name}-{host}",
            source_instance_template=template.self_link_unique,
            zone=self._zone,
            project=self._project,
            labels={**self._args.tags, "host": host},
            opts=pulumi.ResourceOptions(
                parent=self,
                # A host reads secret and image at its first start.
                depends_on=grants,
                # A new template replaces a host only when that was asked for.
                ignore_changes=[] if self._config.roll else ["sourceInstanceTemplate"],
            ),
        )


def _scheduling(group: HostGroup) -> gcp.compute.InstanceTemplateSchedulingArgs:
    if group.market is Market.SPOT:
        return gcp.compute.InstanceTemplateSchedulingArgs(
            provisioning_model="SPOT",
            preemptible=True,
            automatic_restart=False,
            on_host_maintenance="TERMINATE",
            # Deleted, not stopped: a stopped host would be paid for and serve nobody.
            instance_termination_action="DELETE",
        )
    # Nested guests cannot be migrated live on every family; a host that ends is replaced.
    maintenance = "TERMINATE" if group.nested or group.type.endswith("-metal") else "MIGRATE"
    return gcp.compute.InstanceTemplateSchedulingArgs(
        provisioning_model="STANDARD", automatic_restart=True, on_host_maintenance=maintenance
    )


def _address(interfaces: Any) -> str:
    """The first public address of an instance."""
    first = interfaces[0] if interfaces else {}
    configs = (
        first.get("access_configs") if isinstance(first, dict) else getattr(first, "access_configs", None)
    )
    found = configs[0] if configs else {}
    address = found.get("nat_ip") if isinstance(found, dict) else getattr(found, "nat_ip", "")
    return str(address or "")
