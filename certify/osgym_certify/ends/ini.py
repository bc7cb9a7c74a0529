"""Other contents of settings in sections: ``.ini``, ``.desktop``, ``mimeapps.list``, ``vlcrc``."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from osgym_certify.ends.base import Content, GoldenFile, Must, distinct
from osgym_certify.ends.bookkeeping import is_bookkeeping
from osgym_certify.ends.draw import by_name, few
from osgym_certify.ends.lines import Lines, Text, decode, read

_MAX_PUT_BACK = 6
_OTHER_SECTION = "Another"
_SECTION = re.compile(r"\s*\[([^\]]+)\]")
_MAX_LINES = 20_000
_VLC = "vlcrc"
"""Ending of the name of VLC's settings, of which VLC reads no sections."""
_LAUNCHER = ".desktop"
_LAUNCHER_KEYS = ("Type", "Name", "Exec", "Icon", "Comment", "URL")
"""Keys of a new launcher that people choose: dialogs write others beside them."""
_SWITCHES = {"true": "false", "false": "true", "yes": "no", "no": "yes", "on": "off", "off": "on"}

Key = tuple[str, str]
"""Section and key."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Line ``key=value``."""

    number: int
    section: str
    key: str
    equals: str
    value: str

    def line(self, value: str) -> str:
        """Return the line with another value."""
        return f"{self.key}{self.equals}{value}"


@dataclass(frozen=True, slots=True)
class Settings:
    """Golden file as sections with entries.

    Attributes:
        text: Its lines.
        entries: Its entries; of two with the same section and key, the last.
        before: Entries of the file before; None if the oracle made it.
        focus: Entries to change: what the oracle changed and programs do not write for themselves.
    """

    path: str
    text: Text
    entries: Mapping[Key, Entry]
    before: Mapping[Key, Entry] | None
    focus: tuple[Entry, ...]

    @property
    def lines(self) -> Lines:
        """Lines of the file."""
        return self.text.lines

    def with_value(self, entry: Entry, value: str) -> Lines:
        """Return the lines with another value of an entry."""
        return self.lines.splice(entry.number, entry.number + 1, (entry.line(value),))

    def without(self, entry: Entry) -> Lines:
        """Return the lines without an entry."""
        return self.lines.splice(entry.number, entry.number + 1, ())

    def end_of(self, section: str) -> int:
        """Return the number of the line at which a section's next entry would be added; 0 for no section."""
        numbers = [entry.number for entry in self.entries.values() if entry.section == section]
        heads = [number for number, body in enumerate(self.lines.bodies) if _section_of(body) == section]
        return max([*numbers, *heads], default=-1) + 1


def mutations(golden: GoldenFile, dice: random.Random) -> Iterator[Content]:
    """Yield settings of which one entry is wrong, lost, overruled or in the wrong section."""
    settings = parse(golden)
    if settings is None:
        return
    drawn, values = by_name(dice), _values_of(settings.lines)
    mutators = {**_MUTATORS, **(_OF_LAUNCHERS if golden.path.endswith(_LAUNCHER) else {})}
    yield from distinct(
        golden,
        [
            Content(name, Must.EARN_NOTHING, settings.text.encode(lines))
            for name, mutate in mutators.items()
            if not (golden.path.endswith(_VLC) and name in _OF_SECTIONS)
            for lines in mutate(settings, drawn(name))
            if _values_of(lines) != values
        ],
    )


def equivalents(golden: GoldenFile, dice: random.Random) -> Iterator[Content]:
    """Yield the same settings with other spaces, comments, blank lines and order.

    VLC compares keys with their spaces, so its settings get no other ones.
    """
    settings = parse(golden)
    if settings is None:
        return
    lines = settings.lines
    made: dict[str, Lines] = {
        "comment line added": lines.splice(0, 0, ("# a comment",)),
        "blank lines added": _with_blank_lines(lines),
        "order of keys reversed in each section": _with_keys_reversed(settings),
    }
    if not golden.path.endswith(_VLC):
        made["spaces around equals signs changed"] = _with_other_spaces(settings)
    if lines.final and lines.bodies[-1]:
        made["last newline removed"] = Lines(lines.bodies, lines.separators, "")
    yield from distinct(
        golden,
        [Content(name, Must.EARN_ALL, settings.text.encode(changed)) for name, changed in made.items()],
    )


def parse(golden: GoldenFile) -> Settings | None:
    """Return a golden file as settings; None if it is no text of sections with entries."""
    text = read(golden)
    entries = {} if text is None else _entries_of(text.lines)
    if text is None or not entries:
        return None
    earlier = None if golden.before is None else decode(golden.before)
    before = None if earlier is None else _entries_of(Lines.parse(earlier))
    focus = [
        entry
        for key, entry in entries.items()
        if not _is_kept_by_program(golden.path, entry)
        and (before is None or key not in before or before[key].value != entry.value)
    ]
    if before is None and golden.path.endswith(_LAUNCHER):
        focus = [entry for entry in focus if entry.key in _LAUNCHER_KEYS] or focus
    return Settings(golden.path, text, entries, before, tuple(focus))


def _is_kept_by_program(path: str, entry: Entry) -> bool:
    by_the_way = path.endswith("mimeapps.list") and entry.section != "Default Applications"
    return by_the_way or is_bookkeeping(path, entry.key, entry.value)


def _entries_of(lines: Lines) -> dict[Key, Entry]:
    """Return the entries; none if a line is no section, entry, comment or blank line."""
    section, found = "", dict[Key, Entry]()
    if len(lines.bodies) > _MAX_LINES:
        return {}
    for number, body in enumerate(lines.bodies):
        if (head := _section_of(body)) is not None:
            section = head
        elif (entry := _entry_of(body, number, section)) and section:
            found[section, entry.key] = entry
        elif body.strip() and body.lstrip()[0] not in "#;":
            return {}
    return found


def _values_of(lines: Lines) -> dict[Key, str]:
    return {key: entry.value for key, entry in _entries_of(lines).items()}


def _entry_of(body: str, number: int, section: str) -> Entry | None:
    left, equals, right = body.partition("=")
    key, value = left.rstrip(), right.lstrip()
    if not equals or not key or key[0].isspace() or key[0] in "#;[":
        return None
    return Entry(number, section, key, body[len(key) : len(body) - len(value)], value)


def _section_of(body: str) -> str | None:
    match = _SECTION.match(body)
    return match[1] if match else None


def other_value(value: str) -> str:
    """Return another value of the same kind: switch, number, list or text."""
    if value.lower() in _SWITCHES:
        return _SWITCHES[value.lower()]
    if value.isascii() and value.isdigit() and len(value) < 10:
        return str(1 - int(value)) if value in "01" else str(int(value) + 1)
    return f"another-{value}"


def _changes_put_back(settings: Settings, dice: random.Random) -> Iterator[Lines]:
    before = settings.before
    if before is None:
        return
    changed = [
        key
        for key in dict.fromkeys([*before, *settings.entries])
        if (key in before) != (key in settings.entries) or before[key].value != settings.entries[key].value
    ]
    wanted = [
        key
        for key in changed
        if not _is_kept_by_program(settings.path, before.get(key) or settings.entries[key])
    ]
    if len(changed) < 2:  # the only change put back is the file before
        return
    # VLC writes what has its default as a comment, and moves entries to other sections: no change for it.
    said = {body.strip().lstrip("#;").strip() for body in settings.lines.bodies}
    had = {f"{one.key}={one.value}" for one in before.values()}
    wanted = [
        key
        for key in wanted
        if (key in settings.entries or f"{before[key].key}={before[key].value}" not in said)
        and (key in before or f"{settings.entries[key].key}={settings.entries[key].value}" not in had)
    ]
    for key in few(wanted, dice, _MAX_PUT_BACK):
        old, new = before.get(key), settings.entries.get(key)
        if new is None and old is not None:
            place = settings.end_of(key[0])
            if place:
                yield settings.lines.splice(place, place, (old.line(old.value),))
            else:
                yield _with_new_section(settings.lines, key[0], old)
        elif new is not None:
            yield settings.without(new) if old is None else settings.with_value(new, old.value)


def _value_changed(settings: Settings, dice: random.Random) -> Iterator[Lines]:
    for entry in few(settings.focus, dice, 2):
        yield settings.with_value(entry, other_value(entry.value))


def _entry_removed(settings: Settings, dice: random.Random) -> Iterator[Lines]:
    for entry in few(settings.focus, dice):
        yield settings.without(entry)


def _entry_commented_out(settings: Settings, dice: random.Random) -> Iterator[Lines]:
    for entry in few(settings.focus, dice):
        yield settings.lines.splice(entry.number, entry.number + 1, (f"#{entry.line(entry.value)}",))


def _entry_overruled(settings: Settings, dice: random.Random) -> Iterator[Lines]:
    for entry in few(settings.focus, dice):
        old = (settings.before or {}).get((entry.section, entry.key))
        line = entry.line(other_value(entry.value) if old is None else old.value)
        place = settings.end_of(entry.section)
        yield settings.lines.splice(place, place, (line,))


def _entry_in_new_section(settings: Settings, dice: random.Random) -> Iterator[Lines]:
    for entry in few(settings.focus, dice):
        yield _with_new_section(settings.without(entry), _OTHER_SECTION, entry)


def _with_new_section(lines: Lines, section: str, entry: Entry) -> Lines:
    end = len(lines.bodies)
    return lines.splice(end, end, (f"[{section}]", entry.line(entry.value)))


def _entry_in_other_section(settings: Settings, dice: random.Random) -> Iterator[Lines]:
    for entry in few(settings.focus, dice):
        others = {one.section for one in settings.entries.values()} - {entry.section}
        for section in few(sorted(others), dice):
            place = settings.end_of(section)
            added = settings.lines.splice(place, place, (entry.line(entry.value),))
            gone = entry.number + (place <= entry.number)
            yield added.splice(gone, gone + 1, ())


def _section_renamed(settings: Settings, dice: random.Random) -> Iterator[Lines]:
    for section in few(sorted({entry.section for entry in settings.focus}), dice):
        bodies = [
            body.replace(f"[{section}]", f"[{_OTHER_SECTION}]", 1) if _section_of(body) == section else body
            for body in settings.lines.bodies
        ]
        yield settings.lines.splice(0, len(bodies), bodies)


def _value_preceded(settings: Settings, dice: random.Random) -> Iterator[Lines]:
    for entry in few([one for one in settings.focus if ";" in one.value], dice):
        known = {
            value for one in settings.entries.values() for value in one.value.split(";") if ";" in one.value
        }
        for other in few(sorted(known - {*entry.value.split(";"), ""}), dice):
            yield settings.with_value(entry, f"{other};{entry.value}")


def _values_reversed(settings: Settings, dice: random.Random) -> Iterator[Lines]:
    for entry in few([one for one in settings.focus if ";" in one.value.rstrip(";")], dice):
        values = entry.value.rstrip(";").split(";")
        end = ";" if entry.value.endswith(";") else ""
        yield settings.with_value(entry, ";".join(reversed(values)) + end)


def _other_settings_lost(settings: Settings, dice: random.Random) -> Iterator[Lines]:
    others = {(one.section, one.key) for one in settings.focus} ^ settings.entries.keys()
    if settings.before is not None and settings.focus and others:
        sections = dict.fromkeys(one.section for one in settings.focus)
        bodies = [
            line
            for section in sections
            for line in (
                f"[{section}]",
                *(one.line(one.value) for one in settings.focus if one.section == section),
            )
        ]
        yield settings.lines.splice(0, len(settings.lines.bodies), bodies)


def _hidden(settings: Settings, dice: random.Random) -> Iterator[Lines]:
    place = settings.end_of("Desktop Entry")
    if place:
        yield settings.lines.splice(place, place, ("Hidden=true",))


def _with_blank_lines(lines: Lines) -> Lines:
    bodies = [
        one for body in lines.bodies for one in (("", body) if _section_of(body) is not None else (body,))
    ]
    return lines.splice(0, len(lines.bodies), bodies)


def _with_other_spaces(settings: Settings) -> Lines:
    bodies = list(settings.lines.bodies)
    for entry in settings.entries.values():
        equals = " = " if entry.equals == "=" else "="
        bodies[entry.number] = f"{entry.key}{equals}{entry.value}"
    return Lines(tuple(bodies), settings.lines.separators, settings.lines.final)


def _with_keys_reversed(settings: Settings) -> Lines:
    bodies, by_section = list(settings.lines.bodies), defaultdict[str, list[Entry]](list)
    for entry in settings.entries.values():
        by_section[entry.section].append(entry)
    for entries in by_section.values():
        for entry, other in zip(entries, reversed(entries), strict=True):
            bodies[entry.number] = other.line(other.value)
    lines = Lines(tuple(bodies), settings.lines.separators, settings.lines.final)
    return lines if _values_of(lines) == _values_of(settings.lines) else settings.lines


_MUTATORS: Mapping[str, Callable[[Settings, random.Random], Iterable[Lines]]] = {
    "one changed key put back": _changes_put_back,
    "one value changed": _value_changed,
    "one entry removed": _entry_removed,
    "one entry commented out": _entry_commented_out,
    "one key written twice, the wrong value last": _entry_overruled,
    "one entry moved to a new section": _entry_in_new_section,
    "one entry moved to another section": _entry_in_other_section,
    "one section renamed": _section_renamed,
    "another value put before the values of one key": _value_preceded,
    "values of one key reversed": _values_reversed,
    "other entries lost": _other_settings_lost,
}
_OF_LAUNCHERS: Mapping[str, Callable[[Settings, random.Random], Iterable[Lines]]] = {
    "Hidden=true added": _hidden,
}
_OF_SECTIONS = frozenset(
    {"one entry moved to a new section", "one entry moved to another section", "one section renamed"}
)
