"""Bounds of a message's fields, stated in their type hints: ``seq: Annotated[int, Bounds(ge=1)]``.

The codec checks them. So does pydantic, which also describes them in OpenAPI: it finds the two hooks whose
names begin with ``__get_pydantic``. Nothing of pydantic is imported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from osgym_protocol import limits


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Bounds of a number (``ge``, ``gt``, ``le``), or of the size and form of a text or collection.

    Attributes:
        pattern: Regular expression that the whole text matches.
        strict: Whether a host refuses ``"1"`` and ``true`` for a number, as the codec always does.
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    strict: bool | None = None

    def problem(self, value: Any) -> str | None:
        """Return what is wrong with a value of the right type, or None."""
        if self.min_length is not None and len(value) < self.min_length:
            return f"must not be shorter than {self.min_length}"
        if self.max_length is not None and len(value) > self.max_length:
            return f"must not be longer than {self.max_length}"
        if self.pattern is not None and not re.fullmatch(self.pattern, value):
            return f"must match {self.pattern}"
        # NaN is within no bound: each comparison is the one that must hold.
        if self.ge is not None and not value >= self.ge:
            return f"must be {self.ge:g} or more"
        if self.gt is not None and not value > self.gt:
            return f"must be more than {self.gt:g}"
        if self.le is not None and not value <= self.le:
            return f"must be {self.le:g} or less"
        return None

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Add the bounds to pydantic's schema of the type."""
        pattern = None if self.pattern is None else f"^{self.pattern}$"
        bounds = {name: getattr(self, name) for name in self.__slots__} | {"pattern": pattern}
        return {**handler(source), **{name: bound for name, bound in bounds.items() if bound is not None}}


@dataclass(frozen=True, slots=True, eq=False)
class Described:
    """Keywords of JSON Schema that OpenAPI shows and no decoder checks."""

    keywords: Mapping[str, Any]

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], Any]) -> Any:
        """Add the keywords to pydantic's description of the type."""
        return {**handler(schema), **self.keywords}


Id = Annotated[str, Bounds(min_length=1, max_length=limits.MAX_ID_CHARS)]
"""Identifier of an episode, request, checkpoint or run, or the secret of a lease."""
Seq = Annotated[int, Bounds(ge=1, le=limits.MAX_SEQ, strict=True)]
"""Number of a step, from 1."""
Count = Annotated[int, Bounds(ge=1)]
Seconds = Annotated[float, Bounds(ge=0)]
Ttl = Annotated[float, Bounds(gt=0)]
"""Time to live in seconds."""
DurationMs = Annotated[float, Bounds(ge=0, le=limits.MAX_DURATION_MS)]
_ACTION = Described({"anyOf": [{"type": "string"}, {"additionalProperties": True, "type": "object"}]})
Actions = Annotated[tuple[Annotated[Any, _ACTION], ...], Described({"maxItems": limits.MAX_ACTIONS})]
"""Actions of a step. The parser of actions checks them, so that a fault of the policy is ``invalid_action``
of this step, not a malformed request, which would fail the other steps of ``POST /v1/steps`` too."""
