"""What is under way in an episode past its screen, and how much there was."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

KNOWN_REQUESTS = 256


@dataclass(slots=True, eq=False)
class ReachUse:
    """The reaches of one episode.

    Attributes:
        calls: Calls under way; they end when the episode is scored.
        tunnels: Connections to its ports, being opened or open.
        events: Events so far, also those beyond what its trajectory takes.
        recorded: Ids of executes whose event was recorded.
        ended: Set when no reach may go on.
    """

    calls: set[asyncio.Future[Any]] = field(default_factory=set)
    tunnels: int = 0
    events: int = 0
    recorded: OrderedDict[str, None] = field(default_factory=OrderedDict)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def used(self) -> bool:
        """Whether the client has used the desktop past the screen, or does so now."""
        return bool(self.events or self.calls or self.tunnels)

    async def end(self) -> None:
        """End what is under way, and wait until it has ended; nothing may begin after this."""
        self.ended.set()
        calls = list(self.calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    def first_of(self, request_id: str) -> bool:
        """Return whether a request was not seen here before, and remember it."""
        if request_id in self.recorded:
            return False
        self.recorded[request_id] = None
        if len(self.recorded) > KNOWN_REQUESTS:
            self.recorded.popitem(last=False)
        return True
