"""Reading of catalogues: built-in, providers', refreshed, and the user's own."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date
from importlib import resources
from pathlib import Path
from typing import Any

from osgym_infra.catalogue.machines import sold
from osgym_infra.catalogue.rows import (
    Catalogue,
    HostRow,
    MachineRow,
    NetworkRow,
    Price,
    PriceSource,
    ReferenceRow,
    StorageRow,
)
from osgym_infra.catalogue.shapes import HOURS_PER_MONTH, Kvm, Market
from osgym_infra.errors import BadInput
from osgym_protocol.plugins import PluginError, PluginGroup, load_plugin, plugin_names

SCHEMA = 1
SHIPPED = ("hosts.toml", "regions.toml", "machines.toml")


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of refreshed prices: `$OSGYM_CATALOGUE_DIR`, else below `$XDG_DATA_HOME`."""
    if chosen := environ.get("OSGYM_CATALOGUE_DIR"):
        return Path(chosen)
    return Path(environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "osgym" / "catalogue"


def load(user_file: Path | None = None, folder: Path | None = None) -> Catalogue:
    """The shipped catalogue, what was refreshed laid over it, and the user's file over both; without prices
    of markets that a type is not sold in.

    Args:
        user_file: TOML in the shipped file's format; its rows and prices win. Default: `$OSGYM_CATALOGUE`.
        folder: Folder of refreshed prices; default `cache_folder()`.

    Raises:
        BadInput: A file cannot be read, or has an unknown key or an impossible value.
    """
    found = Catalogue()
    for name in SHIPPED:
        shipped = resources.files("osgym_infra.catalogue") / "data" / name
        found = parse(tomllib.loads(shipped.read_text("utf-8")), f"built in: {name}").over(found)
    for name, text in _of_providers():
        found = parse(tomllib.loads(text), name).over(found)
    for path in sorted((folder or cache_folder()).glob("*.toml")):
        found = read(path).over(found)
    if user_file is None and (named := os.environ.get("OSGYM_CATALOGUE")):
        user_file = Path(named)
    found = read(user_file).over(found) if user_file else found
    return sold(found)


def _of_providers() -> Iterator[tuple[str, str]]:
    """Name and text of each `catalogue.toml` in a provider's package; a broken package has none."""
    for name in plugin_names(PluginGroup.PROVIDERS):
        try:
            found = resources.files(load_plugin(PluginGroup.PROVIDERS, name)) / "catalogue.toml"
        except PluginError:
            continue
        if found.is_file():
            yield f"{name}: {found.name}", found.read_text("utf-8")


def read(path: Path) -> Catalogue:
    """Read one catalogue file.

    Raises:
        BadInput: It cannot be read, is no TOML, or says something impossible.
    """
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput("catalogue", f"{path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput("catalogue", f"{path} is no TOML: {error}") from error
    return parse(data, str(path))


def parse(data: Mapping[str, Any], name: str) -> Catalogue:
    """Make rows of parsed TOML. Unknown keys are errors, so that no misspelt key becomes a default.

    Raises:
        BadInput: Names the file, the row and the key.
    """
    top = _TomlTable(data, name)
    if (schema := top.take("schema", int)) != SCHEMA:
        raise BadInput("catalogue", f"{name} has schema {schema}", f"this version reads {SCHEMA}")
    sources: dict[str, PriceSource] = {}
    for key, row in top.take("sources", dict, {}).items():
        table = _TomlTable(row, f"{name}: sources.{key}")
        sources[key] = PriceSource(table.take("title", str), _as_of(table), table.take("url", str, ""))
        table.done()
    result = Catalogue(
        hosts=tuple(_host(t, sources) for t in _rows(top, "host", name)),
        storage=tuple(_storage(t, sources) for t in _rows(top, "storage", name)),
        network=tuple(_network(t, sources) for t in _rows(top, "network", name)),
        references=tuple(_reference(t, sources) for t in _rows(top, "reference", name)),
        files=(name,),
        machines=tuple(_machine(t, sources) for t in _rows(top, "machine", name)),
    )
    top.done()
    return result


class _TomlTable:
    """TOML table whose keys are taken one by one; a key that is left over is an error."""

    def __init__(self, data: object, name: str) -> None:
        if not isinstance(data, dict):
            raise BadInput("catalogue", f"{name} is not a table")
        self._data, self.name = dict(data), name
        self._known: list[str] = []

    def take(self, key: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:
        self._known.append(key)
        if key not in self._data:
            if default is ...:
                raise BadInput("catalogue", f"{self.name} has no {key}")
            return default
        value = self._data.pop(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise BadInput("catalogue", f"{self.name}.{key} is {value!r}")
        return value

    def number(self, key: str, default: Any = ...) -> Any:
        value = self.take(key, (int, float), default)
        if value is not default and not 0 <= value < float("inf"):
            raise BadInput("catalogue", f"{self.name}.{key} is {value}", "0 or more")
        return value

    def flag(self, key: str) -> bool:
        self._known.append(key)
        value = self._data.pop(key, None)
        if not isinstance(value, bool):
            raise BadInput("catalogue", f"{self.name}.{key} is {value!r}", "true or false")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.take(key, list)
        if not value or not all(isinstance(item, str) for item in value):
            raise BadInput("catalogue", f"{self.name}.{key} is {value!r}", "a list of texts, not empty")
        return tuple(value)

    def done(self) -> None:
        if self._data:
            raise BadInput(
                "catalogue",
                f"{self.name} has unknown keys: {', '.join(sorted(self._data))}",
                f"Known are {', '.join(self._known)}",
            )


def _rows(top: _TomlTable, key: str, name: str) -> list[_TomlTable]:
    return [_TomlTable(row, f"{name}: {key}[{i}]") for i, row in enumerate(top.take(key, list, []))]


def _as_of(table: _TomlTable) -> date | None:
    value = table.take("as_of", (date, str))
    if isinstance(value, date):
        return value
    if value == "undated":
        return None
    raise BadInput("catalogue", f"{table.name}.as_of is {value!r}", 'a date like 2026-07-20, or "undated"')


def _source(table: _TomlTable, sources: Mapping[str, PriceSource]) -> PriceSource:
    key = table.take("source", str)
    if key not in sources:
        raise BadInput("catalogue", f"{table.name}.source {key!r} is not under [sources]", ", ".join(sources))
    return sources[key]


def _host(table: _TomlTable, sources: Mapping[str, PriceSource]) -> HostRow:
    prices: dict[Market, Price] = {}
    provider, region, kind = (table.take(key, str) for key in ("provider", "region", "type"))
    table.name = f"{table.name} {provider} {kind}"
    for market in Market:
        if (data := table.take(market.value, dict, None)) is not None:
            prices[market] = _price(_TomlTable(data, f"{table.name}.{market}"), sources)
    kvm = table.take("kvm", str)
    if kvm not in set(Kvm):
        raise BadInput("catalogue", f"{table.name}.kvm is {kvm!r}", " | ".join(Kvm))
    row = HostRow(
        provider, region, kind, table.number("vcpu"), table.number("ram_gib", None),
        table.number("nvme_gb", 0.0), Kvm(kvm), prices, table.take("note", str, ""),
        table.take("threads_per_core", int, None),
    )  # fmt: skip
    table.done()
    if row.threads_per_core is not None and row.threads_per_core < 1:
        raise BadInput("catalogue", f"{table.name}.threads_per_core is {row.threads_per_core}", "1 or more")
    if row.vcpu <= 0 or row.ram_gib == 0:
        raise BadInput("catalogue", f"{table.name} has no vcpu or no ram_gib", "a number above 0")
    return row


def _price(table: _TomlTable, sources: Mapping[str, PriceSource]) -> Price:
    source, currency = _source(table, sources), table.take("currency", str, "USD")
    if (month := table.number("per_month", None)) is not None:
        low = high = month / HOURS_PER_MONTH
    elif (hour := table.number("per_hour", None)) is not None:
        low = high = hour
    else:
        low, high = table.number("low"), table.number("high")
    table.done()
    if not 0 < low <= high:
        raise BadInput("catalogue", f"{table.name} is {low} to {high}", "0 < low ≤ high")
    return Price(low, high, source, currency)


def _storage(table: _TomlTable, sources: Mapping[str, PriceSource]) -> StorageRow:
    row = StorageRow(
        table.take("provider", str), table.take("region", str), table.take("name", str),
        table.number("usd_per_gib_month"), _source(table, sources),
    )  # fmt: skip
    table.done()
    return row


def _network(table: _TomlTable, sources: Mapping[str, PriceSource]) -> NetworkRow:
    row = NetworkRow(
        table.take("provider", str), table.take("region", str), _source(table, sources),
        table.number("egress_usd_per_gb", None), table.number("ip_usd_per_hour", None),
        table.number("region_usd_per_gb", None),
    )  # fmt: skip
    table.done()
    return row


def _machine(table: _TomlTable, sources: Mapping[str, PriceSource]) -> MachineRow:
    markets = table.texts("markets")
    for market in markets:
        if market not in set(Market):
            raise BadInput("catalogue", f"{table.name}.markets has {market!r}", " | ".join(Market))
    row = MachineRow(
        table.take("provider", str), table.texts("types"), table.texts("disks"), table.texts("cards"),
        frozenset(Market(market) for market in markets), table.texts("maintenance"), table.flag("nesting"),
        _source(table, sources), table.take("image", str, ""), table.take("note", str, ""),
    )  # fmt: skip
    table.done()
    return row


def _reference(table: _TomlTable, sources: Mapping[str, PriceSource]) -> ReferenceRow:
    row = ReferenceRow(
        table.take("name", str), table.number("usd_per_replica_day"), _source(table, sources),
        table.take("note", str, ""),
    )  # fmt: skip
    table.done()
    return row
