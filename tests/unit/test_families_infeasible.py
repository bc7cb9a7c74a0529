"""Families of tasks that cannot be done: what they ask for is not on the desktop."""

from __future__ import annotations

import base64
import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import openpyxl
import pytest

from osgym_tasks import FAMILIES, LEVELS, Instance
from osgym_tasks.pieces import Kept, infeasible
from osgym_tasks.webapps.planner import DAYS

SEEDS = range(25)


def uploaded(instance: Instance) -> dict[str, bytes]:
    """Files that the set-up writes, by path."""
    return {
        file["path"]: file["text"].encode() if "text" in file else base64.b64decode(file["data_base64"])
        for step in instance.task["config"]
        if step["type"] == "upload_file"
        for file in step["parameters"]["files"]
    }


def tables(instance: Instance, app: str) -> Mapping[str, list[dict[str, Any]]]:
    """Rows of a local service, by table."""
    (seed,) = (data for path, data in uploaded(instance).items() if path.endswith(f"/{app}.json"))
    found: Mapping[str, list[dict[str, Any]]] = json.loads(seed)["tables"]
    return found


def column(instance: Instance) -> bool:
    """Whether the only sheet has all headings."""
    (data,) = uploaded(instance).values()
    (sheet,) = openpyxl.load_workbook(io.BytesIO(data)).worksheets
    there = {cell.value for cell in sheet[1]}
    asked = re.findall(r" of the (\w+) column", instance.named["jobs"])
    return bool(asked) and there.issuperset(asked)


def heading(instance: Instance) -> bool:
    """Whether the text has all lines."""
    (data,) = uploaded(instance).values()
    text = zipfile.ZipFile(io.BytesIO(data)).read("word/document.xml").decode()
    asked = re.findall(r'"([^"]+)" becomes', instance.named["styles"])
    return bool(asked) and all(f">{line}<" in text for line in asked)


def goods(instance: Instance) -> bool:
    """Whether the shop has all goods, for sale or not."""
    there = {row["name"] for row in tables(instance, "shop")["products"]}
    asked = re.findall(r"\d of ([\w ]+?) in \w+, size", instance.named["lines"])
    return bool(asked) and there.issuperset(asked)


def payee(instance: Instance) -> bool:
    """Whether the bank has all payees, each in the right town."""
    there = {(row["name"], row["town"]) for row in tables(instance, "bank")["payees"]}
    asked = re.findall(r" to (\w+ \w+) in (\w+) with", instance.named["payments"])
    return bool(asked) and there.issuperset(asked)


def mail(instance: Instance) -> bool:
    """Whether the inbox has messages of all these senders and subjects."""
    rows = tables(instance, "mail")
    names = {row["address"]: row["name"] for row in rows["people"]}
    there = {(names[row["sender"]], row["subject"]) for row in rows["messages"] if row["folder"] == "Inbox"}
    replies = re.sub(r"where N is the number in the text of [^;]*", "", instance.named["replies"])
    asked = re.findall(r'from (\w+ \w+) with the subject "([^"]+)"', replies)
    return bool(asked) and there.issuperset(asked)


def slot(instance: Instance) -> bool:
    """Whether there is a time for each meeting alone."""
    looked = [day for day in DAYS if day in instance.named["when"]]
    days = DAYS[DAYS.index(looked[0]) : DAYS.index(looked[-1]) + 1]
    asked = re.findall(r" of (\d+) minutes with ([\w, ]+)", instance.named["meetings"])
    rows = tables(instance, "planner")["meetings"]

    def is_free(day: str, start: int, length: int, people: set[str]) -> bool:
        return not any(
            row["day"] == day
            and row["start"] < start + length
            and start < row["end"]
            and people & set(row["people"].split("\n"))
            for row in rows
        )

    return bool(asked) and all(
        any(
            is_free(day, start, int(length), set(re.findall(r"[A-Z]\w+", people)))
            for day in days
            for start in range(9 * 60, 17 * 60 - int(length) + 1, 5)
        )
        for length, people in asked
    )


@pytest.mark.parametrize("has", [column, goods, heading, mail, payee, slot])
def test_what_is_asked_for_is_not_there(has: Callable[[Instance], bool]) -> None:
    """The desktop lacks at least one thing that the instruction names."""
    family = FAMILIES[f"none.{has.__name__}"]
    for level in LEVELS:
        assert not any(has(family.make(seed, level)) for seed in SEEDS)


@pytest.mark.parametrize(
    ("has", "feasible"),
    [(column, "calc.aggregate"), (goods, "shop.buy"), (heading, "writer.styles"), (mail, "mail.reply"),
     (payee, "bank.transfer"), (slot, "calendar.slot")],
)  # fmt: skip
def test_the_feasible_family_has_it(has: Callable[[Instance], bool], feasible: str) -> None:
    """All that it asks for, so that the test above looks at the right things."""
    for level in LEVELS:
        assert all(has(FAMILIES[feasible].make(seed, level)) for seed in SEEDS)


def test_giving_up_is_checked_with_what_must_stay() -> None:
    """Each check keeps its own getter, expected value and options."""
    getter = {"type": "vm_command_line", "command": ["ls"]}
    assert infeasible(("literal_match", getter, Kept("before", {"ignore_case": True}))) == {
        "func": ["infeasible", "literal_match"],
        "conj": "and",
        "result": [{}, getter],
        "expected": [{}, {"type": "cache_file", "path": "before"}],
        "options": [{}, {"ignore_case": True}],
    }
    assert infeasible() == {"func": ["infeasible"], "conj": "and", "result": [{}], "expected": [{}]}
