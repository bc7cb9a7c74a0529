"""What is done inside a guest while a snapshot of it is made."""

from __future__ import annotations

import asyncio
import secrets
import time

from osgym_host.addresses import GuestAddress
from osgym_host.guest_client import GuestClient, GuestRefused
from osgym_host.runtimes.processes import cpu_s
from osgym_qemu.cloning.guest_identity import assign, give_up_token, new_identity

REST_TIMEOUT_S = 120.0
REST_CPU = 0.03
"""A template rests when it used less than this part of a core for `_REST_WINDOWS` in a row."""
_REST_WINDOW_S = 1.0
_REST_WINDOWS = 4
IDLE_TIMEOUT_S = 90.0
IDLE_CPU = 0.003
"""A guest of ours is idle when it used less than this for `_IDLE_WINDOWS`: one wakeup a second is more
(0.4 % under emulation). tint2 looks for a compositor each second of its first minute: what is frozen
before goes on in every clone."""
_IDLE_WINDOW_S = 5.0
_IDLE_WINDOWS = 2
_SCHEDULER_CLOCK = 2
"""CPUCLOCK_SCHED of the kernel's per-process clocks: nanoseconds, where /proc has hundredths."""
COMMAND_TIMEOUT_S = 300.0
TRIAL_TIMEOUT_S = 60.0
_TOKEN_BYTES = 32
_REHEARSALS = 32
"""Python 3.11 specialises a function that has run eight times, and once more when that did not fit."""
_LAST_GENERATION = 2**53
"""The largest that a guest agent takes: no clone will ever have it."""


async def try_clone(address: GuestAddress, token: str | None) -> None:
    """Let a clone take an identity and show a frame."""
    identity = new_identity(1, secrets.token_urlsafe(_TOKEN_BYTES))
    await assign(address, token, identity, timeout_s=TRIAL_TIMEOUT_S / 2)
    async with GuestClient(address, token=identity.token) as guest:
        await guest.ready(timeout_s=TRIAL_TIMEOUT_S / 2)
        await guest.observe()


async def warm_code_paths(address: GuestAddress, token: str) -> None:
    """Let a template do what each clone does first, so often that clones find it done.

    Pages are mapped, functions bound, Python's instructions specialised: all of it takes memory and
    time in each clone otherwise.
    """
    for number in range(_REHEARSALS):
        identity = new_identity(_LAST_GENERATION - number, token)
        await assign(address, token, identity, timeout_s=TRIAL_TIMEOUT_S / 2)
        async with GuestClient(address, token=token) as guest:
            await guest.observe()
            await guest.health()


async def forget_token(address: GuestAddress, token: str) -> bool:
    """Let a template forget the token that all its clones would wake up with; False when it cannot."""
    generation = _LAST_GENERATION - _REHEARSALS
    return await give_up_token(address, token, generation, timeout_s=TRIAL_TIMEOUT_S / 2)


async def free_caches(guest: GuestClient, *, isolated: bool) -> None:
    """Let the kernel of our own guest free what it keeps of files.

    Args:
        isolated: Root of the session has no rights over the machine.
    """
    if isolated:
        await guest.free_caches(timeout_s=COMMAND_TIMEOUT_S)
    else:
        await _as_root(guest, "sync; echo 3 >/proc/sys/vm/drop_caches")


async def trim_disk(guest: GuestClient, *, isolated: bool) -> str:
    """Let our own guest tell its disk which blocks hold nothing; return what it says of that, for people.

    Args:
        isolated: Root of the session has no rights over the machine.
    """
    if isolated:
        return f"{await guest.trim_disk(timeout_s=COMMAND_TIMEOUT_S)} MiB of the disk are unused"
    return (await _as_root(guest, "sync; fstrim -v /; sync")).strip()


async def _as_root(guest: GuestClient, script: str) -> str:
    """Run a shell script as root in our own guest; its output, for people."""
    result = await guest.execute(["sudo", "-n", "sh", "-c", script], timeout_s=COMMAND_TIMEOUT_S)
    if result.returncode:
        raise GuestRefused(500, "command_failed", f"{script}: {result.error.strip()[:300]}", {})
    return result.output[:2000]


async def wait_for_rest(pid: int) -> bool:
    """Wait until a machine uses next to no CPU time; False when it never does."""
    quiet = 0
    until = time.monotonic() + REST_TIMEOUT_S
    while quiet < _REST_WINDOWS:
        if time.monotonic() > until:
            return False
        before = cpu_s([pid])
        await asyncio.sleep(_REST_WINDOW_S)
        used = (cpu_s([pid]) - before) / _REST_WINDOW_S
        quiet = quiet + 1 if used <= REST_CPU else 0
    return True


async def wait_for_idle(pid: int) -> bool:
    """Wait until nothing wakes a guest up regularly any more; False when something still does."""
    clock = (~pid << 3) | _SCHEDULER_CLOCK
    quiet = 0
    until = time.monotonic() + IDLE_TIMEOUT_S
    while quiet < _IDLE_WINDOWS:
        if time.monotonic() > until:
            return False
        before = time.clock_gettime(clock)
        await asyncio.sleep(_IDLE_WINDOW_S)
        used = (time.clock_gettime(clock) - before) / _IDLE_WINDOW_S
        quiet = quiet + 1 if used <= IDLE_CPU else 0
    return True
