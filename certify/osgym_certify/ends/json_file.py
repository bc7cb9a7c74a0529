"""Other contents of a JSON file, such as Chromium's bookmarks and preferences."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from osgym_certify.ends.base import Content, GoldenFile, Must, distinct
from osgym_certify.ends.bookkeeping import is_bookkeeping, is_of_program
from osgym_certify.ends.draw import by_name, few
from osgym_certify.ends.json_tree import MISSING, Path, changes, get, leaves, lists, parse, put
from osgym_certify.ends.lines import BYTE_ORDER_MARK, decode

_MAX_PUT_BACK = 6
_TWICE = "key of which a second one is written"


@dataclass(frozen=True, slots=True)
class Layout:
    """Spaces and escapes of a JSON text."""

    indent: int | str | None
    compact: bool = False
    escaped: bool = False
    final: str = ""

    def write(self, value: Any) -> str:
        """Return a value as text."""
        separators = (",", ":") if self.compact else (", ", ": ") if self.indent is None else (",", ": ")
        text = json.dumps(value, indent=self.indent, ensure_ascii=self.escaped, separators=separators)
        return text + self.final


@dataclass(frozen=True, slots=True)
class Document:
    """Golden file as JSON.

    Attributes:
        path: Absolute path of the file.
        value: Value of the whole file.
        before: Value before; `MISSING` if the oracle made the file.
        layout: Layout of the file, or a common one if no known layout reproduces the file.
        mark: Byte order mark of the file, or nothing.
        focus: Places to change: what the oracle changed and programs do not write for themselves.
    """

    path: str
    value: Any
    before: Any
    layout: Layout
    mark: bytes
    focus: tuple[Path, ...]

    def encode(self, value: Any) -> bytes:
        """Return another value in the layout of the golden file."""
        return self.mark + self.layout.write(value).encode()

    def leaves(self) -> list[Path]:
        """Return the places of texts, numbers and truth values to change."""
        found = (path for start in self.focus for path in leaves(get(self.value, start), start))
        return [path for path in found if not _is_kept_by_program(self.path, self.value, path)]

    def elements(self) -> list[Path]:
        """Return the places of list elements to change."""
        inside = [path for start in self.focus for path in lists(get(self.value, start), start)]
        below = [(*path, index) for path in inside for index in range(len(get(self.value, path)))]
        return list(
            dict.fromkeys([*(path for path in self.focus if path and isinstance(path[-1], int)), *below])
        )


def mutations(golden: GoldenFile, dice: random.Random) -> Iterator[Content]:
    """Yield values of which one entry is wrong, lost, doubled or elsewhere."""
    document = read(golden)
    if document is None:
        return
    drawn = by_name(dice)
    yield from distinct(
        golden,
        [
            *(
                Content(name, Must.EARN_NOTHING, document.encode(value))
                for name, mutate in _MUTATORS.items()
                for value in mutate(document, drawn(name))
                if changes(document.value, value)
            ),
            *_key_written_twice(document, drawn("twice")),
        ],
    )


def equivalents(golden: GoldenFile, dice: random.Random) -> Iterator[Content]:
    """Yield the same value in other layouts."""
    document = read(golden)
    if document is None:
        return
    layout, value = document.layout, document.value
    flat = layout.indent is None
    changed = {
        "indented" if flat else "written on one line": (
            Layout(2 if flat else None, escaped=layout.escaped),
            value,
        ),
        "keys sorted": (layout, sort_keys(value)),
        "keys in reverse order": (layout, sort_keys(value, reverse=True)),
        "characters written directly" if layout.escaped else "characters escaped": (
            Layout(layout.indent, layout.compact, not layout.escaped, layout.final),
            value,
        ),
        "last newline removed" if layout.final else "last newline added": (
            Layout(layout.indent, layout.compact, layout.escaped, "" if layout.final else "\n"),
            value,
        ),
    }
    made = [
        Content(name, Must.EARN_ALL, document.mark + one.write(other).encode())
        for name, (one, other) in changed.items()
    ]
    yield from distinct(golden, made)


def read(golden: GoldenFile) -> Document | None:
    """Return a golden file as JSON; None if it is not a list or mapping, is too deep, or has a key twice."""
    text = decode(golden.data)
    value = MISSING if text is None else parse(text)
    if text is None or not isinstance(value, dict | list):
        return None
    earlier = None if golden.before is None else decode(golden.before)
    before = MISSING if earlier is None else parse(earlier)
    focus: list[Path] = [()]
    if before is not MISSING:
        focus = [path for path in changes(before, value) if not _is_kept_by_program(golden.path, value, path)]
        focus = [path for path in focus if get(value, path) is not MISSING]
    mark = BYTE_ORDER_MARK if golden.data.startswith(BYTE_ORDER_MARK) else b""
    return Document(golden.path, value, before, _layout_of(text, value), mark, tuple(focus))


def _layout_of(text: str, value: Any) -> Layout:
    final = text[len(text.rstrip("\r\n")) :]
    for escaped in (False, True):
        for indent, compact in (
            (2, False),
            (3, False),
            (4, False),
            (None, True),
            (None, False),
            ("\t", False),
        ):
            layout = Layout(indent, compact, escaped, final)
            if layout.write(value) == text:
                return layout
    return Layout(2, final=final)


def _is_kept_by_program(file: str, value: Any, path: Path) -> bool:
    if file.endswith("/Bookmarks") and path[:1] == ("roots",) and "children" not in path:
        return True  # names and kinds of the browser's own folders
    found = get(value, path)
    content = found if isinstance(found, str | int | float) else ""
    return any(is_bookkeeping(file, key, content) for key in ("", *path) if isinstance(key, str))


def sort_keys(value: Any, reverse: bool = False) -> Any:
    """Return a value with the keys of all mappings sorted."""
    if isinstance(value, dict):
        return {key: sort_keys(value[key], reverse) for key in sorted(value, reverse=reverse)}
    return [sort_keys(one, reverse) for one in value] if isinstance(value, list) else value


def other_value(value: Any) -> Any:
    """Return another value of the same type."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int | float) else f"{value}x"


def other_type(value: Any) -> Any:
    """Return a value of another type that is written similarly."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if value in ("true", "false"):
        return value == "true"
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else [value]


def _changes_put_back(document: Document, dice: random.Random) -> Iterator[Any]:
    if document.before is MISSING:
        return
    paths = changes(document.before, document.value)
    wanted = [path for path in paths if not _is_kept_by_program(document.path, document.value, path)]
    if len(paths) > 1:  # the only change put back is the file before
        for path in few(wanted, dice, _MAX_PUT_BACK):
            yield put(document.value, path, get(document.before, path))


def _value_changed(document: Document, dice: random.Random) -> Iterator[Any]:
    for path in few(document.leaves(), dice, 2):
        yield put(document.value, path, other_value(get(document.value, path)))


def _type_changed(document: Document, dice: random.Random) -> Iterator[Any]:
    for path in few(document.leaves(), dice):
        yield put(document.value, path, other_type(get(document.value, path)))


def _entry_removed(document: Document, dice: random.Random) -> Iterator[Any]:
    own = [path for path in document.focus if path]
    for path in few(own or document.elements() or document.leaves(), dice):
        yield put(document.value, path, MISSING)


def _entry_doubled(document: Document, dice: random.Random) -> Iterator[Any]:
    for path in few(document.elements(), dice):
        yield _with_element(document.value, path, get(document.value, path))


def _entry_added(document: Document, dice: random.Random) -> Iterator[Any]:
    for path in few(document.elements(), dice):
        entry = get(document.value, path)
        own = [leaf for leaf in leaves(entry) if not _is_kept_by_program(document.path, entry, leaf)]
        for leaf in few(own, dice):
            yield _with_element(document.value, path, put(entry, leaf, other_value(get(entry, leaf))))


def _with_element(value: Any, path: Path, entry: Any) -> Any:
    *parent, index = path
    assert isinstance(index, int)
    elements = get(value, tuple(parent))
    return put(value, tuple(parent), [*elements[: index + 1], entry, *elements[index + 1 :]])


def _list_reversed(document: Document, dice: random.Random) -> Iterator[Any]:
    ordered = [path for path in _lists_to_change(document) if _is_order_content(document, path)]
    for path in few(ordered, dice):
        yield put(document.value, path, get(document.value, path)[::-1])


def _is_order_content(document: Document, path: Path) -> bool:
    """Return whether the order of a list is part of the file's content.

    The order of a program's own list, such as a folder of bookmarks, is content only if the oracle changed
    nothing else in it.
    """
    before = MISSING if document.before is MISSING else get(document.before, path)
    elements = sorted(json.dumps(one) for one in get(document.value, path))
    reordered = isinstance(before, list) and sorted(json.dumps(one) for one in before) == elements
    return reordered or not is_of_program(document.path)


def _list_emptied(document: Document, dice: random.Random) -> Iterator[Any]:
    for path in few(_lists_to_change(document), dice):
        yield put(document.value, path, [])


def _lists_to_change(document: Document) -> list[Path]:
    return list(dict.fromkeys(path[:-1] for path in document.elements()))


def _entry_moved(document: Document, dice: random.Random) -> Iterator[Any]:
    for path in few(document.elements(), dice):
        entry, home = get(document.value, path), path[:-1]
        others = [
            one
            for one in lists(document.value)
            if one != home and one[: len(path)] != path and _may_hold(get(document.value, one), entry)
        ]
        alike = [one for one in others if one[-1:] == home[-1:]]
        for target in few(alike or others, dice):
            longer = put(document.value, target, [*get(document.value, target), entry])
            yield put(longer, path, MISSING)


def _may_hold(elements: list[Any], entry: Any) -> bool:
    return not elements or type(elements[0]) is type(entry)


def _key_written_twice(document: Document, dice: random.Random) -> Iterator[Content]:
    """Yield files that have a key twice: readers take the second one, which has the value before."""
    for path in few([path for path in document.leaves() if isinstance(path[-1], str)], dice):
        *parent, key = path
        old = MISSING if document.before is MISSING else get(document.before, path)
        old = other_value(get(document.value, path)) if old is MISSING else old
        if _TWICE in json.dumps(document.value):
            return
        holder = {**get(document.value, tuple(parent)), _TWICE: old}
        data = document.encode(put(document.value, tuple(parent), holder))
        name = json.dumps(key, ensure_ascii=document.layout.escaped).encode()
        yield Content(
            "one key written twice, the wrong value last",
            Must.EARN_NOTHING,
            data.replace(json.dumps(_TWICE).encode(), name),
        )


_MUTATORS: Mapping[str, Callable[[Document, random.Random], Iterable[Any]]] = {
    "one changed key put back": _changes_put_back,
    "one value changed": _value_changed,
    "one value written as another type": _type_changed,
    "one entry removed": _entry_removed,
    "one entry doubled": _entry_doubled,
    "one entry added": _entry_added,
    "one list reversed": _list_reversed,
    "one list emptied": _list_emptied,
    "one entry moved to another list": _entry_moved,
}
