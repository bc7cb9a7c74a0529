"""A stack's configuration: what is taken, what is refused by name, and what hosts come of it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fleet_configs import AWS, GCP, SSH, blueprint

from osgym_infra.catalogue.shapes import Market
from osgym_infra.config.keys import KEYS, EgressPolicy, FleetConfig
from osgym_infra.config.parse import parse
from osgym_infra.config.providers import Provider, installed
from osgym_infra.config.ssh_hosts import SshHost, SshLogin
from osgym_infra.cost.model import QEMU
from osgym_infra.errors import BadInput, CannotMeet, OsgymInfraError

WHOLE_BY_QUARTERS = json.dumps([f"{first}.0.0.0/2" for first in (0, 64, 128, 192)])


def test_texts_become_what_they_mean() -> None:
    """As Pulumi hands them over: numbers, lists and choices are texts."""
    config = parse(
        {**AWS, "market": "spot", "budget_usd_per_day": "300", "protect": "true", "p95_ms": "900.5"}
    )
    assert (config.provider, config.market, config.runtime) == (Provider("aws"), Market.SPOT, QEMU)
    assert (config.replicas, config.budget_usd_per_day, config.protect) == (1024, 300.0, True)
    assert (config.allowed_cidrs, config.region, config.agent_port) == (
        ("203.0.113.0/24",),
        "us-east-1",
        20000,
    )
    assert config.egress is EgressPolicy.NONE
    assert parse(GCP).region == "us-central1"


def test_own_machines_are_named_in_several_ways() -> None:
    """A text, a text with a user, an object."""
    hosts = ["local", "ops@10.0.0.5", {"address": "h3", "port": 2222, "max_replicas": 50}]
    assert parse({**SSH, "hosts": hosts}).hosts == (
        SshHost("local"),
        SshHost("10.0.0.5", user="ops"),
        SshHost("h3", port=2222, max_replicas=50),
    )
    by_jump = [
        {"address": "h1"},
        {"address": "h2", "jump": "direct"},
        {"address": "h3", "jump": "me@b2"},
        "local",
    ]
    config = parse({**SSH, "hosts": by_jump, "jump": '{"address": "ops@b1", "port": 2222}'})
    assert [host.jump_of(config.jump) for host in config.hosts] == [
        SshLogin("b1", 2222, "ops"),
        None,
        SshLogin("b2", user="me"),
        None,
    ]
    alone = {name: value for name, value in SSH.items() if name != "allowed_cidrs"}
    assert parse({**alone, "hosts": ["local"]}).allowed_cidrs == ()


@pytest.mark.parametrize(
    ("text", "of_one", "of_ten"),
    [("1", 1, 1), ("3", 1, 3), ("25%", 1, 2), ("1%", 1, 1), ("100%", 1, 10), (20, 1, 10)],
)
def test_how_many_hosts_may_be_away_at_a_time(text: object, of_one: int, of_ten: int) -> None:
    """A number or a part, rounded down; never none, never more than there are."""
    for base in (AWS, GCP, SSH):
        found = parse({**base, "max_unavailable": text}).max_unavailable
        assert (found.of(1), found.of(10)) == (of_one, of_ten)
    assert str(found) == str(text), "as it was written"


@pytest.mark.parametrize(
    ("base", "change", "field", "fits"),
    [
        (AWS, {"replcas": "5"}, "replcas", "Did you mean replicas?"),
        (AWS, {"colour": "red"}, "colour", "Valid keys are provider"),
        (AWS, {"provider": "azure"}, "provider", "aws | gcp | ssh"),
        (AWS, {"replicas": "many"}, "replicas", "whole number"),
        (AWS, {"replicas": "0"}, "replicas", "1 to"),
        (AWS, {"owner": "The Lab"}, "owner", "small letters"),
        (AWS, {"market": "reserved"}, "market", "on-demand | spot"),
        (AWS, {"market": "dedicated"}, "market", "provider: ssh"),
        (AWS, {"image_digest": "latest"}, "image_digest", "64 hexadecimal"),
        (AWS, {"image_uri": "ftp://x"}, "image_uri", "s3://"),
        (AWS, {"allowed_cidrs": '["0.0.0.0/0"]'}, "allowed_cidrs", "the networks your trainers"),
        (AWS, {"allowed_cidrs": '["::/0"]'}, "allowed_cidrs", "the networks your trainers"),
        (AWS, {"allowed_cidrs": "10.0.0.0/8"}, "allowed_cidrs", "["),
        (AWS, {"allowed_cidrs": "[]"}, "allowed_cidrs", "the networks your trainers"),
        (AWS, {"allowed_cidrs": '["10.0.0.1/8"]'}, "allowed_cidrs", "e.g. 203.0.113.0/24"),
        (AWS, {"agent_port": "80"}, "agent_port", "1024"),
        (AWS, {"budget_usd_per_day": "nan"}, "budget_usd_per_day", "above 0"),
        (AWS, {"shared": "1"}, "shared", "0.99"),
        (AWS, {"max_unavailable": "0"}, "max_unavailable", "1% to 100%"),
        (AWS, {"max_unavailable": "101%"}, "max_unavailable", "1% to 100%"),
        (SSH, {"max_unavailable": "half"}, "max_unavailable", "1 to 10000 hosts"),
        (SSH, {"drain_timeout_s": "-1"}, "drain_timeout_s", "from 0 to 172800"),
        (AWS, {"protect": "yes"}, "protect", "true | false"),
        (AWS, {"egress": "allowlist"}, "egress_allowlist", "egress: none"),
        (AWS, {"egress_allowlist": '["a.org"]'}, "egress_allowlist", "egress: allowlist"),
        (AWS, {"network_id": "vpc-1"}, "subnet_id", "both"),
        (AWS, {"hosts": '["local"]'}, "hosts", "to ssh"),
        (AWS, {"project": "my-project"}, "project", "to gcp"),
        (AWS, {"rotation": "1"}, "rotation", "to ssh"),
        (AWS, {"zone": "eu-west-1a"}, "zone", "us-east-1a"),
        (AWS, {"zone": "us-east-1"}, "zone", "us-east-1a"),
        (AWS, {"region": "us-west-2", "zone": "us-east-1a"}, "zone", "us-west-2a"),
        (AWS, {"zone": "us-east-12a"}, "zone", "us-east-1a"),
        (AWS, {"zones": '["us-east-1a", "us-west-2b"]'}, "zones", "us-east-1a"),
        (GCP, {"zone": "europe-west4-a"}, "zone", "us-central1-a"),
        (GCP, {"zone": "us-central1a"}, "zone", "us-central1-a"),
        (AWS, {"image_uri": "gs://golden/full.tar"}, "image_uri", "s3://"),
        (AWS, {"agent_uri": "file:///srv/agent.tar"}, "agent_uri", "s3://"),
        (GCP, {"image_uri": "s3://golden/full.tar"}, "image_uri", "gs://"),
        (GCP, {"agent_uri": "file:///srv/agent.tar"}, "agent_uri", "gs://"),
        (AWS, {"host_image": "the newest one"}, "host_image", "ami-0123456789abcdef0"),
        (AWS, {"host_image": "ami-12"}, "host_image", "auto"),
        (AWS, {"host_image": "osgym-host-0123abcd"}, "host_image", "auto"),
        (GCP, {"host_image": "ami_0123456789abcdef0"}, "host_image", "projects/PROJECT"),
        (GCP, {"host_image": "projects/my-project/images/x"}, "host_image", "projects/PROJECT"),
        (GCP, {"allowed_cidrs": '["2001:db8::/32"]'}, "allowed_cidrs", "Add IPv4 networks"),
        (AWS, {"allowed_cidrs": WHOLE_BY_QUARTERS}, "allowed_cidrs", "the networks your trainers"),
        (GCP, {"allowed_cidrs": WHOLE_BY_QUARTERS}, "allowed_cidrs", "the networks your trainers"),
        (SSH, {"allowed_cidrs": WHOLE_BY_QUARTERS}, "allowed_cidrs", "the networks your trainers"),
        (AWS, {"allowed_cidrs": '["0.0.0.0/1", "128.0.0.0/1"]'}, "allowed_cidrs", "the networks your"),
        (AWS, {"allowed_cidrs": '["128.0.0.0/1"]'}, "allowed_cidrs", "the networks your trainers"),
        (AWS, {"allowed_cidrs": '["2000::/3"]'}, "allowed_cidrs", "the networks your trainers"),
        (AWS, {"allowed_cidrs": '["2000::/4", "3000::/5"]'}, "allowed_cidrs", "the networks your trainers"),
        (AWS, {"allowed_cidrs": '["8000::/1", "::/1"]'}, "allowed_cidrs", "the networks your trainers"),
        (SSH, {"market": "spot"}, "market", "to aws, gcp"),
        (SSH, {"hosts": '["local"]'}, "allowed_cidrs", "Leave it out"),
        (SSH, {"hosts": "[]"}, "hosts", "local"),
        (SSH, {"hosts": '["a b"]'}, "hosts[0].address", "a name or an IP address"),
        (SSH, {"hosts": '[{"address": "h", "jump": {"host": "b"}}]'}, "hosts[0].jump", "keys are address"),
        (SSH, {"jump": '{"adress": "b"}'}, "jump", "Valid keys are address"),
        (SSH, {"jump": '["b"]'}, "jump.address", "a name or an IP address"),
        (SSH, {"jump": "local"}, "jump", "a bastion, or direct"),
        (AWS, {"jump": "b"}, "jump", "to ssh"),
        (SSH, {"hosts": '[{"adress": "h"}]'}, "hosts[0]", "address"),
        (SSH, {"hosts": '["h", "h"]'}, "hosts", "once"),
        (SSH, {"hosts": '[{"address": "h", "port": 0}]'}, "hosts[0].port", "65535"),
        (SSH, {"hosts": '["-oProxyCommand=x"]'}, "hosts[0].address", "a name or an IP address"),
    ],
)
def test_a_slip_is_refused_by_its_key(
    base: dict[str, object], change: dict[str, object], field: str, fits: str
) -> None:
    """The key with its namespace, and what would fit."""
    with pytest.raises(BadInput) as refused:
        parse({**base, **change})
    assert refused.value.field == f"osgym:{field}"
    assert fits in refused.value.fits, refused.value


@pytest.mark.parametrize(
    ("base", "change"),
    [
        (AWS, {"zone": "us-east-1f"}),
        (AWS, {"zone": "us-east-1-bos-1a"}),
        (AWS, {"host_image": "ami-0123456789abcdef0"}),
        (AWS, {"host_image": "auto", "image_uri": "https://archives.example.org/full.tar"}),
        (AWS, {"allowed_cidrs": '["203.0.113.0/24", "2001:db8::/32"]'}),
        (AWS, {"allowed_cidrs": '["0.0.0.0/2", "203.0.113.0/24", "2001:db8::/32"]'}),
        (GCP, {"zone": "us-central1-f"}),
        (GCP, {"zone": "us-central1-ai1a"}),
        (GCP, {"host_image": "osgym-host-0123abcd"}),
        (GCP, {"host_image": "projects/debian-cloud/global/images/family/debian-12"}),
        (GCP, {"host_image": "debian-cloud/debian-12"}),
        (GCP, {"allowed_cidrs": '["203.0.113.0/24", "2001:db8::/32"]'}),
        (SSH, {"agent_uri": "s3://golden/agent.tar", "image_uri": "gs://golden/full.tar"}),
    ],
)
def test_what_clouds_take_is_taken(base: dict[str, object], change: dict[str, object]) -> None:
    """The other side of the refusals."""
    parse({**base, **change})


@pytest.mark.parametrize(
    ("base", "beside", "field", "fits"),
    [
        (AWS, {"aws:region": "eu-west-1"}, "aws:region", "pulumi config set osgym:region eu-west-1"),
        (AWS, {"AWS_REGION": "eu-west-1"}, "AWS_REGION", "pulumi config set aws:region us-east-1"),
        (AWS, {"AWS_DEFAULT_REGION": "eu-west-1"}, "AWS_DEFAULT_REGION", "osgym:region"),
        (GCP, {"gcp:project": "another"}, "gcp:project", "pulumi config set gcp:project my-project"),
        (GCP, {"gcp:region": "europe-west4"}, "gcp:region", "pulumi config set gcp:region us-central1"),
        (GCP, {"gcp:zone": "us-central1-b"}, "gcp:zone", "pulumi config set osgym:zone us-central1-b"),
    ],
)
def test_the_clouds_own_provider_is_not_told_otherwise(
    base: dict[str, object], beside: dict[str, object], field: str, fits: str
) -> None:
    """Whatever it would take: its key, or the variable that it reads where there is none."""
    with pytest.raises(BadInput) as refused:
        parse(base, beside)
    assert refused.value.field == field
    assert fits in refused.value.fits


def test_what_the_clouds_own_provider_is_told_alike_is_taken() -> None:
    """The same region; a variable that its key is stronger than."""
    parse(AWS, {"aws:region": "us-east-1", "AWS_REGION": "eu-west-1"})
    parse({**AWS, "region": "us-west-2"}, {"aws:region": "us-west-2"})
    parse({**GCP, "zone": "us-central1-b"}, {"gcp:zone": "us-central1-b", "gcp:project": "my-project"})
    parse(SSH, {"AWS_REGION": "eu-west-1"})


@pytest.mark.parametrize("base", [AWS, GCP, SSH])
def test_what_is_missing_is_named(base: dict[str, object]) -> None:
    """Each required key, one by one."""
    provider = Provider(str(base["provider"]))
    for name, key in KEYS.items():
        if (key.default is ... or name == "allowed_cidrs") and provider in key.providers:
            with pytest.raises(BadInput) as refused:
                parse({k: v for k, v in base.items() if k != name})
            assert refused.value.field == f"osgym:{name}"


def test_every_key_is_a_field_and_documented() -> None:
    """And the other way round."""
    own = set().union(*(provider.facts.own_keys for provider in installed()))
    assert set(KEYS) - own == {f.name for f in dataclasses.fields(FleetConfig)} - {"own"}
    assert all(key.doc.endswith(".") for key in KEYS.values())


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(list(KEYS)), values | values.map(lambda v: json.dumps(v, default=str)))
def test_nonsense_is_refused_and_never_breaks(name: str, value: Any) -> None:
    """Whatever stands at a key: a configuration, or `BadInput` at that key or one it clashes with."""
    for base in (AWS, GCP, SSH):
        try:
            parse({**base, name: value})
        except BadInput as error:
            assert error.field.startswith("osgym:")


def test_a_plan_becomes_groups_of_hosts() -> None:
    """Enough for all, of the market and provider, nested where it has to be, with a price."""
    found = blueprint({**GCP, "market": "spot"})
    assert found.capacity >= 1024
    assert all(group.nested and group.market is Market.SPOT for group in found.groups)
    assert all(group.type.startswith("n2-") for group in found.groups), "nothing unconfirmed by default"
    assert found.usd_per_day is not None
    names = [group.name for group in found.groups]
    assert len(set(names)) == len(names)


def test_metal_needs_no_nesting_and_namespaces_neither() -> None:
    """The flag is set only where a virtual machine runs inside one."""
    assert not any(group.nested for group in blueprint({**AWS, "host_type": "r6i.metal"}).groups)
    assert not any(
        group.nested for group in blueprint({**AWS, "host_type": "r8i.24xlarge", "runtime": "local"}).groups
    )
    assert all(group.nested for group in blueprint({**AWS, "host_type": "r8i.24xlarge"}).groups)


@pytest.mark.parametrize(
    ("change", "kind", "field", "fits"),
    [
        ({"budget_usd_per_day": "5"}, CannotMeet, "osgym:budget_usd_per_day", "USD a day would do"),
        ({"replica_ram_gib": "9000"}, BadInput, "osgym:replica_ram_gib", "At most 3887.2 GiB"),
        ({"region": "eu-north-7"}, BadInput, "osgym:region", "us-east-1"),
        ({"host_type": "r9.huge"}, BadInput, "osgym:host_type", "r8i.24xlarge"),
        ({"host_type": "x8i.48xlarge"}, BadInput, "osgym:host_type", "allow_unknown_kvm"),
        ({"market": "spot", "host_type": "r6i.metal"}, BadInput, "osgym:market", "on_demand"),
        ({"profile": "nope"}, BadInput, "profile", "desktop-local"),
        ({"p95_ms": "10"}, CannotMeet, "osgym:p95_ms", "or more would do"),
    ],
)
def test_what_cannot_be_built_fails_before_anything_is(
    change: dict[str, object], kind: type[OsgymInfraError], field: str, fits: str
) -> None:
    """With the key's name and what would fit."""
    with pytest.raises(kind) as refused:
        blueprint({**AWS, **change})
    assert isinstance(refused.value, BadInput | CannotMeet)
    assert refused.value.field == field
    assert fits in refused.value.fits


@pytest.mark.parametrize("name", ["e2-highmem-16", "m1-megamem-96", "n2d-highmem-96", "c4a-highmem-72"])
def test_types_that_ignore_nesting_silently_are_refused(name: str) -> None:
    """Also those the catalogue does not know."""
    with pytest.raises(BadInput) as refused:
        blueprint({**GCP, "host_type": name})
    assert refused.value.field == "osgym:host_type"
    assert "-metal" in refused.value.fits


def test_own_machines_must_hold_the_replicas() -> None:
    """Two hosts of 50 do not hold 1,024."""
    hosts = [{"address": "a", "max_replicas": 50}, {"address": "b", "max_replicas": 50}]
    with pytest.raises(BadInput, match="At most 100"):
        blueprint({**SSH, "hosts": hosts})
    found = blueprint({**SSH, "hosts": hosts, "replicas": "100"})
    assert (found.capacity, found.usd_per_day) == (100, None)
