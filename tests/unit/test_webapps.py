"""The web applications that families serve: what they take, and what they say changed."""

from __future__ import annotations

import importlib
import json
import pkgutil
import random
import re
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from tests.support.keyboard_browser import BROWSER, KeyboardBrowser

import osgym_tasks.webapps
from osgym_tasks import FAMILIES, LEVELS
from osgym_tasks.pieces import DONE
from osgym_tasks.web import APPS, Served
from osgym_tasks.webapps.framework import Site, clean, difference

KEY = {"X-Key": "secret"}
IN_A_BROWSER = [name for name, family in FAMILIES.items() if "chromium" in family.apps]
LONG = [name for name in FAMILIES if name.startswith("long.")]
BY_KEYBOARD = [
    name
    for name in IN_A_BROWSER
    if FAMILIES[name].apps == APPS
    and not name.startswith("none.")
    and "X-Key" in json.dumps(FAMILIES[name].make(0, 1).task["evaluator"])
]
"""Those that can be done, need nothing but a browser, and whose evaluator asks an application."""


def form_site() -> Site:
    """The application of forms, anew, with one question."""
    forms = importlib.reload(importlib.import_module("osgym_tasks.webapps.forms"))
    question = {"name": "f0", "label": "Name <of> you", "kind": "text", "options": "", "value": ""}
    forms.SITE.load({"title": "A & B", "port": 8000, "key": "secret", "tables": {"questions": [question]}})
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


def mail_site() -> Site:
    """The web mail, anew, with thirteen messages that have copies to a third person."""
    mail = importlib.reload(importlib.import_module("osgym_tasks.webapps.mail"))
    people = [{"address": f"{name.lower()}@x", "name": name} for name in ("Me", "Ann", "Bob")]
    messages = [
        {"number": number, "folder": "Inbox", "date": f"2024-05-{number:02}", "sender": "ann@x",
         "receivers": "me@x", "copies": "bob@x", "subject": f"No. {number}", "text": "Hello", "mark": "None"}
        for number in range(1, 14)
    ]  # fmt: skip
    folders = [{"name": "Inbox"}, {"name": "Work"}]
    tables = {"people": people, "folders": folders, "messages": messages, "sent": []}
    mail.SITE.load({"title": "Mail", "port": 8000, "key": "secret", "tables": tables})
    site: Site = mail.SITE
    return site


def test_a_reply_goes_to_whom_its_page_says() -> None:
    """To all others but the owner; nothing is sent to an address that nobody has."""
    site = mail_site()
    browser = KeyboardBrowser(site)
    tab, enter = {"op": "key", "keys": ["tab"]}, {"op": "key", "keys": ["enter"]}
    heading = {"op": "click", "at": {"role": "heading", "name": "Write"}}
    browser.go("/new")
    browser.act([heading, tab, {"op": "type", "text": "nobody@x"}, tab, tab, {"op": "type", "text": "Hi"}])
    browser.act([tab, {"op": "type", "text": "Where are you?"}, tab, enter])
    assert site.handle("GET", "/state", KEY).data == b""
    browser.go("/messages/3/reply-all")
    heading["at"] = {"role": "heading", "name": "Reply to all: No. 3"}
    browser.act([heading, tab, tab, tab, tab, {"op": "type", "text": "Yes"}, tab, enter])
    row = {"answers": 3, "copies": "bob@x", "receivers": "ann@x", "subject": "Re: No. 3", "text": "Yes"}
    assert site.handle("GET", "/state", KEY).data.decode() == f"+ sent {json.dumps(row)}\n"
    assert "Re: No. 3" in site.handle("GET", "/sent", {}).data.decode()


def test_a_folder_has_pages_and_is_searched() -> None:
    """Twelve messages a page, the newest first."""
    site = mail_site()

    def shown(target: str) -> list[str]:
        return re.findall(
            r">(No\. \d+|Newer messages|Older messages)<", site.handle("GET", target, {}).data.decode()
        )

    first = shown("/folders/Inbox")
    assert first == [*(f"No. {number}" for number in range(13, 1, -1)), "Older messages"]
    assert shown("/folders/Inbox?page=2") == shown("/folders/Inbox?page=9") == ["No. 1", "Newer messages"]
    assert shown("/folders/Inbox?q=no.+13") == ["No. 13"]
    assert shown("/folders/Work") == []


def test_what_changed_is_said_by_row() -> None:
    """Whatever the order; twins count."""
    before: Any = {"t": [{"a": 1}, {"a": 1}, {"a": 2}], "u": []}
    assert difference(before, {"t": before["t"][::-1], "u": []}) == ""
    assert difference(before, {"t": [{"a": 1}, {"a": 2}], "u": [{"b": "x"}]}) == (
        '- t {"a": 1}\n+ u {"b": "x"}\n'
    )
    assert clean(" a \r\n\n b\n") == "a\n\nb"


@pytest.mark.parametrize("name", IN_A_BROWSER)
def test_the_first_rows_are_whole(name: str) -> None:
    """An application takes its rows, shows all that it links to, and finds nothing changed."""
    for level in (1, 5):
        for site, key in _sites(FAMILIES[name].make(3, level).task).values():
            paths = ["/"]
            for path in paths:
                shown = site.handle("GET", path, {})
                assert shown.status == 200, path
                found = re.findall(r'href="(/[^"]*)"', shown.data.decode(errors="replace"))
                paths += [one for one in dict.fromkeys(found) if one not in paths]
            assert site.handle("GET", "/state", {"X-Key": key}).data == b""


def _sites(task: dict[str, Any]) -> dict[int, tuple[Any, str]]:
    """The applications of a task with their rows, by port, each with the evaluator's key."""
    steps = task["config"]
    uploads = [step["parameters"]["files"] for step in steps if step["type"] == "upload_file"]
    texts = {file["path"]: file.get("text") for listed in uploads for file in listed}
    found = {}
    for app in [app for step in steps if "runuser" in str(step) for app in step["parameters"]["command"][6:]]:
        seed = json.loads(texts[f"/tmp/site/{app}.json"])
        module = importlib.reload(importlib.import_module(f"osgym_tasks.webapps.{app}"))
        for table, rows in seed["tables"].items():
            assert all(set(row) == set(module.SCHEMA[table]) for row in rows), table
        module.SITE.load(seed)
        found[seed["port"]] = module.SITE, seed["key"]
    return found


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", BY_KEYBOARD)
def test_what_an_oracle_sends_is_what_is_wanted(name: str, level: int) -> None:
    """And what each near miss sends is not, from page to page in a browser without a screen."""
    for seed in range(2):
        instance = FAMILIES[name].make(seed, level)
        wanted = instance.task["evaluator"]["expected"][0]["rules"]["expected"]
        for way, steps in {"oracle": instance.ways.oracle, **instance.ways.near}.items():
            ((site, key),) = _sites(instance.task).values()
            browser = KeyboardBrowser(site)
            for step in steps:
                browser.act(step)
            got = site.handle("GET", "/state", {"X-Key": key}).data.decode()
            assert (got == wanted) == (way == "oracle"), (instance.name, way, got, wanted)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", LONG)
def test_what_long_oracles_send_to_several_services_is_what_is_wanted(name: str, level: int) -> None:
    """Each service has in the end what its checkpoint asks for; after a way to a part, all but one have."""
    for seed in range(2):
        instance = FAMILIES[name].make(seed, level)
        wanted = {
            urlsplit(result["command"][-1]).port: expected["rules"]["expected"]
            for result, expected in zip(
                *(instance.task["evaluator"][k] for k in ("result", "expected")), strict=True
            )
            if str(result.get("command", [""])[-1]).endswith("/state")
        }
        ways = {"oracle": instance.ways.oracle, **{k: steps for k, (steps, _) in instance.ways.part.items()}}
        for way, steps in ways.items():
            sites = _sites(instance.task)
            browsers = {port: KeyboardBrowser(site) for port, (site, _) in sites.items()}
            _browse(browsers, instance.task, steps)
            right = [
                site.handle("GET", "/state", {"X-Key": key}).data.decode() == wanted[port]
                for port, (site, key) in sites.items()
                if port in wanted
            ]
            assert right.count(False) <= (way != "oracle"), (instance.name, way, right)
        assert wanted


def _browse(browsers: dict[int, KeyboardBrowser], task: dict[str, Any], steps: list[Any]) -> None:
    """Act on the sites by the steps that are done in the browser's window."""
    titles = next(
        step["parameters"]["command"][4:][::-1] for step in task["config"] if "getwindowname" in str(step)
    )
    order = [*titles]
    files = ("Terminal", "GIMP", "Contracts", "docx", "xlsx", "odp", "txt", "md")
    active = None
    for step in steps:
        if step[0].get("op") == "key_down":
            order.insert(0, order.pop([action.get("keys") for action in step].count(["tab"])))
        elif not order[0].endswith(files):
            typed = [str(action.get("text", "")) for action in step]
            ports = [urlsplit(text).port for text in typed if text.startswith("http://localhost:")]
            active = browsers[ports[0]] if ports else active
            assert active is not None or step == DONE
            if active is not None:
                active.act(step)


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
