"""All checks, side by side, each within its time."""

from __future__ import annotations

import asyncio
import logging

from osgym_host.doctor import isolation, machine, virtual
from osgym_host.doctor.result import Check, Context, Result, Status

_log = logging.getLogger(__name__)
_DEADLINE_S = 25.0

CHECKS: tuple[tuple[str, Check], ...] = (
    ("subordinate ids", isolation.check_ids),
    ("local runtime", isolation.check_replica),
    ("memory", machine.check_memory),
    ("disk", machine.check_disk),
    ("limits", machine.check_limits),
    ("bake", machine.check_bake),
    ("reflink", machine.check_reflink),
    ("docker", virtual.check_docker),
    ("kvm", virtual.check_kvm),
)


async def examine(context: Context) -> list[Result]:
    """Run every check; one that fails or hangs becomes a row of its own. Never raises."""
    results = await asyncio.gather(*(_one(name, check, context) for name, check in CHECKS))
    return [result for found in results for result in found]


async def _one(name: str, check: Check, context: Context) -> list[Result]:
    needed = name in ("subordinate ids", "local runtime")
    status = Status.MISSING if needed else Status.WARN
    try:
        async with asyncio.timeout(_DEADLINE_S):
            return await check(context)
    except TimeoutError:
        return [Result(name, status, f"The check took more than {_DEADLINE_S:.0f} s.", needed=needed)]
    except Exception as exc:  # noqa: BLE001 (top of a task: a broken check must not hide the others)
        _log.debug("check %s failed", name, exc_info=True)
        return [Result(name, status, f"The check itself failed: {exc!r}.", needed=needed)]


def can_run(results: list[Result]) -> bool:
    """Whether the local runtime works here."""
    return not any(result.needed and result.status is Status.MISSING for result in results)
