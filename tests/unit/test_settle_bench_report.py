"""The settle benchmark's mix, its image and its tables."""

from __future__ import annotations

import tomllib
from random import Random

import pytest
from benchmarks.settle.actions import Application, Kind, group_of
from benchmarks.settle.image import FLAVOR, OVERLAY, PLAIN_FLAVOR, definition
from benchmarks.settle.live import Verdict
from benchmarks.settle.report import markdown, part_of, rest_table
from benchmarks.settle.scenarios import APPLICATIONS, application, chosen

from osgym_host.images.definition import find_images_folder
from osgym_host.images.definition_model import Definition
from osgym_protocol.actions import parse_actions


def verdict(app: str = "mousepad-flow", kind: Kind = Kind.COMMIT, **fields: object) -> Verdict:
    """A verdict of `exact` that was right after 100 ms, 40 of them after the last change."""
    values = {
        "policy": "exact", "app": app, "index": 0, "label": "save", "kind": kind.value, "wait_ms": 100.0,
        "reason": "quiet", "premature": False, "differing_pixels": 0, "box": None, "marked": False,
        "changed_after_ms": None, "last_change_ms": 60.0,
    }  # fmt: skip
    return Verdict(**{**values, **fields})  # type: ignore[arg-type]  # a test's fields by name


@pytest.mark.parametrize("app", APPLICATIONS, ids=lambda app: app.name)
def test_every_action_is_one(app: Application) -> None:
    """The guest takes all of them, and a seed gives the same again."""
    actions = app.actions(Random(3))
    assert len(parse_actions([action.send for action in actions], (1920, 1080))) == len(actions) >= 10
    assert [a.send for a in app.actions(Random(3))] == [a.send for a in actions]
    assert actions[-1].kind is Kind.NOTHING or app.mix == "strokes"


def test_a_third_of_the_own_image_is_kept_for_the_end() -> None:
    """At least six applications of its own, and of the flows most end in something that is saved."""
    own = [app for app in APPLICATIONS if app.own_image]
    assert len(own) >= 6 and 3 * sum(app.kept for app in own) == len(own)
    assert not any(app.kept for app in APPLICATIONS if not app.own_image)
    flows = [app for app in APPLICATIONS if app.mix == "flows"]
    assert sum(bool(app.saves) for app in flows) > len(flows) / 2
    assert {app.name for app in chosen("flows", own_image=False)} == {
        app.name for app in flows if not app.own_image
    }
    assert len(chosen("all", own_image=True)) == len(APPLICATIONS) == len({app.name for app in APPLICATIONS})


def test_the_own_image_is_the_full_one_and_more() -> None:
    """Its definition is valid, by either name; every application of the full image is in it."""
    golden = (find_images_folder() / "golden.toml").read_text()
    for flavor in (FLAVOR, PLAIN_FLAVOR):
        made = Definition.model_validate(tomllib.loads(definition(golden, OVERLAY.read_text(), flavor)))
        assert set(made.packages("full")) < set(made.packages(flavor))
        assert made.apps_of(flavor) == made.apps_of("full")
        assert made.binaries_of(flavor) == made.binaries_of("full")


def test_kinds_and_parts() -> None:
    """Accepting a dialog is a commit, its opening is not; what was kept for the end is a part of its own."""
    assert [group_of(kind) for kind in ("commit", "dialog", "open", "type", "menu", "nothing")] == [
        "commit", "open", "open", "type", "navigate", "nothing",
    ]  # fmt: skip
    kept = next(app.name for app in APPLICATIONS if app.kept)
    assert part_of(verdict(kept)) == "own image, kept for the end"
    assert part_of(verdict()) == "shipped, flows"
    assert part_of(verdict("renamed since")) == "others"
    assert application(kept).own_image


def test_regret_is_what_was_waited_beyond_the_last_change() -> None:
    """Of a frame that was final; one that was not has none."""
    assert verdict().regret_ms == 40
    assert verdict(last_change_ms=None).regret_ms == 100
    assert verdict(premature=True).regret_ms is None


def test_the_tables() -> None:
    """One row for each kind that there is, and what trusting only final frames costs."""
    late = verdict(premature=True, marked=True, changed_after_ms=200.0, box=(0, 0, 9, 9), differing_pixels=5)
    sure = verdict(policy="certain", wait_ms=700.0)
    text = markdown("alone", [verdict(), late, verdict(kind=Kind.TYPE), sure])
    assert "| commit | 100 | 100 | 100 | 40 | 1/2 | 50.0 %" in text
    assert "| type | 100 | 100 | 100 | 40 | 0/1 |" in text
    assert "pays 600 ms a step more" in text
    assert "left 0 unmarked" in text


def test_frames_are_compared_by_rest() -> None:
    """One row for each stage before the step, and none for a run without rest."""
    seen = [verdict(rest="awake"), verdict(rest="reclaimed", premature=True), verdict(rest="reclaimed")]
    rows = [line for line in rest_table(seen).splitlines() if line.startswith("| exact")]
    assert [row.split(" | ")[0] for row in rows] == ["| exact, awake", "| exact, reclaimed"]
    assert "1/2" in rows[1]
    assert rest_table([verdict()]) == ""
