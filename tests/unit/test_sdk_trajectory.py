"""Trajectories leave the process and come back as they were: JSON and pickle, with what the policy kept."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osgym_sdk import ConfigError, Decision, ErrorClass, Evaluation, Failure, StepRecord, Timing, Trajectory
from osgym_sdk.wire import (
    ActionResult,
    Done,
    ErrorInfo,
    FrameInfo,
    ImageFormat,
    Observation,
    ParentInfo,
    SettleInfo,
    SettlePolicy,
    SettleReason,
    SetupWarning,
    StepAnswer,
)

NUMBERS = st.floats(0, 1e6)
NAMES = st.text(max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | NUMBERS | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
INFO = st.recursive(
    JSON
    | st.integers()
    | st.floats(allow_nan=False)
    | st.binary(max_size=8)
    | st.fixed_dictionaries({"$int": st.text(max_size=3)})
    | st.fixed_dictionaries({"$$bytes": JSON}),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(NAMES, JSON, max_size=3)
FRAMES = st.builds(
    FrameInfo,
    hash=NAMES,
    format=st.sampled_from(ImageFormat),
    width=st.integers(1, 4000),
    height=st.integers(1, 4000),
    screen=st.tuples(st.integers(1, 4000), st.integers(1, 4000)),
    unchanged=st.booleans(),
)
ERRORS = st.builds(ErrorInfo, NAMES, NAMES)
POLICIES = st.sampled_from(SettlePolicy)
ANSWERS = st.builds(
    StepAnswer,
    observation=st.builds(
        Observation,
        frame=FRAMES,
        seq=st.integers(0, 99),
        results=st.tuples(st.builds(ActionResult, st.booleans(), NAMES, st.none() | ERRORS)),
        settle=st.none() | st.builds(SettleInfo, POLICIES, st.sampled_from(SettleReason), NUMBERS, NUMBERS),
        timing_ms=st.dictionaries(NAMES, NUMBERS, max_size=2),
    ),
    step=st.integers(0, 99),
    actions=st.lists(OBJECTS, max_size=2).map(tuple),
    done=st.none() | st.sampled_from(Done),
)
IMAGES = st.none() | st.binary(max_size=16)
STEPS = st.builds(
    StepRecord,
    requested=st.lists(NAMES | OBJECTS, max_size=2).map(tuple),
    answer=ANSWERS,
    timing=st.none() | st.builds(Timing, *[NUMBERS] * 9),
    data=IMAGES,
    final=st.none() | st.booleans(),
    changed_after_ms=st.none() | NUMBERS,
    refused=st.none() | NAMES,
    info=INFO,
)
FAILURES = st.builds(Failure, NAMES, NAMES, st.none() | st.sampled_from(ErrorClass), OBJECTS)
TRAJECTORIES = st.builds(
    Trajectory,
    task_id=st.none() | NAMES,
    episode_id=NAMES,
    host=NAMES,
    replica_id=NAMES,
    generation=st.integers(0, 2**40),
    screen=st.tuples(st.integers(1, 4000), st.integers(1, 4000)),
    reset_ms=st.dictionaries(NAMES, NUMBERS, max_size=2),
    parent=st.none() | st.builds(ParentInfo, NAMES, st.integers(0, 99), st.none() | NAMES),
    setup_warnings=st.lists(
        st.builds(SetupWarning, st.integers(0, 9), NAMES, NAMES, st.integers(0, 255), NAMES), max_size=2
    ).map(tuple),
    first_frame=st.none() | FRAMES,
    first_data=IMAGES,
    steps=st.lists(STEPS, max_size=3),
    evaluation=st.none()
    | st.builds(
        Evaluation,
        st.none() | st.floats(0, 1),
        NAMES,
        st.none() | st.sampled_from(ErrorClass),
        st.booleans(),
        st.lists(JSON, max_size=2).map(tuple),
        st.none() | FAILURES,
    ),
    last_info=INFO,
)


@settings(max_examples=40)
@given(TRAJECTORIES)
def test_trajectories_survive_json_and_pickle(trajectory: Trajectory) -> None:
    """With frames nothing is lost; without, the frames only."""
    text = json.dumps(trajectory.to_dict(frames=True), allow_nan=False)
    assert Trajectory.from_dict(json.loads(text)) == trajectory
    assert pickle.loads(pickle.dumps(trajectory)) == trajectory
    bare = Trajectory.from_dict(json.loads(json.dumps(trajectory.to_dict())))
    assert bare.first_data is None and [step.data for step in bare.steps] == [None] * len(trajectory.steps)
    assert [step.info for step in bare.steps] == [step.info for step in trajectory.steps]


@settings(max_examples=40)
@given(TRAJECTORIES, st.data())
def test_what_is_no_trajectory_is_refused(trajectory: Trajectory, data: st.DataObject) -> None:
    """Anything may stand anywhere: it is read or refused with ConfigError, nothing else."""
    broken = data.draw(_spoilt(trajectory.to_dict(frames=True)))
    try:
        Trajectory.from_dict(broken)
    except ConfigError as exc:
        assert exc.message


@st.composite
def _spoilt(draw: st.DrawFn, plain: dict[str, Any]) -> Any:
    """Replaces one value somewhere in it."""
    place: Any = plain
    while True:
        keys = list(place) if isinstance(place, Mapping) else list(range(len(place)))
        key = draw(st.sampled_from(keys))
        if not isinstance(place[key], (dict, list)) or not place[key] or draw(st.booleans()):
            place[key] = draw(JSON | st.just({"$int": "x"}) | st.just("é"))
            return plain
        place = place[key]


def test_arrays_and_what_json_lacks() -> None:
    """Arrays become lists, tuples too; minus infinity, bytes and very large numbers stay what they are."""

    class Array:
        def tolist(self) -> list[float]:
            return [-0.5, float("-inf")]

    info = {"logprobs": Array(), "tokens": (1, 2**70), "raw": b"\xff"}
    found = Trajectory.from_dict(json.loads(json.dumps(Trajectory("t", last_info=info).to_dict())))
    assert found.last_info == {"logprobs": [-0.5, float("-inf")], "tokens": [1, 2**70], "raw": b"\xff"}


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize("info", [object(), {"a": [{1: 2}]}, "\ud800", ENDLESS])
def test_an_info_that_is_not_json_is_named(info: Any) -> None:
    """It can be kept all the same: only writing it as JSON is refused."""
    with pytest.raises(ConfigError, match="last_info"):
        Trajectory("t", last_info=info).to_dict()


@pytest.mark.parametrize("version", [None, 0, 2, "1", True, 1.0])
def test_another_version_is_refused(version: Any) -> None:
    with pytest.raises(ConfigError, match="versions 1 to 1"):
        Trajectory.from_dict({**Trajectory("t").to_dict(), "version": version})


def test_a_decision_is_equal_by_value() -> None:
    assert Decision("wait()", {"text": "x"}) == Decision("wait()", {"text": "x"})
    assert Decision("wait()").info is None
