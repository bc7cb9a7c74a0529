"""What tasks read of a browser: addresses, metrics, files of its profile, days named from today."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osgym_host.tasks.evaluator.inputs import InputFile, TaskObject, Unreadable
from osgym_host.tasks.evaluator.registry import METRICS, READERS, Score
from osgym_osworld.browser.getters import HtmlParameters
from osgym_osworld.browser.page_script import Query
from osgym_osworld.browser.relative_time import UnknownTime, day_of, filled, written
from osgym_osworld.browser.urls import same_url, shown


def score(name: str, result: object, expected: object, **options: object) -> float:
    """The score of one metric."""
    value = METRICS[name].function(result, TaskObject.of(expected), **options)
    return value.score if isinstance(value, Score) else float(value)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Any]:
    """Makes an `InputFile` from bytes or a JSON value."""
    fds: list[int] = []

    def make(data: object) -> InputFile:
        path = tmp_path / str(len(fds))
        path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
        fds.append(os.open(path, os.O_RDONLY))
        return InputFile(fds[-1], "f", "result")

    yield make
    for fd in fds:
        os.close(fd)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("https://www.drugs.com/", "https://drugs.com", True),
        ("airbnb.com", "http://airbnb.com.sg/", True),
        ("https://drugs.com", "http://drugs.com", False),
        ("https://a.example.org/x?y=1", "https://a.example.org/x?y=2", False),
        ("https://mail.example.org", "https://example.org", False),
        ("https://example.org:443/a", "https://EXAMPLE.org/a", True),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8001/", False),
        ("chrome://password-manager/passwords", "chrome://password-manager/passwords", True),
        ("http://[::bad", "http://[::worse", False),
    ],
)
def test_two_addresses_are_one_pages(a: str, b: str, same: bool) -> None:
    """A suffix, `www.` and a lone slash do not count; scheme, path, query and port do."""
    assert same_url(a, b) is same
    assert same_url(b, a) is same


@settings(max_examples=40, deadline=None)
@given(st.text(), st.text())
def test_no_text_breaks_the_comparison_of_addresses(a: str, b: str) -> None:
    """Whatever a browser tells, it is compared; each address is its own."""
    assert same_url(a, a)
    assert same_url(a, b) == same_url(b, a)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://www.example.org/", "example.org"),
        ("https://example.org/a/", "example.org/a/"),
        ("http://a.example.org/b?c#d", "a.example.org/b?c#d"),
        ("chrome://settings/", "chrome://settings/"),
        ("file:///home/user/a.html", "/home/user/a.html"),
    ],
)
def test_what_the_address_bar_shows(url: str, text: str) -> None:
    """Neither http(s) nor `www.` nor the slash of a bare name."""
    assert shown(url) == text


def test_tabs_are_those_expected_in_any_order() -> None:
    """As many, and each has its like."""
    rule = {"type": "url", "urls": ["https://a.org", "https://b.org/x"]}
    tabs = [{"title": "", "url": u} for u in ("https://b.org/x", "https://www.a.org/")]
    assert score("is_expected_tabs", tabs, rule) == 1
    assert score("is_expected_tabs", tabs[:1], rule) == 0
    assert score("is_expected_tabs", [*tabs, tabs[0]], rule) == 0
    assert score("is_expected_tabs", [tabs[0], tabs[0]], rule) == 0
    for hostile in (None, "x", [1, {"url": 3}], {}):
        assert score("is_expected_tabs", hostile, rule) == 0


def test_the_tab_in_front() -> None:
    """By address or by what describes a tab; a rule of another type is the task's fault."""
    rule = {"type": "url", "url": "https://a.org/x?q=1"}
    assert score("is_expected_active_tab", "https://a.org/x?q=1", rule) == 1
    assert score("is_expected_active_tab", {"url": "https://a.org/x?q=2"}, rule) == 0
    assert score("is_expected_active_tab_approximate", {"url": "https://a.org/x?q=2"}, rule) == 1
    assert score("is_expected_active_tab", None, rule) == 0
    with pytest.raises(Unreadable, match="unknown type of rule"):
        score("is_expected_active_tab", "https://a.org", {"type": "title"})
    with pytest.raises(Unreadable, match="'url'"):
        score("is_expected_active_tab", "https://a.org", {"type": "url"})


def test_patterns_of_an_address() -> None:
    """All of them are found."""
    rule = {"expected": ["^https://a", "x=1"]}
    assert score("is_expected_url_pattern_match", {"url": "https://a.org?x=1"}, rule) == 1
    assert score("is_expected_url_pattern_match", "https://a.org", rule) == 0
    assert score("is_expected_url_pattern_match", None, {"expected": [""]}) == 0
    assert (
        score("is_expected_search_query", {"url": "https://s.org?q=ab"}, {"expect": {"pattern": "q=a"}}) == 1
    )


def test_bookmarks() -> None:
    """Folders, addresses, and a folder of addresses with choices."""
    author = {"type": "url", "url": "https://a.org/"}
    bar = {"children": [{"type": "folder", "name": "Liked Authors", "children": [author]}, author]}
    roots = {"bookmark_bar": bar}
    name = "is_expected_bookmarks"
    assert score(name, roots, {"type": "bookmark_bar_folders_names", "names": ["Liked Authors"]}) == 1
    assert score(name, roots, {"type": "bookmark_bar_websites_urls", "urls": ["https://a.org/"]}) == 1
    urls = [["https://b.org/", "https://a.org/"]]
    assert score(name, roots, {"type": "liked_authors_websites_urls", "urls": urls}) == 1
    assert score(name, roots, {"type": "liked_authors_websites_urls", "urls": ["https://c.org/"]}) == 0
    for hostile in (None, [], {"bookmark_bar": []}, {"bookmark_bar": {"children": {"a": 1}}}):
        assert score(name, hostile, {"type": "bookmark_bar_folders_names", "names": ["x"]}) == 0


def test_cookies_and_history_are_read_from_their_databases(file: Any, tmp_path: Path) -> None:
    """Also from one that is kept with a log; what is no database is the result's fault."""
    for mode in ("delete", "wal"):
        path = tmp_path / f"{mode}.db"
        base = sqlite3.connect(path)
        base.execute(f"PRAGMA journal_mode={mode}")
        base.execute("CREATE TABLE cookies (creation_utc, host_key, name)")
        base.execute("CREATE TABLE urls (url, title, last_visit_time)")
        base.execute("INSERT INTO cookies VALUES (1, '.amazon.com', 'a')")
        base.execute("INSERT INTO urls VALUES ('https://www.youtube.com/x', 'X', 1)")
        base.commit()
        base.close()
        rows = READERS["chrome_cookies"](file(path.read_bytes()))
        assert score("is_cookie_deleted", rows, {"type": "domains", "domains": [".amazon.com"]}) == 0
        assert score("is_cookie_deleted", rows, {"type": "domains", "domains": [".ebay.com"]}) == 1
        rows = READERS["chrome_history"](file(path.read_bytes()))
        assert score("check_history_deleted", rows, {"type": "keywords", "keywords": ["youtube"]}) == 0
        assert score("check_history_deleted", rows, {"type": "keywords", "keywords": ["vimeo"]}) == 1
    for broken in (b"", b"SQLite format 3\0" + bytes(200), b"x" * 5000):
        with pytest.raises(Unreadable):
            READERS["chrome_cookies"](file(broken))


@settings(max_examples=40, deadline=None)
@given(st.binary(min_size=496, max_size=600))
def test_no_bytes_crash_the_reader_of_databases(data: bytes) -> None:
    """It reads rows or says that it cannot."""
    held = InputFile(-1, "f", "result", b"SQLite format 3\0" + data)
    with pytest.raises(Unreadable):
        READERS["chrome_history"](held)


BING = {"default_search_provider_data": {"template_url_data": {"short_name": "Bing"}}}


@pytest.mark.parametrize(
    ("reader", "settings", "value"),
    [
        (
            "search_engine",
            {"default_search_provider_data": {"template_url_data": {"short_name": "Bing"}}},
            "Bing",
        ),
        ("search_engine", {}, "Google"),
        ("profile_name", {"profile": {"name": "Thomas"}}, "Thomas"),
        ("do_not_track", {"enable_do_not_track": True}, "true"),
        ("do_not_track", {}, "false"),
        ("safe_browsing", {}, "true"),
        ("safe_browsing", {"safebrowsing": {"enabled": False}}, "false"),
        ("enhanced_safe_browsing", {"safebrowsing": {"enhanced": True}}, "true"),
        ("startup_new_tab", {}, "true"),
        ("startup_new_tab", {"session": {"restore_on_startup": 1}}, "false"),
        ("deletes_data", {"profile": {"default_content_setting_values": {"cookies": 4}}}, "true"),
        (
            "deletes_data",
            {"profile": {"default_content_setting_values": {"has_migrated_local_network_access": True}}},
            "false",
        ),
        ("deletes_data", {"profile": {}}, "false"),
        ("font_sizes", {"webkit": {"webprefs": {"default_font_size": 20}}}, {"default_font_size": 20}),
        ("extension_paths", {"extensions": {"settings": {"a": {"path": "/p"}, "b": 1}}}, ["/p"]),
        ("extension_names", {"extensions": {"settings": {"a": {"manifest": {"name": "N"}}}}}, ["N"]),
        ("experiments", {"browser": {"enabled_labs_experiments": ["x@1"]}}, ["x@1"]),
        ("language", {"intl": {"app_locale": "de"}}, "de"),
        ("bookmarks", {"roots": {"bookmark_bar": {}}}, {"bookmark_bar": {}}),
        ("profile_name", ["hostile"], None),
        ("extension_names", {"extensions": 3}, []),
    ],
)
def test_settings_of_a_profile(file: Any, reader: str, settings: object, value: object) -> None:
    """What a file says, or what the browser does when it does not."""
    assert READERS[f"chrome_{reader}"](file(settings)) == value


def test_experiments_fonts_extensions_and_shortcuts(file: Any) -> None:
    """Metrics on what is read of a profile."""
    assert score("check_enabled_experiments", ["a@1", "b"], {"type": "names", "names": ["a", "b"]}) == 1
    assert score("check_enabled_experiments", ["b"], {"type": "names", "names": ["a"]}) == 0
    rule = {"type": "range", "min": 16, "max": 99}
    assert score("check_font_size", {"default_font_size": 20}, rule) == 1
    assert score("check_font_size", {"default_font_size": 16}, rule) == 0
    assert score("check_font_size", {"default_font_size": "big"}, rule) == 0
    assert score("is_expected_installed_extensions", ["a", "b"], {"expected": ["a"]}) == 1
    assert score("is_expected_installed_extensions", None, {"expected": ["a"]}) == 0
    shortcut = file(b"[Desktop Entry]\nName=Play Puzzle Game 2048\n")
    rule2 = {"type": "name", "name": "Play Puzzle Game 2048"}
    assert score("is_shortcut_on_desktop", [shortcut], rule2) == 1
    assert score("is_shortcut_on_desktop", [], rule2) == 0
    assert score("is_added_to_steam_cart", {"content": "<p>Dota</p>"}, {"items": ["Dota"]}) == 1


def test_html_is_compared_by_elements_attributes_and_text(file: Any) -> None:
    """Blanks do not count, and one attribute may be left out."""
    page, same = file(b'<p a="1" sdnum="2">x  y</p>'), file(b'<p sdnum="3" a="1">\nx y </p>')
    other = file(b'<p a="1">z</p>')
    assert METRICS["compare_htmls"].function(page, same, ignore_sdnum=True).score == 1
    assert METRICS["compare_htmls"].function(page, same).score == 0
    assert METRICS["compare_htmls"].function(page, other, ignore_sdnum=True).score == 0


def test_the_address_in_front_comes_of_browser_or_tree(file: Any) -> None:
    """With the task's prefix, whole or in parts."""
    read = READERS["active_url"]
    url = "https://www.example.org/a-b/c?q=x%20y&l=1,2"
    said = {"url": url, "prefix": "https://www.", "want": None}
    assert read(file(said)) == url
    want = {"keys": ["q", "none"], "renamed": {"q": "time"}, "split": False}
    assert read(file({**said, "want": want})) == {"time": "x y", "none": ""}
    want = {"keys": ["l"], "renamed": {}, "split": True}
    assert read(file({**said, "want": want})) == {"l": ["1", "2"]}
    part = {"part": -1, "without_query": True, "key": "k"}
    assert read(file({**said, "want": part})) == {"k": "c"}
    assert read(file({**said, "want": {**part, "part": 50, "key": None}})) is None
    bar = '<entry name="Address and search bar">a.org/x</entry>'
    tree = f'<d><application name="Chromium">{bar}</application></d>'
    assert read(file({"tree": tree, "prefix": "https://"})) == "https://a.org/x"
    for hostile in ({"tree": "<d/>"}, {"tree": "<d"}, {"tree": 1}, {}, [], {"tree": "<!DOCTYPE x><d/>"}):
        with pytest.raises(Unreadable):
            read(file(hostile))


MONDAY = date(2026, 11, 23)


@pytest.mark.parametrize(
    ("name", "today", "day"),
    [
        ("tomorrow", MONDAY, date(2026, 11, 24)),
        ("this month", MONDAY, MONDAY),
        ("this Saturday", MONDAY, date(2026, 11, 28)),
        ("this Sunday", date(2026, 11, 29), date(2026, 11, 29)),
        ("next Monday", MONDAY, date(2026, 11, 30)),
        ("next Monday split", date(2026, 11, 29), date(2026, 11, 30)),
        ("next Friday", date(2026, 11, 27), date(2026, 12, 4)),
        ("next Friday", date(2026, 11, 28), date(2026, 12, 4)),
        ("next Saturday", date(2026, 11, 29), date(2026, 12, 5)),
        ("next week Friday", MONDAY, date(2026, 12, 4)),
        ("5th next month", date(2026, 12, 31), date(2027, 1, 5)),
        ("11th next month", MONDAY, date(2026, 12, 11)),
        ("first monday four months later", MONDAY, date(2027, 3, 1)),
        ("first monday eight months later", date(2026, 4, 30), date(2026, 12, 7)),
    ],
)
def test_days_named_from_today(name: str, today: date, day: date) -> None:
    """As OSWorld's own code counts them."""
    assert day_of(name, today) == day


@pytest.mark.parametrize("name", ["", "next Fryday", "31st next month", "first monday zero months later"])
def test_a_name_of_no_day_is_refused(name: str) -> None:
    """Unknown words, and a day that the month does not have."""
    with pytest.raises(UnknownTime):
        day_of(name, date(2026, 1, 15))


@settings(max_examples=40, deadline=None)
@given(st.dates(date(2000, 1, 1), date(2100, 1, 1)), st.sampled_from(["", "week "]))
def test_the_end_of_a_range_lies_in_the_week_of_its_beginning(today: date, week: str) -> None:
    """Whatever day it is, a Friday comes after its Monday, a Sunday after its Friday."""
    monday = day_of("next Monday", today)
    assert day_of("next Friday", today, ("next Monday", monday)) == monday + timedelta(days=4)
    for name, days in (("Friday", 2), ("Saturday", 1)):
        start = day_of(f"next {week}{name}", today)
        assert today < start
        assert day_of(f"next {week}Sunday", today, (f"next {week}{name}", start)) == start + timedelta(
            days=days
        )


def test_days_are_written_in_the_task_s_forms() -> None:
    """One day, a range, a range in parts; a form that is missing is named."""
    assert written("{DoW}, {Day0D} {Month} {Year} {MonthD} {none}", date(2026, 3, 5)) == (
        "Thu, 05 Mar 2026 3 {none}"
    )
    one = {"relativeTime": {"from": "tomorrow"}, "expected": {"time": "{MonthFull} {DayD}", "a": "{Year}"}}
    assert filled(one, MONDAY)["expected"] == {"time": "November 24", "a": "{Year}"}
    two = {
        "relativeTime": {"from": "next Monday", "to": "next Friday"},
        "expected": {"from": "{DayD}", "to": "{DayD}"},
    }
    assert filled(two, MONDAY)["expected"] == {"from": "30", "to": "4"}
    forms = {"puDay": "{DayD}", "puMonth": "{MonthD}", "puYear": "{Year}"}
    forms |= {"doDay": "{DayD}", "doMonth": "{MonthD}", "doYear": "{Year}"}
    split = {"relativeTime": {"from": "next Monday split", "to": "next Friday split"}, "expected": forms}
    assert list(filled(split, MONDAY)["expected"].values()) == ["30", "11", "2026", "4", "12", "2026"]
    with pytest.raises(ValueError, match=r"rules\.expected\.time"):
        filled({"relativeTime": {"from": "tomorrow"}, "expected": {}}, MONDAY)


def test_what_a_page_says_becomes_the_tasks_values() -> None:
    """Each of OSWorld's tables; texts that are not there are empty."""
    parameters = HtmlParameters.model_validate(
        {
            "category": "class",
            "class_singleObject": {"date": "time"},
            "class_multiObject": {"city": {"0": "start", "1": "end"}},
            "class_multiObject_search_exist": {"tag": ["a", "b", "is_other_exist"]},
        }
    )
    answers = {
        Query("class", "date"): ["Mon"],
        Query("class", "city"): ["SEA"],
        Query("class", "tag"): ["a", "c"],
    }
    assert parameters.wanted.values(answers, "") == {
        "start": "SEA", "end": "", "time": "Mon", "a": True, "b": False, "is_other_exist": True,
    }  # fmt: skip
    chosen = HtmlParameters.model_validate(
        {
            "category": "class&url",
            "class_multiObject": {"c": ["Red"]},
            "url_include_expected": ["Shoes"],
            "url_include_expected_multichoice": {"men": "Sex"},
        }
    )
    found = chosen.wanted.values({Query("class", "c"): ["red"]}, "https://a.org/shoes")
    assert found == {"red": True, "is_other_exist": False, "shoes": True, "sex": False}
    with pytest.raises(ValueError, match="by index"):
        HtmlParameters.model_validate({"category": "class", "class_multiObject": {"c": ["Red"]}})
