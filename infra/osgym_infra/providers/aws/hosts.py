"""Hosts at AWS: network, role, secret, launch templates and instances."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_aws as aws

from osgym_infra.components.common import HOST_IMAGE_TAG, authority_of, host_output, new_secret
from osgym_infra.components.hosts import ProviderHosts
from osgym_infra.config.keys import AUTO
from osgym_infra.cost.price import Market
from osgym_infra.fleet.blueprint import HostGroup, host_names
from osgym_infra.fleet.boot import ec2_user_data

DEBIAN_OWNER = "136693071363"
"""Debian's account (https://wiki.debian.org/Cloud/AmazonEC2Image)."""

NETWORK = "10.64.0.0/16"
SUBNET = "10.64.0.0/20"
ROOT_GIB = 30
ASSUMED_BY_EC2 = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "ec2.amazonaws.com"}}
    ],
}


class ReplicaHosts(ProviderHosts):
    """Hosts at AWS."""

    provider = "aws"

    def _make(self) -> list[pulumi.Output[dict[str, Any]]]:
        network, subnet, route = self._network()
        firewall = self._firewall(network)
        secret, self.ca, kept = self._secret()
        self.token_source = pulumi.Output.concat("aws:", secret)
        profile = self._role(secret)
        image = self._image()
        groups = self._args.blueprint.groups
        templates = {group.name: self._template(group, firewall, profile, image) for group in groups}
        made = []
        for host, group in host_names(groups):
            instance = self._instance(host, templates[group.name], subnet, [*route, *kept])
            place = instance.availability_zone, instance.public_ip
            made.append(host_output(host, group, self._args, *place))
        return made

    def _network(
        self,
    ) -> tuple[pulumi.Input[str], pulumi.Input[str], list[pulumi.Resource]]:
        """VPC, subnet, and what instances have to wait for to reach the internet."""
        if self._config.network_id:
            return self._config.network_id, self._config.subnet_id, []
        vpc = aws.ec2.Vpc(
            f"{self._name}-vpc",
            cidr_block=NETWORK,
            enable_dns_hostnames=True,
            tags=self._tags("vpc"),
            opts=self._kept,
        )
        inside = pulumi.ResourceOptions(parent=vpc)
        gateway = aws.ec2.InternetGateway(
            f"{self._name}-gateway", vpc_id=vpc.id, tags=self._tags("gateway"), opts=inside
        )
        subnet = aws.ec2.Subnet(
            f"{self._name}-subnet",
            vpc_id=vpc.id,
            cidr_block=SUBNET,
            availability_zone=self._config.zone or None,
            map_public_ip_on_launch=True,
            tags=self._tags("subnet"),
            opts=inside,
        )
        table = aws.ec2.RouteTable(
            f"{self._name}-routes",
            vpc_id=vpc.id,
            routes=[aws.ec2.RouteTableRouteArgs(cidr_block="0.0.0.0/0", gateway_id=gateway.id)],
            tags=self._tags("routes"),
            opts=inside,
        )
        association = aws.ec2.RouteTableAssociation(
            f"{self._name}-routes", subnet_id=subnet.id, route_table_id=table.id, opts=inside
        )
        # Images come from a bucket of the region: over this they cost no traffic.
        aws.ec2.VpcEndpoint(
            f"{self._name}-s3",
            vpc_id=vpc.id,
            service_name=f"com.amazonaws.{self._config.region}.s3",
            route_table_ids=[table.id],
            tags=self._tags("s3"),
            opts=inside,
        )
        return vpc.id, subnet.id, [association]

    def _firewall(self, network: pulumi.Input[str]) -> pulumi.Output[str]:
        cidrs = self._config.allowed_cidrs
        port = self._config.agent_port
        group = aws.ec2.SecurityGroup(
            f"{self._name}-agent",
            description="The OSGym agent's port, from the allowed networks only",
            vpc_id=network,
            ingress=[
                aws.ec2.SecurityGroupIngressArgs(
                    description="OSGym agent",
                    protocol="tcp",
                    from_port=port,
                    to_port=port,
                    cidr_blocks=[cidr for cidr in cidrs if ":" not in cidr],
                    ipv6_cidr_blocks=[cidr for cidr in cidrs if ":" in cidr],
                )
            ],
            egress=[
                aws.ec2.SecurityGroupEgressArgs(
                    description="Packages, images; replicas are held back on the host",
                    protocol="-1",
                    from_port=0,
                    to_port=0,
                    cidr_blocks=["0.0.0.0/0"],
                    ipv6_cidr_blocks=["::/0"],
                )
            ],
            tags=self._tags("agent"),
            opts=self._child,
        )
        found: pulumi.Output[str] = group.id
        return found

    def _secret(self) -> tuple[pulumi.Output[str], pulumi.Output[str], list[pulumi.Resource]]:
        """The secret's ARN, the authority's certificate, and what has to exist before a host reads it."""
        if self._config.token_secret:
            return pulumi.Output.from_input(self._config.token_secret), pulumi.Output.from_input(""), []
        secret = aws.secretsmanager.Secret(
            f"{self._name}-token",
            description="Token and certificate of the OSGym host agents",
            tags=self._tags("token"),
            opts=self._kept,
        )
        version = aws.secretsmanager.SecretVersion(
            f"{self._name}-token",
            secret_id=secret.id,
            secret_string=new_secret(self._args.server_name),
            # The program makes a new one whenever it runs; the first stays until it is replaced on purpose.
            opts=pulumi.ResourceOptions(parent=secret, ignore_changes=["secretString"]),
        )
        return secret.arn, authority_of(version.secret_string), [version]

    def _role(self, secret: pulumi.Input[str]) -> pulumi.Output[str]:
        """A role that may read one secret and the buckets of image and agent, and nothing else."""
        role = aws.iam.Role(
            f"{self._name}-host",
            assume_role_policy=pulumi.Output.json_dumps(ASSUMED_BY_EC2),
            tags=self._tags("host"),
            opts=self._child,
        )
        statements: list[dict[str, Any]] = [
            {"Effect": "Allow", "Action": "secretsmanager:GetSecretValue", "Resource": secret}
        ]
        buckets: list[pulumi.Input[str]] = [*self._args.buckets]
        if self._args.made_bucket is not None:
            buckets.append(self._args.made_bucket)
        if buckets:
            objects = [pulumi.Output.concat("arn:aws:s3:::", bucket, "/*") for bucket in buckets]
            statements.append({"Effect": "Allow", "Action": "s3:GetObject", "Resource": objects})
        aws.iam.RolePolicy(
            f"{self._name}-host",
            role=role.id,
            policy=pulumi.Output.json_dumps({"Version": "2012-10-17", "Statement": statements}),
            opts=pulumi.ResourceOptions(parent=role),
        )
        profile = aws.iam.InstanceProfile(
            f"{self._name}-host", role=role.name, tags=self._tags("host"), opts=self._child
        )
        arn: pulumi.Output[str] = profile.arn
        return arn

    def _image(self) -> pulumi.Input[str]:
        if self._config.host_image not in ("", AUTO):
            return self._config.host_image
        found = aws.ec2.get_ami_output(
            owners=[DEBIAN_OWNER],
            most_recent=True,
            filters=[
                aws.ec2.GetAmiFilterArgs(name="name", values=["debian-12-amd64-*"]),
                aws.ec2.GetAmiFilterArgs(name="state", values=["available"]),
            ],
            opts=pulumi.InvokeOutputOptions(parent=self),
        )
        image: pulumi.Output[str] = found.id
        if self._config.host_image != AUTO:
            return image
        own = aws.ec2.get_ami_ids_output(
            owners=["self"],
            filters=[
                aws.ec2.GetAmiIdsFilterArgs(name="tag-key", values=[HOST_IMAGE_TAG]),
                aws.ec2.GetAmiIdsFilterArgs(name="state", values=["available"]),
            ],
            sort_ascending=False,
            opts=pulumi.InvokeOutputOptions(parent=self),
        )
        return pulumi.Output.all(own.ids, image).apply(lambda known: str([*(known[0] or []), known[1]][0]))

    def _template(
        self,
        group: HostGroup,
        firewall: pulumi.Input[str],
        profile: pulumi.Input[str],
        image: pulumi.Input[str],
    ) -> aws.ec2.LaunchTemplate:
        spot = aws.ec2.LaunchTemplateInstanceMarketOptionsArgs(
            market_type="spot",
            spot_options=aws.ec2.LaunchTemplateInstanceMarketOptionsSpotOptionsArgs(
                # A persistent request would start hosts behind the stack's back.
                spot_instance_type="one-time",
                instance_interruption_behavior="terminate",
            ),
        )
        tags = self._tags(group.name)
        return aws.ec2.LaunchTemplate(
            f"{self._name}-{group.name}",
            instance_type=group.type,
            image_id=image,
            ebs_optimized="true",
            iam_instance_profile=aws.ec2.LaunchTemplateIamInstanceProfileArgs(arn=profile),
            vpc_security_group_ids=[firewall],
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
            instance_market_options=spot if group.market is Market.SPOT else None,
            block_device_mappings=self._disks(group),
            user_data=self._script(group).apply(ec2_user_data),
            update_default_version=True,
            tag_specifications=[
                aws.ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=tags)
                for kind in ("instance", "volume")
            ],
            tags=tags,
            opts=self._child,
        )

    def _disks(self, group: HostGroup) -> list[aws.ec2.LaunchTemplateBlockDeviceMappingArgs]:
        sizes = {"/dev/xvda": ROOT_GIB}
        if not group.nvme:
            sizes["/dev/sdf"] = group.volume_gib
        return [
            aws.ec2.LaunchTemplateBlockDeviceMappingArgs(
                device_name=device,
                ebs=aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
                    volume_size=gib, volume_type="gp3", encrypted="true", delete_on_termination="true"
                ),
            )
            for device, gib in sizes.items()
        ]

    def _instance(
        self,
        host: str,
        template: aws.ec2.LaunchTemplate,
        subnet: pulumi.Input[str],
        needs: list[pulumi.Resource],
    ) -> aws.ec2.Instance:
        return aws.ec2.Instance(
            f"{self._name}-{host}",
            launch_template=aws.ec2.InstanceLaunchTemplateArgs(
                id=template.id,
                # The number, not $Latest: a change is seen in preview.
                version=template.latest_version.apply(str),
            ),
            subnet_id=subnet,
            associate_public_ip_address=True,
            tags=self._tags(host),
            opts=pulumi.ResourceOptions(
                parent=self,
                # A host reads secret and image at its first start.
                depends_on=needs,
                # A new template version replaces a host only when that was asked for.
                ignore_changes=[] if self._config.roll else ["launchTemplate", "userData", "userDataBase64"],
            ),
        )

    def _tags(self, part: str) -> dict[str, str]:
        return {**self._args.tags, "Name": f"{self._name}-{part}"}
