"""The web applications that families serve: what they take, and what they say changed."""

from __future__ import annotations

import importlib
import json
import pkgutil
import random
import re
from typing import Any
from urllib.parse import urlencode

import pytest

import osgym_tasks.webapps
from osgym_tasks import FAMILIES
from osgym_tasks.web import Served, browser
from osgym_tasks.webapps.framework import Site, clean, difference

BROWSER = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate"}
KEY = {"X-Key": "secret"}


def form_site() -> Site:
    """The application of forms, anew, with one question."""
    forms = importlib.reload(importlib.import_module("osgym_tasks.webapps.forms"))
    question = {"name": "f0", "label": "Name <of> you", "kind": "text", "options": "", "value": ""}
    forms.SITE.load({"title": "A & B", "key": "secret", "tables": {"questions": [question]}})
    site: Site = forms.SITE
    return site


def test_a_form_is_taken_from_its_page_in_a_browser_alone() -> None:
    """Not without cookie, token or what a browser says of itself; what came is a row."""
    site = form_site()
    shown = site.handle("GET", "/form", {})
    text = shown.data.decode()
    assert "Name &lt;of&gt; you" in text and "A &amp; B" in text
    cookie = {"Cookie": shown.headers["Set-Cookie"].partition(";")[0]}
    (token,) = re.findall(r'name="token" value="(\w+)"', text)
    good = urlencode({"token": token, "f0": "  Ada \r\n"})
    for headers, body in (
        ({**cookie, **BROWSER}, "f0=Ada"),
        (BROWSER, good),
        (cookie, good),
        ({**cookie, **BROWSER, "Sec-Fetch-Site": "cross-site"}, good),
    ):
        assert site.handle("POST", "/form", headers, body).status == 403
    assert site.handle("GET", "/state", KEY).data == b""
    sent = site.handle("POST", "/form", {**cookie, **BROWSER}, good)
    assert (sent.status, sent.headers["Location"]) == (303, "/thanks")
    row = b'+ answers {"name": "f0", "number": 1, "value": "Ada"}\n'
    assert site.handle("GET", "/state", KEY).data == row
    refused = site.handle("GET", "/state", {"X-Key": "guess"})
    assert (refused.status, refused.data) == (403, b"")
    assert site.handle("GET", "/nowhere", {}).status == site.handle("GET", "/pages/x", {}).status == 404


def test_what_changed_is_said_by_row() -> None:
    """Whatever the order; twins count."""
    before: Any = {"t": [{"a": 1}, {"a": 1}, {"a": 2}], "u": []}
    assert difference(before, {"t": before["t"][::-1], "u": []}) == ""
    assert difference(before, {"t": [{"a": 1}, {"a": 2}], "u": [{"b": "x"}]}) == (
        '- t {"a": 1}\n+ u {"b": "x"}\n'
    )
    assert clean(" a \r\n\n b\n") == "a\n\nb"


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if "chromium" in family.apps])
def test_the_first_rows_are_whole(name: str) -> None:
    """An application takes its rows, shows all that it links to, and finds nothing changed."""
    for level in (1, 5):
        config = FAMILIES[name].make(3, level).task["config"]
        uploads = [step["parameters"]["files"] for step in config if step["type"] == "upload_file"]
        files = {file["path"]: file.get("text") for listed in uploads for file in listed}
        if "/tmp/site/seed.json" not in files:
            continue
        (app,) = [step["parameters"]["command"][-1] for step in config if "runuser" in str(step)]
        module = importlib.reload(importlib.import_module(f"osgym_tasks.webapps.{app}"))
        seed = json.loads(files["/tmp/site/seed.json"])
        for table, rows in seed["tables"].items():
            assert all(set(row) == set(module.SCHEMA[table]) for row in rows), table
        module.SITE.load(seed)
        paths = ["/"]
        for path in paths:
            shown = module.SITE.handle("GET", path, {})
            assert shown.status == 200, path
            found = re.findall(r'href="(/[^"]*)"', shown.data.decode(errors="replace"))
            paths += [one for one in dict.fromkeys(found) if one not in paths]
        assert module.SITE.handle("GET", "/state", {"X-Key": seed["key"]}).data == b""


def test_every_application_is_carried_whole() -> None:
    """With nothing of ours but the framework, since no more of it is in the desktop."""
    names = {module.name for module in pkgutil.iter_modules(osgym_tasks.webapps.__path__)} - {"framework"}
    for name in names:
        served = Served(random.Random(1), name, "Title", {})
        upload = served.config()[0]["parameters"]["files"]
        texts = {file["path"]: file["text"] for file in upload}
        assert f"/tmp/site/osgym_tasks/webapps/{name}.py" in texts
        ours = {line.split()[1] for text in texts.values() for line in text.splitlines()
                if line.startswith(("from osgym", "import osgym"))}  # fmt: skip
        assert ours <= {"osgym_tasks.webapps.framework"}
    assert "--force-renderer-accessibility" in browser("x", "y")[0]["parameters"]["command"]
