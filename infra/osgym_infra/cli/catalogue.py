"""`osgym fleet catalogue`: prices of hosts, and their refresh."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from osgym_infra.catalogue.ages import age_lines, today
from osgym_infra.catalogue.load import cache_folder, load
from osgym_infra.catalogue.rows import HostRow
from osgym_infra.catalogue.shapes import Market
from osgym_infra.cli.common import exits
from osgym_infra.cli.tables import WIDTH, columns
from osgym_infra.config.keys import DEFAULT_REGIONS
from osgym_infra.config.providers import Provider
from osgym_infra.providers.refresh import PRICED, fetcher
from osgym_infra.providers.refresh import refresh as fetch_and_keep


@click.group(
    epilog="\b\nExamples:\n"
    "  osgym fleet catalogue show --provider aws\n"
    "  osgym fleet catalogue refresh --provider gcp --region europe-west4\n"
)
def catalogue() -> None:
    """Show and refresh the prices that plans are made with."""


@catalogue.command(
    epilog="\b\nExamples:\n"
    "  osgym fleet catalogue show\n"
    "  osgym fleet catalogue show --provider aws --json\n"
    "  osgym fleet catalogue show --catalogue our-machines.toml\n"
)
@click.option("--provider", help="Provider to list; default: all.")
@click.option("--catalogue", "file", type=click.Path(path_type=Path), help="Rows that override ours.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@exits
def show(provider: str | None, file: Path | None, as_json: bool) -> None:
    """List host types with their prices, KVM support, and the age of these figures."""
    found = load(file)
    rows = [row for row in found.hosts if provider in (None, row.provider)]
    sources = [price.source for row in rows for price in row.prices.values()]
    lines, warnings = age_lines(sources, today())
    if as_json:
        data = {"files": found.files, "hosts": [_dict(r) for r in rows], "as_of": lines, "warnings": warnings}
        click.echo(json.dumps(data, indent=2))
        return
    heads = ("PROVIDER", "REGION", "TYPE", ">vCPU", ">GiB", ">NVMe GB", "KVM")
    table = columns(*heads, ">ON-DEMAND", ">SPOT", ">DEDICATED", "NOTE")
    for row in rows:
        table.add_row(
            row.provider, row.region, row.type, f"{row.vcpu:g}",
            "?" if row.ram_gib is None else f"{row.ram_gib:g}", f"{row.nvme_gb:g}" if row.nvme_gb else "-",
            row.kvm, *(_price(row, market) for market in Market), row.note,
        )  # fmt: skip
    Console(width=max(WIDTH + 30, Console().width), highlight=False).print(table)
    click.echo("prices per hour; ? is unknown\n" + "\n".join(f"  {line}" for line in lines))
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


@catalogue.command(
    epilog="\b\nExamples:\n"
    "  osgym fleet catalogue refresh --provider aws --region us-east-1\n"
    "  GOOGLE_API_KEY=... osgym fleet catalogue refresh --provider gcp\n"
)
@click.option("--provider", type=click.Choice(PRICED), required=True)
@click.option("--region", help=f"Default: {DEFAULT_REGIONS}.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@exits
def refresh(provider: str, region: str | None, as_json: bool) -> None:
    """Fetch prices from a provider's API and keep them beside the built-in catalogue.

    aws needs credentials that may call pricing:GetProducts, ec2:DescribeInstanceTypes and
    ec2:DescribeSpotPriceHistory; gcp needs GOOGLE_API_KEY or GOOGLE_OAUTH_ACCESS_TOKEN. On any failure the
    exit code is 1 and the previous prices stay in use.
    """
    where = region or Provider(provider).facts.default_region
    fetch = fetcher(provider, load())
    path, found = fetch_and_keep(provider, where, fetch, cache_folder(), datetime.now(UTC))
    if as_json:
        click.echo(json.dumps({"file": str(path), "hosts": [_dict(row) for row in found.hosts]}, indent=2))
        return
    spot = sum(Market.SPOT in row.prices for row in found.hosts)
    click.echo(f"{len(found.hosts)} types of {provider} {where}, {spot} with a spot price: {path}")


def _price(row: HostRow, market: Market) -> str:
    price = row.prices.get(market)
    if price is None:
        return "?" if market is not Market.DEDICATED else ""
    unit = "" if price.currency == "USD" else f" {price.currency}"
    if price.low == price.high:
        return f"{price.high:.3f}{unit}"
    return f"{price.low:.2f}–{price.high:.2f}{unit}"


def _dict(row: HostRow) -> dict[str, Any]:
    return {
        "provider": row.provider, "region": row.region, "type": row.type, "vcpu": row.vcpu,
        "ram_gib": row.ram_gib, "nvme_gb": row.nvme_gb, "kvm": row.kvm.value, "note": row.note,
        "prices": {
            market.value: {
                "low": p.low, "high": p.high, "currency": p.currency, "source": p.source.title,
                "as_of": p.source.as_of.isoformat() if p.source.as_of else None,
            }
            for market, p in row.prices.items()
        },
    }  # fmt: skip
