"""Sources of hosts: their URLs, their files, and what a listing changes."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_infra.fleet.export import NothingToExport, export
from osgym_sdk import AsyncClient, Client, ConfigError
from osgym_sdk._config import ClientConfig
from osgym_sdk._fleet.discovery.address import AddressChoice, parse_source
from osgym_sdk._fleet.discovery.aws import AwsTagSource
from osgym_sdk._fleet.discovery.file import host_defaults, read_fleet
from osgym_sdk._fleet.discovery.gcp import GcpLabelSource
from osgym_sdk._fleet.fleet import Fleet
from osgym_sdk._fleet.members import changes
from osgym_sdk.host_sources import FoundHost, HostDefaults


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("s3://bucket", "not a source of hosts"),
        ("aws-tag://fleet", "KEY=VALUE"),
        ("aws-tag://=x", "KEY=VALUE"),
        ("aws-tag://a=b?regoin=us-east-1", "'regoin'"),
        ("aws-tag://a=b?region=us-east-1&region=x", "twice"),
        ("aws-tag://a=b?region=/etc", "not a region"),
        ("aws-tag://a=b?port=99999", "'99999' is not a port"),
        ("aws-tag://a=b?scheme=ftp", "https, http"),
        ("aws-tag://a=b?address=elastic", "auto, public, private"),
        (f"aws-tag://{'k' * 129}=b", "128 characters"),
        ('gcp-label://a=b" OR labels.c:*?project=p', "lowercase"),
        ("gcp-label://Fleet=b", "lowercase"),
        ("gcp-label://a=b?project=../x", "not a project"),
        ("dns://", "dns://NAME:PORT"),
        ("dns://a b:1", "dns://NAME:PORT"),
        ("dns://_osgym._tcp.lab:1", "name the port themselves"),
    ],
)
def test_a_url_that_is_no_source_is_refused_with_what_is_wrong(text: str, says: str) -> None:
    """Nothing of it reaches a query, and nothing is guessed."""
    with pytest.raises(ConfigError, match=says):
        AsyncClient.from_fleet(text)


def test_sources_are_read_as_written() -> None:
    """Keys with colons, several pairs, escapes, IPv6, ports of SRV records."""
    found = parse_source("aws-tag://osgym:fleet=prod,Name=a%2Cb?region=eu-west-1&port=21000&server_name=x")
    assert found.pairs == (("osgym:fleet", "prod"), ("Name", "a,b"))
    assert (found.region, found.url("2001:db8::1")) == ("eu-west-1", "https://[2001:db8::1]:21000")
    plain = parse_source("dns://lab", HostDefaults("http", 7, "of-the-file"))
    assert (found.server_name, plain.server_name, plain.url("10.0.0.5")) == (
        "x", "of-the-file", "http://10.0.0.5:7")  # fmt: skip
    srv = parse_source("dns://_osgym._tcp.lab?scheme=http")
    assert srv.is_srv and srv.url("10.0.0.5", 7) == "http://10.0.0.5:7"


def test_the_address_of_an_instance_is_the_one_that_was_asked_for() -> None:
    """An instance that has none of the kind yet is no host yet."""
    both = {"PublicIpAddress": "203.0.113.5", "PrivateIpAddress": "10.0.0.5"}
    choices = (AddressChoice.AUTO, AddressChoice.PUBLIC, AddressChoice.PRIVATE)
    assert [c.choose(*AwsTagSource.addresses_of(both)) for c in choices] == [
        "203.0.113.5",
        "203.0.113.5",
        "10.0.0.5",
    ]
    inside = {"PrivateIpAddress": "10.0.0.5"}
    assert [c.choose(*AwsTagSource.addresses_of(inside)) for c in choices] == ["10.0.0.5", "", "10.0.0.5"]
    card = {"networkIP": "10.0.0.6", "accessConfigs": [{"natIP": "203.0.113.6"}]}
    instance: dict[str, Any] = {"networkInterfaces": [card]}
    assert [c.choose(*GcpLabelSource.addresses_of(instance)) for c in choices] == [
        "203.0.113.6",
        "203.0.113.6",
        "10.0.0.6",
    ]
    starting = [{"networkInterfaces": [{"networkIP": "10.0.0.6", "accessConfigs": [{}]}]}, {}]
    assert [AddressChoice.PUBLIC.choose(*GcpLabelSource.addresses_of(one)) for one in starting] == ["", ""]


URLS = [f"http://10.0.0.{i}:20000" for i in range(5)]


@given(st.data())
def test_a_listing_adds_what_is_new_and_drains_what_it_brought(data: st.DataObject) -> None:
    """Hosts added by hand stay, those removed by hand stay away, and a second look changes nothing."""
    fleet = Fleet(ClientConfig(()))
    for url in data.draw(st.lists(st.sampled_from(URLS), unique=True)):
        host = fleet.make(url)
        host.discovered, host.leaving = data.draw(st.booleans()), data.draw(st.booleans())
        fleet.hosts.append(host)
    named = [FoundHost(url) for url in data.draw(st.lists(st.sampled_from(URLS)))]
    by_hand = data.draw(st.sets(st.sampled_from(URLS)))
    todo = changes(fleet.hosts, named, by_hand)
    urls = {one.url for one in named}
    staying = {h.link.url for h in fleet.hosts if not h.leaving}
    assert {one.url for one in todo.add} == urls - staying - by_hand
    assert len(todo.add) == len({one.url for one in todo.add})
    drained = {h.link.url for h in fleet.hosts if h.discovered and not h.leaving} - urls
    assert set(todo.drain) == drained
    for one in todo.add:
        known = fleet.find(one.url)
        if known is None:
            fleet.hosts.append(known := fleet.make(one.url))
        known.leaving, known.discovered = False, True
    for url in todo.drain:
        leaver = fleet.find(url)
        assert leaver is not None
        leaver.leaving = True
    again = changes(fleet.hosts, named, by_hand)
    assert (again.add, again.drain) == ((), ())


@pytest.mark.parametrize(
    ("source", "package", "extra"),
    [
        ("aws-tag://a=b", "boto3", "osgym-sdk\\[aws\\]"),
        ("gcp-label://a=b", "google", "osgym-sdk\\[gcp\\]"),
        ("dns://_osgym._tcp.lab", "dns", "osgym-sdk\\[dns\\]"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    source: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the client is made, not when the first episode waits."""
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == package:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=extra):
        Client.from_fleet(source)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"discover": "aws-tag://x"}, "KEY=VALUE"),
        ({"discover": 7}, "discover is not a text"),
        ({"discover": "dns://lab", "hosts": "no"}, "must be a list of objects"),
        ({}, "must be a list of objects"),
        ({"hosts": []}, "nor a source to discover"),
        ({"hosts": [{"id": "a", "url": "ftp://x"}]}, "not a host URL"),
    ],
)
def test_a_file_that_discovers_is_checked_when_it_is_read(
    tmp_path: Path, content: dict[str, Any], says: str
) -> None:
    """By the name of what is wrong."""
    path = tmp_path / "fleet.json"
    path.write_text(json.dumps({"schema_version": 1, **content}))
    with pytest.raises(ConfigError, match=says):
        AsyncClient.from_fleet(path)


def test_pauses_are_more_than_nothing(tmp_path: Path) -> None:
    """A pause of 0 would ask a cloud without end."""
    with pytest.raises(ConfigError, match="poll_s"):
        AsyncClient.from_fleet("dns://lab:1", poll_s=0)


def test_what_a_stack_of_groups_exports_is_what_a_client_takes(tmp_path: Path) -> None:
    """Also while the groups have no hosts; the URL has all that a client needs beside CA and token."""
    outputs = {
        "schema_version": 1,
        "discover": "aws-tag://osgym-fleet=prod?region=us-east-1&port=20001&address=public&server_name=prod",
        "hosts": [],
        "ca": "",
        "token_secret": "",
    }
    path = tmp_path / "fleet.json"
    path.write_text(json.dumps(export({}, outputs).fleet))
    with Client.from_fleet(path) as client:
        assert client.hosts == ()
    with pytest.raises(NothingToExport):
        export({}, {**outputs, "discover": ""})


def test_hosts_that_a_file_names_say_what_discovered_ones_are_like(tmp_path: Path) -> None:
    """Scheme, port and name in the certificate, unless the source's URL says otherwise."""
    path = tmp_path / "fleet.json"
    content: dict[str, Any] = {"schema_version": 1, "discover": "aws-tag://a=b", "ca": "x"}
    path.write_text(json.dumps(content))
    assert host_defaults(read_fleet(path)) == HostDefaults("https", 20000, "")
    content["hosts"] = [{"url": "http://10.0.0.5:21000", "server_name": "lab"}]
    path.write_text(json.dumps(content))
    assert host_defaults(read_fleet(path)) == HostDefaults("http", 21000, "lab")
    path.write_text(json.dumps({**content, "server_name": "of-all"}))
    assert host_defaults(read_fleet(path)).server_name == "of-all"
