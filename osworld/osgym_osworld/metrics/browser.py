"""Metrics over a browser: tabs, addresses, bookmarks, cookies, history, settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, product
from typing import Any

from osgym_host.tasks.metric_plugin import (
    Argument,
    Score,
    Unreadable,
    as_file,
    as_text,
    differ,
    metric,
    rules_of,
)
from osgym_osworld.browser.urls import same_url, without_query

MAX_CHOICES = 10_000
"""Combinations of bookmarks that a task may allow."""


def _url_of(result: Argument) -> str | None:
    """Return an address: the value itself, or the one in a tab's description."""
    found = result.get("url") if isinstance(result, dict) else result
    return found if isinstance(found, str) and found else None


def _kind(rules: dict[str, Any], *known: str) -> str:
    kind = str(rules["type"])
    if kind not in known:
        raise Unreadable("expected", f"unknown type of rule {kind!r}; valid types: {', '.join(known)}")
    return kind


def _texts(value: Any, name: str) -> list[str]:
    if not isinstance(value, list):
        raise Unreadable("expected", f"{name} must be a list")
    return [str(v) for v in value]


@metric()
def is_expected_active_tab(result: Argument, expected: Argument) -> Score:
    """The address of the tab in front is ``rules.url``."""
    rules = rules_of(expected)
    _kind(rules, "url")
    got, wanted = _url_of(result), str(rules["url"])
    return Score(1.0) if got and same_url(got, wanted) else differ("the tab in front", got, wanted)


@metric()
def is_expected_active_tab_approximate(result: Argument, expected: Argument) -> Score:
    """The active tab shows the expected address; its query does not count."""
    rules = rules_of(expected)
    _kind(rules, "url")
    got, wanted = _url_of(result), str(rules["url"])
    same = got is not None and without_query(got) == without_query(wanted)
    return Score(1.0) if same else differ("the tab in front", got, wanted)


@metric()
def is_expected_url_pattern_match(result: Argument, expected: Argument) -> Score:
    """Each pattern of ``rules.expected`` is found in the address."""
    patterns = _texts(rules_of(expected)["expected"], "expected")
    got = _url_of(result)
    for pattern in patterns:
        if re.search(pattern, got or "") is None or got is None:
            return differ("the address", got, pattern)
    return Score(1.0) if got else Score(0.0, "there is no address")


@metric()
def is_expected_search_query(result: Argument, expected: Argument) -> Score:
    """``rules.expect.pattern`` is found in the address."""
    wanted = rules_of(expected)["expect"]
    pattern, got = str(rules_of(wanted)["pattern"]), _url_of(result)
    found = re.search(pattern, got or "") is not None and got is not None
    return Score(1.0) if found else differ("the address", got, pattern)


@metric()
def is_expected_tabs(result: Argument, expected: Argument) -> Score:
    """The open tabs are those of ``rules.urls``, in any order."""
    rules = rules_of(expected)
    _kind(rules, "url")
    wanted = _texts(rules["urls"], "urls")
    tabs = result if isinstance(result, list) else []
    got = [url for tab in tabs if (url := _url_of(tab))]
    fits = len(got) == len(wanted)
    fits = fits and all(any(same_url(w, g) for g in got) for w in wanted)
    fits = fits and all(any(same_url(w, g) for w in wanted) for g in got)
    return Score(1.0) if fits else differ("the open tabs", got, wanted)


@metric()
def is_added_to_steam_cart(result: Argument, expected: Argument) -> Score:
    """The page's text has each of ``rules.items``."""
    items = _texts(rules_of(expected)["items"], "items")
    content = str(result.get("content", "")) if isinstance(result, dict) else ""
    for item in items:
        if item not in content:
            return Score(0.0, f"{item!r} is not on the page")
    return Score(1.0)


@metric()
def is_expected_installed_extensions(result: Argument, expected: Argument) -> Score:
    """The installed extensions have all names of ``rules.expected``."""
    wanted = set(_texts(rules_of(expected)["expected"], "expected"))
    got = {str(name) for name in result} if isinstance(result, list) else set()
    return Score(1.0) if wanted <= got else differ("extensions", sorted(got), sorted(wanted))


def _entries(node: Any, kind: str, field: str) -> Iterator[str]:
    children = node.get("children") if isinstance(node, dict) else None
    for child in children if isinstance(children, list) else []:
        if isinstance(child, dict) and child.get("type") == kind:
            yield str(child.get(field, ""))


@metric()
def is_expected_bookmarks(result: Argument, expected: Argument) -> Score:
    """The bookmarks bar has exactly these folders, these addresses, or a folder of these addresses."""
    rules = rules_of(expected)
    kind = _kind(
        rules, "bookmark_bar_folders_names", "bookmark_bar_websites_urls", "liked_authors_websites_urls"
    )
    bar = result.get("bookmark_bar") if isinstance(result, dict) else None
    if kind == "bookmark_bar_folders_names":
        got, wanted = set(_entries(bar, "folder", "name")), set(_texts(rules["names"], "names"))
        return Score(1.0) if got == wanted else differ("folders", sorted(got), sorted(wanted))
    if kind == "bookmark_bar_websites_urls":
        got, wanted = set(_entries(bar, "url", "url")), set(_texts(rules["urls"], "urls"))
        return Score(1.0) if got == wanted else differ("bookmarks", sorted(got), sorted(wanted))
    children = bar.get("children", []) if isinstance(bar, dict) else []
    named = (c for c in children if isinstance(c, dict) and c.get("type") == "folder")
    folder = next((c for c in named if c.get("name") == "Liked Authors"), None)
    got = set(_entries(folder, "url", "url"))
    urls = rules["urls"] if isinstance(rules["urls"], list) else [rules["urls"]]
    choices = [choice if isinstance(choice, list) else [choice] for choice in urls]
    for wanted_urls in islice(product(*choices), MAX_CHOICES):
        if got == set(wanted_urls):
            return Score(1.0)
    return differ("the folder Liked Authors", sorted(got), urls)


def _rows(result: Argument, columns: int) -> list[list[str]]:
    rows = result if isinstance(result, list) else []
    return [[str(v) for v in row] for row in rows if isinstance(row, list | tuple) and len(row) >= columns]


@metric()
def is_cookie_deleted(result: Argument, expected: Argument) -> Score:
    """No cookie of ``rules.domains`` is left."""
    rules = rules_of(expected)
    _kind(rules, "domains")
    wanted = _texts(rules["domains"], "domains")
    left = [row[1] for row in _rows(result, 2)]
    for domain in wanted:
        if any(same_url(domain, site) for site in left):
            return Score(0.0, f"a cookie of {domain} is left")
    return Score(1.0)


@metric()
def check_history_deleted(result: Argument, expected: Argument) -> Score:
    """No address with one of ``rules.keywords`` is left in the history."""
    rules = rules_of(expected)
    _kind(rules, "keywords")
    wanted = _texts(rules["keywords"], "keywords")
    visited = [row[0] for row in _rows(result, 1)]
    for keyword in wanted:
        if any(keyword in url for url in visited):
            return Score(0.0, f"a visit with {keyword!r} is left")
    return Score(1.0)


@metric()
def is_shortcut_on_desktop(result: Argument, expected: Argument) -> Score:
    """A shortcut (desktop file) of the desktop has that ``Name`` or ``Exec``."""
    rules = rules_of(expected)
    kind = _kind(rules, "name", "exec")
    line = f"{'Name' if kind == 'name' else 'Exec'}={rules[kind]}"
    files = result if isinstance(result, list) else [] if result is None else [result]
    for file in files:
        if line in as_file(file, "result").text().splitlines():
            return Score(1.0)
    return Score(0.0, f"no shortcut has {line!r}")


@metric()
def check_enabled_experiments(result: Argument, expected: Argument) -> Score:
    """The enabled experiments are exactly ``rules.names``, in that order."""
    rules = rules_of(expected)
    _kind(rules, "names")
    wanted = _texts(rules["names"], "names")
    got = [str(name).partition("@")[0] for name in result] if isinstance(result, list) else []
    return Score(1.0) if got == wanted else differ("experiments", got, wanted)


@metric()
def check_font_size(result: Argument, expected: Argument) -> Score:
    """The default font size in pixels is ``rules.value``, or lies between ``min`` and ``max``."""
    rules = rules_of(expected)
    kind = _kind(rules, "value", "range")
    got = result.get("default_font_size") if isinstance(result, dict) else None
    if not isinstance(got, int | float):
        return Score(0.0, "no font size is set")
    fits = got == rules["value"] if kind == "value" else rules["min"] < got < rules["max"]
    return Score(1.0) if fits else differ("the font size", got, dict(rules))


def _html_items(text: str, ignored: frozenset[str]) -> list[Any]:
    from html.parser import HTMLParser

    class Items(HTMLParser):
        """Collects what is in a document, in order."""

        def __init__(self) -> None:
            super().__init__(convert_charrefs=True)
            self.found: list[Any] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.found.append((tag, sorted((k, v or "") for k, v in attrs if k not in ignored)))

        def handle_data(self, data: str) -> None:
            if words := " ".join(data.split()):
                self.found.append(words)

    reader = Items()
    reader.feed(text)
    reader.close()
    return reader.found


@metric()
def compare_htmls(result: Argument, expected: Argument, ignore_sdnum: bool = False) -> Score:
    """Two HTML files have the same elements, attributes and text; blanks do not count."""
    ignored = frozenset({"sdnum"}) if ignore_sdnum else frozenset()
    got = _html_items(as_file(result, "result").text(), ignored)
    wanted = _html_items(as_file(expected, "expected").text(), ignored)
    if got == wanted:
        return Score(1.0)
    place = next((i for i, (a, b) in enumerate(zip(got, wanted, strict=False)) if a != b), None)
    if place is None:
        return Score(0.0, f"the page has {len(got)} parts, wanted {len(wanted)}")
    return differ(f"part {place} of the page", got[place], wanted[place])


@metric(needs_expected=False)
def check_text_enlarged(result: Argument, expected: Argument) -> Score:
    """The text scaling factor is above 1."""
    try:
        return Score(
            float(float(as_text(result).strip()) > 1), f"the factor is {as_text(result).strip()[:20]}"
        )
    except ValueError:
        return Score(0.0, "there is no factor")


def warm_up() -> None:
    from html.parser import HTMLParser

    HTMLParser().feed("<p>&amp;</p>")
