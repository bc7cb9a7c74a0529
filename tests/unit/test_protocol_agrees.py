"""Host and guests read a step alike: what OpenAPI admits both take, what one refuses the other refuses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from osgym_host.actions import BadAction
from osgym_host.actions import parse_actions as host_actions
from osgym_protocol import limits
from osgym_protocol.actions import BUTTONS, InvalidAction, Op, op_of
from osgym_protocol.actions import parse_actions as guest_actions
from osgym_protocol.codec import WireFormatError
from osgym_protocol.codes import ImageFormat, SettlePolicy
from osgym_protocol.host_api import CreateRequest, ForkRequest, StepRequest
from osgym_protocol.keysyms import ALIASES, KEYSYMS, MODIFIERS
from osgym_protocol.options import ObserveOptions, SettleOptions, parse_observe, parse_settle

SCREEN = (1920, 1080)
PIXELS = {"x": st.integers(0, SCREEN[0] - 1), "y": st.integers(0, SCREEN[1] - 1)}
KEY = st.sampled_from([*KEYSYMS, *ALIASES, "a", "Z", "é", "U+20AC"])
BUTTON = {"button": st.sampled_from(list(BUTTONS))}
WITH_MODIFIERS = {"modifiers": st.lists(st.sampled_from(sorted(MODIFIERS)), max_size=limits.MAX_KEYS)}
TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=50)
DURATION = st.integers(0, limits.MAX_DURATION_MS // limits.MAX_KEYS)
POINT = st.tuples(PIXELS["x"], PIXELS["y"]).map(list)


def _action(
    op: Op, required: Mapping[str, Any] | None = None, optional: Mapping[str, Any] | None = None
) -> Any:
    return st.fixed_dictionaries({"op": st.just(op.value), **(required or {})}, optional=dict(optional or {}))


def _clicks(limit: int) -> dict[str, Any]:
    return {"dx": st.integers(-limit, limit), "dy": st.integers(-limit, limit)}


CLICKS, SCROLL_PX = limits.MAX_SCROLL_CLICKS, limits.MAX_SCROLL_CLICKS * limits.PIXELS_PER_SCROLL_CLICK
ACTIONS: dict[Op, Any] = {
    Op.CLICK: _action(
        Op.CLICK, {}, {"count": st.integers(1, limits.MAX_CLICK_COUNT), **BUTTON, **WITH_MODIFIERS}
    ),
    Op.MOVE: _action(Op.MOVE, PIXELS),
    Op.DRAG: _action(
        Op.DRAG, {"path": st.lists(POINT, min_size=2, max_size=9)}, {**BUTTON, **WITH_MODIFIERS}
    ),
    Op.SCROLL: _action(Op.SCROLL, {}, {**_clicks(CLICKS), **WITH_MODIFIERS})
    | _action(Op.SCROLL, {"unit": st.just("px"), **PIXELS, **_clicks(SCROLL_PX)}),
    Op.TYPE: _action(Op.TYPE, {"text": TEXT}, {"press_enter": st.booleans()}),
    Op.KEY: _action(
        Op.KEY,
        {"keys": st.lists(KEY, min_size=1, max_size=limits.MAX_KEYS)},
        {"repeat": st.integers(1, limits.MAX_KEY_REPEAT)},
    ),
    Op.HOLD: _action(Op.HOLD, {"keys": st.lists(KEY, min_size=1, max_size=3), "duration_ms": DURATION}),
    Op.KEY_DOWN: _action(Op.KEY_DOWN, {"key": KEY}),
    Op.KEY_UP: _action(Op.KEY_UP, {"key": KEY}),
    Op.BUTTON_DOWN: _action(Op.BUTTON_DOWN, PIXELS, BUTTON),
    Op.BUTTON_UP: _action(Op.BUTTON_UP, {}, BUTTON),
    Op.WAIT: _action(Op.WAIT, {"duration_ms": DURATION}),
    Op.SCREENSHOT: _action(Op.SCREENSHOT),
}
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def from_schema(schema: Mapping[str, Any]) -> Any:
    """Return values that a schema of OpenAPI admits, its bounds among them."""
    if "$ref" in schema:
        return from_schema(SCHEMAS[schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        return st.one_of([from_schema(each) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "null":
            return st.none()
        case "string":
            return st.text(st.characters(exclude_categories=["Cs"]), max_size=schema["maxLength"])
        case "integer":
            low, high = int(schema["minimum"]), int(schema["maximum"])
            return st.integers(low, high) | st.sampled_from([low, high])
        case "number":
            low, high = schema["minimum"], schema["maximum"]
            return st.floats(low, high) | st.sampled_from([low, high])
        case "array":
            return st.tuples(*map(from_schema, schema["prefixItems"])).map(list)
        case "object":
            fields = {name: from_schema(each) for name, each in schema["properties"].items()}
            made = st.fixed_dictionaries({}, optional=fields)
            if "if" not in schema:
                return made
            needed = schema["then"]["required"][0]
            values = fields[needed].filter(lambda value: value is not None)
            kind, marked = next(iter(schema["if"]["properties"].items()))
            return st.tuples(made, values).map(
                lambda pair: {**pair[0], needed: pair[1]} if pair[0].get(kind) == marked["const"] else pair[0]
            )
        case other:
            raise AssertionError(f"{other} is not expected in these bodies")


def _schemas() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in (SettleOptions, ObserveOptions):
        schema = TypeAdapter(kind).json_schema(ref_template="#/{model}")
        found |= schema.pop("$defs", {})
        found[kind.__name__] = schema
    return found


SCHEMAS = _schemas()


STEP_BODY = TypeAdapter(StepRequest)


def host_body(**fields: Any) -> StepRequest:
    """Read a step's body as the host does."""
    body = {"lease": "l", "seq": 1, "actions": [], **fields}
    return STEP_BODY.validate_json(json.dumps(body))


def on_the_way(value: Any) -> Any:
    """Return what the guest gets of it."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode())


def test_there_is_a_strategy_for_every_op() -> None:
    """A new op must be tried here."""
    assert set(ACTIONS) == set(Op)


@given(st.lists(st.one_of(*ACTIONS.values()), max_size=limits.MAX_KEYS))
def test_actions_that_one_takes_the_other_takes(raw: list[dict[str, Any]]) -> None:
    """Every op with fields within the bounds, and what the host sends on is what it was given."""
    parsed = host_actions(host_body(actions=raw).actions, SCREEN)
    assert list(parsed.actions) == raw
    taken = guest_actions(on_the_way(parsed.actions), SCREEN)
    assert [op_of(action).value for action in taken] == [action["op"] for action in raw]


@given(st.sampled_from(list(Op)).flatmap(ACTIONS.get), st.data())
def test_actions_that_one_refuses_the_other_refuses(action: dict[str, Any], data: st.DataObject) -> None:
    """Any JSON in any field: both take it or both refuse it, and both name the action."""
    name = data.draw(st.sampled_from([*action, "x", "dx", "unit", "other"]))
    changed = {**action, name: data.draw(JSON)}
    try:
        guest_actions([{key: value for key, value in changed.items() if value is not None}], SCREEN)
    except InvalidAction as error:
        with pytest.raises(BadAction) as caught:
            host_actions([changed], SCREEN)
        assert error.index == caught.value.index == 0
        return
    host_actions([changed], SCREEN)


@given(st.sampled_from(list(Op)).flatmap(ACTIONS.get).filter(lambda action: "duration_ms" in action))
def test_whatever_waits_counts_for_what_a_step_may_wait(action: dict[str, Any]) -> None:
    """The step's deadline is made from it, whichever op it is."""
    long = {**action, "duration_ms": limits.MAX_DURATION_MS}
    guest_actions([long], SCREEN)
    with pytest.raises(InvalidAction, match="in all"):
        guest_actions([long, long], SCREEN)


@given(from_schema(SCHEMAS["SettleOptions"]), from_schema(SCHEMAS["ObserveOptions"]))
def test_options_that_openapi_admits_are_taken(settle: dict[str, Any], observe: dict[str, Any]) -> None:
    """By the host, and of what it sends on by the guest, without a change."""
    body = host_body(settle=settle, observe=observe)
    waits, looks = body.settle, body.observe
    assert waits is not None and looks is not None
    assert parse_settle(on_the_way(waits.to_dict())) == waits
    assert parse_observe(on_the_way(looks.to_dict())) == looks


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("settle", ["policy", "quiet_ms", "max_ms", "pause_ms", "other"]),
        ("observe", ["format", "quality", "size", "region", "unless_hash", "other"]),
    ],
)
@given(data=st.data())
def test_options_that_the_host_refuses_the_guest_refuses(
    name: str, fields: list[str], data: st.DataObject
) -> None:
    """Numbers around the bounds and any other JSON in every field; both say `bad_request`."""
    bounds = [0, -1, 1, 100, 101, limits.MAX_QUIET_MS + 1, limits.MAX_DURATION_MS, limits.MAX_DURATION_MS + 1]
    sides = st.integers(-1, 1) | st.integers(limits.MAX_IMAGE_SIDE_PX - 1, limits.MAX_SCREEN_SIDE_PX + 1)
    values = JSON | st.sampled_from([*SettlePolicy, *ImageFormat, *bounds]) | st.lists(sides, max_size=4)
    given_options = data.draw(st.dictionaries(st.sampled_from(fields), values, min_size=1, max_size=2))
    try:
        host_body(**{name: given_options})
    except ValidationError:
        with pytest.raises(WireFormatError):
            {"settle": parse_settle, "observe": parse_observe}[name](on_the_way(given_options))


def test_openapi_has_the_limits_of_the_protocol() -> None:
    """The numbers of the description are those of the one table."""
    settle, observe = SCHEMAS["SettleOptions"]["properties"], SCHEMAS["ObserveOptions"]["properties"]
    assert settle["quiet_ms"]["anyOf"][0]["maximum"] == limits.MAX_QUIET_MS
    assert settle["max_ms"]["anyOf"][0]["maximum"] == limits.MAX_DURATION_MS
    assert observe["size"]["anyOf"][0]["prefixItems"][0]["maximum"] == limits.MAX_IMAGE_SIDE_PX
    fork = TypeAdapter(ForkRequest).json_schema()["properties"]
    assert fork["count"]["maximum"] == limits.MAX_CHILDREN
    create = TypeAdapter(CreateRequest).json_schema()["properties"]
    assert create["lease_ttl_s"]["default"] == limits.DEFAULT_LEASE_TTL_S
    assert create["wait_s"]["default"] == limits.DEFAULT_WAIT_S


def test_a_step_of_texts_has_a_bound_of_its_own() -> None:
    """What no guest's body would take is the client's fault, said of an action."""
    texts = [{"op": "type", "text": "x" * 80_000}] * 30
    with pytest.raises(BadAction, match="at most 1048576") as caught:
        host_actions(texts, SCREEN)
    assert caught.value.index == 0
    fits = host_actions(texts[:12], SCREEN).actions
    assert len(json.dumps(fits)) < limits.MAX_STEP_BODY_BYTES
