"""Disks of hosts at AWS: sizes, speed. Pure but for the arguments' type."""

from __future__ import annotations

import math

import pulumi_aws as aws

from osgym_infra.config.keys import FleetConfig
from osgym_infra.config.readers import bad_key, check_offered
from osgym_infra.fleet.bounds import HostGroup

ROOT_GIB = 30
ROOT_DEVICE, DATA_DEVICE = "/dev/xvda", "/dev/sdf"
LEAST_IOPS, MOST_IOPS, MOST_IOPS_PER_GIB = 3000, 80_000, 500
LEAST_MIB_PER_S, MOST_MIB_PER_S, IOPS_PER_MIB_PER_S = 125, 2000, 4
"""gp3: EC2 API model (botocore 1.44), EBS block device; ratios: EBS user guide, General Purpose SSD volumes
(read 2026-11-22)."""


def disks(group: HostGroup, config: FleetConfig) -> list[aws.ec2.LaunchTemplateBlockDeviceMappingArgs]:
    """Return the root disk, and a disk for replicas' data unless the type has its own.

    Raises:
        BadInput: AWS does not go so far, or the type has no such disk.
    """
    found = [_disk(ROOT_DEVICE, ROOT_GIB)]
    if group.nvme:
        for key in ("data_disk_iops", "data_disk_mib_per_s"):
            if getattr(config, key) is not None:
                raise bad_key(key, f"{group.type} has disks of its own", "another host_type")
        return found
    gib = group.volume_gib
    iops, mib_per_s = config.data_disk_iops, config.data_disk_mib_per_s
    if iops is None and mib_per_s is not None:  # the least that goes with it
        iops = max(LEAST_IOPS, IOPS_PER_MIB_PER_S * mib_per_s)
    if iops is not None:
        most = max(LEAST_IOPS, min(MOST_IOPS, MOST_IOPS_PER_GIB * gib))
        key = "data_disk_mib_per_s" if config.data_disk_iops is None else "data_disk_iops"
        check_offered(key, iops, LEAST_IOPS, most, f"IOPS on {gib} GiB")
    if mib_per_s is not None:
        most = min(MOST_MIB_PER_S, (iops or LEAST_IOPS) // IOPS_PER_MIB_PER_S)
        check_offered("data_disk_mib_per_s", mib_per_s, LEAST_MIB_PER_S, most, f"MiB/s with {iops} IOPS")
    return [*found, _disk(DATA_DEVICE, gib, iops, mib_per_s)]


def _disk(
    device: str, gib: int, iops: int | None = None, mib_per_s: int | None = None
) -> aws.ec2.LaunchTemplateBlockDeviceMappingArgs:
    return aws.ec2.LaunchTemplateBlockDeviceMappingArgs(
        device_name=device,
        ebs=aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
            volume_size=math.ceil(gib),
            volume_type="gp3",
            iops=iops,
            throughput=mib_per_s,
            encrypted="true",
            delete_on_termination="true",
        ),
    )
