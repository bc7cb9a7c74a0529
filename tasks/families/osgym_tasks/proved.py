"""Instances that a record proves, made again for training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from osgym_sdk import Client, HostState, OSGymError
from osgym_tasks.contents import Split
from osgym_tasks.family import Instance
from osgym_tasks.record import Outcome, read_outcomes
from osgym_tasks.registry import FAMILIES
from osgym_tasks.splits import split_of
from osgym_tasks.verify import trials_of

_SHORT = 12


class ImageUnknown(ValueError):
    """The golden image in use is unknown."""


def load_tasks(
    record: Path | str,
    *,
    verified: bool = True,
    image: str | None = None,
    split: Split | str | None = None,
    families: Sequence[str] | None = None,
    levels: Sequence[int] | None = None,
) -> list[Instance]:
    """Return instances of a record, in its order, without those of a family that is gone or changed.

    Args:
        record: File that `osgym task family verify` wrote.
        verified: Only instances that this record proves completely for the image in use: the oracle twice
            1.0, nothing and every near miss 0.0. Otherwise, all that were tried on any image.
        image: Digest of the golden image in use, or at least its first twelve digits; None asks the host
            agents of `OSGYM_HOSTS`, or this machine's.
        split, families, levels: Only these; None means all.

    Raises:
        OSError: The record cannot be read.
        ImageUnknown: No host reports its image, hosts have several, or the record has several that begin so.
        OSGymError: No host agent answers.
        ValueError: There is no such split.
    """
    wanted = None if split is None else Split(split)
    path = Path(record)
    images = dict.fromkeys(one.image for one in read_outcomes(path, every_image=True))
    chosen = [_one_of(list(images), image or image_in_use())] if verified else list(images)
    found: dict[str, list[Outcome]] = {}
    for digest in chosen:
        for outcome in read_outcomes(path, digest) if digest else ():
            if not outcome.is_baseline:
                found.setdefault(outcome.instance, []).append(outcome)
    made = (_made(outcomes, verified) for outcomes in found.values())
    return [
        one
        for one in made
        if one is not None
        and (wanted is None or split_of(one) is wanted)
        and (families is None or one.family in families)
        and (levels is None or one.level in levels)
    ]


def proved_instances(path: Path | str, image: str, split: Split | str | None = None) -> Iterator[Instance]:
    """Yield instances as `load_tasks` with `verified`; none where there is no record.

    Raises:
        OSError: The record exists and cannot be read.
        ValueError: There is no such split.
    """
    wanted = None if split is None else Split(split)
    if Path(path).exists():
        yield from load_tasks(path, image=image, split=wanted)


def image_in_use(host: str | None = None) -> str:
    """Return the digest of the golden image that the hosts have.

    Raises:
        ImageUnknown: A host does not report it, or they have several.
        OSGymError: A host does not answer.
    """
    with Client(host) as client:
        return one_image(client.host_states())


def one_image(states: Mapping[str, HostState | OSGymError]) -> str:
    """Return the digest that all of these hosts have.

    Raises:
        ImageUnknown: A host does not report it, or they have several.
        OSGymError: Error of a host that could not be asked.
    """
    found: set[str] = set()
    for url, state in states.items():
        if not isinstance(state, HostState):
            raise state
        if state.image is None or not state.image.digest:
            raise ImageUnknown(f"{url} did not name its golden image")
        found.add(state.image.digest)
    if len(found) != 1:
        raise ImageUnknown(f"the hosts have {len(found)} different images; name hosts of one image")
    return found.pop()


def _one_of(images: list[str], image: str) -> str:
    """Return the record's digest that begins so; empty where it has none."""
    begin = [one for one in images if one == image or (len(image) >= _SHORT and one.startswith(image))]
    if len(begin) > 1:
        raise ImageUnknown(f"the record has {len(begin)} images that begin with {image}")
    return begin[0] if begin else ""


def _made(outcomes: list[Outcome], verified: bool) -> Instance | None:
    """Return the instance of these outcomes; None if its family has changed, or if an outcome is wrong."""
    first = outcomes[0]
    if not first.is_current:
        return None
    instance = FAMILIES[first.family].make(first.seed, first.level, vary=filter(None, first.vary.split(",")))
    if instance.name != first.instance:
        return None
    right = {one.way for one in outcomes if one.is_right}
    return instance if not verified or right >= {trial.way for trial in trials_of(instance)} else None
