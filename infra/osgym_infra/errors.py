"""The exceptions of this distribution. All carry what would have fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class OsgymInfraError(Exception):
    """Base of all errors of this distribution."""


class BadInput(OsgymInfraError):
    """A field that was given cannot mean anything, or nothing could ever satisfy it.

    Attributes:
        field: the field's name as the user wrote it, e.g. `replica_ram_gib` or `--replicas`.
        problem: what is wrong with it.
        fits: what would be accepted, as a sentence; empty when nothing can be said.
    """

    def __init__(self, field: str, problem: str, fits: str = "") -> None:
        self.field, self.problem, self.fits = field, problem, fits
        super().__init__(f"{field}: {problem}" + (f". {fits}" if fits else ""))


class CannotMeet(OsgymInfraError):
    """The input is sound, but no plan meets it: a budget, a latency or a quota is too small.

    Attributes:
        field: the demand that cannot be met.
        problem: how far off it is.
        fits: what would do.
        details: the figures behind `fits`, for programs.
    """

    def __init__(
        self, field: str, problem: str, fits: str = "", details: Mapping[str, Any] | None = None
    ) -> None:
        self.field, self.problem, self.fits = field, problem, fits
        self.details = dict(details or {})
        super().__init__(f"{field}: {problem}" + (f". {fits}" if fits else ""))


class RefreshFailed(OsgymInfraError):
    """A price API could not be asked, or its answer could not be understood. Old data stays in use.

    Attributes:
        provider: whose API.
    """

    def __init__(self, provider: str, problem: str) -> None:
        self.provider = provider
        super().__init__(f"{provider}: {problem}")
