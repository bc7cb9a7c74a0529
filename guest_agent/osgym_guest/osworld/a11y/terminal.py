"""Text of the terminal that has the keyboard focus."""

from __future__ import annotations

import asyncio

from osgym_guest.osworld.a11y import names
from osgym_guest.osworld.a11y.bus import Bus, BusClosed
from osgym_guest.osworld.a11y.tree import ATSPI, MAX_DEPTH, NULL_PATH, Application, Ref, applications


async def focused_terminal(bus: Bus, *, deadline_s: float) -> str | None:
    """Return the text of the focused terminal of the active window, without trailing blanks; None if there is
    none.

    An application that does not answer within `deadline_s` is skipped.
    """
    found = await asyncio.gather(*(_of_application(bus, ref, deadline_s) for ref in await applications(bus)))
    return next((text for text in found if text is not None), None)


async def _of_application(bus: Bus, ref: Ref, deadline_s: float) -> str | None:
    reader = Application(bus, ref)
    try:
        return await asyncio.wait_for(_search(reader, ref), deadline_s)
    except (asyncio.TimeoutError, BusClosed):
        return None


async def _search(reader: Application, ref: Ref) -> str | None:
    """Search breadth first below the active windows of one application."""
    level = [pair for pair in await _children(reader, [ref]) if pair[1] & names.ACTIVE]
    for _ in range(MAX_DEPTH):
        level = [pair for pair in level if pair[1] & names.SHOWING]
        roles = await asyncio.gather(
            *(reader.call(child, ATSPI + "Accessible", "GetRole") for child, _ in level)
        )
        for (child, states), role in zip(level, roles, strict=True):
            if role == names.ROLE_TERMINAL and states & names.FOCUSED:
                text, _whole = await reader.text(child)
                return text.replace("\ufffc", "").replace("\ufffd", "").rstrip()
        parents = [child for child, states in level if not states & names.MANAGES_DESCENDANTS]
        if not parents:
            return None
        level = await _children(reader, parents)
    return None


async def _children(reader: Application, parents: list[Ref]) -> list[tuple[Ref, int]]:
    """Return the children of all `parents`, with their states."""
    lists = await asyncio.gather(
        *(reader.call(parent, ATSPI + "Accessible", "GetChildren") for parent in parents)
    )
    refs = [Ref(*pair) for found in lists for pair in found or () if pair[1] != NULL_PATH]
    masks = await asyncio.gather(*(reader.states(ref) for ref in refs))
    return [(ref, states) for ref, states in zip(refs, masks, strict=True) if states is not None]
