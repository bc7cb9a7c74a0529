"""The `settle` and `observe` objects, the settings and the policies."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from osgym_guest.app import AgentSettings
from osgym_guest.settle import load_policies, with_options
from osgym_protocol.codec import WireFormatError
from osgym_protocol.codes import ImageFormat, SettlePolicy
from osgym_protocol.options import ObserveOptions, SettleOptions, parse_observe, parse_settle

SCREEN = (1920, 1080)


def test_defaults() -> None:
    """Nothing said means exact, and a PNG of the whole screen."""
    assert parse_settle(None) == SettleOptions() == SettleOptions(SettlePolicy.EXACT)
    assert parse_observe({}) == ObserveOptions() == ObserveOptions(ImageFormat.PNG)


def test_everything_said() -> None:
    """Every field arrives."""
    fixed = SettleOptions(SettlePolicy.FIXED, pause_ms=7.0)
    assert parse_settle({"policy": "fixed", "pause_ms": 7, "max_ms": None}) == fixed
    fast = SettleOptions(SettlePolicy.FAST, 9.0, 10.0)
    assert parse_settle({"policy": "fast", "quiet_ms": 9, "max_ms": 10}) == fast
    raw = {"format": "webp", "quality": 5, "size": [9, 8], "region": [1, 2, 3, 4], "unless_hash": "ab"}
    assert parse_observe(raw) == ObserveOptions(ImageFormat.WEBP, 5, (9, 8), (1, 2, 3, 4), "ab")


@pytest.mark.parametrize(
    "raw",
    [
        [],
        {"policy": "slow"},
        {"policy": "fixed"},
        {"max_ms": -1},
        {"max_ms": "5"},
        {"quiet_ms": True},
        {"speed": 1},
    ],
)
def test_settle_that_makes_no_sense(raw: Any) -> None:
    """It is refused."""
    with pytest.raises(WireFormatError, match=r"settle|SettleOptions"):
        parse_settle(raw)


@pytest.mark.parametrize(
    "raw",
    [
        [],
        {"format": "gif"},
        {"quality": 0},
        {"size": [0, 5]},
        {"size": [1]},
        {"region": [0, 0, 1921, 5]},
        {"region": [-1, 0, 5, 5]},
        {"region": [0, 0, 5, 0]},
        {"unless_hash": 5},
        {"colour": 1},
    ],
)
def test_observe_that_makes_no_sense(raw: Any) -> None:
    """It is refused."""
    with pytest.raises(WireFormatError, match=r"observe|ObserveOptions"):
        parse_observe(raw).check_region(SCREEN)


def test_an_image_can_change_the_policies(tmp_path: Path) -> None:
    """What its file says is laid over the built-in rules, the rest stays."""
    file = tmp_path / "settle.json"
    file.write_text(json.dumps({"horizons": {"exact": {"a-very-long-process-name": 650}}, "burner_s": 3}))
    policies = load_policies(file)
    exact = policies.rules["exact"]
    assert ("a-very-long-pro", 650.0, exact.change_horizon_ms, 0.0) in exact.horizons
    assert policies.burner_s == 3
    assert policies.rules["exact"].idle_ms == load_policies(None).rules["exact"].idle_ms
    many = {f"program{number}": 1 for number in range(65)}
    for wrong in (
        {"policies": {"exact": {"no_such_parameter": 1}}},
        {"horizons": {"exact": {"mousepad": {"no_such_horizon": 1}}}},
        {"horizons": {"exact": many}},
    ):
        file.write_text(json.dumps(wrong))
        with pytest.raises(ValueError, match=r"malformed|programs have their own horizons"):
            load_policies(file)


def test_the_golden_image_waits_for_no_timers_of_toolkits() -> None:
    """It has remedies for them; without its file they are waited for, until 260 ms after the last change."""
    image = Path(__file__).resolve().parents[2] / "images/files/etc/osgym/settle.json"
    short, general = load_policies(image).rules, load_policies(None).rules
    assert (short["exact"].change_horizon_ms, general["exact"].change_horizon_ms) == (0, 260)
    assert short["fast"] == general["fast"] and short["final"] == general["final"]


def test_a_program_has_horizons_of_its_own(tmp_path: Path) -> None:
    """A number is the one from the action; what an object leaves out is the policy's."""
    file = tmp_path / "settle.json"
    own = {"one": 260, "two": {"change_horizon_ms": 250}, "three": {"horizon_ms": 1, "window_horizon_ms": 2}}
    exact = {"horizon_ms": 120, "change_horizon_ms": 10, "window_horizon_ms": 20}
    file.write_text(json.dumps({"policies": {"exact": exact}, "horizons": {"exact": own}}))
    found = load_policies(file).rules["exact"].horizons
    assert {("one", 260, 10, 20), ("two", 120, 250, 20), ("three", 1, 10, 2)} <= set(found)


def test_a_request_changes_a_rule_for_itself() -> None:
    """quiet_ms is the idle time; a pause replaces the rule."""
    rule = load_policies(None).rules["exact"]
    changed = with_options(rule, quiet_ms=5, max_ms=9, pause_ms=None)
    assert (changed.idle_ms, changed.max_ms, changed.pause_ms) == (5, 9, -1)
    assert with_options(rule, quiet_ms=None, max_ms=9, pause_ms=3).pause_ms == 3


def test_settings_come_from_the_environment() -> None:
    """Every setting, and the refusal of one that makes no sense."""
    settings = AgentSettings.from_environment(
        {
            "OSGYM_LISTEN": "0.0.0.0:6000",
            "LISTEN_FDS": "1",
            "OSGYM_TOKEN": "t",
            "OSGYM_GENERATION": "g",
            "OSGYM_FBDIR": "/fb",
            "OSGYM_EXPECT": "dock,desktop",
            "XDG_RUNTIME_DIR": "/run/x",
            "OSGYM_HELPER_WARM_S": "inf",
        }
    )
    assert settings.listen == ("0.0.0.0", 6000)
    assert settings.inherited and settings.token == "t" and settings.generation == "g"
    assert settings.expect == {"dock", "desktop"}
    assert settings.state_file == Path("/run/x/osgym-guest.seq")
    assert settings.helper_warm_s == math.inf
    assert AgentSettings.from_environment({}).helper_warm_s == 60
    assert AgentSettings.from_environment({}).listen == ("127.0.0.1", 5000)
    with pytest.raises(ValueError, match="OSGYM_EXPECT"):
        AgentSettings.from_environment({"OSGYM_EXPECT": "clock"})
