"""OSWorld's computer_13: `{"action_type", "parameters"}` or flat, and the bare words WAIT, DONE, FAIL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osgym_host.actions.errors import BadAction

Action = dict[str, Any]

WAIT_MS = 2000
"""OSWorld's pause of a step: what WAIT means there."""
WORDS: dict[str, Action] = {
    "WAIT": {"op": "wait", "duration_ms": WAIT_MS},
    "DONE": {"op": "done"},
    "FAIL": {"op": "fail"},
}
_FIELDS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "MOVE_TO": (frozenset("xy"), frozenset()),
    "CLICK": (frozenset(), frozenset(("button", "x", "y", "num_clicks"))),
    "MOUSE_DOWN": (frozenset(), frozenset(("button",))),
    "MOUSE_UP": (frozenset(), frozenset(("button",))),
    "RIGHT_CLICK": (frozenset(), frozenset("xy")),
    "DOUBLE_CLICK": (frozenset(), frozenset("xy")),
    "DRAG_TO": (frozenset("xy"), frozenset()),
    "SCROLL": (frozenset(), frozenset(("dx", "dy"))),
    "TYPING": (frozenset(("text",)), frozenset()),
    "PRESS": (frozenset(("key",)), frozenset()),
    "KEY_DOWN": (frozenset(("key",)), frozenset()),
    "KEY_UP": (frozenset(("key",)), frozenset()),
    "HOTKEY": (frozenset(("keys",)), frozenset()),
    **{word: (frozenset(), frozenset()) for word in WORDS},
}


def parse_computer13(action: Mapping[str, Any]) -> list[Action]:
    """Return the internal actions (not checked yet) of a computer_13 dictionary.

    `DRAG_TO` starts where the pointer is: button down, move, button up.

    Raises:
        BadAction: Unknown type, unknown or missing parameter.
    """
    kind = action.get("action_type")
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise BadAction(dict(action), f"there is no action_type {kind!r}; there are {', '.join(_FIELDS)}")
    beside = [name for name in action if name not in ("action_type", "parameters")]
    if "parameters" in action and beside:
        raise BadAction(dict(action), f"{beside[0]!r} stands beside 'parameters'; it belongs into it")
    given = (
        action["parameters"]
        if "parameters" in action
        else {name: value for name, value in action.items() if name != "action_type"}
    )
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise BadAction(dict(action), "parameters must be an object")
    required, optional = _FIELDS[kind]
    for name in given:
        if name not in required and name not in optional:
            raise BadAction(dict(action), f"{kind} has no parameter {name!r}")
    for name in sorted(required):
        if name not in given:
            raise BadAction(dict(action), f"{kind} needs the parameter {name!r}")
    if kind == "SCROLL" and not given:
        raise BadAction(dict(action), "SCROLL needs dx or dy")
    return _translate(kind, dict(given), action)


def _translate(kind: str, given: dict[str, Any], action: Mapping[str, Any]) -> list[Action]:
    if kind in WORDS:
        return [dict(WORDS[kind])]
    at: Action = {name: given[name] for name in ("x", "y") if name in given}
    button = {"button": given["button"]} if "button" in given else {}
    match kind:
        case "MOVE_TO":
            return [{"op": "move", **at}]
        case "CLICK":
            count = {"count": given["num_clicks"]} if "num_clicks" in given else {}
            return [{"op": "click", **at, **button, **count}]
        case "RIGHT_CLICK":
            return [{"op": "click", **at, "button": "right"}]
        case "DOUBLE_CLICK":
            return [{"op": "click", **at, "count": 2}]
        case "MOUSE_DOWN":
            return [{"op": "button_down", **button}]
        case "MOUSE_UP":
            return [{"op": "button_up", **button}]
        case "DRAG_TO":
            return [{"op": "button_down"}, {"op": "move", **at}, {"op": "button_up"}]
        case "SCROLL":
            return [_scroll(given, action)]
        case "TYPING":
            return [{"op": "type", "text": given["text"]}]
        case "PRESS":
            return [{"op": "key", "keys": [given["key"]]}]
        case "HOTKEY":
            return [{"op": "key", "keys": given["keys"]}]
        case _:
            return [{"op": kind.lower(), "key": given["key"]}]


def _scroll(given: dict[str, Any], action: Mapping[str, Any]) -> Action:
    up = given.get("dy", 0)
    if isinstance(up, bool) or not isinstance(up, int):
        raise BadAction(dict(action), "dy must be a whole number")
    return {"op": "scroll", "dx": given.get("dx", 0), "dy": -up}
