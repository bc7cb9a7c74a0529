"""Reading of catalogues: built-in, providers', refreshed, and the user's own."""

from __future__ import annotations

import dataclasses
import math
import os
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date
from importlib import resources
from pathlib import Path
from typing import Any, get_origin, get_type_hints

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
    return (read(user_file).over(found) if user_file else found).sold()


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
        raise BadInput("catalogue", f"{path} is not TOML: {error}") from error
    return parse(data, str(path))


def parse(data: Mapping[str, Any], name: str) -> Catalogue:
    """Make rows of parsed TOML. Unknown keys are errors, so that no misspelt key becomes a default.

    Raises:
        BadInput: Names the file, the row and the key.
    """
    top = _TomlTable(data, name)
    if (schema := top.take("schema", int)) != SCHEMA:
        raise BadInput("catalogue", f"{name} has schema {schema}", f"This version reads schema {SCHEMA}")
    sources: dict[str, PriceSource] = {}
    for key, row in top.take("sources", dict, {}).items():
        table = _TomlTable(row, f"{name}: sources.{key}")
        sources[key] = PriceSource(table.take("title", str), _as_of(table), table.take("url", str, ""))
        table.done()

    def rows(key: str) -> list[_TomlTable]:
        found = enumerate(top.take(key, list, []))
        return [_TomlTable(row, f"{name}: {key}[{number}]", sources) for number, row in found]

    result = Catalogue(
        hosts=tuple(map(_host, rows("host"))),
        storage=tuple(table.row(StorageRow) for table in rows("storage")),
        network=tuple(table.row(NetworkRow) for table in rows("network")),
        references=tuple(table.row(ReferenceRow) for table in rows("reference")),
        files=(name,),
        machines=tuple(map(_machine, rows("machine"))),
    )
    top.done()
    return result


class _TomlTable:
    """TOML table whose keys are taken one by one; a key that is left over is an error."""

    def __init__(self, data: object, name: str, sources: Mapping[str, PriceSource] | None = None) -> None:
        if not isinstance(data, dict):
            raise BadInput("catalogue", f"{name} is not a table")
        self._data, self.name, self.sources = dict(data), name, sources or {}
        self._known: list[str] = []

    def take(self, key: str, kind: Any, default: Any = ...) -> Any:
        """Return the value of a key, checked and converted for a field of that type."""
        self._known.append(key)
        if key not in self._data:
            if default is ...:
                raise BadInput("catalogue", f"{self.name} has no {key}")
            return default
        value = self._data.pop(key)
        good, fits = _judged(kind, value)
        if not good:
            raise BadInput("catalogue", f"{self.name}.{key} is {value!r}", fits)
        return tuple(value) if get_origin(kind) is tuple else Kvm(value) if kind is Kvm else value

    def source(self) -> PriceSource:
        key = self.take("source", str)
        if key not in self.sources:
            known = ", ".join(self.sources)
            raise BadInput("catalogue", f"{self.name}.source {key!r} is not under [sources]", known)
        return self.sources[key]

    def row(self, kind: Any, **known: Any) -> Any:
        """Return a row with a key of the table for each field that is not known; no other key may be left."""
        types = get_type_hints(kind)
        for field in dataclasses.fields(kind):
            if types[field.name] is PriceSource:
                known[field.name] = self.source()
            elif field.name not in known:
                default = ... if field.default is dataclasses.MISSING else field.default
                known[field.name] = self.take(field.name, types[field.name], default)
        self.done()
        return kind(**known)

    def done(self) -> None:
        if self._data:
            raise BadInput(
                "catalogue",
                f"{self.name} has unknown keys: {', '.join(sorted(self._data))}",
                f"Valid keys are {', '.join(self._known)}",
            )


def _judged(kind: Any, value: Any) -> tuple[bool, str]:
    """Return whether a value fits a field's type, and what would fit."""
    if kind in (float, float | None):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and 0 <= value < math.inf, "0 or more"
    if kind is bool:
        return isinstance(value, bool), "true or false"
    if get_origin(kind) is tuple:
        texts = isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)
        return texts, "a list of texts, not empty"
    if kind is Kvm:
        return isinstance(value, str) and value in set(Kvm), " | ".join(Kvm)
    return isinstance(value, kind) and not isinstance(value, bool), ""


def _as_of(table: _TomlTable) -> date | None:
    value = table.take("as_of", date | str)
    if isinstance(value, date):
        return value
    if value == "undated":
        return None
    raise BadInput("catalogue", f"{table.name}.as_of is {value!r}", 'a date like 2026-07-20, or "undated"')


def _host(table: _TomlTable) -> HostRow:
    key = {name: table.take(name, str) for name in ("provider", "region", "type")}
    table.name = f"{table.name} {key['provider']} {key['type']}"
    prices = {
        market: _price(_TomlTable(data, f"{table.name}.{market}", table.sources))
        for market in Market
        if (data := table.take(market.value, dict, None)) is not None
    }
    ram_gib, nvme_gb = table.take("ram_gib", float, None), table.take("nvme_gb", float, 0.0)
    row: HostRow = table.row(HostRow, **key, prices=prices, ram_gib=ram_gib, nvme_gb=nvme_gb)
    if row.threads_per_core is not None and row.threads_per_core < 1:
        raise BadInput("catalogue", f"{table.name}.threads_per_core is {row.threads_per_core}", "1 or more")
    if row.vcpu <= 0 or row.ram_gib == 0:
        raise BadInput("catalogue", f"{table.name} has no vcpu or no ram_gib", "a number above 0")
    return row


def _price(table: _TomlTable) -> Price:
    if (month := table.take("per_month", float, None)) is not None:
        low = high = month / HOURS_PER_MONTH
    elif (hour := table.take("per_hour", float, None)) is not None:
        low = high = hour
    else:
        low, high = table.take("low", float), table.take("high", float)
    if not 0 < low <= high:
        raise BadInput("catalogue", f"{table.name} is {low} to {high}", "0 < low ≤ high")
    price: Price = table.row(Price, low=low, high=high)
    return price


def _machine(table: _TomlTable) -> MachineRow:
    markets = table.take("markets", tuple[str, ...])
    for market in markets:
        if market not in set(Market):
            raise BadInput("catalogue", f"{table.name}.markets has {market!r}", " | ".join(Market))
    row: MachineRow = table.row(MachineRow, markets=frozenset(map(Market, markets)))
    return row
