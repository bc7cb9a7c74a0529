"""Entry point of the guest agent: ``python3 -I -m osgym_guest``."""

from __future__ import annotations

import sys

# asyncio takes ssl along when it is there: 3 MB and 15 ms that a plain socket does not need. Whoever
# needs it later imports it as ever.
sys.modules["ssl"] = None  # type: ignore[assignment] # "not importable", for the next line only
import asyncio  # noqa: E402 - with the module out of the way

del sys.modules["ssl"]

from osgym_guest.app import main  # noqa: E402 - after it is back


def run() -> int:
    return asyncio.run(main())


if __name__ == "__main__":
    sys.exit(run())
