"""Addresses: only those of one machine on the public Internet are public, however they are written."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_host.core.special_addresses import Kind, kind_of

PUBLIC = "93.184.216.34 1.1.1.1 2606:4700::1111 2a00:1450:4001::8 ::ffff:93.184.216.34 64:ff9b::5db8:d822"
PRIVATE = """
10.1.2.3 100.64.0.1 127.0.0.1 172.31.255.255 192.168.0.1 192.0.0.1 192.0.0.8 192.0.0.10 192.0.0.170 192.0.2.1
192.31.196.1 192.52.193.1 192.88.99.1 192.175.48.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1
::1 fc00::1 fd00::1 fec0::1 feff::1 2001:db8::1 2001:0:5db8:d822::a247:27dd 2001:2::1 2001:20::1
2002:5db8:d822::1 3ffe::1
3fff::1 5f00::1 4000::1 1::1 fe00::1 64:ff9b:1::a00:1 2620:4f:8000::1 ::7f00:1 ::ffff:127.0.0.1 64:ff9b::a00:1
::ffff:0:7f00:1 2606:4700::5efe:a00:1 2606:4700::200:5efe:c0a8:1
"""
ALWAYS = """
0.0.0.0 0.1.2.3 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255 :: 100::1 100:0:0:1::1 ff02::1
169.254.169.254 169.254.170.2 168.63.129.16 100.100.100.200 192.0.0.192 fe80::1 fe80::1%eth0 febf::1
fd00:ec2::254 fd00:ec2::23 fd20:ce::254
::a9fe:a9fe ::ffff:169.254.169.254 ::ffff:192.0.0.192 ::ffff:0:a9fe:a9fe 64:ff9b::a9fe:a9fe
64:ff9b:1::a9fe:a9fe 2002:a9fe:a9fe:: 2002:c000:c0::1 2001:0:a9fe:a9fe::1 2001:0:7f00:1::5601:5601
2606:4700::5efe:a9fe:a9fe
"""


@pytest.mark.parametrize("address", PUBLIC.split())
def test_public(address: str) -> None:
    """Ordinary addresses, and the two ways of writing one that lead to it."""
    assert kind_of(address) is Kind.PUBLIC


@pytest.mark.parametrize("address", PRIVATE.split())
def test_every_special_block_is_private(address: str) -> None:
    """One address of each block of the registries, and of what embeds a private one."""
    assert kind_of(address) is Kind.PRIVATE


@pytest.mark.parametrize("address", ALWAYS.split())
def test_metadata_and_no_machine(address: str) -> None:
    """Neither private nor public, so that no policy allows them; embedded ones included."""
    assert kind_of(address) in {Kind.LINK_LOCAL, Kind.NO_MACHINE}


@given(st.ip_addresses())
def test_never_more_public_than_the_standard_library_says(address: ipaddress.IPv4Address) -> None:
    """What Python calls private, reserved or multicast is not public, but for the two embeddings."""
    kind = kind_of(str(address))
    inside = [ipaddress.ip_network(text) for text in ("::ffff:0:0/96", "64:ff9b::/96")]
    if kind is Kind.PUBLIC and not any(address in network for network in inside):
        assert address.is_global
        assert not (address.is_reserved or address.is_link_local or address.is_multicast)


@given(st.ip_addresses(v=4))
def test_a_mapped_address_is_what_it_maps(address: ipaddress.IPv4Address) -> None:
    """In both ways that lead to it."""
    low = ipaddress.IPv6Address(int(address)).exploded[-9:]
    assert kind_of(f"::ffff:{address}") is kind_of(str(address))
    assert kind_of(f"64:ff9b::{low}") is kind_of(str(address))
