"""Asking providers for today's prices. A failure leaves what was there before."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

from osgym_infra.catalogue.load import read
from osgym_infra.catalogue.rows import Catalogue, HostRow
from osgym_infra.catalogue.write import dump
from osgym_infra.config.providers import Provider, usable
from osgym_infra.errors import BadInput, OsgymInfraError, RefreshFailed

Fetch = Callable[[str, datetime], Iterable[HostRow]]
"""Region and time to rows, or `RefreshFailed`."""

PRICED = tuple(provider for provider in usable() if provider.facts.has_prices)


def fetcher(provider: str, base: Catalogue) -> Fetch:
    """The adapter of a provider; its SDK is imported only now.

    Raises:
        BadInput: there is no price API for that provider.
        RefreshFailed: its SDK is not installed.
    """
    if provider not in PRICED:
        raise BadInput("provider", f"there is no price API for {provider!r}", " | ".join(PRICED))
    try:
        prices = Provider(provider).part("prices")
    except ImportError as error:
        raise RefreshFailed(
            provider, f"its SDK is missing ({error.name}): pip install 'osgym-infra[{provider}]'"
        ) from error
    return lambda region, now: prices.fetch(region, now, base.hosts)


def refresh(provider: str, region: str, fetch: Fetch, folder: Path, now: datetime) -> tuple[Path, Catalogue]:
    """Fetches, checks by reading back, and replaces the file of that provider's region in one step.

    Returns:
        The file, and what it says.

    Raises:
        RefreshFailed: nothing could be had, or it could not be kept; the old file is as it was.
    """
    rows = tuple(fetch(region, now))
    if not any(row.prices for row in rows):
        raise RefreshFailed(provider, f"the API named no price for {region}")
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
        raise RefreshFailed(provider, f"the prices could not be kept in {target}: {error}") from error
    return target, found
