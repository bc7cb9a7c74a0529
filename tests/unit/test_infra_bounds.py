"""Bounds of a group, types that stand in, zones, and who reaches a host: decided before anything exists."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fleet_configs import AWS, GCP, blueprint

from osgym_infra.config.keys import FleetConfig
from osgym_infra.config.parse import parse
from osgym_infra.errors import BadInput, CannotMeet
from osgym_infra.fleet.bounds import DEARER, MOST_STAND_INS, check_zones
from osgym_infra.fleet.outputs import summary

SPOT = {**AWS, "market": "spot", "replicas": "230"}


def test_a_group_stays_as_large_as_planned_unless_told_otherwise() -> None:
    """Without bounds it neither grows nor shrinks; what is lost comes back."""
    for group in blueprint(SPOT).groups:
        assert (group.least, group.most) == (group.count, group.count)
        assert not group.grows


@given(st.none() | st.integers(1, 30), st.none() | st.integers(1, 30))
def test_bounds_are_of_the_whole_fleet(least: int | None, most: int | None) -> None:
    """They add up to what was asked for, whatever the mix, and the number of now lies between."""
    values = {**AWS, "min_hosts": least, "max_hosts": most}
    values = {name: value for name, value in values.items() if value is not None}
    if least is not None and most is not None and least > most:
        with pytest.raises(BadInput, match="osgym:min_hosts"):
            parse(values)
        return
    planned = sum(group.count for group in blueprint(dict(AWS)).groups)
    groups = blueprint(values).groups
    assert all(0 <= group.least <= group.count <= group.most for group in groups)
    assert sum(group.most for group in groups) == (max(planned, least or 0) if most is None else most)
    assert sum(group.least for group in groups) == (min(planned, most or planned) if least is None else least)


def test_growth_stays_within_the_budget() -> None:
    """The largest fleet is held against it, by the key that asks for it."""
    with pytest.raises(CannotMeet, match="osgym:max_hosts: 40 hosts cost"):
        blueprint({**SPOT, "budget_usd_per_day": "400", "max_hosts": "40"})
    with pytest.raises(CannotMeet, match="osgym:min_hosts: 40 hosts cost"):
        blueprint({**SPOT, "budget_usd_per_day": "400", "min_hosts": "40"})
    assert blueprint({**SPOT, "budget_usd_per_day": "400", "max_hosts": "3"}).groups[0].most == 3


def test_types_stand_in_that_carry_as_much_for_not_much_more() -> None:
    """Same market and region, bounded in number and price; none where one type was asked for."""
    groups = blueprint(SPOT).groups
    assert any(group.stand_ins for group in groups)
    named = r"where there is no [\w.]+: [a-z0-9]+i\.\d+xlarge \([\d.]+ USD/h\)"
    assert re.search(named, summary(blueprint(SPOT)))
    assert "1 to 4 hosts, with the load" in summary(blueprint({**SPOT, "min_hosts": "1", "max_hosts": "4"}))
    for group in groups:
        assert len(group.stand_ins) <= MOST_STAND_INS
        for other in group.stand_ins:
            assert (other.market, other.count) == (group.market, 0)
            assert other.type != group.type
            assert other.replicas >= group.replicas
            assert other.usd_per_hour <= DEARER * group.usd_per_hour
    (only,) = blueprint({**SPOT, "host_type": "r8i.24xlarge"}).groups
    assert only.stand_ins == ()


def test_types_that_stand_in_stay_within_the_budget() -> None:
    """Also when all hosts are of the dearest of them."""
    budget = (blueprint(SPOT).usd_per_day or 0) * 1.05
    for group in blueprint({**SPOT, "budget_usd_per_day": str(budget)}).groups:
        assert all(24 * other.usd_per_hour * group.count <= budget for other in group.stand_ins)


def config(**changes: object) -> FleetConfig:
    """A configuration at AWS."""
    return parse({**AWS, **changes})


def test_hosts_stand_in_zones_that_have_the_type() -> None:
    """All of them by default; a configured zone without it is refused, with those that do."""
    there = ("us-east-1a", "us-east-1c")
    assert check_zones(config(), there, "r8i.24xlarge") == there
    assert check_zones(config(zone="us-east-1c"), there, "r8i.24xlarge") == ("us-east-1c",)
    assert check_zones(config(zones='["us-east-1c"]'), there, "r8i.24xlarge") == ("us-east-1c",)
    with pytest.raises(BadInput, match=r"osgym:zone: us-east-1b does not have r8i.*us-east-1a, us-east-1c"):
        check_zones(config(zone="us-east-1b"), there, "r8i.24xlarge")
    with pytest.raises(BadInput, match="osgym:zones: us-east-1d"):
        check_zones(config(zones=["us-east-1a", "us-east-1d"]), there, "r8i.24xlarge")
    with pytest.raises(BadInput, match="osgym:region: us-east-1 does not have"):
        check_zones(config(), (), "r8i.24xlarge")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"zone": "us-east-1a", "zones": ["us-east-1b"]}, "osgym:zones: cannot be combined with zone"),
        ({"zones": ["us-east-1a", "us-east-1a"]}, "osgym:zones: names a zone twice"),
        ({"zones": ["US East"]}, r"osgym:zones\[0\]"),
        ({"ttl_hours": "0"}, "osgym:ttl_hours"),
        ({"max_hosts": "0"}, "osgym:max_hosts"),
    ],
)
def test_keys_of_rented_hosts_are_checked_together(changes: dict[str, object], says: str) -> None:
    """By name."""
    with pytest.raises(BadInput, match=says):
        config(**changes)


@pytest.mark.parametrize("base", [AWS, GCP], ids=["aws", "gcp"])
def test_nobody_is_let_in_who_can_never_come(base: dict[str, object]) -> None:
    """Hosts named by public addresses are not reached from networks that the internet does not carry."""
    # Hosts at Google Cloud get IPv4 addresses: there networks of IPv6 alone are refused as such.
    six = ("fd00::/8",) if base is AWS else ()
    for cidr in ("10.0.0.0/8", "172.20.0.0/16", "192.168.1.0/24", "100.64.0.0/10", *six):
        with pytest.raises(
            BadInput, match="osgym:allowed_cidrs: clients reach the hosts at public addresses"
        ):
            parse({**base, "allowed_cidrs": [cidr]})
        assert parse({**base, "allowed_cidrs": [cidr], "private": "true"}).private
    for good in (["203.0.113.0/24"], ["10.0.0.0/8", "198.51.100.7/32"], ["198.51.100.7/32", "2001:db8::/32"]):
        assert parse({**base, "allowed_cidrs": good})
