"""The pure parts of the network of virtual machines: allowlists, addresses, rules, questions for names."""

from __future__ import annotations

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_host.core.egress import NEVER, PRIVATE, parse_allowlist, public_addresses
from osgym_host.runtimes.base import Egress
from osgym_host.runtimes.egress import dns, rules
from osgym_host.runtimes.egress.gate import DEFAULT_LINKS, table_name
from osgym_host.runtimes.egress.links import link_of, parse_links, slots_in

LINKS = ipaddress.IPv4Network(DEFAULT_LINKS)
METADATA = ("169.254.169.254", "168.63.129.16", "100.100.100.200")


def test_an_allowlist_has_networks_and_names() -> None:
    """Addresses, networks, names and wildcards are told apart; networks are put into canonical form."""
    found = parse_allowlist(
        ["10.1.2.3", "192.0.2.0/25", "192.0.2.128/25", "Files.Example.ORG.", "*.test.org"]
    )
    assert found.networks == ("10.1.2.3/32", "192.0.2.0/24")
    assert found.names == {"files.example.org", "*.test.org"}


@pytest.mark.parametrize(
    "entry",
    [
        *METADATA[:2],
        *("169.254.0.0/16", "0.0.0.0/0", "127.0.0.1", "224.0.0.1", "168.0.0.0/8", "::1", "fd00:ec2::254"),
        *(
            "",
            "*",
            "*.",
            "local",
            "a b",
            "10.0.0.300",
            "10.0.0.1/33",
            "10.0.0.1/8",
            "example.org/24",
            "-a.org",
        ),
        *("example..org", "exa;mple.org", "a." + "b" * 64 + ".org", "x" * 250 + ".org", "example.org\n }"),
    ],
)
def test_an_allowlist_refuses_what_is_never_reached_or_no_name(entry: str) -> None:
    """Metadata, loopback, everything at once, IPv6 and malformed entries are errors."""
    with pytest.raises(ValueError):
        parse_allowlist([entry])


def test_a_wildcard_is_all_below_and_not_itself() -> None:
    """`*.example.org` stands for deeper names too, but neither for its own nor for one that ends alike."""
    found = parse_allowlist(["*.example.org"])
    assert found.has_name("a.example.org") and found.has_name("a.b.example.org")
    assert not any(map(found.has_name, ("example.org", "badexample.org", "example.org.evil.test", "org", "")))


@given(st.ip_addresses(v=4))
def test_a_name_never_stands_for_an_inner_address(address: ipaddress.IPv4Address) -> None:
    """Whatever a name's owner answers, nothing private, local or reserved is kept."""
    inside = any(address in ipaddress.IPv4Network(network) for network in (*NEVER, *PRIVATE))
    assert public_addresses([str(address), str(address)]) == ([] if inside else [str(address)])


def test_the_ranges_hold_what_they_are_there_for() -> None:
    """Metadata services, the host's loopback, private networks and our own links are not public."""
    inner = [*METADATA, "127.0.0.1", "10.0.2.2", "172.31.255.1", "192.168.1.1", "100.64.0.1", "198.18.0.1"]
    assert public_addresses([*inner, "255.255.255.255", "fd00:ec2::254", "no address", "9.9.9.9"]) == [
        "9.9.9.9"
    ]


@given(st.integers(0, slots_in(LINKS) - 1), st.integers(0, slots_in(LINKS) - 1))
def test_links_share_no_address_and_no_name(one: int, other: int) -> None:
    """Each slot has two addresses of its own, next to each other, and a name that fits the kernel."""
    first, second = link_of(one, LINKS), link_of(other, LINKS)
    assert int(ipaddress.IPv4Address(first.guest_ip)) == int(ipaddress.IPv4Address(first.host_ip)) + 1
    assert ipaddress.IPv4Address(first.guest_ip) in LINKS
    assert len(first.name) <= 15
    if one != other:
        used = {first.host_ip, first.guest_ip, first.name}
        assert not used & {second.host_ip, second.guest_ip, second.name}


def test_there_are_as_many_links_as_fit() -> None:
    """A slot beyond the network, or below zero, is refused."""
    small = ipaddress.IPv4Network("192.0.2.0/24")
    assert slots_in(small) == 128
    link_of(127, small)
    for slot in (128, -1):
        with pytest.raises(ValueError):
            link_of(slot, small)


def test_links_are_taken_from_a_network_that_the_host_does_not_use() -> None:
    """An overlap, a network that is too small and a malformed one are errors."""
    used = [ipaddress.IPv4Network("10.0.0.0/8")]
    assert parse_links("198.18.0.0/15", used) == LINKS
    for text in ("10.1.0.0/16", "192.0.2.0/25", "198.18.0.1/15", "none"):
        with pytest.raises(ValueError):
            parse_links(text, used)


def test_the_hosts_table_forbids_before_it_allows() -> None:
    """In the chain of what leaves, other machines and what is never reached come before any policy."""
    text = rules.host_table("osgym_x", ["203.0.113.0/24"])
    chain = text.split("chain leaving {")[1].split("}\n  chain")[0]
    order = [chain.index(part) for part in ('oifname "osgym*" drop', "@never drop", "vmap @policies")]
    assert order == sorted(order)
    assert chain.rstrip().splitlines()[-1].strip() == "drop"
    assert all(network in text for network in (*NEVER, *PRIVATE, "203.0.113.0/24"))


def test_without_networks_the_allowlist_is_an_empty_set() -> None:
    """nft takes no empty list of elements."""
    assert "set networks { type ipv4_addr; flags interval;  }" in rules.host_table("osgym_x", [])


def test_a_policy_replaces_the_former_one_whole() -> None:
    """Each policy starts with nothing; only the allowlist looks at what was learnt, only open at none."""
    link = link_of(3, LINKS)
    texts = {egress: rules.set_policy("t", link, egress) for egress in Egress}
    assert all(
        text.startswith("flush chain inet t out3\nflush set inet t learnt3\n") for text in texts.values()
    )
    assert "add rule" not in texts[Egress.NONE] and "delete element" in texts[Egress.NONE]
    opened = texts[Egress.OPEN].splitlines()
    assert [line.split("out3 ")[1] for line in opened if "add rule" in line] == [
        "ip daddr @private drop",
        "accept",
    ]
    assert "@learnt3" in texts[Egress.ALLOWLIST] and "@networks" in texts[Egress.ALLOWLIST]
    assert not any(line.endswith("out3 accept") for line in texts[Egress.ALLOWLIST].splitlines())


def test_a_mark_becomes_a_name_that_nft_takes() -> None:
    """Only letters, digits and underscores."""
    assert table_name("osgym-a.b-12ab") == "osgym_a_b_12ab"


def query(name: str, kind: int = 1, flags: int = 0x0100) -> bytes:
    """A question as a resolver sends it."""
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return struct.pack("!6H", 77, flags, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", kind, 1)


def test_a_question_is_answered_with_addresses() -> None:
    """The answer repeats the question and carries the addresses behind a pointer to the name."""
    question = dns.parse(query("Files.Example.org"))
    assert question is not None and (question.name, question.asks_address) == ("files.example.org", True)
    found = dns.answer(question, dns.DnsCode.OK, ["192.0.2.1", "192.0.2.2"])
    ident, flags, questions, answers, *_ = struct.unpack_from("!6H", found)
    assert (ident, flags, questions, answers) == (77, 0x8180, 1, 2)
    assert found[12:].startswith(query("Files.Example.org")[12:])
    assert found.endswith(bytes([192, 0, 2, 2]))


def test_other_questions_get_no_address() -> None:
    """For IPv6 or mail the name is there and has nothing of the kind; a refusal carries none either."""
    question = dns.parse(query("example.org", kind=28))
    assert question is not None
    assert struct.unpack_from("!6H", dns.answer(question, dns.DnsCode.OK, ["192.0.2.1"]))[3] == 0
    question = dns.parse(query("example.org"))
    assert question is not None
    refused = struct.unpack_from("!6H", dns.answer(question, dns.DnsCode.REFUSED, ["192.0.2.1"]))
    assert (refused[1] & 15, refused[3]) == (5, 0)


def test_many_addresses_still_fit_into_a_datagram() -> None:
    """An answer is never longer than any resolver takes."""
    name = ".".join(["a" * 60] * 4) + ".org"
    question = dns.parse(query(name))
    assert question is not None
    addresses = [f"192.0.2.{number}" for number in range(200)]
    assert len(dns.answer(question, dns.DnsCode.OK, addresses)) <= 768


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"\0" * 12,
        query("example.org", flags=0x8100),  # an answer
        query("example.org", flags=0x2900),  # a dynamic update
        query("example.org")[:-3],
        query("exa mple.org"),
        query("example.org") + b"\0" * 600,
        struct.pack("!6H", 1, 0, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1",  # a pointer to itself
        struct.pack("!6H", 1, 0, 2, 0, 0, 0) + query("a.org")[12:] * 2,
        struct.pack("!6H", 1, 0, 1, 0, 0, 0) + b"\0\0\1\0\1",  # the root
    ],
)
def test_what_is_no_question_gets_no_answer(datagram: bytes) -> None:
    """Malformed, foreign and overlong datagrams are dropped."""
    assert dns.parse(datagram) is None


@given(st.binary(max_size=600))
def test_no_datagram_breaks_the_parser(datagram: bytes) -> None:
    """Any bytes are a question or nothing, and a question can be answered."""
    question = dns.parse(datagram)
    if question is not None:
        assert dns.answer(question, dns.DnsCode.NO_SUCH_NAME)
