"""Answers of a cloud in a preview without an account. Pure.

A provider whose Pulumi plugin `fake_cloud.py` plays has a subclass `Answers` in its module `preview`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class CloudAnswers:
    """A cloud that adds nothing to resources and finds nothing; providers override what theirs does.

    Attributes:
        replaced: Properties whose change replaces a resource, by Pulumi's type.
        immutable: Types of which any change replaces the resource.
        secret: Names of outputs that the real plugin marks as secret.
        counted: Output that each update raises by one, by Pulumi's type.
    """

    replaced: ClassVar[Mapping[str, frozenset[str]]] = {}
    immutable: frozenset[str] = frozenset()
    secret: frozenset[str] = frozenset()
    counted: ClassVar[Mapping[str, str]] = {}

    def record(self, kind: str, inputs: Mapping[str, Any], id_: str = "") -> None:
        """Remember a resource's inputs; it has an id once it is created."""

    def inputs_of(self, id_: str) -> Mapping[str, Any]:
        """Return the inputs of a recorded resource; empty for an unknown id."""
        return {}

    def outputs(self, kind: str, name: str, inputs: Mapping[str, Any], digest: str) -> dict[str, Any]:
        """Outputs of a resource besides its inputs.

        Args:
            inputs: In Pulumi's spelling; `None` where unknown.
            digest: Differs for different inputs.
        """
        return {}

    def lookup(self, function: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of a look-up by Pulumi's function token, besides its arguments."""
        return {"id": "fake"}
