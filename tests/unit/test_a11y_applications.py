"""Applications that answer the reader of trees with what AT-SPI does not have."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from osgym_guest.osworld.a11y.bus import Bus, BusError
from osgym_guest.osworld.a11y.tree import Application, Ref

SHOWS = 1 << 30 | 1 << 25
ANSWERS: dict[str, Any] = {
    "GetState": [SHOWS, 0],
    "GetRole": 23,
    "GetInterfaces": ["org.a11y.atspi.Component", "org.a11y.atspi.Action"],
    "GetExtents": (10, 20, 300, 200),
    "GetAttributes": {"toolkit": "mine"},
    "GetActions": [("click", "presses it", "")],
    "GetName": "click",
    "GetChildren": [],
    "Name": "window",
    "ChildCount": 0,
}


class AnsweringBus:
    """Stands for a bus on which every object gives the same answers."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers

    def call(self, name: str, path: str, interface: str, member: str, signature: str, *args: Any) -> Any:
        future: asyncio.Future[tuple[Any, ...]] = asyncio.get_running_loop().create_future()
        key = args[1] if member == "Get" else member
        if key in self._answers:
            future.set_result((self._answers[key],))
        else:
            future.set_exception(BusError("org.freedesktop.DBus.Error.UnknownMethod", key))
        return future


async def read(**answers: Any) -> Application:
    bus = cast(Bus, AnsweringBus({**ANSWERS, **answers}))
    application = Application(bus, Ref(":1.7", "/org/a11y/atspi/accessible/root"))
    await application.read(5)
    return application


async def test_what_is_answered_properly_is_read() -> None:
    root = (await read()).root
    assert root.attributes["cp:size"] == "(300, 200)"
    assert root.attributes["attr:toolkit"] == "mine"
    assert not root.any_partial()


@pytest.mark.parametrize(
    "answers",
    [
        {"GetState": ["on", "off"]},
        {"GetInterfaces": 5},
        {"GetExtents": ("a", "b", "c", "d")},
        {"GetActions": [("click",)]},
        {"ChildCount": "many"},
        {"ChildCount": 1, "GetChildren": [("one", "two", "three")]},
    ],
    ids=lambda answers: " ".join(answers),
)
async def test_other_types_cost_an_application_its_own_tree_only(answers: dict[str, Any]) -> None:
    """The reader goes on: a program that answers so would else take the trees of all others away."""
    assert (await read(**answers)).root.partial


async def test_no_program_says_of_itself_what_only_the_window_manager_knows() -> None:
    """A window that called itself the active one would come first in what models read."""
    attributes = (await read(GetAttributes={"x11-active": "true", "class": "Frame"})).root.attributes
    assert "attr:x11-active" not in attributes
    assert attributes["attr:class"] == "Frame"
