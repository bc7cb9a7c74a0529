"""Actions of scripts that point at elements of the accessibility tree, by role and name, not at pixels."""

from __future__ import annotations

from osgym_protocol.targets import (
    Node,
    TargetMissing,
    has_targets,
    is_target,
    place_in,
    placed,
    placed_on,
    reaching,
)

__all__ = ["Node", "TargetMissing", "has_targets", "is_target", "place_in", "placed", "placed_on", "reaching"]
