"""What AWS refuses, as data: each rule with AWS's words, where it was read, and when.

How each is broken is in `aws_checks.py`. Not judged: whether a region has capacity, and whether spot
takes nested virtualisation (one project says that it does not; nobody else does).
"""

from __future__ import annotations

from datetime import date

from tests.support.cloud_requests import Request, RequestRule, nothing_made
from tests.support.cloud_requests import aws_checks as check
from tests.support.cloud_requests.aws_checks import Check

READ = date(2026, 11, 22)
INSTANCE_GO = "terraform-provider-aws, internal/service/ec2/ec2_instance.go"
TEMPLATE_GO = "terraform-provider-aws, internal/service/ec2/ec2_launch_template.go"
GROUP_GO = "terraform-provider-aws, internal/service/autoscaling/group.go"
NAMES_GO = "terraform-provider-aws, internal/verify/validate.go"
EC2 = "EC2 API model (botocore 1.44)"
SCALING = "Auto Scaling API model (botocore 1.44)"
IAM = "IAM API model (botocore 1.44) and user guide, quotas"
INTERFACES = "https://github.com/pulumi/pulumi-aws/issues/2506"
GP3 = "EBS user guide, General Purpose SSD volumes"
PROFILE_BOTH = (
    "The parameter 'iamInstanceProfile.name' may not be used in combination with 'iamInstanceProfile.arn'"
)
GROUPS_BESIDE = (
    "Network interfaces and an instance-level security groups may not be specified on the same request"
)
SUBNET_BESIDE = "Network interfaces and an instance-level subnet ID may not be specified on the same request"
SET = "a-zA-Z0-9. _-:/()#,@[]+=&;{}!$*"


def _alone(name: str, kinds: str, message: str, source: str, broken: Check) -> RequestRule:
    def breaks(request: Request) -> bool:
        return broken(request, nothing_made)

    return RequestRule(name, kinds, message, source, READ, breaks)


def _beside(name: str, kinds: str, message: str, source: str, broken: Check) -> RequestRule:
    def nothing(_: Request) -> bool:
        return False

    return RequestRule(name, kinds, message, source, READ, nothing, broken)


TEMPLATES: tuple[RequestRule, ...] = (
    _alone("template-groups-beside-interfaces", "LaunchTemplate", GROUPS_BESIDE, f"{EC2}; {INTERFACES}",
           check.interfaces_beside("vpcSecurityGroupIds", "securityGroupNames")),
    _alone("public-address-of-one-interface", "LaunchTemplate|Instance",
           "The associatePublicIPAddress parameter cannot be specified when launching with multiple network "
           "interfaces.", "terraform-provider-aws, internal/service/ec2/ec2_fleet_test.go",
           check.several_public),
    _alone("public-address-of-the-first", "LaunchTemplate|Instance",
           "The associatePublicIPAddress parameter can only be specified for the network interface with "
           "DeviceIndex 0.", "EC2 user guide, EventBridge events for Spot Fleet", check.public_not_first),
    _alone("user-data-of-16-kib", "LaunchTemplate|Instance", "User data is limited to 16384 bytes", EC2,
           check.user_data_long),
    _alone("user-data-in-base64", "LaunchTemplate", "Invalid BASE64 encoding of user data.", EC2,
           check.user_data_plain),
    _alone("nesting-of-the-family", "LaunchTemplate|Instance",
           "UnsupportedOperation: nested virtualization is supported only on 8th generation Intel-based "
           "instance types (c8i, m8i, r8i, and their flex variants).", f"{EC2}, NestedVirtualization",
           check.nests_not),
    _alone("one-time-spot-ends", "LaunchTemplate|Instance",
           "Stop and hibernate are not supported for one-time Spot requests.", f"{EC2}, SpotMarketOptions",
           check.one_time_stops),
    _alone("hop-limit", "LaunchTemplate|Instance",
           "expected http_put_response_hop_limit to be in the range (1 - 64)", TEMPLATE_GO, check.hop_limit),
    _alone("metadata-switched-on", "LaunchTemplate|Instance",
           "A value of 'enabled' for HttpEndpoint is needed beside other options of the metadata service.",
           TEMPLATE_GO, check.metadata_off),
    _alone("gp3-within-bounds", "LaunchTemplate",
           "gp3 takes 3,000 to 80,000 IOPS, 125 to 2,000 MiB/s, 1 to 65,536 GiB.", f"{EC2}, EBS block device",
           check.disks(check.gp3_outside)),
    _alone("gp3-ratio", "LaunchTemplate",
           "Iops to volume size ratio is too high; maximum is 500. Throughput (MiBps) to iops ratio is too "
           "high; maximum is 0.250000.", GP3, check.disks(check.gp3_ratio)),
    _alone("throughput-of-gp3-only", "LaunchTemplate",
           "The parameter throughput is not supported for other volumes than gp3.", f"{EC2}, Throughput",
           check.disks(check.gp2_throughput)),
    _alone("root-holds-the-image", "LaunchTemplate",
           "Volume of size 4GB is smaller than snapshot 'snap-…', expect size >= 8GB",
           "EC2 API error InvalidBlockDeviceMapping; Debian's images have 8 GB", check.root_small),
    _alone("device-once", "LaunchTemplate", "Duplicate device name in block device mapping.", EC2,
           check.device_twice),
    _alone("tagged-kinds", "LaunchTemplate",
           "you can specify tags for the following resource types only: instance | volume | "
           "network-interface | spot-instances-request", f"{EC2}, TagSpecifications", check.tagged_kinds),
    _alone("profile-by-arn-or-name", "LaunchTemplate", PROFILE_BOTH, TEMPLATE_GO,
           lambda r, made: check.both("arn", "name")(r.get("iamInstanceProfile") or {}, made)),
    _alone("template-name-or-prefix", "LaunchTemplate", '"name_prefix": conflicts with name', TEMPLATE_GO,
           check.both("name", "namePrefix")),
    _alone("template-name", "LaunchTemplate", "name: 3 to 125 characters of 0-9A-Za-z()./_-", NAMES_GO,
           check.named("name", check.TEMPLATE_NAME)),
    _alone("template-prefix", "LaunchTemplate",
           "name_prefix cannot be longer than 99 characters, name is limited to 125", NAMES_GO,
           lambda r, _: len(str(r.get("namePrefix") or "")) > 99),
)  # fmt: skip

INSTANCES: tuple[RequestRule, ...] = (
    _alone("instance-image", "Instance", '"ami": one of `ami,launch_template` must be specified', INSTANCE_GO,
           lambda r, _: "ami" not in r and "launchTemplate" not in r),
    _alone("instance-template-by-id-or-name", "Instance", '"launch_template.0.id": conflicts with name',
           INSTANCE_GO, lambda r, made: check.both("id", "name")(r.get("launchTemplate") or {}, made)),
    _alone("instance-interfaces-alone", "Instance", f"{SUBNET_BESIDE}; {GROUPS_BESIDE}", INSTANCE_GO,
           check.interfaces_beside("subnetId", "vpcSecurityGroupIds", "securityGroups",
                                   "associatePublicIpAddress")),
    _beside("instance-subnet-beside-template-groups", "Instance", GROUPS_BESIDE, INTERFACES,
            check.instance_beside(("subnetId", "networkInterfaces"), "vpcSecurityGroupIds")),
    _beside("instance-subnet-beside-template-interfaces", "Instance", SUBNET_BESIDE,
            "EC2 API error InvalidParameterCombination",
            check.instance_beside(("subnetId",), "networkInterfaces")),
    _beside("instance-groups-beside-template-interfaces", "Instance", GROUPS_BESIDE, INTERFACES,
            check.instance_beside(("vpcSecurityGroupIds", "associatePublicIpAddress"), "networkInterfaces")),
)  # fmt: skip

GROUPS: tuple[RequestRule, ...] = (
    _alone("group-of-one-source", "Group",
           "only one of `launch_configuration,launch_template,mixed_instances_policy` can be specified",
           GROUP_GO, check.not_one_source),
    _alone("group-zones-or-subnets", "Group", '"availability_zones": conflicts with vpc_zone_identifier',
           GROUP_GO, check.both("availabilityZones", "vpcZoneIdentifiers")),
    _alone("group-stands-somewhere", "Group",
           "At least one Availability Zone or VPC Subnet is required.", "moto (Auto Scaling, models)",
           lambda r, _: r.get("availabilityZones", []) == r.get("vpcZoneIdentifiers", []) == []),
    _alone("group-sizes", "Group",
           "Desired capacity:5 must be between the specified min size:1 and max size:3", SCALING,
           check.sizes),
    _beside("group-without-market-in-template", "Group",
            "Incompatible launch template: You cannot use a launch template that is set to request Spot "
            "Instances (InstanceMarketOptions) when you configure an Auto Scaling group with a mixed "
            "instances policy.", "Auto Scaling user guide, troubleshooting launch templates",
            check.group_templates(lambda template: bool(template.get("instanceMarketOptions")), mixed=True)),
    _beside("group-interface-holds-groups", "Group",
            "The interface of a group's template is the first one, holds the security groups, and names "
            "neither subnet nor card.", "https://github.com/hashicorp/terraform-provider-aws/issues/4570",
            check.group_templates(check.bare_interface)),
    _alone("refresh-of-a-number", "Group",
           "A refresh does not start when a launch template's $Latest or $Default changes.",
           "terraform-provider-aws, website/docs/r/autoscaling_group.html.markdown", check.latest_refreshed),
    _alone("refresh-percentages", "Group",
           "MinHealthyPercentage is 0 to 100, MaxHealthyPercentage 100 to 200, and the difference at most "
           "100.", f"{SCALING}, RefreshPreferences", check.refresh),
    _alone("overrides", "Group",
           "At most 40 overrides, each type once; WeightedCapacity is 1 to 999, of all or of none.",
           f"{SCALING}, LaunchTemplateOverrides", check.overrides),
    _alone("distribution", "Group",
           "SpotInstancePools is valid only with lowest-price; strategies: lowest-price, "
           "capacity-optimized[-prioritized], price-capacity-optimized; on demand: lowest-price, "
           "prioritized.",
           f"{SCALING}, InstancesDistribution", check.distribution),
    _alone("lifetime", "Group", "The max instance lifetime must be either 0 or between 86400 and 31536000.",
           f"{SCALING}, MaxInstanceLifetime", check.lifetime),
    _alone("hook", "LifecycleHook",
           "HeartbeatTimeout is 30 to 7200 s; the transition is EC2_INSTANCE_TERMINATING or _LAUNCHING, the "
           "default CONTINUE or ABANDON, the name of A-Za-z0-9-_/.", f"{SCALING}, PutLifecycleHook",
           check.hook),
    _alone("target-tracking", "Policy",
           "Target tracking has a target and one metric, and no adjustment, step or cooldown.",
           "terraform-provider-aws, internal/service/autoscaling/policy.go", check.tracking),
    _alone("schedule", "Schedule",
           "At least one size is given, and a start in the future as YYYY-MM-DDThh:mm:ssZ.",
           f"{SCALING}, PutScheduledUpdateGroupAction", check.schedule),
    _alone("budget", "Budget",
           "A budget has a limit above 0 and a time unit; a notification a threshold, a known comparison and "
           "kind, and 1 to 10 addresses.", "Budgets API model (botocore 1.44), CreateBudget", check.budget),
)  # fmt: skip

OTHERS: tuple[RequestRule, ...] = (
    _alone("tags", ".*", "At most 50 tags, keys of 128 and values of 256 characters; `aws:` is reserved.",
           "EC2 user guide, Tag restrictions", check.tags_bad),
    _alone("security-group-descriptions", "SecurityGroup",
           "Invalid security group description. Valid descriptions are strings less than 256 characters "
           f"from the following set: {SET}", f"{EC2}, CreateSecurityGroup", check.descriptions),
    _alone("subnet-in-its-network", "Subnet",
           "The CIDR '…' is invalid: a subnet has /16 to /28.", "EC2 API error InvalidSubnet.Range",
           check.subnet_size),
    _beside("subnet-inside-its-network", "Subnet", "The CIDR '…' is not inside its network's.",
            "EC2 API error InvalidSubnet.Range", check.subnet_outside),
    _alone("nat-address", "NatGateway",
           "`allocation_id` is required when `connectivity_type` is public, and excluded when it is private",
           "terraform-provider-aws, internal/service/ec2/vpc_nat_gateway.go", check.nat_without_address),
    _alone("policy-document", "RolePolicy",
           "MalformedPolicyDocument: JSON of at most 10,240 characters without white space, a version, and "
           "statements with effect, action and resources that are ARNs or *.", IAM, check.policy_document),
    _alone("role-name", "Role|InstanceProfile", "1 to 64 characters of A-Za-z0-9_+=,.@-", IAM,
           check.named("name", check.ROLE_NAME)),
    _alone("bucket-name", "Bucket", "InvalidBucketName: 3 to 63 characters of a-z0-9.-",
           "S3 user guide, Bucket naming rules", check.named("bucket", check.BUCKET_NAME)),
)  # fmt: skip

RULES = (*TEMPLATES, *INSTANCES, *GROUPS, *OTHERS)
