"""Entries of settings that programs write for themselves: times, counters, identities, window places.

No task asks for such an entry, so a content in which only it differs is no mutation.
"""

from __future__ import annotations

import re

_KEY = re.compile(
    r"checksum|hash|hmac|^mac$|super_mac|guid|uuid|(^|_|\W)ids?$|date|(^|_|\W)time|timestamp|_time|modified|"
    r"(^|_|\W)last(_|\W)|visit_count|version|geometry|placement|window|splitter|exit|crash|metrics|session_id|"
    r"recent|meta_info|launch_count|seed|^type$",
    re.IGNORECASE,
)
"""Names of such entries in the files of Chromium, GTK, Qt and VLC."""
_VALUE = re.compile(r"\d{12,}(\.\d+)?|[0-9a-f]{32,}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
"""Times in microseconds, digests and identities."""


def is_of_program(file: str) -> bool:
    """Return whether a file belongs to a program and not to a person: it or its folder is hidden."""
    return "/." in file


def is_bookkeeping(file: str, name: str, value: object = "") -> bool:
    """Return whether a program writes an entry for itself, by the entry's name or its value.

    Args:
        file: Absolute path of the settings. Only programs' own files have such entries.
        name: Name of the entry.
        value: Value of the entry: text or number.
    """
    return is_of_program(file) and bool(_KEY.search(name) or _VALUE.fullmatch(str(value)))
