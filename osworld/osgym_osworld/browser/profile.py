"""Getters of a browser's profile: files that are handed to the confined process, which reads them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import AfterValidator

from osgym_host.tasks.getter_plugin import (
    DiskFile,
    GetterFunction,
    NamedFile,
    NoParameters,
    Parameters,
    TaskRun,
    Value,
    getter,
    guest_file,
)
from osgym_host.tasks.metric_plugin import Argument
from osgym_osworld.browser import readers
from osgym_osworld.browser.relative_time import UnknownTime, day_of, filled, names_of

PROFILE = "/home/user/.config/google-chrome"
MAX_SHORTCUTS = 32
MAX_LISTING_CHARS = 64 * 1024

Reader = Callable[[Argument], Any]


def _profile_getter(path: str, reader: Reader) -> GetterFunction[NoParameters]:
    """Declare a getter of a file below the profile, which a reader reads."""

    async def from_profile(run: TaskRun, parameters: NoParameters) -> Value:
        got = await guest_file(run, f"{PROFILE}/{path}", path)
        return got if isinstance(got, Value) else Value(files=(got,), reader=reader.__name__)

    from_profile.__doc__ = inspect.getdoc(reader)
    return getter(NoParameters, reads_files=True)(from_profile)


_PREFERENCES, _LOCAL_STATE = "Default/Preferences", "Local State"
default_search_engine = _profile_getter(_PREFERENCES, readers.chrome_search_engine)
profile_name = _profile_getter(_PREFERENCES, readers.chrome_profile_name)
enable_do_not_track = _profile_getter(_PREFERENCES, readers.chrome_do_not_track)
enable_safe_browsing = _profile_getter(_PREFERENCES, readers.chrome_safe_browsing)
enable_enhanced_safety_browsing = _profile_getter(_PREFERENCES, readers.chrome_enhanced_safe_browsing)
new_startup_page = _profile_getter(_PREFERENCES, readers.chrome_startup_new_tab)
data_delete_automacally = _profile_getter(_PREFERENCES, readers.chrome_deletes_data)
chrome_font_size = _profile_getter(_PREFERENCES, readers.chrome_font_sizes)
find_unpacked_extension_path = _profile_getter(_PREFERENCES, readers.chrome_extension_paths)
find_installed_extension_name = _profile_getter(_PREFERENCES, readers.chrome_extension_names)
enabled_experiments = _profile_getter(_LOCAL_STATE, readers.chrome_experiments)
chrome_language = _profile_getter(_LOCAL_STATE, readers.chrome_language)
chrome_color_scheme = _profile_getter(_PREFERENCES, readers.chrome_color_scheme)
bookmarks = _profile_getter("Default/Bookmarks", readers.chrome_bookmarks)
cookie_data = _profile_getter("Default/Cookies", readers.chrome_cookies)
history = _profile_getter("Default/History", readers.chrome_history)


@getter(NoParameters, reads_files=True)
async def shortcuts_on_desktop(run: TaskRun, parameters: NoParameters) -> Value:
    """The desktop files that lie on the desktop, at most `MAX_SHORTCUTS`."""
    command = ["find", "/home/user/Desktop", "-maxdepth", "1", "-name", "*.desktop", "-print0"]
    listed = await run.guest.execute(
        command, timeout_s=run.left("the desktop's files", 60), isolated=run.of_check
    )
    paths = sorted(path for path in listed.output[:MAX_LISTING_CHARS].split("\0") if path)
    files: list[NamedFile | DiskFile] = []
    for path in paths[:MAX_SHORTCUTS]:
        got = await guest_file(run, path, path)
        if not isinstance(got, Value):
            files.append(got)
    return Value(files=tuple(files), many=True) if files else Value(data=[])


def _checked(rules: Any) -> Any:
    if not isinstance(rules, dict):
        raise ValueError("must be an object")
    names_of(rules)
    if (zone := rules.get("timezone")) is not None:
        _zone(zone)
    return rules


def _zone(name: Any) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise ValueError(f"rules.timezone: unknown time zone {name!r}") from error


class RelativeTimeParameters(Parameters):
    rules: Annotated[Any, AfterValidator(_checked)]


def _unknown_days(parameters: RelativeTimeParameters) -> list[str]:
    unknown: list[str] = []
    for name in names_of(parameters.rules).values():
        try:
            day_of(name, datetime.now(UTC).date())
        except UnknownTime:
            unknown.append(f"getter rule_relativeTime of {name!r}")
    return unknown


@getter(RelativeTimeParameters, unsupported=_unknown_days, from_replica=False)
async def rule_relative_time(run: TaskRun, parameters: RelativeTimeParameters) -> Value:
    """Value that stands in the task file, with days counted from today, in `rules.timezone` or UTC."""
    zone = parameters.rules.get("timezone")
    today = datetime.now(_zone(zone) if zone is not None else UTC).date()
    return Value(data=filled(parameters.rules, today))
