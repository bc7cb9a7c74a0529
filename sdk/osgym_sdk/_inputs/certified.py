"""Tasks that a record of certificates says are sound, by the digests of their content."""

from __future__ import annotations

import json
import os
from pathlib import Path

from osgym_sdk._exceptions import ConfigError

CERTIFIED = "certified"


def certified_digests(record: str | os.PathLike[str], image: str | None = None) -> frozenset[str]:
    """Return the digests of the tasks whose newest certificate says that they are certified.

    A line that was not written to its end, or has another form, is skipped.

    Args:
        record: file that `osgym task certify` wrote. Its signatures are checked by `osgym task certificates`.
        image: first digits of the golden image that the certificates must hold for; by default any.

    Raises:
        ConfigError: The record cannot be read.
    """
    try:
        lines = Path(record).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ConfigError(f"certificates: {record} cannot be read: {error}") from error
    verdicts: dict[tuple[str, str], bool] = {}
    for line in lines:
        try:
            one = json.loads(line)
            verdicts[str(one["digest"]), str(one["image"])] = one["verdict"] == CERTIFIED
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
    return frozenset(
        digest
        for (digest, its_image), certified in verdicts.items()
        if certified and (image is None or its_image.startswith(image))
    )
