"""Which proxy a request goes through: the pure rule, and that no other module makes HTTP clients."""

from __future__ import annotations

import ast
import os
import urllib.request
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_protocol.proxies import environment_route, host_route, is_loopback_url

ROOT = Path(__file__).parents[2]
PROXY = "http://proxy.example:3128"
LOOPBACK = [
    "http://127.0.0.1:20000/v1/host",
    "http://127.9.8.7",
    "http://127.1:20000",
    "http://2130706433",
    "http://[::1]:20000",
    "http://[::ffff:127.0.0.1]",
    "http://0.0.0.0:20000",
    "http://localhost",
    "https://LOCALHOST.:443",
    "https://desk.localhost",
]


@pytest.mark.parametrize("url", LOOPBACK)
def test_loopback_is_reached_directly(url: str) -> None:
    """By every rule, whatever the environment says."""
    environ = {"HTTP_PROXY": PROXY, "HTTPS_PROXY": PROXY, "ALL_PROXY": PROXY, "OSGYM_PROXY": PROXY}
    assert is_loopback_url(url)
    assert environment_route(environ).proxy_for(url) is None
    assert host_route(environ).proxy_for(url) is None
    assert host_route({}, PROXY).proxy_for(url) is None


@pytest.mark.parametrize(
    "url", ["http://128.0.0.1", "http://localhost.example", "http://10.0.0.1", "http://[fe80::1]"]
)
def test_other_machines_are_no_loopback(url: str) -> None:
    """Names and addresses that resemble it included."""
    assert not is_loopback_url(url)
    assert environment_route({"http_proxy": PROXY}).proxy_for(url) == PROXY


def test_hosts_of_a_fleet_are_reached_directly_unless_asked() -> None:
    """The token of a host is not shown to the proxy that the environment has for web pages."""
    web = {"HTTP_PROXY": PROXY, "https_proxy": PROXY, "ALL_PROXY": PROXY}
    assert host_route(web).proxy_for("http://10.0.0.5:20000") is None
    assert (
        host_route(web | {"OSGYM_PROXY": "jump:8080"}).proxy_for("http://10.0.0.5:20000")
        == "http://jump:8080"
    )
    assert host_route({"OSGYM_PROXY": "http://a:1"}, "http://b:2").proxy_for("https://desk") == "http://b:2"


def test_proxies_are_taken_from_the_environment() -> None:
    """By scheme, lower case first; a variable that is empty switches a proxy off."""
    route = environment_route({"http_proxy": "plain:1", "HTTPS_PROXY": "https://tls:2"})
    assert (route.proxy_for("http://a"), route.proxy_for("https://a")) == ("http://plain:1", "https://tls:2")
    assert route.proxy_for("ftp://a") is None
    everything = environment_route({"all_proxy": "socks5://any:3", "HTTP_PROXY": "plain:1"})
    assert everything.proxy_for("https://a") == "socks5://any:3"
    assert everything.proxy_for("http://a") == "http://plain:1"
    assert environment_route({"http_proxy": "", "HTTP_PROXY": PROXY}).proxy_for("http://a") is None
    in_cgi = {"REQUEST_METHOD": "GET", "HTTP_PROXY": PROXY, "HTTPS_PROXY": PROXY}
    assert environment_route(in_cgi).proxy_for("http://a") is None
    assert environment_route(in_cgi).proxy_for("https://a") == PROXY


@pytest.mark.parametrize(
    ("no_proxy", "url", "is_exempt"),
    [
        ("*", "http://any.example", True),
        ("a.example", "http://a.example", True),
        ("a.example", "http://A.Example.", True),
        ("a.example", "http://sub.a.example", True),
        ("a.example", "http://ba.example", False),
        (".a.example", "http://a.example", True),
        (".a.example", "http://sub.a.example", True),
        ("*.a.example", "http://sub.a.example", True),
        ("a.example:8080", "http://a.example:8080", True),
        ("a.example:8080", "http://a.example", False),
        ("a.example:443", "https://a.example", True),
        ("http://a.example", "http://a.example:81", True),
        ("10.1.2.3", "http://10.1.2.3:20000", True),
        ("10.1.2.3", "http://10.1.2.30", False),
        ("10.1.2.3:80", "http://10.1.2.3", True),
        ("10.1.2.3:80", "http://10.1.2.3:81", False),
        ("10.0.0.0/8", "http://10.200.0.1:20000", True),
        ("10.0.0.0/8", "http://11.0.0.1", False),
        ("10.0.0.7/8", "http://10.0.0.1", True),
        ("fd00::/8", "http://[fd12::1]:20000", True),
        ("[fd12::1]:80", "http://[fd12::1]", True),
        ("fd12::1", "http://[fd12:0::1]", True),
        ("fd12::1", "http://[fd12::2]", False),
        ("10.0.0.0/8", "http://[::ffff:10.0.0.1]", True),
        ("x, a.example,y", "http://a.example", True),
        ("x a.example y", "http://a.example", True),
        ("not*a*name,http://[,:::", "http://a.example", False),
        ("", "http://a.example", False),
    ],
)  # fmt: skip
def test_no_proxy_is_understood(no_proxy: str, url: str, is_exempt: bool) -> None:
    """Names and their subdomains, ports, addresses, CIDR blocks; what is none of these is passed over."""
    environ = {"http_proxy": PROXY, "https_proxy": PROXY, "no_proxy": no_proxy}
    assert environment_route(environ).proxy_for(url) == (None if is_exempt else PROXY)


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_environment_is_read(no_proxy: str, proxy: str) -> None:
    """What users wrote into their shells never raises, and loopback stays direct."""
    route = environment_route({"NO_PROXY": no_proxy, "ALL_PROXY": proxy})
    route.proxy_for("https://a.example:8443/x")
    assert route.proxy_for("http://127.0.0.1:20000") is None


NAME = st.from_regex(r"[a-c]{1,2}(\.[a-c]{1,2}){0,2}", fullmatch=True)


@given(st.lists(NAME, max_size=3), NAME)
def test_names_are_exempt_where_the_standard_library_exempts_them(entries: list[str], host: str) -> None:
    """Of plain names, both read the same."""
    no_proxy = ",".join(entries)
    theirs = urllib.request.proxy_bypass_environment(host, {"no": no_proxy})  # type: ignore[attr-defined]  # has no types
    ours = environment_route({"http_proxy": PROXY, "no_proxy": no_proxy}).proxy_for(f"http://{host}/") is None
    assert bool(theirs) == ours


# ---- one place that makes clients ----

PRODUCT = (
    "protocol",
    "sdk",
    "host_agent",
    "qemu",
    "cli",
    "guest_agent",
    "infra",
    "osworld",
    "certify",
    "tasks/families",
    "examples",
    "images",
)
CLIENTS = {
    "httpx": {"Client", "AsyncClient", "HTTPTransport", "AsyncHTTPTransport", "get", "post", "put", "patch",
              "delete", "head", "options", "request", "stream"},
    "requests": {"Session", "session", "get", "post", "put", "patch", "delete", "head", "options", "request"},
    "urllib.request": {"urlopen", "build_opener", "urlretrieve", "OpenerDirector"},
    "http.client": {"HTTPConnection", "HTTPSConnection"},
}  # fmt: skip
ALLOWED = {
    "protocol/osgym_protocol/http_clients.py": "the one place",
    "protocol/osgym_protocol/telemetry.py": "OpenTelemetry's exporter takes a session of requests",
    "sdk/osgym_sdk/_transport/link.py": "a transport for each connection, with the proxy of `host_route`",
    "infra/osgym_infra/hosts/hold_drained.py": "runs with the standard library alone, without any proxy",
    "infra/bootstrap/fetch.py": "runs with the standard library alone; `goes_direct` is its rule",
    "images/packer/provision.py": "http.client reads no environment; its only address is 127.0.0.1",
}  # fmt: skip


def made_clients(source: str) -> set[str]:
    """Return the names by which a module makes HTTP clients, or imports what makes them."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            module, _, name = ast.unparse(node.func).rpartition(".")
            if name in CLIENTS.get(module, ()):
                found.add(f"{module}.{name}")
        elif isinstance(node, ast.ImportFrom) and node.module in CLIENTS:
            found |= {
                f"{node.module}.{alias.name}" for alias in node.names if alias.name in CLIENTS[node.module]
            }
        elif isinstance(node, ast.Import):
            found |= {
                f"{alias.name} as {alias.asname}"
                for alias in node.names
                if alias.asname and alias.name in CLIENTS
            }
            found |= {alias.name for alias in node.names if alias.name in ("aiohttp", "urllib3", "pycurl")}
    return found


def test_clients_are_made_in_one_place() -> None:
    """No module of the product makes an HTTP client that could follow the environment to a proxy."""
    makers = {}
    for part in PRODUCT:
        for folder, folders, names in os.walk(ROOT / part):
            folders[:] = [name for name in folders if not (Path(folder) / name).is_symlink()]
            for name in names:
                path = Path(folder, name)
                if path.suffix == ".py" and (made := made_clients(path.read_text(encoding="utf-8"))):
                    makers[str(path.relative_to(ROOT))] = made
    assert {path: made for path, made in makers.items() if path not in ALLOWED} == {}
    assert set(ALLOWED) <= set(makers), "ALLOWED names a module that makes no client"


def test_makers_of_clients_are_found() -> None:
    """By attribute, by import and by another name."""
    assert made_clients("import httpx\nhttpx.Client()") == {"httpx.Client"}
    assert made_clients("from httpx import AsyncClient") == {"httpx.AsyncClient"}
    assert made_clients("import httpx as h") == {"httpx as h"}
    assert made_clients("import urllib.request\nurllib.request.urlopen('x')") == {"urllib.request.urlopen"}
    assert made_clients("import httpx\nx: httpx.Client\nhttpx.Request('GET', 'x')") == set()
