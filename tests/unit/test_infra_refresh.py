"""Asking price APIs: AWS against moto and a recorded Price List, Google Cloud against recorded SKUs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from botocore.exceptions import EndpointConnectionError
from moto import mock_aws

from osgym_infra.catalogue.load import load
from osgym_infra.catalogue.rows import HostRow, Price, PriceSource
from osgym_infra.catalogue.shapes import Kvm, Market
from osgym_infra.errors import BadInput, RefreshFailed
from osgym_infra.providers.aws import prices as aws
from osgym_infra.providers.gcp import prices as gcp
from osgym_infra.providers.refresh import fetcher, refresh

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def product(kind: str, usd: str, unit: str = "Hrs") -> str:
    """A product of the Price List, in the API's shape: a JSON text with terms by offer and dimension code."""
    dimension = {"unit": unit, "pricePerUnit": {"USD": usd}, "beginRange": "0", "endRange": "Inf"}
    return json.dumps(
        {
            "product": {"sku": "S", "attributes": {"instanceType": kind, "regionCode": "us-east-1"}},
            "terms": {"OnDemand": {"S.O": {"priceDimensions": {"S.O.D": dimension}}}, "Reserved": {}},
        }
    )


class Pages:
    """A paginator that answers with given pages and keeps what it was asked."""

    def __init__(self, pages: list[dict[str, Any]] | Exception) -> None:
        self.pages, self.asked = pages, {}

    def get_paginator(self, operation_name: str) -> Pages:
        """Itself."""
        return self

    def paginate(self, **asked: Any) -> Iterator[dict[str, Any]]:
        """The pages, whatever is asked."""
        self.asked = asked
        if isinstance(self.pages, Exception):
            raise self.pages
        yield from self.pages


class Ec2:
    """moto's EC2; the one filter it does not know is answered from its own data, as EC2 would."""

    NESTED = ("r8i.", "m8i.", "c8i.")

    def __init__(self) -> None:
        self._client = boto3.client("ec2", region_name="us-east-1")
        self.operations: list[str] = []

    def get_paginator(self, operation_name: str) -> Any:
        """moto's paginator, or the one for the filter."""
        self.operations.append(operation_name)
        real = self._client.get_paginator(operation_name)
        outer = self

        class Paginator:
            def paginate(self, **asked: Any) -> Iterator[Any]:
                filters = asked.get("Filters", [])
                nested = [f for f in filters if f["Name"] == "processor-info.supported-features"]
                if not nested:
                    yield from real.paginate(**asked)
                    return
                assert nested[0]["Values"] == ["nested-virtualization"]
                rest = [f for f in filters if f not in nested]
                for page in real.paginate(**{**asked, "Filters": rest}):
                    kinds = [k for k in page["InstanceTypes"] if k["InstanceType"].startswith(outer.NESTED)]
                    yield {"InstanceTypes": [k for k in kinds if not k["BareMetal"]]}

        return Paginator()


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ec2]:
    """moto, with credentials that are none."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield Ec2()


def test_aws_finds_what_runs_kvm_with_its_prices(ec2: Ec2, tmp_path: Path) -> None:
    """Metal and nested types, sizes from EC2, on-demand from the Price List, spot from the history."""
    pricing = Pages(
        [{"PriceList": [product("r8i.24xlarge", "6.668")]}, {"PriceList": [product("r6i.metal", "8.064")]}]
    )
    path, found = refresh(
        "aws", "us-east-1", lambda region, now: aws.fetch(region, now, (), ec2, pricing), tmp_path, NOW
    )
    rows = {row.type: row for row in found.hosts}
    assert path == tmp_path / "aws-us-east-1.toml"
    nested, metal = rows["r8i.24xlarge"], rows["r6i.metal"]
    assert (nested.vcpu, nested.ram_gib, nested.kvm) == (96, 768, Kvm.NESTED)
    assert (metal.vcpu, metal.ram_gib, metal.kvm) == (128, 1024, Kvm.METAL)
    assert nested.prices[Market.ON_DEMAND].high == 6.668
    assert nested.prices[Market.ON_DEMAND].source.as_of == date(2026, 11, 21)
    assert nested.prices[Market.SPOT].low == 0.00001, "moto's only spot price"
    assert rows["x2idn.metal"].nvme_gb == 3800
    assert all(row.kvm in (Kvm.METAL, Kvm.NESTED) and (row.ram_gib or 0) >= 32 for row in found.hosts)
    assert not any(name.startswith(("m7g.", "c7g.")) for name in rows), "Arm cannot run the golden image"
    asked = {f["Field"]: f["Value"] for f in pricing.asked["Filters"]}
    assert asked["regionCode"] == "us-east-1"
    assert (asked["operatingSystem"], asked["tenancy"], asked["capacitystatus"]) == (
        "Linux",
        "Shared",
        "Used",
    )


def test_prices_per_quantity_and_of_zero_are_no_hourly_prices(ec2: Ec2) -> None:
    """Dimensions of another unit, and free ones, are passed over."""
    pages = [
        product("r8i.24xlarge", "0.0"),
        product("r6i.metal", "9.0", "Quantity"),
        product("m8i.24xlarge", "5.0"),
    ]
    rows = {row.type: row for row in aws.fetch("us-east-1", NOW, (), ec2, Pages([{"PriceList": pages}]))}
    assert Market.ON_DEMAND not in rows["r8i.24xlarge"].prices
    assert Market.ON_DEMAND not in rows["r6i.metal"].prices
    assert rows["m8i.24xlarge"].prices[Market.ON_DEMAND].high == 5.0


@pytest.mark.parametrize(
    "answer",
    [
        EndpointConnectionError(endpoint_url="https://pricing.us-east-1.amazonaws.com"),
        [{"PriceList": ["no json"]}],
        [{"PriceList": [json.dumps({"product": {}})]}],
        [{"Prices": []}],
    ],
)
def test_a_failure_keeps_the_old_prices(ec2: Ec2, tmp_path: Path, answer: Any) -> None:
    """No network, or another shape: an error that names AWS, and the file as it was."""
    old = tmp_path / "aws-us-east-1.toml"
    old.write_text("schema = 1\n")
    with pytest.raises(RefreshFailed) as failed:
        refresh(
            "aws",
            "us-east-1",
            lambda region, now: aws.fetch(region, now, (), ec2, Pages(answer)),
            tmp_path,
            NOW,
        )
    assert failed.value.provider == "aws"
    assert old.read_text() == "schema = 1\n"
    assert [p.name for p in tmp_path.iterdir()] == ["aws-us-east-1.toml"]


def test_without_credentials_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The SDK's own sentence, as our error; nothing is written."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(RefreshFailed, match="credentials"):
        refresh("aws", "us-east-1", aws.fetch, tmp_path / "cache", NOW)
    assert not (tmp_path / "cache").exists()


def sku(description: str, usage: str, unit: str, nanos: int, region: str = "us-central1") -> dict[str, Any]:
    """A SKU of the Cloud Billing Catalog, in the API's shape."""
    rate = {"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": nanos}}
    return {
        "description": description,
        "category": {"resourceFamily": "Compute", "resourceGroup": "CPU", "usageType": usage},
        "serviceRegions": [region],
        "pricingInfo": [{"pricingExpression": {"usageUnit": unit, "tieredRates": [rate]}}],
    }


SKUS = [
    sku("N2 Instance Core running in Iowa", "OnDemand", "h", 31_611_000),
    sku("N2 Instance Ram running in Iowa", "OnDemand", "GiBy.h", 4_237_000),
    sku("N2 Custom Instance Core running in Iowa", "OnDemand", "h", 99_000_000),
    sku("N2 Instance Core running in Frankfurt", "OnDemand", "h", 99_000_000, "europe-west3"),
    sku("Spot Preemptible N2 Instance Core running in Iowa", "Preemptible", "h", 15_000_000),
    sku("Spot Preemptible N2 Instance Ram running in Iowa", "Preemptible", "GiBy.h", 2_000_000),
    sku("C3 Instance Core running in Iowa", "OnDemand", "h", 40_000_000),
    sku("Commitment v1: N2 Cpu in Iowa for 1 Year", "Commit1Yr", "h", 19_000_000),
]


def google(status: int = 200, body: Any = None) -> httpx.Client:
    """A client whose server gives the SKUs in two pages."""

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/services/6F81-5844-456A/skus"
        if body is not None or status != 200:
            return httpx.Response(status, json=body)
        if "pageToken" not in request.url.params:
            return httpx.Response(200, json={"skus": SKUS[:4], "nextPageToken": "two"})
        assert request.url.params["pageToken"] == "two"
        return httpx.Response(200, json={"skus": SKUS[4:], "nextPageToken": ""})

    return httpx.Client(transport=httpx.MockTransport(answer), base_url=gcp.BILLING)


def test_google_prices_are_put_together_from_cores_and_memory() -> None:
    """80 cores and 640 GiB of N2; families without both parts, and types of others, are left out."""
    known = load(folder=Path("/nowhere")).hosts
    rows = {row.type: row for row in gcp.fetch("us-central1", NOW, known, google())}
    row = rows["n2-highmem-80"]
    assert row.prices[Market.ON_DEMAND].high == pytest.approx(80 * 0.031611 + 640 * 0.004237)
    assert row.prices[Market.SPOT].high == pytest.approx(80 * 0.015 + 640 * 0.002)
    assert row.prices[Market.SPOT].source.as_of == date(2026, 11, 21)
    assert row.kvm is Kvm.NESTED
    assert not any(name.startswith("c3-") for name in rows), "no price for its memory"
    assert {row.provider for row in rows.values()} == {"gcp"}


@pytest.mark.parametrize(
    ("status", "body"),
    [(403, {"error": {"message": "no"}}), (500, {}), (200, {"sku": []}), (200, {"skus": [{}]}), (200, [])],
)
def test_google_failures_are_typed(status: int, body: Any) -> None:
    """Refused, broken, and another shape."""
    with pytest.raises(RefreshFailed) as failed:
        gcp.fetch("us-central1", NOW, [], google(status, body))
    assert failed.value.provider == "gcp"


def test_google_without_a_key_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both variables are named."""
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    monkeypatch.delenv("GOOGLE_OAUTH_ACCESS_TOKEN", raising=False)
    with pytest.raises(RefreshFailed, match=r"GOOGLE_API_KEY.*GOOGLE_OAUTH_ACCESS_TOKEN"):
        gcp.fetch("us-central1", NOW, [])


def test_an_answer_without_prices_is_a_failure(tmp_path: Path) -> None:
    """An empty catalogue must not replace a full one."""
    row = HostRow("gcp", "r", "t", 1, 1, 0, Kvm.NONE, {})
    with pytest.raises(RefreshFailed, match="no price"):
        refresh("gcp", "mars", lambda region, now: [row], tmp_path, NOW)


def test_a_folder_that_cannot_be_written_is_a_failure(tmp_path: Path) -> None:
    """Typed, and nothing is left half-written."""
    (tmp_path / "file").write_text("")
    row = HostRow(
        "gcp", "r", "t", 1, 1, 0, Kvm.NONE, {Market.SPOT: Price(1, 1, PriceSource("s", NOW.date()))}
    )
    with pytest.raises(RefreshFailed, match="could not be written"):
        refresh("gcp", "r", lambda region, now: [row], tmp_path / "file", NOW)


def test_only_two_providers_have_an_api() -> None:
    """Others are bad input."""
    with pytest.raises(BadInput, match=r"aws, gcp"):
        fetcher("hetzner", load(folder=Path("/nowhere")))
