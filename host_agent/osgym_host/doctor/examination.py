"""All checks, side by side, each within its time."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import logging

from osgym_host.doctor import images, machine
from osgym_host.doctor.result import Check, DoctorContext, Finding, Status
from osgym_host.runtime_registry import RUNTIMES

_log = logging.getLogger(__name__)
_DEADLINE_S = 25.0

Checks = tuple[tuple[str, Check], ...]


def _runtime_checks(package: str) -> Checks:
    checks: Checks = importlib.import_module(f"{package}.doctor").CHECKS
    return checks


def _extra_checks(package: str) -> Checks:
    """Checks of what a runtime can do without."""
    checks: Checks = getattr(importlib.import_module(f"{package}.doctor"), "EXTRA_CHECKS", ())
    return checks


_DEFAULT, *_OTHERS = map(_runtime_checks, RUNTIMES.values())
NEEDED = frozenset(name for name, _ in _DEFAULT)
"""Without these nothing runs, unless the settings name another runtime."""
CHECKS: Checks = (
    *_DEFAULT,
    *itertools.chain(*map(_extra_checks, RUNTIMES.values())),
    ("memory", machine.check_memory),
    ("disk", machine.check_disk),
    ("limits", machine.check_limits),
    ("bake", machine.check_bake),
    ("reflink", machine.check_reflink),
    ("session isolation", images.check_session_isolation),
    *itertools.chain(*_OTHERS),
)


async def examine(context: DoctorContext) -> list[Finding]:
    """Run every check; one that fails or hangs becomes a row of its own. Never raises."""
    results = await asyncio.gather(*(_one(name, check, context) for name, check in CHECKS))
    return [result for found in results for result in found]


async def _one(name: str, check: Check, context: DoctorContext) -> list[Finding]:
    needed = name in NEEDED
    status = Status.MISSING if needed else Status.WARN
    try:
        async with asyncio.timeout(_DEADLINE_S):
            return await check(context)
    except TimeoutError:
        return [Finding(name, status, f"The check took more than {_DEADLINE_S:.0f} s.", needed=needed)]
    except Exception as exc:  # noqa: BLE001 (top of a task: a broken check must not hide the others)
        _log.debug("check %s failed", name, exc_info=True)
        return [Finding(name, status, f"The check itself failed: {exc!r}.", needed=needed)]


def can_run(results: list[Finding]) -> bool:
    """Whether the local runtime works here."""
    return not any(result.needed and result.status is Status.MISSING for result in results)
