"""The table of calibrated horizons: kinds of actions, its form, its way into the guest agent's rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fake_runtime import FakeRuntime

from osgym_guest.app import AgentSettings
from osgym_guest.screen import RULE_OF
from osgym_guest.settle import load_policies, with_table
from osgym_host.app import HostAgent
from osgym_host.cli.image import image as images
from osgym_host.cli.settle import settle
from osgym_host.images.calibration import (
    Calibration,
    calibration_path,
    forget_calibration,
    read_calibration,
    write_calibration,
)
from osgym_host.images.errors import ImageError
from osgym_host.images.store import Image, ImageManifest, ImageStore
from osgym_host.runtimes.kind import ImageRef
from osgym_host.settings import Settings
from osgym_protocol.actions import parse_actions
from osgym_protocol.codes import SettlePolicy
from osgym_protocol.settle_table import (
    ENVIRONMENT,
    MAX_HORIZON_MS,
    MAX_PROGRAMS,
    ActionKind,
    TimerHorizons,
    kind_of,
    parse_table,
    table_json,
)

SCREEN = (1920, 1080)
DIGEST = "ab" * 32
OWN = {"horizon_ms": 300, "change_horizon_ms": 260}

horizons = st.builds(TimerHorizons, *[st.floats(0, MAX_HORIZON_MS)] * 2)
tables = st.dictionaries(
    st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,14}", fullmatch=True),
    st.dictionaries(st.sampled_from(list(ActionKind)), horizons, min_size=1),
    max_size=MAX_PROGRAMS,
)


@pytest.mark.parametrize(
    ("actions", "kind"),
    [
        ([{"op": "key", "keys": ["Return"]}], "commit"),
        ([{"op": "key", "keys": ["ctrl", "Return"]}], "commit"),
        ([{"op": "type", "text": "name"}], "type"),
        ([{"op": "type", "text": "name\n"}], "commit"),
        ([{"op": "key", "keys": ["a"]}], "type"),
        ([{"op": "key", "keys": ["shift", "a"]}], "type"),
        ([{"op": "key", "keys": ["BackSpace"]}], "type"),
        ([{"op": "key", "keys": ["ctrl", "o"]}], "open"),
        ([{"op": "key", "keys": ["alt", "f"]}], "open"),
        ([{"op": "key", "keys": ["F10"]}], "open"),
        ([{"op": "click", "x": 3, "y": 4}], "open"),
        ([{"op": "click", "x": 3, "y": 4}, {"op": "wait", "duration_ms": 3}], "open"),
        ([{"op": "key", "keys": ["Tab"]}], "navigate"),
        ([{"op": "key", "keys": ["ctrl", "End"]}], "navigate"),
        ([{"op": "key", "keys": ["Escape"]}], "navigate"),
        ([{"op": "key", "keys": ["shift"]}], "navigate"),
        ([{"op": "click", "x": 3, "y": 4}, {"op": "key", "keys": ["Down"]}], "navigate"),
        ([{"op": "screenshot"}], "navigate"),
        ([], "navigate"),
    ],
)
def test_the_kind_of_a_step_is_that_of_its_last_action(actions: list[Any], kind: str) -> None:
    """Told by the form alone; pauses do not count."""
    assert kind_of(parse_actions(actions, SCREEN)) == kind


@given(tables)
def test_a_table_survives_json(table: dict[str, dict[ActionKind, TimerHorizons]]) -> None:
    """What was written is read, and equal tables are equal texts."""
    text = json.dumps(table_json(table))
    assert parse_table(json.loads(text)) == table
    assert json.dumps(table_json(parse_table(json.loads(text)))) == text


@pytest.mark.parametrize(
    "raw",
    [
        [],
        {f"p{number}": {} for number in range(MAX_PROGRAMS + 1)},
        {"../x\n": {}},
        {"a" * 16: {}},
        {"a": []},
        {"a": {"nap": OWN}},
        {"a": {"open": {"horizon_ms": 1}}},
        {"a": {"open": {**OWN, "more": 1}}},
        {"a": {"open": {**OWN, "horizon_ms": True}}},
        {"a": {"open": {**OWN, "horizon_ms": float("nan")}}},
        {"a": {"open": {**OWN, "horizon_ms": -1}}},
        {"a": {"open": {**OWN, "horizon_ms": MAX_HORIZON_MS + 1}}},
    ],
)
def test_a_malformed_table_is_refused(raw: Any) -> None:
    """With a message that says that it is the settle table."""
    with pytest.raises(ValueError, match="settle table"):
        parse_table(raw)


def test_exact_follows_the_table_and_nothing_else_does() -> None:
    """A program's horizons for one kind; other kinds, programs and policies keep theirs."""
    plain = load_policies(None)
    policies = with_table(plain, json.dumps({"geany": {"commit": OWN}, "chrome": {"type": OWN}}))
    window_ms = plain.rules["exact"].window_horizon_ms
    by_kind = {
        kind: {name: own for name, *own in rule.horizons} for kind, rule in policies.exact_by_kind.items()
    }
    assert by_kind[ActionKind.COMMIT]["geany"] == [300, 260, window_ms]
    assert "geany" not in by_kind[ActionKind.OPEN]
    before = {name: own for name, *own in plain.rules["exact"].horizons}
    assert by_kind[ActionKind.COMMIT]["chrome"] == before["chrome"]
    assert by_kind[ActionKind.TYPE]["chrome"] == [300, 260, window_ms]
    assert policies.rules == plain.rules
    assert not plain.exact_by_kind
    assert RULE_OF[SettlePolicy.EXACT] == "exact"


def test_a_table_that_is_too_large_beside_the_images_own_is_refused(tmp_path: Path) -> None:
    """The native core has room for 64 programs."""
    file = tmp_path / "settle.json"
    file.write_text(json.dumps({"horizons": {"exact": {f"p{number}": 1 for number in range(60)}}}))
    with pytest.raises(ValueError, match="at most 64"):
        with_table(load_policies(file), json.dumps({f"q{number}": {"open": OWN} for number in range(9)}))


def test_the_agent_reads_it_from_its_environment() -> None:
    """Empty is none."""
    assert AgentSettings.from_environment({ENVIRONMENT: "{}"}).settle_table == "{}"
    assert AgentSettings.from_environment({ENVIRONMENT: ""}).settle_table is None


def calibration(digest: str = DIGEST) -> Calibration:
    """One program."""
    row = {
        "program": "geany",
        "kind": "commit",
        "samples": 12,
        "premature_before": 3,
        "premature_after": 0,
        **OWN,
        "wait_before_ms": 40,
        "wait_after_ms": 140,
        "applied": True,
    }
    return Calibration.model_validate(
        {
            "image_digest": digest,
            "applications": ["geany"],
            "rows": [row],
            "table": {"geany": {"commit": OWN}},
        }
    )


def test_a_calibration_is_kept_beside_its_image(tmp_path: Path) -> None:
    """Written, read, given to replicas, forgotten; writing it again changes nothing."""
    assert read_calibration(tmp_path, DIGEST) is None
    path = calibration_path(tmp_path)
    write_calibration(path, calibration())
    first = path.read_bytes()
    write_calibration(path, calibration())
    assert path.read_bytes() == first
    found = read_calibration(tmp_path, DIGEST)
    assert found == calibration()
    ((name, text),) = found.environment()
    assert name == ENVIRONMENT
    assert with_table(load_policies(None), text).exact_by_kind
    assert forget_calibration(tmp_path)
    assert not forget_calibration(tmp_path)


def calibrated_image(data_dir: Path) -> Image:
    """An image in a store, with a calibration beside it."""
    manifest = ImageManifest(
        digest=DIGEST,
        flavor="small",
        suite="bookworm",
        screen=SCREEN,
        user="user",
        home="/home/user",
        uid_base=1,
        gid_base=1,
        id_count=65536,
        packages={"bc": "1"},
        lock_digest="",
        apps=[],
        remedies=[],
        guest_version="0",
        size_bytes=1,
        bake_s=1.0,
    )
    store = ImageStore(data_dir)
    with store.workspace() as workspace:
        (workspace / "made/rootfs").mkdir(parents=True)
        image = store.publish(workspace / "made", manifest)
    store.tag("small", DIGEST)
    write_calibration(calibration_path(image.folder), calibration())
    return image


@pytest.mark.parametrize("mode", ["auto", "off"])
async def test_a_host_agent_gives_the_table_to_every_replica(tmp_path: Path, mode: str) -> None:
    """Read once, when it starts; off ignores it, also one that cannot be read."""
    image = calibrated_image(tmp_path)
    settings = Settings.model_validate(
        {"data_dir": tmp_path, "image": "small", "warm": 0, "calibrated_horizons": mode}
    )
    runtime = FakeRuntime(tmp_path / "fake")
    agent = HostAgent(settings, ImageRef(image, "small"), runtime)
    told = agent._make_spec("r", 1, image.digest).environment
    assert told == (calibration().environment() if mode == "auto" else ())
    calibration_path(image.folder).write_text("{")
    assert agent._make_spec("r", 2, image.digest).environment == told
    if mode == "auto":
        with pytest.raises(ImageError, match="cannot be read"):
            HostAgent(settings, ImageRef(image, "small"), runtime)


def test_what_is_known_of_an_image_is_shown_and_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`calibrate` of what is calibrated shows it and starts nothing; the list of images marks it."""
    monkeypatch.setenv("OSGYM_DATA_DIR", str(tmp_path))
    calibrated_image(tmp_path)
    run = CliRunner().invoke
    shown = run(settle, ["show", "small", "--json"])
    assert Calibration.model_validate_json(shown.output) == calibration()
    table = run(settle, ["show", "small"]).output
    assert "geany" in table and "commit" in table and "40 → 140 ms" in table
    again = run(settle, ["calibrate", "small"])
    assert again.exit_code == 0 and "already calibrated" in again.output
    (row,) = json.loads(run(images, ["ls", "--json"]).output)
    assert row["calibrated"] is True
    assert run(settle, ["forget", "small"]).exit_code == 0
    (row,) = json.loads(run(images, ["ls", "--json"]).output)
    assert row["calibrated"] is False
    assert run(settle, ["show", "small"]).exit_code == 3
    assert "was not calibrated" in run(settle, ["forget", "small"]).output


def test_an_empty_table_adds_no_variable() -> None:
    """Nothing to say."""
    assert calibration().model_copy(update={"table": {}}).environment() == ()


@pytest.mark.parametrize("text", ["", "{}", "\0", json.dumps({"format": 2})])
def test_a_calibration_that_is_malformed_is_named(tmp_path: Path, text: str) -> None:
    """With what to do about it."""
    calibration_path(tmp_path).write_text(text)
    with pytest.raises(ImageError, match=r"calibration\.json") as caught:
        read_calibration(tmp_path, DIGEST)
    assert "settle" in caught.value.hint


def test_a_calibration_of_another_image_is_refused(tmp_path: Path) -> None:
    """Horizons of other programs would be worse than none."""
    write_calibration(calibration_path(tmp_path), calibration("cd" * 32))
    with pytest.raises(ImageError, match="belongs to the image cdcd"):
        read_calibration(tmp_path, DIGEST)
