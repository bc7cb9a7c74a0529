"""Archives of sites: what is written is what is replayed, and nothing hostile in one does anything."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from osgym_host.cli.web import web
from osgym_host.runtime_factory import make_runtime
from osgym_host.runtimes.base import RuntimeUnsupported
from osgym_host.runtimes.kind import ImageRef
from osgym_host.runtimes.local.probe_image import ProbeImage, ProbeManifest
from osgym_host.runtimes.web import har
from osgym_host.runtimes.web.archive import Archive, Recording, open_archive
from osgym_host.runtimes.web.har import Answer, ArchiveError
from osgym_host.runtimes.web.heads import Refused, Target
from osgym_host.runtimes.web.sites import decoded
from osgym_host.settings import SettingsError, load


def entry(url: str = "https://a.org/x", **response: Any) -> dict[str, Any]:
    """One of a HAR, as browsers write it."""
    content = {"size": 2, "mimeType": "text/plain", "text": "hi"}
    return {
        "request": {"method": "GET", "url": url, "headers": [{"name": "Cookie", "value": "secret"}]},
        "response": {"status": 200, "headers": [], "content": content, **response},
    }


def loaded(path: Path) -> Archive:
    """The archive of a file."""
    found = Archive()
    fd = os.open(path, os.O_RDONLY)
    try:
        found.load(fd)
    finally:
        os.close(fd)
    return found


def of(tmp_path: Path, *entries: object) -> Archive:
    """The archive of a HAR that somebody else wrote."""
    path = tmp_path / "foreign.har"
    path.write_text(json.dumps({"log": {"version": "1.2", "entries": list(entries)}}, indent=1))
    return loaded(path)


def record(path: Path, *answers: tuple[str, Answer]) -> None:
    """Add to an archive of ours."""
    recording = Recording(open_archive(path, to_record=True), Archive())
    for url, answer in answers:
        asked = ((b"accept", b"*/*"), (b"cookie", b"secret"), (b"authorization", b"secret"))
        recording.add(har.write_entry(url, asked, answer, "2030-01-01T00:00:00+00:00", 1.0))
    recording.close()


def read(archive: Archive, url: str) -> tuple[bytes, bytes]:
    """What is replayed for a URL."""
    stored = archive.find(url)
    assert stored is not None, archive.urls
    return archive.head(stored), b"".join(archive.body(stored, 100))


PAGE = Answer(200, ((b"content-type", b"text/html; charset=utf-8"),), "Grüße ☃".encode())
BYTES = Answer(404, ((b"content-type", b"image/png"),), bytes(range(256)))


def test_what_is_recorded_is_replayed(tmp_path: Path) -> None:
    """Text and bytes come back the same; the file is a HAR after each entry, also when it is continued."""
    path = tmp_path / "a.har"
    record(path, ("https://a.org/", PAGE))
    record(path, ("http://b.org:8080/x?y=1", BYTES))
    found = json.loads(path.read_text())["log"]
    assert [e["request"]["url"] for e in found["entries"]] == ["https://a.org/", "http://b.org:8080/x?y=1"]
    archive = loaded(path)
    assert read(archive, "https://a.org/")[1] == PAGE.body
    head, body = read(archive, "http://b.org:8080/x?y=1")
    assert head.startswith(b"HTTP/1.1 404 Not Found\r\n") and b"content-length: 256\r\n" in head
    assert body == BYTES.body
    assert path.stat().st_mode & 0o077 == 0


def test_no_cookies_and_no_credentials_are_kept(tmp_path: Path) -> None:
    """Of the recorder nor of the site, whoever wrote the archive."""
    path = tmp_path / "a.har"
    record(path, ("https://a.org/", PAGE))
    assert b"secret" not in path.read_bytes()
    headers = [{"name": name, "value": "secret"} for name in ("Set-Cookie", "Alt-Svc", "Connection")]
    head, _ = read(of(tmp_path, entry(headers=headers)), "https://a.org/x")
    assert b"secret" not in head


def test_a_kill_costs_the_last_entry(tmp_path: Path) -> None:
    """Wherever the file was cut: what is whole is read, and recording goes on behind it."""
    path = tmp_path / "a.har"
    record(path, ("https://a.org/1", PAGE), ("https://a.org/2", PAGE))
    whole = path.read_bytes()
    start = whole.index(b"\n") + 1
    second = whole.index(b"\n", start)
    for cut in (len(whole) - 2, len(whole) - 40, second + 1, second, start):
        path.write_bytes(whole[:cut])
        assert set(loaded(path).urls) <= {"https://a.org/1", "https://a.org/2"}
        record(path, ("https://a.org/3", BYTES))
        assert "https://a.org/3" in loaded(path).urls
        json.loads(path.read_text())
        assert ("https://a.org/1" in loaded(path).urls) == (cut >= second)


def test_one_host_agent_at_a_time_records(tmp_path: Path) -> None:
    """Another is refused, and so is an archive that is not ours to add to."""
    path = tmp_path / "a.har"
    first = Recording(open_archive(path, to_record=True), Archive())
    with pytest.raises(ArchiveError, match="another host agent"):
        Recording(open_archive(path, to_record=True), Archive())
    first.close()
    path.write_text('{"log": {"entries": []}}')
    with pytest.raises(ArchiveError, match="not recorded by OSGym"):
        Recording(open_archive(path, to_record=True), Archive())


def test_a_browsers_har_is_replayed(tmp_path: Path) -> None:
    """With what HTTP/2 and decoded bodies leave in it; what was not kept or failed is left out."""
    headers = [
        {"name": ":status", "value": "200"},
        {"name": "Content-Encoding", "value": "br"},
        {"name": "Content-Length", "value": "9999"},
        {"name": "Content-Type", "value": "text/plain; charset=ISO-8859-1"},
    ]
    content = {"size": 5, "mimeType": "text/plain", "text": "Grüße"}
    archive = of(
        tmp_path,
        entry("https://a.org:443/x#part", headers=headers, content=content),
        entry("https://a.org/x", content={"size": 6, "text": "second"}),
        entry("https://a.org/base64", content={"size": 1, "text": "/w==", "encoding": "base64"}),
        entry(
            "https://a.org/raw",
            headers=[{"name": "content-type", "value": "image/png"}],
            content={"size": 2, "text": "\u0089P"},  # as mitmproxy writes what it takes for text
        ),
        entry("https://a.org/unkept", content={"size": 7}),
        entry("https://a.org/failed", status=0),
        entry("data:text/plain,x"),
        entry("https://[::1]/"),
        {**entry("https://a.org/post"), "request": {"method": "POST", "url": "https://a.org/post"}},
    )
    assert archive.urls == ["https://a.org/x", "https://a.org/base64", "https://a.org/raw"]
    assert read(archive, "https://a.org/raw")[1] == b"\x89P"
    assert archive.skipped == 5
    head, body = read(archive, "https://a.org/x")
    assert body == "Grüße".encode("latin-1")
    assert b"content-length: 5\r\n" in head and b"encoding" not in head and b":status" not in head
    assert read(archive, "https://a.org/base64")[1] == b"\xff"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '{"log": {}}',
        '{"log": {"entries": {}}}',
        '{"log": {"entries": [1]}}',
        '{"log": {"entries": [{"request": {}, "response": {}}]}}',
        "[" * 100_000,
        json.dumps({"log": {"entries": [entry(content={"text": 7})]}}),
        json.dumps({"log": {"entries": [entry(content={"text": "?", "encoding": "base64"})]}}),
        json.dumps({"log": {"entries": [entry(headers="x")]}}),
        json.dumps({"log": {"entries": [entry(headers=[{"name": 1, "value": "x"}])]}}),
        '{"log": {"entries": [' + json.dumps(entry()) + ",]}}",
        '{"log": {"entries": [' + json.dumps(entry()) + "]}",
        '{"log": {"entries": [' + json.dumps(entry()) + "]}} {",
        '{"log": {"entries": [' + json.dumps(entry()) + '], "entries": []}, "log": 1}',
        '{"log": {"entries": ["' + '\\"' * 100_000,
        '{"entries": [], "log": "entries"}',
        '[{"log": {"entries": []}}]',
    ],
)
def test_what_is_no_archive_is_refused(tmp_path: Path, text: str) -> None:
    """With a message, whatever it is."""
    path = tmp_path / "a.har"
    path.write_text(text)
    with pytest.raises(ArchiveError):
        loaded(path)


@pytest.mark.parametrize("before", ['"log": 7, "x": {"entries": [1]}, ', '"x": [{"log": "entries"}], '])
def test_entries_are_found_wherever_they_are(tmp_path: Path, before: str) -> None:
    """Entries are found after similar keys or a byte order mark, before pages, with brackets in texts."""
    found = json.dumps([entry(content={"text": '[{"\\\\", ]}'}), entry("https://a.org/y")], indent=1)
    path = tmp_path / "a.har"
    text = "\ufeff{" + before + '"log" : {"pages": [{"a": []}], "entries"\n: ' + found + ', "z": {}}}'
    path.write_text(text, "utf-8")
    assert read(loaded(path), "https://a.org/x")[1] == b'[{"\\\\", ]}'
    assert loaded(path).urls == ["https://a.org/x", "https://a.org/y"]


OWN = b'{"log":{"version":"1.2","creator":{"name":"OSGym","version":"1"},"entries":[\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"log":{"entries":[', b"[]]}}"),
        (b'{"log":{"entries":[{"request":[', b"[]]}]}}"),
        (b'{"log":{"entries":[],"pages":[', b"[]]}}"),
        (b'{"pages":[', b'[]],"log":{"entries":[]}}'),
        (OWN + b'{"request":[', b"[]]},\n{}\n]}}\n"),
    ],
    ids=["entries", "one entry", "after", "before", "as of ours"],
)
def test_a_hostile_archive_takes_little_more_memory_than_its_text(
    tmp_path: Path, before: bytes, after: bytes
) -> None:
    """39 MiB of empty lists, anywhere in the file, are refused by a process of less than 256 MiB."""
    path = tmp_path / "a.har"
    path.write_bytes(before + b"[]," * (13 << 20) + after)
    code = (
        "import re, sys; from osgym_host.cli.web import web\n"
        "try: web(['ls', sys.argv[1]], standalone_mode=False)\n"
        "except Exception as exc: print(exc)\n"
        "print(int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) >> 10)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    *said, mib = done.stdout.splitlines()
    assert "a.har" in said[0]
    assert int(mib) < 256


@given(name=st.text(max_size=20), value=st.text(max_size=40), status=st.integers(200, 599))
def test_a_header_of_an_archive_ends_no_head(name: str, value: str, status: int) -> None:
    """No line end of it reaches a browser, so no answer holds another."""
    found = har.read_entry(entry(headers=[{"name": name, "value": value}], status=status))
    if found is not None:
        assert all(b"\r" not in part and b"\n" not in part for pair in found[1].headers for part in pair)


@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="#"), max_size=30))
def test_what_is_asked_is_found_again(path: str) -> None:
    """Whatever path and query a browser sends: its entry is read back as the same URL."""
    url = har.url_of("https", Target("a.org", 8443), f"/{path}")
    assert har.read_url(url) == url


def test_urls_have_one_form() -> None:
    """Host in lower case, no usual port, no fragment; a query stays as it is."""
    assert har.read_url("HTTPS://A.ORG:443#x") == "https://a.org/"
    assert har.read_url("http://a.org:443/?") == "http://a.org:443/?"
    assert har.read_url("http://a.org/x?a=%20&b") == "http://a.org/x?a=%20&b"
    for bad in (
        "http://a.org/\u00e9",
        "http://a.org/\ud800",  # half a character, as JSON can hold it
        "http://user@a.org/",
        "ftp://a.org/",
        "http://localhost/",
        "http://a.org:x/",
    ):
        assert har.read_url(bad) is None


def test_a_packed_body_is_whole_or_not_recorded() -> None:
    """What was cut short, or goes on behind its end, would be replayed so for ever."""
    packed = gzip.compress(b"packed" * 100)
    assert (
        decoded(packed, [b"gzip"]) == decoded(zlib.compress(b"packed" * 100), [b"deflate"]) == b"packed" * 100
    )
    assert decoded(b"", [b"gzip"]) == b""
    for bad in (packed[:-9], packed + packed, b"packed"):
        with pytest.raises(Refused, match="malformed"):
            decoded(bad, [b"gzip"])


def test_an_archive_is_listed(tmp_path: Path) -> None:
    """By `osgym web ls`, as text and as JSON; what is none is refused with its name."""
    path = tmp_path / "a.har"
    record(path, ("https://a.org/", PAGE), ("https://a.org/x.png", BYTES))
    listed = CliRunner().invoke(web, ["ls", str(path)])
    assert listed.exit_code == 0
    assert [line.split() for line in listed.output.splitlines()[:2]] == [
        ["200", str(len(PAGE.body)), "https://a.org/"],
        ["404", "256", "https://a.org/x.png"],
    ]
    found = json.loads(CliRunner().invoke(web, ["ls", "--json", str(path)]).output)
    assert found["left_out"] == 0 and found["answers"][1]["status"] == 404
    path.write_text("{}")
    refused = CliRunner().invoke(web, ["ls", str(path)])
    assert refused.exit_code == 1 and "not a HAR file" in refused.output


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"web": "replay"}, "needs the setting web_archive"),
        ({"web": "replay", "web_archive": "a", "egress": "open"}, "leave egress at none"),
        ({"web": "record", "web_archive": "a"}, "needs egress=allowlist or open"),
        ({"web": "replay", "web_archive": "a", "egress_by": "link"}, "uses the proxy"),
        ({"web": "on"}, "web"),
    ],
)
def test_a_web_that_cannot_be_is_refused(settings: dict[str, str], said: str) -> None:
    """Where it is written, by the name of the setting and what to do."""
    with pytest.raises(SettingsError, match=said):
        load(None, {}, settings)


@pytest.mark.parametrize("settings", [{"web": "replay", "web_archive": "a"}, {"egress_by": "proxy"}])
def test_virtual_machines_refuse_it_by_name(settings: dict[str, str], tmp_path: Path) -> None:
    """When the host agent starts; what an earlier one left can be cleared all the same."""
    loaded = load(None, {}, {**settings, "runtime": "qemu", "data_dir": str(tmp_path)})
    image = ImageRef(ProbeImage("probe", tmp_path, ProbeManifest(0, 0)), "probe")
    with pytest.raises(RuntimeUnsupported, match="of qemu have no proxy"):
        make_runtime(loaded, image)
    assert make_runtime(loaded, None).name == "qemu"


def test_yamls_off_is_off(tmp_path: Path) -> None:
    """Which is false there."""
    file = tmp_path / "config.yaml"
    file.write_text("web: off\n")
    assert load(file).web == "off"
