"""Writing catalogue rows as the TOML that `load` reads. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable

from osgym_infra.catalogue.rows import HostRow, Price, PriceSource


def dump(hosts: Iterable[HostRow], comment: str) -> str:
    """The file's text: a comment, the sources, the rows."""
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
