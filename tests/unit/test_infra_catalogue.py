"""The catalogue: what comes along, laying files over it, age, and what is refused."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_infra.catalogue.ages import age_lines
from osgym_infra.catalogue.load import SHIPPED, cache_folder, load, parse, read
from osgym_infra.catalogue.rows import Catalogue, HostRow, Price, PriceSource
from osgym_infra.catalogue.shapes import Kvm, Market
from osgym_infra.errors import BadInput
from osgym_infra.providers.refresh import dump

MINE = """
schema = 1
[sources.me]
title = "my contract"
as_of = 2026-11-01
[[host]]
provider = "aws"
region = "us-east-1"
type = "r8i.24xlarge"
vcpu = 96
ram_gib = 768
kvm = "nested"
spot = { low = 1.0, high = 1.5, source = "me" }
[[host]]
provider = "own"
region = "cellar"
type = "box"
vcpu = 32
ram_gib = 256
kvm = "metal"
dedicated = { per_month = 73.0, source = "me" }
"""
MACHINE = """
schema = 1
[sources.me]
title = "my contract"
as_of = 2026-11-01
[[machine]]
provider = "gcp"
types = ["m3-*"]
disks = ["pd-ssd"]
cards = ["GVNIC"]
markets = ["on_demand", "spot"]
maintenance = ["TERMINATE"]
nesting = false
source = "me"
"""


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A folder without refreshed prices."""
    return tmp_path / "none"


def by_type(catalogue: Catalogue, name: str) -> HostRow:
    """The row of a type, of the first region that has it."""
    return next(row for row in catalogue.hosts if row.type == name)


def test_what_comes_along_names_its_sources(empty: Path) -> None:
    """Every price has a source with a title; ranges are ranges; unconfirmed KVM is unknown, with a note."""
    found = load(folder=empty)
    assert {row.provider for row in found.hosts} == {"aws", "gcp", "hetzner", "latitude"}
    prices = [price for row in found.hosts for price in row.prices.values()]
    assert all(price.source.title for price in prices)
    assert (by_type(found, "r8i.24xlarge").prices[Market.SPOT].low, by_type(found, "r8i.24xlarge").kvm) == (
        1.8916,
        Kvm.NESTED,
    )
    assert by_type(found, "r8i.24xlarge").prices[Market.SPOT].source.as_of is None
    assert Market.SPOT not in by_type(found, "r6i.metal").prices
    assert by_type(found, "c3-highmem-176").kvm is Kvm.UNKNOWN
    assert by_type(found, "c3-highmem-176").note
    assert by_type(found, "m1-megamem-96").kvm is Kvm.NONE
    assert {r.name for r in found.references} >= {"OSGym paper, one replica per host"}
    assert len({row.key for row in found.hosts}) == len(found.hosts)


def test_on_demand_prices_follow_the_size() -> None:
    """A check against slips of the pen: within r8i, n2-highmem and so on USD per vCPU-h is the same."""
    families: dict[tuple[str, str, str], list[float]] = {}
    for row in load(folder=Path("/nowhere")).hosts:
        family = row.type.split(".")[0] if row.provider == "aws" else row.type.rpartition("-")[0]
        price = row.prices.get(Market.ON_DEMAND)
        if price and "metal" not in row.type and row.type != "n2-highmem-128":  # less memory per core
            families.setdefault((row.provider, row.region, family), []).append(price.high / row.vcpu)
    assert len(families) >= 6
    for family, each in families.items():
        assert max(each) == pytest.approx(min(each), rel=0.001), family


def test_each_cloud_has_three_regions_with_spot_below_on_demand(empty: Path) -> None:
    """Spot and on demand stand beside each other in the first region of each cloud and in two more at least;
    spot is a discount everywhere, and every source has a page."""
    found = load(folder=empty)
    for provider, regions in (
        ("aws", {"us-east-1", "us-east-2", "us-west-2", "eu-central-1"}),
        ("gcp", {"us-central1", "europe-west4", "us-east4"}),
    ):
        rows = [row for row in found.hosts if row.provider == provider and Market.SPOT in row.prices]
        assert {row.region for row in rows} == regions
        for row in rows:
            assert row.prices[Market.SPOT].high < row.prices[Market.ON_DEMAND].high, row.key
            assert all(price.source.url.startswith("https://") for price in row.prices.values())


def test_two_sources_agree_on_what_aws_asks_on_demand(empty: Path) -> None:
    """us-west-2 costs what us-east-1 does, and the two prices are of different files: no slip in copying."""
    prices = {row.key: row.prices.get(Market.ON_DEMAND) for row in load(folder=empty).hosts}
    both = [kind for provider, region, kind in prices if (provider, region) == ("aws", "us-west-2")]
    assert len(both) >= 15
    for kind in both:
        west, east = prices["aws", "us-west-2", kind], prices["aws", "us-east-1", kind]
        assert west and east, kind
        assert west.source != east.source
        assert west.high == pytest.approx(east.high, rel=1e-4), kind


def test_a_file_of_ones_own_wins_price_by_price(tmp_path: Path, empty: Path) -> None:
    """The spot price is replaced, the on-demand price stays, a new row is added."""
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    found = load(path, folder=empty)
    row = by_type(found, "r8i.24xlarge")
    assert (row.prices[Market.SPOT].high, row.prices[Market.SPOT].source.title) == (1.5, "my contract")
    assert row.prices[Market.ON_DEMAND].high == pytest.approx(6.66816)
    assert by_type(found, "box").prices[Market.DEDICATED].high == pytest.approx(0.1)
    assert found.files == (*(f"built in: {name}" for name in SHIPPED), str(path))


def test_refreshed_prices_lie_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Built in, then the cache folder, then the user's file."""
    monkeypatch.setenv("OSGYM_CATALOGUE_DIR", str(tmp_path / "cache"))
    cache_folder().mkdir()
    (cache_folder() / "aws-us-east-1.toml").write_text(MINE.replace("high = 1.5", "high = 2.0"))
    assert by_type(load(), "r8i.24xlarge").prices[Market.SPOT].high == 2.0
    own = tmp_path / "own.toml"
    own.write_text(MINE)
    monkeypatch.setenv("OSGYM_CATALOGUE", str(own))
    assert by_type(load(), "r8i.24xlarge").prices[Market.SPOT].high == 1.5


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("vcpu = 96", "vcpus = 96"), "vcpu"),
        (('kvm = "nested"', 'kvm = "yes"'), "metal | nested | none | unknown"),
        (("low = 1.0", "low = 2.0"), "low ≤ high"),
        (('source = "me" }', 'source = "you" }'), "'you'"),
        (("as_of = 2026-11-01", 'as_of = "long ago"'), "undated"),
        (("schema = 1", "schema = 7"), "schema 7"),
        (("ram_gib = 768", "ram_gib = -1"), "ram_gib"),
        (("[[host]]", "[[hosts]]"), "hosts"),
        (("schema = 1", "schema 1"), "is not TOML"),
    ],
)
def test_a_slip_in_a_file_is_named(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    """File, row and key, or what would be right."""
    path = tmp_path / "mine.toml"
    path.write_text(MINE.replace(change[0], change[1], 1))
    with pytest.raises(BadInput) as refused:
        read(path)
    assert str(path) in str(refused.value)
    assert says in str(refused.value)


def test_other_currencies_need_a_rate(empty: Path) -> None:
    """Euro prices are left out with a word, or converted."""
    found = load(folder=empty)
    usd, left_out = found.in_usd({})
    assert not by_type(usd, "AX162-R").prices
    assert "--rate EUR" in left_out[0]
    usd, left_out = found.in_usd({"EUR": 1.2})
    assert by_type(usd, "AX162-R").prices[Market.DEDICATED].high == pytest.approx(238 * 1.2 / 730)
    assert not left_out


def test_old_and_undated_sources_are_stale() -> None:
    """30 days are fine, 31 are not, undated never is; each source is listed once, undated first."""
    fresh, old = PriceSource("a", date(2026, 11, 1)), PriceSource("b", date(2026, 10, 31))
    lines, warnings = age_lines([fresh, old, fresh, PriceSource("c", None)], date(2026, 12, 1))
    assert lines == [
        "c: undated", "b: as of 2026-10-31, 31 days old", "a: as of 2026-11-01, 30 days old",
    ]  # fmt: skip
    assert [one.split(":")[0] for one in warnings] == ["c is undated", "b is 31 days old"]


texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=20)
sources = st.builds(PriceSource, texts, st.none() | st.dates(date(2000, 1, 1), date(2100, 1, 1)), st.just(""))
amounts = st.integers(1, 10**9).map(lambda n: n / 10**6)
prices = st.builds(lambda a, b, s: Price(min(a, b), max(a, b), s), amounts, amounts, sources)
rows = st.builds(
    HostRow,
    provider=texts,
    region=texts,
    type=texts,
    vcpu=st.integers(1, 1000).map(float),
    ram_gib=st.none() | st.integers(1, 10000).map(float),
    nvme_gb=st.integers(0, 100000).map(float),
    kvm=st.sampled_from(Kvm),
    prices=st.dictionaries(st.sampled_from(Market), prices, max_size=3),
    note=st.just("") | texts,
)


@given(st.lists(rows, max_size=5, unique_by=lambda row: row.key))
def test_what_is_written_is_read_back(hosts: list[HostRow]) -> None:
    """Whatever the names hold."""
    import tomllib

    found = parse(tomllib.loads(dump(hosts, "two\nlines")), "written")
    assert sorted(found.hosts, key=lambda r: r.key) == sorted(hosts, key=lambda r: r.key)


def test_what_is_not_sold_is_not_planned_with(tmp_path: Path, empty: Path) -> None:
    """Price lists have spot prices of C3 metal and M3, which nobody can buy; a file of one's own decides."""
    found = load(folder=empty)
    for name in ("c3-highmem-192-metal", "c3-standard-192-metal", "c4-highmem-288-metal", "m3-megamem-128"):
        row = by_type(found, name)
        assert set(row.prices) == {Market.ON_DEMAND}, name
        assert "not sold as spot" in row.note
    assert Market.SPOT in by_type(found, "n2-highmem-80").prices
    path = tmp_path / "mine.toml"
    path.write_text(MACHINE)
    assert Market.SPOT in by_type(load(path, folder=empty), "m3-megamem-128").prices


def test_every_type_of_google_cloud_says_what_can_be_asked_for(empty: Path) -> None:
    """Disk, card, markets and maintenance of each, with a source that has a date."""
    found = load(folder=empty)
    rows = [row for row in found.hosts if row.provider == "gcp"]
    for row in rows:
        machine = found.machine("gcp", row.type)
        assert machine is not None, row.type
        assert machine.source.as_of, row.type
        assert machine.nesting == (row.kvm in {Kvm.NESTED, Kvm.UNKNOWN}), row.type
    n4, metal = (
        found.machine("gcp", "n4-highmem-80"),
        found.machine("gcp", "c3-x-metal"),
    )
    assert n4 is not None
    assert n4.disks == ("hyperdisk-balanced",)
    assert metal is not None
    assert (metal.cards, metal.maintenance) == (("IDPF",), ("TERMINATE",))
    assert "ubuntu-2404" in metal.image


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('markets = ["on_demand", "spot"]', 'markets = ["on_demand", "sport"]', "markets has 'sport'"),
        ("nesting = false", 'nesting = "no"', "nesting is 'no'"),
        ('disks = ["pd-ssd"]', "disks = []", "disks is []"),
        ('source = "me"', 'sauce = "me"', "has no source"),
    ],
)
def test_a_mistake_in_a_machine_names_its_key(old: str, new: str, says: str, tmp_path: Path) -> None:
    """A file of one's own is read as strictly as prices are."""
    path = tmp_path / "mine.toml"
    path.write_text(MACHINE.replace(old, new))
    with pytest.raises(BadInput, match=re.escape(says)):
        read(path)
