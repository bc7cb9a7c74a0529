"""Refresh of prices from providers' APIs. A failure keeps the former prices."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

from osgym_infra.catalogue.load import read
from osgym_infra.catalogue.rows import Catalogue, HostRow, Price, PriceSource
from osgym_infra.config.providers import Provider, usable
from osgym_infra.errors import BadInput, OsgymInfraError, RefreshFailed

Fetch = Callable[[str, datetime], Iterable[HostRow]]
"""Region and time to rows, or `RefreshFailed`."""

PRICED = tuple(provider for provider in usable() if provider.facts.has_prices)


def fetcher(provider: str, base: Catalogue) -> Fetch:
    """Return the function that asks a provider's price API; its SDK is imported only now.

    Raises:
        BadInput: There is no price API for that provider.
        RefreshFailed: Its SDK is not installed.
    """
    if provider not in PRICED:
        raise BadInput(
            "provider", f"{provider!r} has no price API", f"Prices can be fetched for {', '.join(PRICED)}"
        )
    try:
        prices = Provider(provider).part("prices")
    except ImportError as error:
        raise RefreshFailed(
            provider, f"its SDK is missing ({error.name}): pip install 'osgym-infra[{provider}]'"
        ) from error
    return lambda region, now: prices.fetch(region, now, base.hosts)


def refresh(provider: str, region: str, fetch: Fetch, folder: Path, now: datetime) -> tuple[Path, Catalogue]:
    """Fetch prices, check them by reading them back, and replace the region's file atomically.

    Returns:
        The file, and what it says.

    Raises:
        RefreshFailed: Nothing could be had, or it could not be kept; the old file is as it was.
    """
    rows = tuple(fetch(region, now))
    if not any(row.prices for row in rows):
        raise RefreshFailed(provider, f"the API returned no price for {region}")
    target = folder / f"{provider}-{region}.toml"
    comment = f"Prices of {provider} {region}, fetched {now.isoformat(timespec='seconds')}."
    temporary: Path | None = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=".refresh-", suffix=".tmp")
        temporary = Path(name)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(dump(rows, comment))
        found = read(temporary)
        temporary.replace(target)
    except (OSError, OsgymInfraError) as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise RefreshFailed(provider, f"the prices could not be written to {target}: {error}") from error
    return target, found


def dump(hosts: Iterable[HostRow], comment: str) -> str:
    """Return a catalogue file as TOML: a comment, the sources, the rows."""
    rows = sorted(hosts, key=lambda row: row.key)
    names: dict[PriceSource, str] = {}
    for row in rows:
        for price in row.prices.values():
            names.setdefault(price.source, f"s{len(names) + 1}")
    lines = [*(f"# {line}" for line in comment.splitlines()), "schema = 1", ""]
    for source, name in names.items():
        as_of = source.as_of.isoformat() if source.as_of else _text("undated")
        lines += [f"[sources.{name}]", f"title = {_text(source.title)}", f"as_of = {as_of}"]
        lines += [f"url = {_text(source.url)}"] if source.url else []
        lines.append("")
    for row in rows:
        lines += _row(row, names)
    return "\n".join(lines)


def _row(row: HostRow, names: dict[PriceSource, str]) -> list[str]:
    lines = ["[[host]]"]
    lines += [f"{key} = {_text(getattr(row, key))}" for key in ("provider", "region", "type")]
    lines.append(f"vcpu = {row.vcpu:g}")
    lines += [f"ram_gib = {row.ram_gib:g}"] if row.ram_gib is not None else []
    lines += [f"nvme_gb = {row.nvme_gb:g}"] if row.nvme_gb else []
    lines += [f"threads_per_core = {row.threads_per_core}"] if row.threads_per_core is not None else []
    lines.append(f"kvm = {_text(row.kvm.value)}")
    lines += [f"{market} = {_price(price, names)}" for market, price in row.prices.items()]
    lines += [f"note = {_text(row.note)}"] if row.note else []
    return [*lines, ""]


def _price(price: Price, names: dict[PriceSource, str]) -> str:
    value = (
        f"per_hour = {_number(price.low)}"
        if price.low == price.high
        else f"low = {_number(price.low)}, high = {_number(price.high)}"
    )
    currency = "" if price.currency == "USD" else f", currency = {_text(price.currency)}"
    return f"{{ {value}, source = {_text(names[price.source])}{currency} }}"


def _number(value: float) -> str:
    text = f"{value:.6f}".rstrip("0")
    return text + "0" if text.endswith(".") else text


def _text(value: str) -> str:
    # A JSON string is a TOML basic string, but for the one control character that JSON lets through.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
