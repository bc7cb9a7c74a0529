"""URLs of tasks: what cannot be fetched is a wrong field of the task, said before anything happens."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from osgym_host.tasks.errors import InvalidTask
from osgym_host.tasks.parse import parse_task
from osgym_host.tasks.urls import InvalidUrl, check_url, parse_web_url

CORPUS = [
    "http://example.org/a%20b?c=d#e",
    "https://user:word@example.org/",
    "http://example.org:99999/",
    "http://example.org:0/",
    "http://example.org:٣/",
    "http://[::1",
    "http://[::1]x:80/",
    "http://[fe80::1%25eth0]/",
    "http://[v1.x]/",
    "http:///path",
    "http://" + "a" * 300 + "/",
    "http://" + "a." * 200 + "/",
    "http://a..b/",
    "http://bücher.example/ü",
    "http://exa mple/",
    "http://a\\@b/",
    "http://example.org/%",
    "http://example.org/%zz",
    "http://example.org/a\0b",
    "http://example.org/\r\nHost: x",
    "ht\ntp://example.org/",
    "file:///a%00b",
    "HTTPS://EXAMPLE.ORG/",
    "http://\ud800/",
    "x" * 5000,
]
BAD = {
    "http://example.org/a\0b": "control character U\\+0000",
    "http://example.org/\x85": "control character U\\+0085",
    "http://example.org:99999/": "port is not a number",
    "http://example.org:0/": "port is not a number",
    "http://" + "a" * 300 + "/": "host has 300 characters",
    "http://" + "a" * 80 + ".org/": "is not a name",
    "http://a..b/": "is not a name",
    "http://a b/": "is not a name",
    "http://user:word@example.org/": "user name or password",
    "http://example.org/%zz": "without two hexadecimal digits",
    "http://[::1/": "is not a URL",
    "http://[fe80::1%25eth0]/": "without a zone",
    "http://[nonsense]/": "IPv6",
    "http:///x": "names no host",
}


def task(**changes: Any) -> dict[str, Any]:
    """A task that downloads nothing."""
    result = {"type": "vm_command_line", "command": ["true"]}
    return {"id": "a", "evaluator": {"func": "exact_match", "result": result, "expected": result}} | changes


@pytest.mark.parametrize(("url", "text"), BAD.items())
def test_a_wrong_url_names_its_field(url: str, text: str) -> None:
    """In a setup step and in a getter alike."""
    step = {"type": "download", "parameters": {"files": [{"url": url, "path": "/tmp/x"}]}}
    with pytest.raises(InvalidTask, match=text) as caught:
        parse_task(task(config=[step]))
    problems: Any = caught.value.details["problems"]
    assert [p["field"] for p in problems] == ["config[0].parameters.files[0].url"]
    wanted = {"type": "cloud_file", "path": url, "dest": "x"}
    checked = {"func": "compare_text_file", "result": wanted, "expected": wanted}
    with pytest.raises(InvalidTask, match=text) as caught:
        parse_task(task(evaluator=checked))
    assert str(caught.value).startswith("the task cannot be scored: evaluator.result: path")


@pytest.mark.parametrize("path", ["/tmp/a\0b", "/tmp/a\nb", "", "x" * 4001])
def test_a_wrong_path_names_its_field(path: str) -> None:
    """A path that no file can have does not reach a guest or the host's file system."""
    step = {"type": "download", "parameters": {"files": [{"url": "http://example.org/", "path": path}]}}
    with pytest.raises(InvalidTask, match=r"config\[0\]\.parameters\.files\[0\]\.path"):
        parse_task(task(config=[step]))


def test_good_urls() -> None:
    """Names are written for DNS; the rest stays as it was given."""
    url = parse_web_url("https://Bücher.example:8443/ü?a=%20#f")
    assert (url.host, url.port, url.host_header) == (
        "xn--bcher-kva.example",
        8443,
        "xn--bcher-kva.example:8443",
    )
    assert (url.target, url.tls_name) == ("/%C3%BC?a=%20", "xn--bcher-kva.example")
    plain = parse_web_url('http://a.example?q="<x y>"')
    assert (plain.target, plain.tls_name, plain.port) == ("/?q=%22%3Cx%20y%3E%22", None, 80)
    assert parse_web_url("http://[2606:4700:0::1]/").host_header == "[2606:4700::1]"
    assert check_url("file:///anything%zz") == "file:///anything%zz"


def _mutated(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(CORPUS))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(text)))
        gone = draw(st.integers(0, 3))
        text = text[:at] + draw(st.text(max_size=3) | st.sampled_from("@:/[]%#?\\.")) + text[at + gone :]
    return text


@settings(max_examples=1500)
@given(st.composite(_mutated)())
@example("http://example.org")
def test_any_text_is_a_url_or_refused(text: str) -> None:
    """Nothing but `InvalidUrl` is raised; what is taken has a host and a port that a socket takes."""
    try:
        url = parse_web_url(text)
    except InvalidUrl:
        return
    assert 1 <= url.port <= 65535
    assert url.host.isascii()
    assert 0 < len(url.host) <= 300
    assert url.target.startswith("/")
    assert url.target.isascii()
    assert url.target.isprintable()
