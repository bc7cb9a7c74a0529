"""Heads of requests to the proxy: what is refused, and that what is passed on is what was judged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_host.core.egress import parse_allowlist
from osgym_host.runtimes.base import Egress
from osgym_host.runtimes.egress.resolver import NameLookup
from osgym_host.runtimes.web import heads
from osgym_host.runtimes.web.certificates import Certificates, make_authority
from osgym_host.runtimes.web.heads import Refused, Target
from osgym_host.runtimes.web.judge import Judge
from osgym_host.runtimes.web.pages import page


def refused(*lines: str) -> Refused:
    """What a head of these lines is refused with."""
    with pytest.raises(Refused) as caught:
        heads.parse("\r\n".join((*lines, "", "")).encode("latin-1"))
    return caught.value


def parsed(*lines: str) -> heads.Head:
    """A head of these lines."""
    return heads.parse("\r\n".join((*lines, "", "")).encode("latin-1"))


def test_a_tunnel_and_a_url_name_their_target() -> None:
    """Names in lower case without a final dot; ports, paths and queries as they were."""
    assert parsed("CONNECT Files.Example.ORG.:443 HTTP/1.1").target == Target("files.example.org", 443)
    head = parsed("GET http://a.org:8080?x=1#part HTTP/1.1", "Host: b.org", "Accept: x")
    assert (head.target, head.path, head.host) == (Target("a.org", 8080), "/?x=1", b"b.org")
    assert head.headers == ((b"accept", b"x"),)  # Host is made anew from the URL
    assert parsed("GET http://a.org HTTP/1.0").target == Target("a.org", 80)
    assert parsed("GET /x HTTP/1.1", "Host: a.org").target is None


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",  # 127.0.0.1 as one number
        "0x7f000001",
        "0x7f.1",
        "017700000001",
        "0177.0.0.1",  # octal
        "127.1",
        "127.0.0.1.",
        "127.0.0.01",
        "[::1]",
        "[::ffff:10.0.0.1]",
        "::1",
        "localhost",
        "localhost.",
        "metadata",
        "",
        "a..b.org",
        "a.org.1",
        "a.org.0x1",
        "\xb9\xb2\xb7.0.0.1".encode("latin-1").decode("latin-1"),
        "①②⑦.org",
        "a.org@10.0.0.1",
        "a%2eorg",
        "a.org\\",
    ],
)
def test_a_host_has_one_form(host: str) -> None:
    """Whatever a resolver might read as another address, and every IPv6 address, is refused before it."""
    if host == "127.0.0.1.":  # one final dot does not matter; the address is judged
        assert heads.parse_host(host) == "127.0.0.1"
        return
    with pytest.raises(Refused):
        heads.parse_host(host)


@pytest.mark.parametrize(
    "lines",
    [
        ("GET http://a.org/ HTTP/1.1", "Host: a.org", "Host: b.org"),
        ("POST http://a.org/ HTTP/1.1", "Content-Length: 1", "Transfer-Encoding: chunked"),
        ("POST http://a.org/ HTTP/1.1", "Content-Length: 1", "Content-Length: 1"),
        ("POST http://a.org/ HTTP/1.1", "Content-Length: +1"),
        ("POST http://a.org/ HTTP/1.1", "Content-Length: 1, 1"),
        ("POST http://a.org/ HTTP/1.1", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        ("POST http://a.org/ HTTP/1.1", "Transfer-Encoding: gzip, chunked"),
        ("POST http://a.org/ HTTP/1.1", "Transfer-Encoding : chunked"),
        ("POST http://a.org/ HTTP/1.0", "Transfer-Encoding: chunked"),
        ("GET http://a.org/ HTTP/1.1", "A: b", " folded: x"),
        ("GET http://a.org/ HTTP/1.1", "A: b\nHost: c.org"),
        ("GET http://a.org/ HTTP/1.1", "A: b\rHost: c.org"),
        ("GET http://a.org/ HTTP/1.1", "A: \0"),
        ("GET http://a.org/ HTTP/1.1", "no colon"),
        ("GET http://a.org/  HTTP/1.1",),
        ("GET http://a.org/ x HTTP/1.1",),
        ("GET http://a.org/\tx HTTP/1.1",),
        ("GET https://a.org/ HTTP/1.1",),
        ("GET ftp://a.org/ HTTP/1.1",),
        ("GET http://user@a.org/ HTTP/1.1",),
        ("GET http://a.org:99999/ HTTP/1.1",),
        ("GET http://a.org:/ HTTP/1.1",),
        ("CONNECT a.org HTTP/1.1",),
        ("CONNECT a.org:0 HTTP/1.1",),
        ("CONNECT http://a.org:443 HTTP/1.1",),
        ("GET * HTTP/1.1",),
        ("G(T http://a.org/ HTTP/1.1",),
    ],
)
def test_what_two_readers_could_take_differently_is_refused(lines: tuple[str, ...]) -> None:
    """Two hosts, two lengths, folded lines, odd line ends: 400, before anything is connected to."""
    assert refused(*lines).status in (400, 403)


def test_too_many_headers_and_other_versions_are_refused() -> None:
    """With the status that says why."""
    assert refused("GET http://a.org/ HTTP/1.1", *["a: b"] * 200).status == 431
    assert refused("GET http://a.org/ HTTP/2.0").status == 505


def test_headers_of_the_connection_stay_here() -> None:
    """Those that the connection names too, so that no header can be hidden from what comes after us."""
    head = parsed(
        "GET http://a.org/ HTTP/1.1",
        "Connection: close, X-Secret",
        "X-Secret: 1",
        "Proxy-Authorization: Basic x",
        "Upgrade: websocket",
        "Expect: 100-continue",
        "Cookie: c=1",
    )
    assert head.headers == ((b"cookie", b"c=1"),)
    assert not head.keeps


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(raw: bytes) -> None:
    """Nothing else comes out of it."""
    try:
        head = heads.parse(b"GET http://a.org/ HTTP/1.1\r\n" + raw + b"\r\n\r\n")
    except Refused:
        return
    assert all(b"\r" not in value and b"\n" not in value for _, value in head.headers)


NAMES = {
    "good.example.org": ["93.184.216.34"],
    "rebound.example.org": ["127.0.0.1", "10.0.0.1", "169.254.169.254", "100.64.0.1", "192.0.2.1"],
    "mixed.example.org": ["10.0.0.1", "93.184.216.34"],
    "other.test": ["93.184.216.35"],
    "host.v2": ["93.184.216.36"],
}


def judge(egress: Egress, *allow: str) -> Judge:
    """One that knows a few names."""
    return Judge.of(egress, parse_allowlist(allow), NameLookup(lambda name: NAMES.get(name, [])))


async def verdict(who: Judge, host: str) -> list[str] | str:
    """The addresses that may be connected to, or the code of the refusal."""
    try:
        return await who.addresses(Target(host, 443))
    except Refused as exc:
        return exc.code


async def test_open_is_the_public_internet() -> None:
    """By name and by number; never a private network, metadata or what only documents name."""
    who = judge(Egress.OPEN)
    assert await verdict(who, "good.example.org") == ["93.184.216.34"]
    assert await verdict(who, "mixed.example.org") == ["93.184.216.34"]
    assert await verdict(who, "93.184.216.34") == ["93.184.216.34"]
    assert await verdict(who, "host.v2") == ["93.184.216.36"]
    for host in (
        "nowhere.k8s1",
        "rebound.example.org",
        "nowhere.example.org",
        "127.0.0.1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "168.63.129.16",
        "100.100.100.200",
        "0.0.0.0",
        "255.255.255.255",
        "224.0.0.1",
        "198.18.0.1",
    ):
        assert await verdict(who, host) == "egress_refused", host


async def test_a_name_that_turns_is_judged_anew() -> None:
    """What it resolved to before opens nothing, and what is connected to is a number that was judged."""
    now, known = 0.0, ["93.184.216.34"]
    names = NameLookup(lambda name: known, clock=lambda: now)
    who = Judge.of(Egress.OPEN, parse_allowlist([]), names)
    assert await verdict(who, "turns.example.org") == ["93.184.216.34"]
    known = ["127.0.0.1", "169.254.169.254"]
    assert await verdict(who, "turns.example.org") == ["93.184.216.34"]  # that address still, for a minute
    now = 3600.0
    assert await verdict(who, "turns.example.org") == "egress_refused"


async def test_the_allowlist_is_what_is_named() -> None:
    """Names by name, networks by number; a name never leads into a network, an address is never a name."""
    who = judge(Egress.ALLOWLIST, "*.example.org", "10.0.0.0/24")
    assert await verdict(who, "good.example.org") == ["93.184.216.34"]
    assert await verdict(who, "10.0.0.7") == ["10.0.0.7"]
    for host in ("other.test", "rebound.example.org", "93.184.216.34", "10.0.1.7", "127.0.0.1"):
        assert await verdict(who, host) == "egress_refused", host
    assert await verdict(judge(Egress.NONE), "good.example.org") == "egress_refused"


@pytest.mark.parametrize("host", ["a.org", "host.v2", "93.184.216.34"])
def test_a_certificate_is_for_names_and_addresses(host: str) -> None:
    """A name that ends in a digit is a name."""
    assert heads.is_address(host) == (host == "93.184.216.34")
    assert Certificates(make_authority()).context(host)


def test_a_page_shows_nothing_as_markup() -> None:
    """What was asked for is text in it, and cannot end its head."""
    raw = page(Refused(504, "web_not_recorded", "<b>"), "http://a.org/<script>")
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"osgym-code: web_not_recorded" in head
    assert b"<script>" not in body and b"<b>" not in body
