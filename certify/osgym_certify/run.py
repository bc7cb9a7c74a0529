"""Certification of many tasks at once on the desktops of a fleet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from osgym_certify.certificate import Certificate, Trial
from osgym_certify.play import Certification, Settings
from osgym_certify.subject import Subject
from osgym_sdk import AsyncClient, HostState, OSGymError


class NoImage(ValueError):
    """The hosts have several golden images, or report none."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """Tasks to certify, and how."""

    client: AsyncClient
    subjects: Sequence[Subject]
    settings: Settings
    at_once: int
    on_trial: Callable[[Subject, Trial], None] = lambda subject, trial: None

    async def certificates(self) -> AsyncIterator[Certificate]:
        """Certify all tasks, `at_once` of them together; yield certificates as they are made."""
        turns = asyncio.Semaphore(self.at_once)

        async def one(subject: Subject) -> Certificate:
            async with turns:
                work = Certification(
                    self.client, subject, self.settings, on_trial=lambda trial: self.on_trial(subject, trial)
                )
                return await work.run()

        tasks = [asyncio.create_task(one(subject)) for subject in self.subjects]
        try:
            for done in asyncio.as_completed(tasks):
                yield await done
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def image_of(client: AsyncClient) -> str:
    """Return the digest of the golden image that all hosts have.

    Raises:
        NoImage: They have several, or a host reports none.
        OSGymError: A host does not answer.
    """
    found: set[str] = set()
    for host, state in (await client.host_states()).items():
        if isinstance(state, OSGymError):
            raise state
        if not isinstance(state, HostState) or state.image is None or not state.image.digest:
            raise NoImage(f"{host} does not report its golden image")
        found.add(state.image.digest)
    if len(found) != 1:
        raise NoImage(
            f"the hosts have {len(found)} golden images; a certificate holds for one: name its hosts"
        )
    return found.pop()
