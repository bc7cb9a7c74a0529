"""Prices of Google Cloud: the Cloud Billing Catalog's SKUs of cores and memory, put together by type.

The catalogue of SKUs has no machine types, so their sizes come from the rows that are already known.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import httpx

from osgym_infra.catalogue.rows import HostRow, Price, PriceSource
from osgym_infra.catalogue.shapes import Market
from osgym_infra.errors import RefreshFailed
from osgym_protocol.http_clients import make_client
from osgym_protocol.proxies import environment_route

BILLING = "https://cloudbilling.googleapis.com"
COMPUTE_ENGINE = "6F81-5844-456A"
"""The id of Compute Engine in the Cloud Billing Catalog, the same for everybody."""

TIMEOUT_S = 30.0
MOST_PAGES = 200
KEY, TOKEN = "GOOGLE_API_KEY", "GOOGLE_OAUTH_ACCESS_TOKEN"  # names, not secrets

# "N2 Instance Core running in Americas", "Spot Preemptible C3 Instance Ram running in Iowa"; custom sizes,
# sole tenancy and commitments have other words in between.
SKU = re.compile(
    r"^(?P<spot>Spot Preemptible )?(?P<family>[A-Z]\d[A-Z]?) Instance (?P<part>Core|Ram) running in "
)
UNITS = {"Core": "h", "Ram": "GiBy.h"}
MARKETS = {"OnDemand": Market.ON_DEMAND, "Preemptible": Market.SPOT}


def fetch(
    region: str, now: datetime, known: Iterable[HostRow], client: httpx.Client | None = None
) -> list[HostRow]:
    """Return the known types of Google Cloud with today's prices of a region.

    Args:
        known: Rows whose sizes are used; those of other providers are passed over.
        client: Default: one that authenticates with `$GOOGLE_API_KEY` or `$GOOGLE_OAUTH_ACCESS_TOKEN`.

    Raises:
        RefreshFailed: No key, no network, or an answer of another shape.
    """
    source = PriceSource(f"Google Cloud Billing Catalog, {region}", now.date(), f"{BILLING}/v1/services")
    try:
        with client or _client() as http:
            units = _unit_prices(_skus(http), region)
    except httpx.HTTPError as error:
        raise RefreshFailed("gcp", _without_key(f"{type(error).__name__}: {error}")) from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise RefreshFailed("gcp", f"the answer has an unexpected form: {error!r}") from error
    types = {row.type: row for row in known if row.provider == "gcp" and row.ram_gib is not None}
    rows = []
    for row in types.values():
        family = row.type.split("-")[0].upper()
        prices: dict[Market, Price] = {}
        for market in MARKETS.values():
            core, ram = units.get((family, market, "Core")), units.get((family, market, "Ram"))
            if core and ram and row.ram_gib:
                usd = core * row.vcpu + ram * row.ram_gib
                prices[market] = Price(usd, usd, source)
        if prices:
            rows.append(dataclasses.replace(row, region=region, prices=prices))
    return rows


def _client() -> httpx.Client:
    key, token = os.environ.get(KEY), os.environ.get(TOKEN)
    if not key and not token:
        raise RefreshFailed("gcp", f"set {KEY} (an API key) or {TOKEN} (gcloud auth print-access-token)")
    return make_client(
        environment_route(os.environ),
        base_url=BILLING,
        timeout=TIMEOUT_S,
        headers={"Authorization": f"Bearer {token}"} if token else {"X-Goog-Api-Key": key or ""},
    )


def _skus(http: httpx.Client) -> Iterator[Mapping[str, Any]]:
    page = ""
    for _ in range(MOST_PAGES):
        parameters = {"pageSize": "5000"} | ({"pageToken": page} if page else {})
        answer = http.get(f"/v1/services/{COMPUTE_ENGINE}/skus", params=parameters)
        answer.raise_for_status()
        data = answer.json()
        yield from data["skus"]
        page = data.get("nextPageToken", "")
        if not page:
            return
    raise ValueError(f"the answer has more than {MOST_PAGES} pages")


def _unit_prices(skus: Iterable[Mapping[str, Any]], region: str) -> dict[tuple[str, Market, str], float]:
    """Return USD per core-hour and GiB-hour by family and market."""
    found: dict[tuple[str, Market, str], float] = {}
    for sku in skus:
        match = SKU.match(sku["description"])
        market = MARKETS.get(sku["category"]["usageType"])
        if match is None or market is None or region not in sku["serviceRegions"]:
            continue
        expression = sku["pricingInfo"][-1]["pricingExpression"]
        if expression["usageUnit"] != UNITS[match["part"]]:
            continue
        money = expression["tieredRates"][-1]["unitPrice"]
        usd = int(money.get("units", 0)) + money.get("nanos", 0) / 1e9
        if money.get("currencyCode", "USD") == "USD" and usd > 0:
            found[match["family"], market, match["part"]] = usd
    return found


def _without_key(text: str) -> str:
    key = os.environ.get(KEY)
    return text.replace(key, "***") if key else text
