"""All checks, side by side, each within its deadline."""

from __future__ import annotations

import asyncio
import itertools
import logging

from osgym_host.doctor import machine
from osgym_host.doctor.result import Check, Checks, DoctorContext, Finding, Status
from osgym_host.runtime_registry import load_runtime_kind, runtime_names
from osgym_protocol.plugins import PluginError

_log = logging.getLogger(__name__)
_DEADLINE_S = 25.0


def _runtime_checks(name: str) -> tuple[Checks, Checks]:
    """Return a runtime's checks of what it needs, and of what it can do without."""
    try:
        kind = load_runtime_kind(name)
    except PluginError as exc:
        broken = Finding(
            f"runtime {name}", Status.MISSING, f"{exc}.", "Repair or uninstall that distribution."
        )

        async def check_extension(context: DoctorContext) -> list[Finding]:
            return [broken]

        return ((broken.name, check_extension),), ()
    return kind.checks(), kind.extra_checks()


(_DEFAULT, *_OTHERS), _EXTRA = zip(*map(_runtime_checks, runtime_names()), strict=True)
NEEDED = frozenset(name for name, _ in _DEFAULT)
"""Checks without which nothing runs, unless the settings name another runtime."""
CHECKS: Checks = (
    *_DEFAULT,
    *itertools.chain(*_EXTRA),
    ("memory", machine.check_memory),
    ("swap", machine.check_swap),
    ("disk", machine.check_disk),
    ("limits", machine.check_limits),
    ("bake", machine.check_bake),
    ("session isolation", machine.check_session_isolation),
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
