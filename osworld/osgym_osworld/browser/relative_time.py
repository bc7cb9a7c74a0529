"""Days that a task names from today (`next Monday`), in the forms that pages show them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
)  # fmt: skip
_NUMBERS = (
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
)  # fmt: skip
_SPLIT = " split"
_IN_NEXT_MONTH = re.compile(r"(\d{1,2})(?:st|nd|rd|th) next month")
_MONTHS_LATER = re.compile(r"first (\w+) (\w+) months? later")
_WEEKDAY = re.compile(r"(this|next week|next) (\w+)")
_FIELDS = {False: {"from": ("time",)}, True: {"from": ("from",), "to": ("to",)}}
_SPLIT_FIELDS = {"from": ("puDay", "puMonth", "puYear"), "to": ("doDay", "doMonth", "doYear")}


class UnknownTime(ValueError):
    """No day has this name; the message is the name."""


def day_of(name: str, today: date, start: tuple[str, date] | None = None) -> date:
    """Return the day of a name that OSWorld's tasks use.

    Args:
        start: Name and day of the beginning, for the end of a range: a `next Friday` after a `next Monday`
            lies in its week, a `next Sunday` after a `next Friday` in its weekend.

    Raises:
        UnknownTime: No such name.
    """
    name = name.removesuffix(_SPLIT)
    if name in {"today", "this month"}:
        return today
    if name == "tomorrow":
        return today + timedelta(days=1)
    if match := _IN_NEXT_MONTH.fullmatch(name):
        first = _months_on(today, 1)
        day = first + timedelta(days=int(match[1]) - 1)
        if day.month != first.month:
            raise UnknownTime(name)
        return day
    if (match := _MONTHS_LATER.fullmatch(name)) and match[1].capitalize() in _DAYS and match[2] in _NUMBERS:
        first = _months_on(today, _NUMBERS.index(match[2]) + 1)
        return first + timedelta(days=(_DAYS.index(match[1].capitalize()) - first.weekday()) % 7)
    if (match := _WEEKDAY.fullmatch(name)) and match[2] in _DAYS:
        return _weekday(match[1], _DAYS.index(match[2]), today, start)
    raise UnknownTime(name)


def _weekday(which: str, weekday: int, today: date, start: tuple[str, date] | None) -> date:
    if which == "this":
        return today + timedelta(days=weekday - today.weekday())
    if start is not None and start[0].startswith("next ") and start[1] > today:
        after = start[1] + timedelta(days=weekday - start[1].weekday())
        same_kind = start[0].startswith("next week ") == (which == "next week")
        if same_kind and after >= start[1]:
            return after
    if which == "next week":
        return today + timedelta(days=7 - today.weekday() + weekday)
    return today + timedelta(days=(weekday - today.weekday() - 1) % 7 + 1)


def _months_on(today: date, months: int) -> date:
    """Return the first day of the month that lies a number of months after a day's."""
    year, month = divmod(today.year * 12 + today.month - 1 + months, 12)
    return date(year, month + 1, 1)


def written(form: str, day: date) -> str:
    """Fill a form: `{DoW} {Month} {MonthFull} {month} {MonthD} {Month0D} {DayD} {Day0D} {Year}`."""
    month = _MONTHS[day.month - 1]
    values = {
        "DoW": _DAYS[day.weekday()][:3],
        "Month": month[:3],
        "MonthFull": month,
        "month": month.lower(),
        "MonthD": str(day.month),
        "Month0D": f"{day.month:02}",
        "DayD": str(day.day),
        "Day0D": f"{day.day:02}",
        "Year": str(day.year),
    }
    return re.sub(r"\{(\w+)\}", lambda m: values.get(m[1], m[0]), form)


def names_of(rules: Mapping[str, Any]) -> dict[str, str]:
    """Return `from`, and `to` if there is one.

    Raises:
        ValueError: `relativeTime` is not as it must be.
    """
    names = rules.get("relativeTime")
    if not isinstance(names, dict) or not isinstance(names.get("from"), str):
        raise ValueError('rules.relativeTime must be an object with "from", and "to" for a range')
    found = {key: names[key] for key in ("from", "to") if key in names}
    if not all(isinstance(name, str) for name in found.values()):
        raise ValueError("rules.relativeTime must name days by text")
    return found


def filled(rules: Mapping[str, Any], today: date) -> dict[str, Any]:
    """Return rules whose `expected` has its days written out.

    One day is written into `time`; a range into `from` and `to`, or, where a name ends in ` split`, into
    `puDay`, `puMonth`, `puYear` and `doDay`, `doMonth`, `doYear`.

    Raises:
        UnknownTime: A day has an unknown name.
        ValueError: `relativeTime` or a form in `expected` is not there.
    """
    names = names_of(rules)
    forms = rules.get("expected")
    if not isinstance(forms, dict):
        raise ValueError("rules.expected must be an object")
    expected = dict(forms)
    start: tuple[str, date] | None = None
    for end, name in names.items():
        day = day_of(name, today, start)
        start = (name, day)
        fields = _SPLIT_FIELDS[end] if name.endswith(_SPLIT) else _FIELDS["to" in names][end]
        for field in fields:
            if not isinstance(expected.get(field), str):
                raise ValueError(f"rules.expected.{field} must be the form of the date as text")
            expected[field] = written(expected[field], day)
    return {**rules, "expected": expected}
