"""From desktop entries to explorations, and from recorded actions to horizons."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from osgym_host.calibration.applications import FoundApplication, choose, find_applications
from osgym_host.calibration.decision import Bounds, Sample, calibrate, table_of, with_horizons
from osgym_host.calibration.exploration import Area, explore
from osgym_host.calibration.replay import Rule, Thread, Trace, Turn, decide, is_sound, lay_over, premature
from osgym_host.cli.settle import names_of_programs, settle, with_other_names
from osgym_protocol.actions import Click, parse_actions
from osgym_protocol.settle_table import (
    MAX_PROGRAMS,
    ActionKind,
    TimerHorizons,
    kind_of,
    parse_table,
    table_json,
)

PID = 7
RULE = Rule(30, horizon_ms=120)
BOUNDS = Bounds()
COMMIT = ActionKind.COMMIT


def late_by(fires_ms: float | None, *, first_ms: float = 10.0, program: str = "geany") -> Trace:
    """An action that changes the screen at `first_ms`, and again when a timer of the program fires."""
    end_ms = 1000
    turns = []
    for at in range(0, end_ms, 5):
        left = -1.0 if fires_ms is None or at > fires_ms else max(fires_ms - at, 0.001)
        turns.append(Turn(float(at), False, (0.0,), (Thread(PID, left),)))
    changes = (first_ms,) if fires_ms is None else tuple(sorted((first_ms, fires_ms)))
    return Trace("", "", "", {PID: program}, tuple(turns), changes)


def samples(*traces: Trace, kind: ActionKind = COMMIT) -> list[Sample]:
    """Recorded actions of one kind."""
    return [Sample(kind, trace, frozenset(trace.names.values())) for trace in traces]


def test_a_timer_of_a_dialog_gets_a_horizon_that_covers_it() -> None:
    """250 ms after the action: the next step of the ladder, and the wait that it costs."""
    recorded = samples(*[late_by(250.0)] * 6, *[late_by(None)] * 6)
    (row,) = calibrate(recorded, RULE, BOUNDS)
    assert (row.program, row.kind, row.samples, row.applied) == ("geany", COMMIT, 12, True)
    assert (row.premature_before, row.premature_after) == (6, 0)
    assert max(row.horizon_ms, row.change_horizon_ms) in (240.0, 260.0)
    assert row.wait_before_ms < row.wait_after_ms < 300
    assert table_of([row]) == {"geany": {COMMIT: TimerHorizons(row.horizon_ms, row.change_horizon_ms)}}


def test_what_is_right_already_is_left_alone() -> None:
    """No row is applied, so the table is empty."""
    (row,) = calibrate(samples(*[late_by(100.0)] * 20), RULE, BOUNDS)
    assert not row.applied and row.premature_before == 0
    assert table_of([row]) == {}


def test_few_samples_decide_nothing() -> None:
    """Seven are too few; the row says so."""
    (row,) = calibrate(samples(*[late_by(250.0)] * 7), RULE, BOUNDS)
    assert (row.samples, row.premature_before, row.applied) == (7, 7, False)


def test_programs_with_few_samples_decide_together() -> None:
    """Three dialogs of each of three programs; one that has enough of its own decides alone."""
    programs = ("geany", "mousepad", "gimp")
    recorded = samples(*[late_by(250.0, program=name) for name in programs for _ in range(3)])
    recorded += samples(*[late_by(100.0, program="quick")] * 8)
    rows = {row.program: row for row in calibrate(recorded, RULE, BOUNDS)}
    assert [rows[name].samples for name in programs] == [3, 3, 3]
    assert all(rows[name].applied and rows[name].premature_after == 0 for name in programs)
    assert len({(rows[name].horizon_ms, rows[name].change_horizon_ms) for name in programs}) == 1
    assert not rows["quick"].applied


def test_what_is_decided_together_shortens_nothing() -> None:
    """A program whose own horizon is longer keeps it."""
    rule = replace(RULE, horizons={"slow": {"horizon_ms": 500.0}})
    recorded = samples(
        *[late_by(250.0, program=name) for name in ("geany", "gimp", "slow") for _ in range(3)]
    )
    rows = {row.program: row for row in calibrate(recorded, rule, BOUNDS)}
    assert rows["geany"].applied and rows["slow"].horizon_ms == 500.0
    assert rows["slow"].change_horizon_ms >= rule.change_horizon_ms


def test_what_no_horizon_covers_costs_nothing() -> None:
    """A change beyond the longest horizon: the image's own horizons stay."""
    (row,) = calibrate(samples(*[late_by(900.0)] * 10), RULE, BOUNDS)
    assert (row.premature_before, row.premature_after, row.applied) == (10, 10, False)


def test_what_blinks_for_ever_is_not_waited_for() -> None:
    """One of twenty could be caught, were it not that all others would wait for the same timer in vain."""
    idle = replace(late_by(580.0), changes_ms=(10.0,))
    recorded = samples(late_by(580.0), late_by(900.0), *[idle] * 18)
    (row,) = calibrate(recorded, RULE, BOUNDS)
    assert (row.premature_before, row.premature_after, row.applied) == (2, 2, False)
    (row,) = calibrate(recorded, RULE, replace(BOUNDS, late_share=0.05))
    assert (row.premature_after, row.applied) == (1, True)


def test_a_share_may_be_late() -> None:
    """One of a hundred, by default, so that a rare one does not make all others wait."""
    recorded = samples(late_by(250.0), *[late_by(100.0)] * 99)
    assert not calibrate(recorded, RULE, BOUNDS)[0].applied
    assert calibrate(recorded, RULE, replace(BOUNDS, late_share=0.0))[0].applied


def test_kinds_are_apart() -> None:
    """Late commits do not make typing wait."""
    recorded = [*samples(*[late_by(250.0)] * 9), *samples(*[late_by(100.0)] * 9, kind=ActionKind.TYPE)]
    table = table_of(calibrate(recorded, RULE, BOUNDS))
    assert set(table["geany"]) == {COMMIT}
    assert decide(late_by(250.0), with_horizons(RULE, table, ActionKind.TYPE)) < 250


TIMERS = st.one_of(st.none(), st.integers(20, 950).map(float))


@settings(max_examples=15, deadline=None)
@given(st.lists(TIMERS, min_size=8, max_size=12), st.randoms(use_true_random=False))
def test_a_calibration_never_makes_it_worse(fires: list[float | None], random: object) -> None:
    """Never more late ones, never shorter nor too long horizons, whatever the order of the samples."""
    recorded = samples(*[late_by(each) for each in fires])
    rows = calibrate(recorded, RULE, BOUNDS)
    shuffled = sorted(recorded, key=lambda _: random.random())
    assert calibrate(shuffled, RULE, BOUNDS) == rows
    (row,) = rows
    assert row.premature_after <= row.premature_before
    assert row.applied == (row.premature_after < row.premature_before)
    assert RULE.horizon_ms <= row.horizon_ms <= BOUNDS.max_horizon_ms
    assert RULE.change_horizon_ms <= row.change_horizon_ms <= BOUNDS.max_horizon_ms
    table = table_of(rows)
    assert parse_table(table_json(table)) == table
    rule = with_horizons(RULE, table, COMMIT)
    late = sum(premature(each.trace, decide(each.trace, rule)) for each in recorded)
    assert late == row.premature_after


@pytest.mark.parametrize("wrong", [{"late_share": 1}, {"max_horizon_ms": 0}, {"min_samples": 0}])
def test_bounds_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    """With the name of the field."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replace(BOUNDS, **wrong)


def entry(name: str, **values: str) -> str:
    """One entry as the script lists it."""
    keys = {"Type": "Application", "Exec": f"{name} %F", **values}
    lines = "\n".join(f"{key}={value}" for key, value in keys.items())
    return f"\x1e{name}.desktop\n[Desktop Entry]\n{lines}\n[Desktop Action new]\nExec=other\n"


def test_the_menu_says_what_there_is() -> None:
    """By name, without field codes; what menus hide, terminals and what ends the session are left out."""
    listing = (
        entry("org.x.Two", Exec='two --name "a b" %U')
        + entry("one")
        + entry("same", Exec="one %f")
        + entry("hidden", NoDisplay="true")
        + entry("top", Terminal="true")
        + entry("lx-logout")
        + entry("link", Type="Link")
        + entry("kde", OnlyShowIn="KDE;")
        + entry("torn", Exec='"')
        + entry("-rf")
        + "\x1enothing"
    )
    two = FoundApplication("org.x.Two", ("two", "--name", "a b"))
    one = FoundApplication("one", ("one",))
    found = find_applications(listing)
    assert found == [one, two]
    assert choose(found, []) == found
    assert choose(found, ["two", "org.x.two"]) == [two]
    with pytest.raises(ValueError, match=r"no application 'six'; its applications are one, org\.x\.Two"):
        choose(found, ["six"])


@given(st.text())
def test_any_listing_is_read(listing: str) -> None:
    """Whatever an image says, the answer is a bounded list."""
    assert len(find_applications(f"\x1e{listing}")) <= 64


def test_an_exploration_is_the_same_for_the_same_seed_and_has_every_kind() -> None:
    """Valid actions within the window, of all kinds, others for another seed."""
    area = Area(100, 50, 800, 600)
    rounds = [list(explore(area, 1, number)) for number in range(2)]
    assert rounds == [list(explore(area, 1, number)) for number in range(2)]
    assert rounds[0] != list(explore(area, 2, 0))
    counts = dict.fromkeys(ActionKind, 0)
    for group in (*rounds[0], *rounds[1]):
        for raw in group.actions:
            (action,) = parse_actions([raw], (1920, 1080))
            counts[kind_of([action])] += 1
            if isinstance(action, Click) and action.at is not None:
                assert 100 <= action.at[0] < 900 and 50 <= action.at[1] < 650
    assert all(count >= BOUNDS.min_samples for count in counts.values()), counts


@pytest.mark.parametrize(
    "wrong",
    [{"changes_ms": (float("nan"),)}, {"names": {PID: 3}}, {"turns": (Turn(float("inf"), False, (), ()),)}],
)
def test_a_recording_that_makes_no_sense_is_not_used(wrong: dict[str, Any]) -> None:
    """A guest writes it, and may write anything."""
    sound = late_by(250.0)
    assert is_sound(sound)
    assert not is_sound(replace(sound, **wrong))


def test_an_images_settings_are_laid_over_the_agents() -> None:
    """Objects are merged, values replaced."""
    settings = {"policies": {"exact": {"idle_ms": 30, "horizon_ms": 120}}, "horizons": {}}
    lay_over(settings, {"policies": {"exact": {"horizon_ms": 0}}, "horizons": {"exact": {"a": 1}}})
    assert settings == {
        "policies": {"exact": {"idle_ms": 30, "horizon_ms": 0}},
        "horizons": {"exact": {"a": 1}},
    }


@pytest.mark.parametrize("command", ["calibrate", "check", "show", "forget"])
def test_an_image_that_is_not_there_is_named(
    command: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With how to bake one, before anything runs."""
    monkeypatch.setenv("OSGYM_DATA_DIR", str(tmp_path))
    done = CliRunner().invoke(settle, [command, "nowhere"])
    assert done.exit_code == 1
    assert "osgym settle: there is no image 'nowhere'" in done.output and "osgym image build" in done.output


def test_a_program_is_known_by_all_names_that_start_it(tmp_path: Path) -> None:
    """Links are read, through others and folders, and never followed out of the image."""
    programs = tmp_path / "usr" / "bin"
    programs.mkdir(parents=True)
    (tmp_path / "etc" / "alternatives").mkdir(parents=True)
    (programs / "gimp-2.10").touch()
    (programs / "gimp").symlink_to("gimp-2.10")
    (programs / "image-editor-of-all").symlink_to("/etc/alternatives/image-editor")
    (tmp_path / "etc" / "alternatives" / "image-editor").symlink_to("/usr/bin/gimp")
    (programs / "alone").touch()
    (programs / "out").symlink_to("../../../../../../etc/shadow")
    (programs / "round").symlink_to("round")
    (programs / "-odd name").symlink_to("gimp")
    groups = names_of_programs(tmp_path)
    assert groups == [frozenset({"gimp", "gimp-2.10", "image-editor-of"}), frozenset({"out", "shadow"})]
    assert names_of_programs(tmp_path / "nowhere") == []
    (tmp_path / "other" / "usr").mkdir(parents=True)
    (tmp_path / "other" / "usr" / "bin").symlink_to(programs)
    assert names_of_programs(tmp_path / "other") == []


def test_horizons_are_of_all_names_of_a_program_as_far_as_there_is_room() -> None:
    """What a name has of its own stays; a full table stays as it is."""
    own, other = TimerHorizons(120, 260), TimerHorizons(200, 0)
    table = {
        "gimp-2.10": {ActionKind.COMMIT: own},
        "vi": {ActionKind.TYPE: other},
        "vim": {ActionKind.TYPE: own},
    }
    groups = [frozenset({"gimp", "gimp-2.10"}), frozenset({"vi", "vim"}), frozenset({"a", "b"})]
    found = with_other_names(table, groups)
    assert found == {**table, "gimp": {ActionKind.COMMIT: own}}
    full = {f"p{n}": {ActionKind.TYPE: own} for n in range(MAX_PROGRAMS)}
    assert with_other_names(full, [frozenset({"p0", "q"})]) == full
