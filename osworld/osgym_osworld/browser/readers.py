"""Readers of a browser's files: settings, bookmarks, cookies, history; and of its address bar.

Files are those of a profile of Chrome or Chromium. For what a profile does not say they give what the browser
does then.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from osgym_host.tasks.metric_plugin import Argument, InputFile, as_file, value_reader
from osgym_osworld.browser.urls import path_filters, path_part, query_values, shown

if TYPE_CHECKING:
    import sqlite3

MAX_ROWS = 100_000
_ADDRESS_BAR = "Address and search bar"
_BROWSERS = frozenset({"Google Chrome", "Chromium"})
_DEFAULT_FONTS = {"default_fixed_font_size": 13, "default_font_size": 16, "minimum_font_size": 13}
_RESTORE_NEW_TAB = 5
_OWN_NOTE = "has_migrated_"
_DATABASE, _SMALLEST_DATABASE = b"SQLite format 3\0", 512
_WAL_MODE, _ROLLBACK_MODE = 2, 1


def _at(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _setting(function: Callable[[Any], Any]) -> Callable[[Argument], Any]:
    """Declare a reader of a settings file by a function of the file's JSON."""

    @functools.wraps(function)
    def read(value: Argument) -> Any:
        return function(as_file(value, "result").json())

    return value_reader(read)


def _told(value: Any) -> str:
    """Return a switch as the text that tasks have for it."""
    return "true" if value else "false"


@_setting
def chrome_search_engine(settings: Any) -> Any:
    """Name of the default search engine."""
    return _at(settings, "default_search_provider_data", "template_url_data", "short_name") or "Google"


@_setting
def chrome_profile_name(settings: Any) -> Any:
    """Name of the profile."""
    return _at(settings, "profile", "name")


@_setting
def chrome_do_not_track(settings: Any) -> str:
    """Setting "Do Not Track"."""
    return _told(_at(settings, "enable_do_not_track"))


@_setting
def chrome_safe_browsing(settings: Any) -> str:
    """Setting of safe browsing, which is on unless it was switched off."""
    switched_off = _at(settings, "safebrowsing", "enabled") is False
    return _told(_at(settings, "safebrowsing", "enhanced") or not switched_off)


@_setting
def chrome_enhanced_safe_browsing(settings: Any) -> str:
    """Setting of enhanced safe browsing."""
    return _told(_at(settings, "safebrowsing", "enhanced"))


@_setting
def chrome_startup_new_tab(settings: Any) -> str:
    """Setting that the browser starts with the new tab page, which is the default."""
    if not isinstance(_at(settings, "session"), dict):
        return "true"
    return _told(_at(settings, "session", "restore_on_startup") == _RESTORE_NEW_TAB)


@_setting
def chrome_deletes_data(settings: Any) -> str:
    """Setting that sites' data is deleted when the browser is closed.

    OSWorld asks whether any setting of sites was ever made; what Chromium notes there by itself is none.
    """
    made = _at(settings, "profile", "default_content_setting_values")
    return _told(isinstance(made, dict) and any(not name.startswith(_OWN_NOTE) for name in made))


@_setting
def chrome_font_sizes(settings: Any) -> Any:
    """Font sizes in pixels by name."""
    found = _at(settings, "webkit", "webprefs")
    return found if isinstance(found, dict) else dict(_DEFAULT_FONTS)


def _extensions(settings: Any) -> list[dict[str, Any]]:
    found = _at(settings, "extensions", "settings")
    return [v for v in found.values() if isinstance(v, dict)] if isinstance(found, dict) else []


@_setting
def chrome_extension_paths(settings: Any) -> list[str]:
    """Folders of the extensions."""
    return [path for entry in _extensions(settings) if isinstance(path := entry.get("path"), str)]


@_setting
def chrome_extension_names(settings: Any) -> list[str]:
    """Names of the extensions."""
    names = (_at(entry, "manifest", "name") for entry in _extensions(settings))
    return [name for name in names if isinstance(name, str)]


@_setting
def chrome_experiments(state: Any) -> list[str]:
    """Enabled entries of `chrome://flags`, each with its choice."""
    found = _at(state, "browser", "enabled_labs_experiments")
    return [str(name) for name in found] if isinstance(found, list) else []


@_setting
def chrome_language(state: Any) -> Any:
    """Language of the browser's own texts."""
    return _at(state, "intl", "app_locale") or "en-US"


@_setting
def chrome_bookmarks(stored: Any) -> Any:
    """The roots of the bookmarks."""
    return _at(stored, "roots") or {}


@value_reader
def chrome_cookies(value: Argument) -> list[list[Any]]:
    """Each cookie: when it was made, its site, its name."""
    return _rows(as_file(value, "result"), "SELECT creation_utc, host_key, name FROM cookies")


@value_reader
def chrome_history(value: Argument) -> list[list[Any]]:
    """Each visited address with its title and the time of the last visit."""
    return _rows(as_file(value, "result"), "SELECT url, title, last_visit_time FROM urls")


def _rows(file: InputFile, query: str) -> list[list[Any]]:
    """Return rows of a table of an SQLite file.

    Raises:
        Unreadable: it is not such a file, or has no such table.
    """
    import sqlite3

    with open_database(file) as connection:
        try:
            return [list(row) for row in connection.execute(f"{query} LIMIT {MAX_ROWS}")]
        except sqlite3.Error as error:
            raise file.bad(f"not a database of the browser: {error}") from error


@contextlib.contextmanager
def open_database(file: InputFile) -> Iterator[sqlite3.Connection]:
    """Yield an SQLite file, opened in memory. Its own views and triggers may only compute.

    Raises:
        Unreadable: it is not such a file.
    """
    import sqlite3

    data = bytearray(file.data())
    if len(data) < _SMALLEST_DATABASE or not data.startswith(_DATABASE):
        raise file.bad("not an SQLite database")
    if data[18] == _WAL_MODE:  # what is in a log beside the file is not there to be read
        data[18] = data[19] = _ROLLBACK_MODE
    connection = sqlite3.connect(":memory:")
    try:
        try:
            connection.deserialize(bytes(data))
            connection.execute("PRAGMA trusted_schema = OFF")
        except sqlite3.Error as error:
            raise file.bad(f"not an SQLite database: {error}") from error
        yield connection
    finally:
        connection.close()


@value_reader
def active_url(value: Argument) -> Any:
    """Return the address in the address bar, or what `want` asks for of it; None when there is none.

    The file says `url` (what the browser told), or `tree` (the accessibility tree), `prefix`, `want`.
    """
    file = as_file(value, "result")
    said = file.json()
    url = _at(said, "url")
    text = shown(url) if isinstance(url, str) else _address_bar(file, _at(said, "tree"))
    if not text:
        raise file.bad("no browser shows an address")
    url = str(_at(said, "prefix") or "") + text
    want = _at(said, "want") or {}
    if "keys" in want:
        return query_values(url, want["keys"], want["renamed"], split=want["split"])
    if "filters" in want:
        return path_filters(url, want["filters"])
    if "part" in want:
        part = path_part(url, want["part"], without_query=want["without_query"])
        return {want["key"]: part} if want.get("key") else part
    return url


def _address_bar(file: InputFile, tree: Any) -> str:
    if not isinstance(tree, str):
        return ""
    root = file.xml(tree.encode())
    for application in root.iter("application"):
        if application.get("name", "").partition(" - ")[0] not in _BROWSERS:
            continue
        for entry in application.iter("entry"):
            if entry.get("name") == _ADDRESS_BAR and entry.text:
                return entry.text.strip()
    return ""


_SCHEMES = ("system", "light", "dark")


@_setting
def chrome_color_scheme(settings: Any) -> str:
    """Colour scheme of the browser: light, dark, or the desktop's."""
    chosen = _at(settings, "browser", "theme", "color_scheme2")
    if chosen is None:
        chosen = _at(settings, "browser", "theme", "color_scheme")
    known = isinstance(chosen, int) and 0 <= chosen < len(_SCHEMES)
    return _SCHEMES[chosen] if known else _SCHEMES[0]


def warm_up() -> None:
    import sqlite3

    sqlite3.connect(":memory:").close()
