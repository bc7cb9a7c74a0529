"""Prices of AWS: the Price List API for on-demand, the spot price history, and EC2 for what types can do."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from osgym_infra.catalogue.rows import HostRow, Price, PriceSource
from osgym_infra.catalogue.shapes import Kvm, Market
from osgym_infra.errors import RefreshFailed

PRICING_REGION = "us-east-1"
"""The Price List API answers in a few regions only, for all regions."""

NESTED = {"Name": "processor-info.supported-features", "Values": ["nested-virtualization"]}
METAL = {"Name": "bare-metal", "Values": ["true"]}
X86 = {"Name": "processor-info.supported-architecture", "Values": ["x86_64"]}

SPOT_WINDOW = timedelta(days=7)
LEAST_RAM_GIB = 32
"""Smaller types carry too few replicas to be worth a host agent of their own."""

CHUNK = 100
TIMEOUTS = Config(connect_timeout=10, read_timeout=30, retries={"total_max_attempts": 4, "mode": "standard"})


class Boto3Client(Protocol):
    """Part of a boto3 client that is used here."""

    def get_paginator(self, operation_name: str) -> Any:
        pass


def fetch(
    region: str,
    now: datetime,
    known: Iterable[HostRow] = (),
    ec2: Boto3Client | None = None,
    pricing: Boto3Client | None = None,
) -> list[HostRow]:
    """Return all types of a region that can run KVM, with on-demand and spot prices.

    Args:
        now: The date that prices are as of; spot prices are those of the week before.
        known: Not used; EC2 itself lists the types.

    Raises:
        RefreshFailed: There are no credentials, no permission, no network, or an answer of another shape.
    """
    try:
        ec2 = ec2 or boto3.client("ec2", region_name=region, config=TIMEOUTS)
        pricing = pricing or boto3.client("pricing", region_name=PRICING_REGION, config=TIMEOUTS)
        on_demand = _on_demand(pricing, region)
        kinds = _types(ec2)
        spot = _spot(ec2, sorted(kinds), now - SPOT_WINDOW)
    except (BotoCoreError, ClientError) as error:
        raise RefreshFailed("aws", str(error)) from error
    except (KeyError, TypeError, ValueError) as error:
        raise RefreshFailed("aws", f"the answer has an unexpected form: {error!r}") from error
    list_price = PriceSource(
        f"AWS Price List, {region}", now.date(), "https://pricing.us-east-1.amazonaws.com"
    )
    history = PriceSource(f"AWS spot price history of a week, {region}", now.date())
    rows = []
    for name, (kind, kvm) in kinds.items():
        prices: dict[Market, Price] = {}
        if name in on_demand:
            prices[Market.ON_DEMAND] = Price(on_demand[name], on_demand[name], list_price)
        if name in spot:
            prices[Market.SPOT] = Price(min(spot[name]), max(spot[name]), history)
        rows.append(_row(region, name, kind, kvm, prices))
    return rows


def _types(ec2: Boto3Client) -> dict[str, tuple[Mapping[str, Any], Kvm]]:
    """Return types with KVM, metal before nested, as the API lists them."""
    found: dict[str, tuple[Mapping[str, Any], Kvm]] = {}
    for condition, kvm in ((NESTED, Kvm.NESTED), (METAL, Kvm.METAL)):
        pages = ec2.get_paginator("describe_instance_types").paginate(Filters=[condition, X86])
        for kind in _items(pages, "InstanceTypes"):
            if kind["MemoryInfo"]["SizeInMiB"] >= LEAST_RAM_GIB * 1024:
                found[kind["InstanceType"]] = (kind, kvm)
    return found


def _row(
    region: str, name: str, kind: Mapping[str, Any], kvm: Kvm, prices: Mapping[Market, Price]
) -> HostRow:
    return HostRow(
        provider="aws",
        region=region,
        type=name,
        vcpu=float(kind["VCpuInfo"]["DefaultVCpus"]),
        ram_gib=kind["MemoryInfo"]["SizeInMiB"] / 1024,
        nvme_gb=float(kind.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0)),
        kvm=kvm,
        prices=prices,
    )


def _on_demand(pricing: Boto3Client, region: str) -> dict[str, float]:
    """Return USD/h of plain Linux on shared tenancy, by type."""
    wanted = {
        "regionCode": region,
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "tenancy": "Shared",
        "capacitystatus": "Used",
    }
    filters = [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in wanted.items()]
    pages = pricing.get_paginator("get_products").paginate(ServiceCode="AmazonEC2", Filters=filters)
    found: dict[str, float] = {}
    for text in _items(pages, "PriceList"):
        product = json.loads(text)
        usd = list(_hourly(product))
        name = product["product"]["attributes"].get("instanceType")
        if name and usd:
            found[name] = max(usd)
    return found


def _hourly(product: Mapping[str, Any]) -> Iterator[float]:
    for offer in product["terms"].get("OnDemand", {}).values():
        for dimension in offer["priceDimensions"].values():
            usd = float(dimension["pricePerUnit"].get("USD", 0))
            if dimension["unit"] == "Hrs" and usd > 0:
                yield usd


def _spot(ec2: Boto3Client, names: list[str], start: datetime) -> dict[str, list[float]]:
    """Return USD/h over all zones and the whole window, by type."""
    found: dict[str, list[float]] = {}
    for first in range(0, len(names), CHUNK):
        pages = ec2.get_paginator("describe_spot_price_history").paginate(
            InstanceTypes=names[first : first + CHUNK], ProductDescriptions=["Linux/UNIX"], StartTime=start
        )
        for price in _items(pages, "SpotPriceHistory"):
            if (usd := float(price["SpotPrice"])) > 0:
                found.setdefault(price["InstanceType"], []).append(usd)
    return found


def _items(pages: Iterable[Mapping[str, Any]], key: str) -> Iterator[Any]:
    for page in pages:
        yield from page[key]
