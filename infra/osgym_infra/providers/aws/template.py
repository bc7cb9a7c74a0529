"""Launch templates at AWS, complete but for the subnets, which groups add."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from osgym_infra.components.common import HOST_IMAGE_TAG
from osgym_infra.config.keys import AUTO
from osgym_infra.config.readers import bad_key
from osgym_infra.fleet.bounds import HostGroup
from osgym_infra.providers.aws.disks import disks
from osgym_infra.providers.aws.scope import Scope

DEBIAN_OWNER = "136693071363"
"""Debian's account (https://wiki.debian.org/Cloud/AmazonEC2Image)."""


def host_image(scope: Scope) -> pulumi.Input[str]:
    """Return the id of the image that hosts start from."""
    if scope.config.host_image not in ("", AUTO):
        return scope.config.host_image
    asked = pulumi.InvokeOutputOptions(parent=scope.child.parent)
    found = aws.ec2.get_ami_output(
        owners=[DEBIAN_OWNER],
        most_recent=True,
        filters=[
            aws.ec2.GetAmiFilterArgs(name="name", values=["debian-12-amd64-*"]),
            aws.ec2.GetAmiFilterArgs(name="state", values=["available"]),
        ],
        opts=asked,
    )
    image: pulumi.Output[str] = found.id
    if scope.config.host_image != AUTO:
        return image
    own = aws.ec2.get_ami_ids_output(
        owners=["self"],
        filters=[
            aws.ec2.GetAmiIdsFilterArgs(name="tag-key", values=[HOST_IMAGE_TAG]),
            aws.ec2.GetAmiIdsFilterArgs(name="state", values=["available"]),
        ],
        sort_ascending=False,
        opts=asked,
    )
    return pulumi.Output.all(own.ids, image).apply(lambda known: str([*(known[0] or []), known[1]][0]))


def check_nesting(scope: Scope) -> None:
    """Ask EC2 whether the types take nested virtualisation; which do changes, so no list of ours says it.

    Raises:
        BadInput: A type has neither it nor a machine of its own.
    """
    types = sorted(
        {kind.type for group in scope.args.blueprint.groups for kind in group.kinds if kind.nested}
    )
    if not types:
        return
    found = aws.ec2.get_instance_types(
        filters=[
            aws.ec2.GetInstanceTypesFilterArgs(name="instance-type", values=types),
            aws.ec2.GetInstanceTypesFilterArgs(
                name="processor-info.supported-features", values=["nested-virtualization"]
            ),
        ],
        region=scope.config.region,
        opts=pulumi.InvokeOptions(parent=scope.child.parent),
    )
    for type_ in types:
        if type_ not in found.instance_types:
            raise bad_key(
                "host_type",
                f"EC2 offers no nested virtualisation on {type_} in {scope.config.region}",
                "Use a type of c8i, m8i or r8i, a .metal type, or runtime: local",
            )


def make_template(
    scope: Scope,
    group: HostGroup,
    *,
    name: str,
    firewall: pulumi.Input[str],
    profile: pulumi.Input[str],
    image: pulumi.Input[str],
    user_data: pulumi.Input[str],
) -> aws.ec2.LaunchTemplate:
    """Make the template of one type.

    It holds no market: a group with a mixed instances policy refuses a template that does.
    """
    tags = scope.tags(group.name)
    return aws.ec2.LaunchTemplate(
        f"{scope.name}-{name}",
        instance_type=group.type,
        image_id=image,
        ebs_optimized="true",
        iam_instance_profile=aws.ec2.LaunchTemplateIamInstanceProfileArgs(arn=profile),
        # Security groups and address belong to the interface: beside one EC2 refuses them.
        network_interfaces=[
            aws.ec2.LaunchTemplateNetworkInterfaceArgs(
                device_index=0,
                associate_public_ip_address=str(not scope.config.private).lower(),
                security_groups=[firewall],
                delete_on_termination="true",
            )
        ],
        metadata_options=aws.ec2.LaunchTemplateMetadataOptionsArgs(
            http_endpoint="enabled",
            http_tokens="required",
            # One hop: an answer does not get from the host into a guest or container.
            http_put_response_hop_limit=1,
            instance_metadata_tags="disabled",
        ),
        cpu_options=aws.ec2.LaunchTemplateCpuOptionsArgs(nested_virtualization="enabled")
        if group.nested
        else None,
        block_device_mappings=disks(group, scope.config),
        user_data=user_data,
        update_default_version=True,
        tag_specifications=[
            aws.ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=tags)
            for kind in ("instance", "volume", "network-interface")
        ],
        tags=tags,
        opts=scope.child,
    )
