"""Instance templates at Google Cloud."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_gcp as gcp

from osgym_infra.catalogue.rows import MachineRow
from osgym_infra.catalogue.shapes import Market
from osgym_infra.components.common import HOST_IMAGE_TAG
from osgym_infra.config.keys import AUTO
from osgym_infra.fleet.bounds import HostGroup
from osgym_infra.providers.gcp.disks import ROOT_GIB, data_disk
from osgym_infra.providers.gcp.network import HostNetwork
from osgym_infra.providers.gcp.scope import Scope

DEBIAN = "projects/debian-cloud/global/images/family/debian-12"
DATA_DEVICE = "osgym-data"


def make_template(
    scope: Scope, group: HostGroup, place: HostNetwork, account: pulumi.Input[str], script: pulumi.Input[str]
) -> gcp.compute.InstanceTemplate:
    """Make the template of a group's hosts; any change replaces it."""
    features = gcp.compute.InstanceTemplateAdvancedMachineFeaturesArgs(enable_nested_virtualization=True)
    public = [gcp.compute.InstanceTemplateNetworkInterfaceAccessConfigArgs()]
    return gcp.compute.InstanceTemplate(
        f"{scope.name}-{group.name}",
        name_prefix=f"{scope.name}-{group.name}-"[:37],
        machine_type=group.type,
        region=scope.config.region,
        project=scope.project,
        disks=_disks(scope, group),
        advanced_machine_features=features if group.nested else None,
        scheduling=_scheduling(group),
        network_interfaces=[
            gcp.compute.InstanceTemplateNetworkInterfaceArgs(
                network=place.network,
                subnetwork=place.subnet,
                nic_type=machine_of_group(group).cards[0],
                access_configs=None if scope.config.private else public,
            )
        ],
        service_account=gcp.compute.InstanceTemplateServiceAccountArgs(
            email=account, scopes=["cloud-platform"]
        ),
        shielded_instance_config=gcp.compute.InstanceTemplateShieldedInstanceConfigArgs(
            enable_vtpm=True, enable_integrity_monitoring=True
        ),
        # Who may enter is said by IAM, not by keys in the project's metadata.
        metadata={"block-project-ssh-keys": "true", "enable-oslogin": "TRUE"},
        metadata_startup_script=script,
        tags=[scope.tag],
        labels={**scope.labels, "group": group.name},
        opts=scope.child,
    )


def machine_of_group(group: HostGroup) -> MachineRow:
    """Return the options of the group's type; a plan has no types without them."""
    assert group.machine is not None
    return group.machine


def stand_in_types(group: HostGroup) -> tuple[str, ...]:
    """Types that may take the place of the group's own under its template: another disk, card, image or
    nesting would need a template of its own."""
    machine = machine_of_group(group)

    def asked(one: MachineRow) -> tuple[str, str, str, str]:
        return one.disks[0], one.cards[0], one.image, one.maintenance[0]

    return tuple(
        other.type
        for other in group.stand_ins
        if other.nested == group.nested and asked(machine_of_group(other)) == asked(machine)
    )


def _host_image(scope: Scope, group: HostGroup) -> pulumi.Input[str]:
    plain = machine_of_group(group).image or DEBIAN
    if scope.config.host_image != AUTO:
        return scope.config.host_image or plain
    own = gcp.compute.get_images_output(
        filter=f"labels.{HOST_IMAGE_TAG}:*",
        project=scope.project,
        opts=pulumi.InvokeOutputOptions(parent=scope.child.parent),
    )

    def newest(images: Any) -> str:
        found = sorted(images or [], key=lambda image: str(image.creation_timestamp))
        return str(found[-1].self_link) if found else plain

    image: pulumi.Output[str] = own.images.apply(newest)
    return image


def _disks(scope: Scope, group: HostGroup) -> list[gcp.compute.InstanceTemplateDiskArgs]:
    data = data_disk(group, scope.config)
    disks = [
        gcp.compute.InstanceTemplateDiskArgs(
            boot=True,
            auto_delete=True,
            source_image=_host_image(scope, group),
            disk_type=machine_of_group(group).disks[0],
            disk_size_gb=ROOT_GIB,
            labels=scope.labels,
        )
    ]
    if not group.nvme:
        disks.append(
            gcp.compute.InstanceTemplateDiskArgs(
                boot=False,
                auto_delete=True,
                device_name=DATA_DEVICE,
                disk_type=data.kind,
                disk_size_gb=data.gib,
                provisioned_iops=data.iops,
                provisioned_throughput=data.mib_per_s,
                labels=scope.labels,
            )
        )
    return disks


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
    able = machine_of_group(group).maintenance
    maintenance = "TERMINATE" if group.nested and "TERMINATE" in able else able[0]
    return gcp.compute.InstanceTemplateSchedulingArgs(
        provisioning_model="STANDARD", automatic_restart=True, on_host_maintenance=maintenance
    )
