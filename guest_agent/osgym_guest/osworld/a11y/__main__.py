"""Helper process: reads one request per line on standard input (a socket), answers on the same socket.

Request: ``{"op": "tree"|"terminal", "deadline_s": float}``. Answer: one line of JSON, ``{"ok": true, "size":
n, "partial": bool}`` followed by n bytes (XML, or the JSON of the terminal's text), or ``{"ok": false,
"error": str}``. The end of the input ends the process.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
from typing import Any

from osgym_guest.osworld.a11y.bus import Bus, BusClosed, BusError, accessibility_bus


class HelperService:
    """Answers requests over one connection to the bus, which opens again after a loss."""

    def __init__(self) -> None:
        self._bus: Bus | None = None
        self._reader: Any = None

    async def answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Return header and payload of the answer to one request."""
        try:
            if self._bus is None or self._bus.closed:
                self._bus, self._reader = await accessibility_bus(), None
            payload, partial = await self._run(self._bus, request)
        except (BusError, BusClosed) as exc:
            return {"ok": False, "error": str(exc)}, b""
        return {"ok": True, "size": len(payload), "partial": partial}, payload

    async def _run(self, bus: Bus, request: dict[str, Any]) -> tuple[bytes, bool]:
        deadline_s = float(request["deadline_s"])
        if request["op"] == "terminal":
            from osgym_guest.osworld.a11y.terminal import focused_terminal

            return json.dumps(await focused_terminal(bus, deadline_s=deadline_s)).encode(), False
        from osgym_guest.osworld.a11y.desktop import DesktopReader
        from osgym_guest.osworld.a11y.render import render

        self._reader = self._reader or DesktopReader(bus)
        root = await self._reader.read(deadline_s=deadline_s)
        return render(root).encode("utf-8", "replace"), root.any_partial()


async def main() -> None:
    reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=os.dup(0)))
    service = HelperService()
    while line := await reader.readline():
        header, payload = await service.answer(json.loads(line))
        writer.write(json.dumps(header).encode() + b"\n" + payload)
        await writer.drain()
        del header, payload
        gc.collect()
    writer.close()


if __name__ == "__main__":
    gc.disable()  # a tree is thousands of objects and tasks: collect after an answer, not during it
    asyncio.run(main())
