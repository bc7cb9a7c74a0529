"""The site of documents and the pages for `man`: built whole, links checked, nothing from elsewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

import osgym_sdk

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "docs/site"
HTML = ROOT / "build/site/html"
LOADED = re.compile(r"<(?:script|img|iframe)[^>]+src=\"?https?:|<link[^>]+stylesheet[^>]+href=\"?https?:")

sys.path.insert(0, str(SITE))

import build  # noqa: E402 - the site's folder is no package: it is put on the path first
import commands  # noqa: E402 - the same


@pytest.fixture(scope="module")
def site() -> Path:
    """The site, built as `make site` does."""
    argv = [sys.executable, str(SITE / "build.py")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return HTML


def test_every_page_of_the_repository_is_there(site: Path) -> None:
    """Where it stands in the repository; README.md is its folder's first page."""
    for name in build.tracked():
        if name.endswith(".md") and not name.startswith(("tests/", ".github/")):
            page = re.sub(r"README\.md$", "index.md", name).removesuffix(".md")
            assert (site / f"{page}.html").is_file(), name


def test_it_needs_nothing_from_elsewhere(site: Path) -> None:
    """It opens from a disk without a network: no script, style or picture of another machine."""
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    assert [str(page) for page in pages if LOADED.search(page.read_text())] == []


def test_the_reference_has_every_class_and_command(site: Path) -> None:
    """From docstrings and help."""
    python = (site / "reference/python.html").read_text()
    assert [name for name in osgym_sdk.__all__ if f'id="osgym_sdk.{name}"' not in python] == []
    text = (site / "reference/commands.html").read_text()
    assert "osgym settle calibrate" in text and "osgym fleet doctor" in text


def test_the_reference_has_every_call_and_object(site: Path) -> None:
    """From the OpenAPI description: calls with the scope that they need, objects with their fields."""
    api = json.loads((ROOT / "host_agent/openapi.json").read_text())
    html = (site / "reference/http.html").read_text()
    text = unescape(re.sub(r"<[^>]+>", "", html))
    calls = [f"{method.upper()} {path}" for path, item in api["paths"].items() for method in item]
    assert [call for call in calls if call not in text] == []
    objects = api["components"]["schemas"]
    assert [name for name in objects if f'id="{name.lower()}"' not in html] == []
    fields = {field for schema in objects.values() for field in schema.get("properties", {})}
    assert [field for field in fields if f"<code>{field}</code>" not in html] == []
    assert html.count("Scope: ") == len(calls)


@pytest.mark.parametrize(
    ("link", "becomes"),
    [
        ("[a](b.md)", "[a](b.md)"),
        ("[a](../images/)", "[a](../images/README.md)"),
        ("[a](../images#how)", "[a](../images/README.md#how)"),
        ("[a](../tests/unit/)", "a"),
        ("[a](https://example.org/x)", "[a](https://example.org/x)"),
    ],
)
def test_links_to_folders_lead_to_their_page(link: str, becomes: str) -> None:
    """One of a folder without a page is text only."""
    files = frozenset(("docs/x.md", "docs/b.md", "images/README.md", "tests/unit/test_x.py"))
    assert build.page_and_files("docs/x.md", link, files)[0] == becomes


def test_a_link_that_leads_nowhere_is_named() -> None:
    """With the page that it is on."""
    with pytest.raises(build.BrokenLinks, match=r"docs/x\.md: gone\.md"):
        build.page_and_files("docs/x.md", "[a](gone.md#there)", frozenset(("docs/x.md",)))


def test_man_has_a_page_for_each_command(tmp_path: Path) -> None:
    """Named as git names its own; the first one lists the others."""
    written = {path.name for path in commands.write_man_pages(tmp_path)}
    assert {"osgym.1", "osgym-host-serve.1", "osgym-settle-calibrate.1"} <= written
    first = (tmp_path / "osgym.1").read_text()
    assert first.startswith(".TH") and "desktops" in first and "host" in first
    assert "Examples:" in (tmp_path / "osgym-replica-ls.1").read_text()
