"""Exceptions of this distribution. Each names what would be accepted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class OsgymInfraError(Exception):
    """Base of all errors of this distribution."""


class BadInput(OsgymInfraError):
    """A field has a value that makes no sense or that nothing could satisfy.

    Attributes:
        field: The field's name as the user wrote it, e.g. `replica_ram_gib` or `--replicas`.
        fits: Remedy as a sentence, or the values that are accepted; may be empty.
    """

    def __init__(self, field: str, problem: str, fits: str = "") -> None:
        self.field, self.problem, self.fits = field, problem, fits
        # A remedy is a sentence; what is no sentence, such as "10 to 20 GiB", names what is accepted.
        accepted = f". {fits}" if fits[:1].isupper() else f". Accepted: {fits}" if fits else ""
        super().__init__(f"{field}: {problem}{accepted}")


class CannotMeet(OsgymInfraError):
    """The input is sound, but no plan meets it: a budget, a latency or a quota is too small.

    Attributes:
        problem: Distance to what was asked for.
        fits: Sentence about what would suffice.
        details: The figures behind `fits`, for programs.
    """

    def __init__(
        self, field: str, problem: str, fits: str = "", details: Mapping[str, Any] | None = None
    ) -> None:
        self.field, self.problem, self.fits = field, problem, fits
        self.details = dict(details or {})
        super().__init__(f"{field}: {problem}" + (f". {fits}" if fits else ""))


class RefreshFailed(OsgymInfraError):
    """A price API could not be asked, or its answer was not understood. Old data stays in use."""

    def __init__(self, provider: str, problem: str) -> None:
        self.provider = provider
        super().__init__(f"{provider}: {problem}")
