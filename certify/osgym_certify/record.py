"""Record of certificates: one line each, written when a task is done, read for pages and for training."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from osgym_certify.certificate import EDITION, Certificate, Verdict, certificate_of


def append(path: Path, certificate: Certificate) -> None:
    """Add a certificate to a record; its folder is made.

    Raises:
        OSError: It cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(certificate.as_json(), ensure_ascii=False, allow_nan=False)
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def read_record(path: Path) -> list[Certificate]:
    """Return the newest certificate of each task content on each image; none where there is no record.

    A line that was not written to its end, or has another form, is skipped.

    Raises:
        OSError: It cannot be read.
    """
    found: dict[tuple[str, str], Certificate] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            one = certificate_of(json.loads(line))
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        found[one.digest, one.image] = one
    return list(found.values())


def is_done(certificate: Certificate) -> bool:
    """Whether the certificate need not be made again: not failed, and of today's edition."""
    return certificate.verdict is not Verdict.FAILED and certificate.edition == EDITION


def done_digests(certificates: Iterable[Certificate], image: str, seed: int) -> set[str]:
    """Return the digests of the tasks that need no new certificate on this image."""
    return {one.digest for one in certificates if is_done(one) and one.image == image and one.seed == seed}
