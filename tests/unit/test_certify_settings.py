"""Other contents of settings (JSON, and sections with entries): wrong in one entry, or equal in all."""

from __future__ import annotations

import configparser
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_certify.ends import ini, json_file, json_tree
from osgym_certify.ends.base import GoldenFile, Must, Variants
from osgym_certify.ends.bookkeeping import is_bookkeeping

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)
INI_TEXTS = st.lists(
    st.sampled_from(["[a]", "[b]", "x=1", "y = two", "x=true", "# note", "", "l=1;2;3", "junk"]), max_size=10
).map("\n".join)


def bookmarks(*names: str, other: tuple[str, ...] = ()) -> dict[str, Any]:
    """Bookmarks as Chromium writes them."""

    def folder(own: tuple[str, ...]) -> dict[str, Any]:
        children = [
            {
                "date_added": "13349000000000000",
                "id": str(number),
                "name": one,
                "type": "url",
                "url": f"http://{one}/",
            }
            for number, one in enumerate(own)
        ]
        return {"children": children, "name": "folder", "type": "folder"}

    roots = {"bookmark_bar": folder(names), "other": folder(other)}
    return {"checksum": "ab" * 16, "roots": roots, "version": 1}


def json_golden(value: Any, before: Any = None) -> GoldenFile:
    """Golden file in the browser's layout."""
    earlier = None if before is None else json.dumps(before, indent=3).encode()
    return GoldenFile(
        "/home/user/.config/chromium/Default/Bookmarks", json.dumps(value, indent=3).encode(), earlier
    )


def json_mutants(golden: GoldenFile, seed: int = 1) -> dict[str, list[Any]]:
    """Mutated values by name."""
    made: dict[str, list[Any]] = {}
    for one in json_file.mutations(golden, random.Random(seed)):
        assert one.must is Must.EARN_NOTHING
        made.setdefault(one.name, []).append(json.loads(one.data))
    return made


@pytest.mark.parametrize("seed", range(10))
def test_mutations_of_a_new_bookmark(seed: int) -> None:
    """Only the bookmark that the oracle added is changed, lost, doubled and moved."""
    before, golden = bookmarks("a", "b"), bookmarks("a", "b", "c")
    made = json_mutants(json_golden(golden, before), seed)
    assert made["one entry removed"] == [before]
    assert made["one entry doubled"] == [
        bookmarks("a", "b", "c", "c") | {"roots": made["one entry doubled"][0]["roots"]}
    ]
    assert [one["name"] for one in made["one entry doubled"][0]["roots"]["bookmark_bar"]["children"]] == [
        *"abcc"
    ]
    assert "one list reversed" not in made
    assert made["one list emptied"][0]["roots"]["bookmark_bar"]["children"] == []
    moved = made["one entry moved to another list"][0]["roots"]
    assert [one["name"] for one in moved["bookmark_bar"]["children"]] == ["a", "b"]
    assert moved["other"]["children"] == golden["roots"]["bookmark_bar"]["children"][2:]
    for value in made["one value changed"]:
        [place] = json_tree.changes(golden, value)
        assert place[:4] == ("roots", "bookmark_bar", "children", 2) and place[4] in ("name", "url")
    [value] = made["one value written as another type"]
    [place] = json_tree.changes(golden, value)
    assert json_tree.get(value, place) == [json_tree.get(golden, place)]


def test_each_changed_key_is_put_back_alone_but_what_programs_write_for_themselves() -> None:
    """Of four changed keys the checksum is the browser's own."""
    before = {"checksum": "1", "a": 1, "gone": [1], "list": [1, 2]}
    golden = {"checksum": "2", "a": 2, "list": [1, 2, 3], "new": {"deep": True}}
    made = json_mutants(json_golden(golden, before))["one changed key put back"]
    places = [json_tree.changes(golden, one) for one in made]
    assert sorted(map(str, places)) == [
        "[('a',)]",
        "[('gone',)]",
        "[('list',)]",
        "[('new',)]",
    ]


def test_lists_are_reversed_whose_order_is_content() -> None:
    """Those of a person, and those of a program of which the oracle changed only the order."""
    person = GoldenFile("/home/user/a.json", b"[1, 2, 3]", b"[1]")
    assert json_mutants(person)["one list reversed"] == [[3, 2, 1]]
    assert "one list reversed" not in json_mutants(json_golden([1, 2, 3], [1]))
    assert json_mutants(json_golden([1, 2, 3], [2, 1, 3]))["one list reversed"] == [[3, 2, 1]]


def test_a_key_is_written_twice_with_the_value_before_last() -> None:
    """Readers take the last one."""
    golden = json_golden({"home page": "x", "n": 1}, {"home page": "old", "n": 1})
    [one] = [one for one in json_file.mutations(golden, random.Random(1)) if "twice" in one.name]
    assert json.loads(one.data) == {"home page": "old", "n": 1}
    assert one.data.count(b'"home page"') == 2


@pytest.mark.parametrize("value", [True, 7, 1.5, "true", "12", "text"])
def test_other_values_and_types(value: Any) -> None:
    """Another value has the same type, and another type does not."""
    assert json_file.other_value(value) != value and type(json_file.other_value(value)) is type(value)
    assert type(json_file.other_type(value)) is not type(value)


def test_equivalents_of_json() -> None:
    """Indentation, order of keys, escapes and the last newline."""
    value = {"b": "ü", "a": [{"d": 1, "c": 2}]}
    made = {one.name: one.data for one in json_file.equivalents(json_golden(value), random.Random(1))}
    assert {name: json.loads(data) for name, data in made.items()} == dict.fromkeys(made, value)
    assert made.keys() == {
        "written on one line",
        "keys sorted",
        "characters written directly",
        "last newline added",
    }


@given(VALUES, st.none() | VALUES, st.sampled_from([None, 2, 3, " \n "]), st.booleans(), st.integers())
def test_json_variants(value: Any, before: Any, indent: int | str | None, escaped: bool, seed: int) -> None:
    """Equivalents have the same value, mutations another one, and both repeat."""
    data = json.dumps(value, indent=indent, ensure_ascii=escaped).encode(errors="replace")
    golden = GoldenFile("/home/user/a.json", data, None if before is None else json.dumps(before).encode())
    wanted = json.dumps(json.loads(data), sort_keys=True)
    for one in json_file.equivalents(golden, random.Random(seed)):
        assert json.dumps(json.loads(one.data), sort_keys=True) == wanted and one.data != data
    made = list(json_file.mutations(golden, random.Random(seed)))
    assert made == list(json_file.mutations(golden, random.Random(seed)))
    for one in made:
        assert json.dumps(json.loads(one.data), sort_keys=True) != wanted


@given(VALUES, VALUES)
def test_changes_put_back_lead_to_the_value_before(before: Any, after: Any) -> None:
    """All places put back, from the last to the first, make the value before."""
    made = after
    for path in reversed(json_tree.changes(before, after)):
        made = json_tree.put(made, path, json_tree.get(before, path))
    assert json.dumps(made, sort_keys=True) == json.dumps(before, sort_keys=True)


HOSTILE = [
    b"[" * 100_000,
    b"[" * 50 + b"]" * 50,
    b'{"a": 1, "a": 2}',
    b'["\\ud800"]',
    b"[NaN]",
    b"[1e999]",
    b"[" + b"9" * 5000 + b"]",
    b"[" + b"0," * 30_000 + b"0]",
    b"\xff\xfe",
    b"",
    b"[a]\nnot an entry\n",
    b"[a]\n" + b"x=1\n" * 30_000,
    b"[a]\nx" + b" " * 500_000,
]


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize(
    "variants", [json_file.mutations, json_file.equivalents, ini.mutations, ini.equivalents], ids=str
)
def test_hostile_files_yield_nothing(variants: Variants, data: bytes) -> None:
    """Too deep, too long, ambiguous and not well formed."""
    assert list(variants(GoldenFile("/home/user/a", data), random.Random(1))) == []
    assert list(variants(GoldenFile("/home/user/a", data, b"[1]"), random.Random(1))) == []


LAUNCHER = "[Desktop Entry]\nType=Application\nName=Notes\nExec=mousepad %f\nTerminal=false\n"
DEFAULTS = (
    "[Default Applications]\ntext/plain=a.desktop;b.desktop;\nimage/png=c.desktop;\n\n"
    "[Added Associations]\n# kept\ntext/html=d.desktop;\n"
)


def entries(data: bytes | str) -> dict[str, dict[str, str]]:
    """Sections as Python's own parser reads them; of two equal keys the last counts."""
    parser = configparser.RawConfigParser(delimiters=("=",), strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(data if isinstance(data, str) else data.decode())
    return {name: dict(parser[name]) for name in parser.sections()}


def ini_mutants(golden: GoldenFile, seed: int = 1) -> dict[str, list[dict[str, dict[str, str]]]]:
    """Mutated settings by name."""
    made: dict[str, list[dict[str, dict[str, str]]]] = {}
    for one in ini.mutations(golden, random.Random(seed)):
        assert one.must is Must.EARN_NOTHING
        made.setdefault(one.name, []).append(entries(one.data))
    return made


def flat(settings: dict[str, dict[str, str]]) -> dict[tuple[str, str], str]:
    """Values by section and key."""
    return {(section, key): value for section, own in settings.items() for key, value in own.items()}


@pytest.mark.parametrize("seed", range(10))
def test_mutations_of_the_changed_entry(seed: int) -> None:
    """Only the entry that the oracle changed is wrong."""
    before = DEFAULTS.replace("a.desktop;b", "b.desktop;a")
    golden = GoldenFile("/home/user/.config/mimeapps.list", DEFAULTS.encode(), before.encode())
    made, right = ini_mutants(golden, seed), flat(entries(DEFAULTS))
    place = ("Default Applications", "text/plain")
    without = {key: value for key, value in right.items() if key != place}
    for name in (
        "one value changed",
        "values of one key reversed",
        "another value put before the values of one key",
    ):
        for settings in made[name]:
            assert {key for key, value in flat(settings).items() if right[key] != value} == {place}
    assert flat(made["one entry removed"][0]) == without
    assert made["one key written twice, the wrong value last"] == [entries(before)]
    moved = {**without, ("Added Associations", "text/plain"): right[place]}
    assert flat(made["one entry moved to another section"][0]) == moved
    assert flat(made["one entry moved to a new section"][0]) == {
        **without,
        ("Another", "text/plain"): right[place],
    }
    assert made["other entries lost"] == [{place[0]: {place[1]: right[place]}}]
    assert made["one section renamed"][0].keys() == {"Another", "Added Associations"}
    assert "one changed key put back" not in made


def test_each_changed_entry_is_put_back_alone() -> None:
    """A changed, a new and a lost entry, each put back alone."""
    before = "[a]\nx=1\ny=2\n[b]\nz=3\n"
    golden = GoldenFile("/home/user/a.ini", b"[a]\nx=9\nnew=5\ny=2\n", before.encode())
    made = ini_mutants(golden)["one changed key put back"]
    x, new, z = {"x": "9"}, {"new": "5"}, {"z": "3"}
    wanted = [
        {"a": {"x": "1", **new, "y": "2"}},
        {"a": {**x, "y": "2"}},
        {"a": {**x, **new, "y": "2"}, "b": z},
    ]
    assert sorted(made, key=str) == sorted(wanted, key=str)


def test_launchers_are_hidden() -> None:
    """A launcher that no menu shows."""
    golden = GoldenFile("/home/user/Desktop/a.desktop", LAUNCHER.encode())
    [hidden] = ini_mutants(golden)["Hidden=true added"]
    assert hidden["Desktop Entry"] == {**entries(LAUNCHER)["Desktop Entry"], "Hidden": "true"}
    assert "Hidden=true added" not in ini_mutants(GoldenFile("/home/user/a.ini", LAUNCHER.encode()))


def test_equivalents_of_settings() -> None:
    """Spaces, comments, blank lines, order and the last newline."""
    made = {
        one.name: one.data
        for one in ini.equivalents(GoldenFile("/a.ini", DEFAULTS.encode()), random.Random(1))
    }
    assert made.keys() == {
        "comment line added",
        "blank lines added",
        "order of keys reversed in each section",
        "spaces around equals signs changed",
        "last newline removed",
    }
    assert {name: entries(data) for name, data in made.items()} == dict.fromkeys(made, entries(DEFAULTS))
    names = {
        one.name
        for one in ini.equivalents(
            GoldenFile("/home/user/.config/vlc/vlcrc", b"[a]\nx=1\n"), random.Random(1)
        )
    }
    assert "comment line added" in names and "spaces around equals signs changed" not in names


def test_sections_of_vlc_are_not_read() -> None:
    """A key in another section is no mutation of VLC's settings."""
    data = b"[qt]\nx=1\n[core]\ny=2\n"
    ordinary = ini_mutants(GoldenFile("/home/user/.config/a.conf", data)).keys()
    of_vlc = ini_mutants(GoldenFile("/home/user/.config/vlc/vlcrc", data)).keys()
    assert ordinary - of_vlc == {
        "one entry moved to a new section",
        "one entry moved to another section",
        "one section renamed",
    }


def test_entries_that_dialogs_write_beside_the_wanted_ones_stay() -> None:
    """Of a new launcher what people choose is changed, and of default applications the defaults."""
    launcher = "[Desktop Entry]\nVersion=1.0\nName=A\nStartupNotify=false\n"
    golden = GoldenFile("/home/user/Desktop/a.desktop", launcher.encode())
    assert [entry.key for entry in (ini.parse(golden) or pytest.fail()).focus] == ["Name"]
    golden = GoldenFile(
        "/home/user/.config/mimeapps.list", DEFAULTS.encode(), b"[Default Applications]\na/b=c\n"
    )
    focus = (ini.parse(golden) or pytest.fail()).focus
    assert [entry.key for entry in focus] == ["text/plain", "image/png"]


@given(INI_TEXTS, st.none() | INI_TEXTS, st.integers())
def test_ini_variants(data: str, before: str | None, seed: int) -> None:
    """Equivalents have the same entries, mutations others, and both repeat."""
    golden = GoldenFile("/a.desktop", data.encode(), None if before is None else before.encode())
    right = ini.parse(golden)
    made = list(ini.mutations(golden, random.Random(seed)))
    assert made == list(ini.mutations(golden, random.Random(seed)))
    if right is None:
        assert made == []
        return
    values = {key: entry.value for key, entry in right.entries.items()}
    for one in [*made, *ini.equivalents(golden, random.Random(seed))]:
        other = ini.parse(GoldenFile("/a.desktop", one.data))
        found = {} if other is None else {key: entry.value for key, entry in other.entries.items()}
        assert (found == values) is (one.must is Must.EARN_ALL), one.name


def test_bookkeeping_is_of_hidden_files_only() -> None:
    """A date in a person's file is content."""
    assert is_bookkeeping("/home/user/.config/a", "last_used", "1")
    assert is_bookkeeping("/home/user/.config/a", "any", "13349000000000000")
    assert not is_bookkeeping("/home/user/.config/a", "Exec", "mousepad")
    assert not is_bookkeeping("/home/user/plan.json", "date", "2026-01-01")
