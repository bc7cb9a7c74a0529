"""Variations: each changes what it says, nothing else, and nothing that is checked."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from osgym_host.tasks.parse import parse_task
from osgym_tasks import FAMILIES, VARIATIONS, Family
from osgym_tasks.variation import varied, wallpaper_svg, with_typos

every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


@every_family
def test_what_is_checked_and_done_stays(family: Family) -> None:
    """A host takes the task; instruction and set-up of the plain one are in it."""
    for seed in range(4):
        plain, made = family.make(seed, 3), family.make(seed, 3, vary=VARIATIONS)
        assert family.make(seed, 3, vary=reversed(VARIATIONS)).task == made.task
        parse_task(made.task)
        assert made.vary == tuple(name for name in VARIATIONS if name not in family.fixed)
        assert (made.ways, made.named, made.said) == (plain.ways, plain.named, plain.said)
        assert made.task["evaluator"] == plain.task["evaluator"]
        own = [step for step in plain.task["config"] if step["type"] != "record_folder"]
        assert json.dumps(own)[1:-1] in json.dumps(made.task["config"])
        if own != plain.task["config"]:  # the record comes after what variations add
            assert made.task["config"][-1] == plain.task["config"][-1]
        assert all(text in made.task["instruction"] for text in made.said.values())
        assert made.name == "-".join([plain.name, *made.vary])


@pytest.mark.parametrize("name", VARIATIONS)
def test_each_is_switched_for_itself(name: str) -> None:
    """It changes its part of the task, the same in the company of others, and differs between seeds."""
    family = FAMILIES["edit.lines"]
    parts = {"clock": "osgym", "typos": "instruction"}
    seen = set()
    for seed in range(8):
        plain, made = family.make(seed, 2), family.make(seed, 2, vary=[name])
        changed = {key for key in plain.task if plain.task[key] != made.task[key]}
        assert changed == {"id", parts.get(name, "config")}
        part = made.task[parts.get(name, "config")]
        seen.add(json.dumps(part))
        if name == "geometry":
            assert family.make(seed, 2, vary=VARIATIONS).task["config"][-2] == part[-2]
    assert len(seen) > 3


def test_a_family_can_keep_what_it_checks() -> None:
    """Its fixed variations are left out; one that is not known is an error."""
    family = replace(FAMILIES["edit.lines"], fixed=("theme", "clock"))
    assert family.make(0, 1, vary=["theme", "clock", "typos"]).vary == ("typos",)
    assert family.make(0, 1, vary=["theme"]).task == family.make(0, 1).task
    with pytest.raises(ValueError, match=r"unknown variation 'colour'; valid variations: clock, "):
        family.make(0, 1, vary=["colour"])


def test_typos_spare_what_is_meant_literally() -> None:
    """Quotes, paths, numbers, capitals and whatever is named; the rest has one to three slips."""
    text = 'Please open /home/user/letter.txt and replace the word "lantern" by its plural in column Amount'
    for seed in range(300):
        made = with_typos(text, ["its plural"], random.Random(seed))
        assert made != text
        for kept in ("/home/user/letter.txt", '"lantern"', "its plural", "Amount", "Please"):
            assert kept in made
        changed = sum(one not in text.split() for one in made.split())
        assert 1 <= changed <= 3
    assert with_typos("Say it now.", [], random.Random(0)) == "Say it now."


def test_distractors_keep_away_from_the_task() -> None:
    """No file in a folder it speaks of, no window of an application that it uses."""
    task = {
        "config": [{"type": "execute", "parameters": {"command": ["ls", "Documents"]}}],
        "evaluator": {"func": "infeasible", "of": "/home/user/Desktop/x"},
        "instruction": "Look into Downloads with the galculator.",
        "osgym": {"apps": ["mousepad"]},
    }
    for seed in range(40):
        made = varied(task, [], ["distractors"], lambda name, seed=seed: random.Random(f"{name}{seed}"))
        config = json.dumps(made["config"][:-1])
        assert not any(f"/home/user/{name}/" in config for name in ("Desktop", "Documents", "Downloads"))
        assert "mousepad" not in config and "galculator" not in config
        assert "xfce4-terminal" in config


def test_wallpapers_are_pictures() -> None:
    """Well-formed, of the screen's size, small enough for every task."""
    made = {wallpaper_svg(random.Random(seed)) for seed in range(20)}
    assert len(made) == 20
    for svg in made:
        root = ElementTree.fromstring(svg)
        assert (root.get("width"), root.get("height")) == ("1920", "1080")
        assert len(svg) < 4000
