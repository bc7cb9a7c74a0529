"""What Compute Engine refuses in an instance template. Pure.

Written apart from the catalogue on purpose: a stand-in that judged by the data which the program asks with
would agree with every mistake in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from tests.support.cloud_requests import Request, RequestRule

READ = date(2026, 11, 22)
TEMPLATE_GO = (
    "terraform-provider-google, google/services/compute/resource_compute_instance_template.go (2026-08-21)"
)
DISCOVERY = "Compute Engine discovery document v1, revision 20261106"
IDPF = "https://cloud.google.com/compute/docs/networking/using-idpf"
NESTING = "https://cloud.google.com/compute/docs/instances/nested-virtualization/overview"
HYPERDISK = "https://cloud.google.com/compute/docs/disks/hd-types/hyperdisk-balanced"

HYPERDISK_ONLY = re.compile(r"(n4|n4d|n4a|c4|c4d|c4a|m4|x4|h4d|a4)-|.*-metal$")
NO_HYPERDISK_BALANCED = re.compile(r"(n1|n2|c2|e2|f1|g1|t2d|t2a|c2d|a2|g2)-")
NO_SPOT = re.compile(r"(m2|m3|x4)-|c3-.*-metal$")
NEVER_NESTS = re.compile(r"(e2|f1|g1|m\d|t2d|t2a|n2d|n4d|c2d|c3d|c4d|c4a|n4a|a2|a3|a4|g2|h3|h4d|x4)-")
WITH_IDPF = re.compile(r"ubuntu-(22|24|26)04|rhel-[89]|rocky-linux-[89]|sles-15")
"""Families of public images whose kernels have the driver, and which carry the feature (IDPF page)."""
LOCAL_SSD_GB = (375, 3000, 3500, 7000, 14000)
MOST_METADATA_BYTES = 256 * 1024
NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL = re.compile(r"[a-z0-9_-]{0,63}")


def part(request: Request, name: str) -> Mapping[str, Any]:
    """A nested object; empty where it is missing or not known yet."""
    found = request.get(name)
    return found if isinstance(found, Mapping) else {}


def parts(request: Request, name: str) -> list[Mapping[str, Any]]:
    """A list of nested objects, likewise."""
    found = request.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list | tuple) else []


def text(request: Request, name: str) -> str:
    """A text; empty where it is missing or not known yet."""
    found = request.get(name)
    return found if isinstance(found, str) else ""


def number(request: Request, name: str) -> float | None:
    """A number, or `None`."""
    found = request.get(name)
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None


def _type(request: Request) -> str:
    return text(request, "machineType")


def _metal(request: Request) -> bool:
    return _type(request).endswith("-metal")


def _spot(request: Request) -> bool:
    scheduling = part(request, "scheduling")
    return scheduling.get("provisioningModel") == "SPOT" or scheduling.get("preemptible") is True


def _limited(request: Request) -> bool:
    scheduling = part(request, "scheduling")
    return bool(scheduling.get("maxRunDuration") or scheduling.get("terminationTime"))


def _scratch(disk: Mapping[str, Any]) -> bool:
    return disk.get("type") == "SCRATCH"


def _cards(request: Request) -> list[str]:
    return [text(one, "nicType") for one in parts(request, "networkInterfaces")]


def _wrong_disk(request: Request) -> bool:
    kinds = [text(disk, "diskType") for disk in parts(request, "disks") if not _scratch(disk)]
    if HYPERDISK_ONLY.match(_type(request)):
        return any(kind.startswith("pd-") for kind in kinds)
    return bool(NO_HYPERDISK_BALANCED.match(_type(request))) and "hyperdisk-balanced" in kinds


def _no_idpf(request: Request) -> bool:
    if "IDPF" not in _cards(request):
        return False
    boot = next((disk for disk in parts(request, "disks") if disk.get("boot")), {})
    image = text(boot, "sourceImage")
    return (
        bool(image) and "IDPF" not in (boot.get("guestOsFeatures") or []) and not WITH_IDPF.search(image)
        # Images of one's own say it themselves.
        and "-cloud/" in image
    )  # fmt: skip


def _wrong_speed(request: Request) -> bool:
    for disk in parts(request, "disks"):
        iops, mib_per_s = number(disk, "provisionedIops"), number(disk, "provisionedThroughput")
        if disk.get("diskType") != "hyperdisk-balanced":
            continue
        gib = number(disk, "diskSizeGb")
        if (iops is None) != (mib_per_s is None):
            return True
        if iops is None or mib_per_s is None or gib is None:
            continue
        if not min(3000, 500 * gib) <= iops <= min(160_000, 500 * gib):
            return True
        if not max(140, iops / 256) <= mib_per_s <= min(2400, max(140, iops / 4)):
            return True
    return False


def _metadata_too_long(request: Request) -> bool:
    values = [*part(request, "metadata").values(), request.get("metadataStartupScript")]
    return any(isinstance(one, str) and len(one.encode()) > MOST_METADATA_BYTES for one in values)


def _bad_labels(request: Request) -> bool:
    labels = part(request, "labels")
    return any(
        not LABEL.fullmatch(str(key)) or (isinstance(value, str) and not LABEL.fullmatch(value))
        for key, value in labels.items()
    )


def _no_time(request: Request) -> bool:
    end = text(part(request, "scheduling"), "terminationTime")
    if not end:
        return False
    try:
        return datetime.fromisoformat(end).tzinfo is None
    except ValueError:
        return True


def _rule(name: str, message: str, source: str, breaks: Any) -> RequestRule:
    return RequestRule(name, "InstanceTemplate", message, source, READ, breaks)


RULES: tuple[RequestRule, ...] = (
    _rule(
        "boot-disk-first",
        "Only the first disk specified in instance_template can be the boot disk.",
        TEMPLATE_GO,
        lambda r: any(disk.get("boot") for disk in parts(r, "disks")[1:]),
    ),
    _rule(
        "scratch-is-local-ssd",
        "SCRATCH disks must have a disk_type of local-ssd, and the other way round.",
        TEMPLATE_GO,
        lambda r: any(_scratch(d) != (d.get("diskType") == "local-ssd") for d in parts(r, "disks")),
    ),
    _rule(
        "local-ssd-size",
        f"SCRATCH disks must be one of {LOCAL_SSD_GB} GB.",
        TEMPLATE_GO,
        lambda r: any(
            _scratch(d) and number(d, "diskSizeGb") not in (*LOCAL_SSD_GB, None) for d in parts(r, "disks")
        ),
    ),
    _rule(
        "large-local-ssd-is-nvme",
        "SCRATCH disks of more than 375 GB must have an interface of NVME.",
        TEMPLATE_GO,
        lambda r: any(
            _scratch(d) and (number(d, "diskSizeGb") or 0) > 375 and d.get("interface") != "NVME"
            for d in parts(r, "disks")
        ),
    ),
    _rule(
        "disk-of-the-series",
        "[pd-standard, n4-standard-2] features are not compatible for creating instance.",
        "https://github.com/SETI/rms-cloud-tasks/blob/main/docs/provider_gcp.rst; dstack's GCP backend",
        _wrong_disk,
    ),
    _rule(
        "disk-of-10-gb",
        "The size must be at least 10 GB.",
        f"{DISCOVERY}, AttachedDiskInitializeParams",
        lambda r: any((number(d, "diskSizeGb") or 10) < 10 for d in parts(r, "disks")),
    ),
    _rule(
        "speed-of-hyperdisk-only",
        "Provisioned IOPS and throughput cannot be specified for this disk type.",
        "https://github.com/cloudpilot-ai/karpenter-provider-gcp/pull/210",
        lambda r: any(
            text(d, "diskType") in ("pd-balanced", "pd-ssd", "pd-standard", "local-ssd")
            and (d.get("provisionedIops") or d.get("provisionedThroughput"))
            for d in parts(r, "disks")
        ),
    ),
    _rule(
        "speed-of-hyperdisk-balanced",
        "Requested provisioned IOPS cannot be smaller than 3000: 3,000 to "
        "160,000 IOPS, 500 for each GiB; 140 to 2,400 MiB/s, between a 256th and a quarter of the IOPS; both "
        "or neither.",
        f"{HYPERDISK}; gcp-compute-persistent-disk-csi-driver#1816",
        _wrong_speed,
    ),
    _rule(
        "card-of-metal",
        "Bare metal has the IDPF card, and nothing else has it.",
        IDPF,
        lambda r: bool(_type(r)) and any((c == "IDPF") != _metal(r) if c else _metal(r) for c in _cards(r)),
    ),
    _rule(
        "one-card-of-metal",
        "Only one network card is supported with IDPF.",
        IDPF,
        lambda r: _metal(r) and len(_cards(r)) > 1,
    ),
    _rule(
        "image-with-idpf",
        "NetworkInterface NicType can only be set to IDPF on instances with IDPF GuestOsFeature.",
        "https://github.com/autobase-tech/autobase/pull/780",
        _no_idpf,
    ),
    _rule(
        "metal-ends-at-maintenance",
        "This machine type only supports on_host_maintenance = TERMINATE.",
        "https://github.com/autobase-tech/autobase/pull/780; GoogleCloudPlatform/cloud-image-tests#346",
        lambda r: _metal(r) and part(r, "scheduling").get("onHostMaintenance") != "TERMINATE",
    ),
    _rule(
        "e2-migrates",
        "e2 instances do not support onHostMaintenance=TERMINATE unless they are preemptible.",
        "https://github.com/skypilot-org/skypilot/issues/1006",
        lambda r: (
            _type(r).startswith("e2-")
            and not _spot(r)
            and part(r, "scheduling").get("onHostMaintenance") == "TERMINATE"
        ),
    ),
    _rule(
        "nesting-of-the-series",
        "Nested virtualization is not available: Intel Haswell and newer only, not E2 "
        "(which starts without it and says nothing), AMD, Arm, memory-optimised or bare metal.",
        f"{NESTING}; https://github.com/pulumi/pulumi-gcp/issues/715",
        lambda r: (
            part(r, "advancedMachineFeatures").get("enableNestedVirtualization") is True
            and bool(_metal(r) or NEVER_NESTS.match(_type(r)))
        ),
    ),
    _rule(
        "spot-of-the-series",
        "Spot VMs are not available for M2, M3, X4 and C3 bare metal.",
        "https://cloud.google.com/compute/docs/machine-resource",
        lambda r: _spot(r) and bool(NO_SPOT.match(_type(r))),
    ),
    _rule(
        "spot-is-preemptible",
        "provisioning_model SPOT needs preemptible = true.",
        TEMPLATE_GO,
        lambda r: (
            part(r, "scheduling").get("provisioningModel") == "SPOT"
            and part(r, "scheduling").get("preemptible") is not True
        ),
    ),
    _rule(
        "spot-does-not-restart",
        "Preemptible instances cannot be automatically restarted.",
        f"{DISCOVERY}, Scheduling.automaticRestart",
        lambda r: _spot(r) and part(r, "scheduling").get("automaticRestart") is not False,
    ),
    _rule(
        "spot-ends-at-maintenance",
        "For preemptible instances the only possible behavior is TERMINATE.",
        f"{DISCOVERY}, Scheduling.onHostMaintenance",
        lambda r: _spot(r) and part(r, "scheduling").get("onHostMaintenance") == "MIGRATE",
    ),
    _rule(
        "standard-has-no-end",
        "You cannot specify a termination action for a VM instance that has the standard "
        "provisioning model (default).",
        "https://github.com/cloudpilot-ai/karpenter-provider-gcp/issues/155",
        lambda r: (
            not _spot(r) and not _limited(r) and bool(part(r, "scheduling").get("instanceTerminationAction"))
        ),
    ),
    _rule(
        "end-has-an-action",
        "A time limit needs an instance termination action; in a group, DELETE.",
        "https://cloud.google.com/compute/docs/instance-groups/limit-vm-runtime-in-migs",
        lambda r: _limited(r) and part(r, "scheduling").get("instanceTerminationAction") != "DELETE",
    ),
    _rule(
        "one-end",
        "maxRunDuration and terminationTime exclude each other.",
        "https://cloud.google.com/compute/docs/instance-groups/limit-vm-runtime-in-migs",
        lambda r: (
            bool(part(r, "scheduling").get("maxRunDuration"))
            and bool(part(r, "scheduling").get("terminationTime"))
        ),
    ),
    _rule(
        "end-is-a-time",
        "terminationTime must be in RFC3339 text format.",
        f"{DISCOVERY}, Scheduling",
        _no_time,
    ),
    _rule(
        "one-name",
        "name conflicts with name_prefix.",
        TEMPLATE_GO,
        lambda r: bool(r.get("name")) and bool(r.get("namePrefix")),
    ),
    _rule(
        "short-prefix",
        "name_prefix cannot be longer than 54 characters, and its name begins with a small letter.",
        TEMPLATE_GO,
        lambda r: (
            bool(text(r, "namePrefix"))
            and (len(text(r, "namePrefix")) > 54 or not NAME.fullmatch(text(r, "namePrefix") + "0"))
        ),
    ),
    _rule(
        "one-start-script",
        "Cannot provide both metadata_startup_script and metadata.startup-script.",
        "terraform-provider-google, google/services/compute/metadata.go (2026-08-21)",
        lambda r: bool(r.get("metadataStartupScript")) and "startup-script" in part(r, "metadata"),
    ),
    _rule(
        "metadata-of-256-kib",
        "A metadata value is at most 256 KiB.",
        "https://cloud.google.com/compute/docs/metadata/overview",
        _metadata_too_long,
    ),
    _rule(
        "labels",
        "Labels are at most 63 small letters, digits, dashes and underscores.",
        "https://cloud.google.com/compute/docs/labeling-resources",
        _bad_labels,
    ),
    _rule(
        "tags",
        "Each tag must be 1-63 characters long, and comply with RFC1035.",
        f"{DISCOVERY}, Tags",
        lambda r: any(isinstance(tag, str) and not NAME.fullmatch(tag) for tag in r.get("tags") or []),
    ),
)
