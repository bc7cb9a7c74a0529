"""Reading of a model's output as the actions of a step: grammar, version, coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from osgym_sdk._exceptions import ConfigError, InvalidAction

if TYPE_CHECKING:
    from osgym_protocol.grammars import Coordinates, Parsed
    from osgym_sdk._models.observation import Observation


@dataclass(frozen=True, slots=True)
class Reading:
    """Grammar in which a model's output is read.

    Attributes:
        grammar: one of the table's, or ``auto``.
        version: of the grammar; None: any.
        coordinates: what its coordinates are; None: what the grammar has.
    """

    grammar: str
    version: str | None = None
    coordinates: Coordinates | None = None

    def parse(self, output: Any, shown: Observation) -> Parsed:
        """Return what an output says.

        Args:
            output: whatever the policy returned.
            shown: the observation that the model saw: its screen and its image.

        Raises:
            InvalidAction: it cannot be read for certain; ``details`` has grammar, position, what was read and
                what is allowed.
        """
        from osgym_protocol.grammars import Context, UnreadableAction, parse

        if isinstance(output, Sequence) and not isinstance(output, str) and len(output) == 1:
            output = output[0]  # a list of one says what the one says
        context = Context(shown.screen, self.coordinates, self.version, shown.size)
        try:
            return parse(output, context, self.grammar)
        except UnreadableAction as exc:
            details = {"index": exc.index, "grammar": exc.grammar, "position": exc.position}
            details |= {"read": exc.read, "allowed": exc.allowed}
            raise InvalidAction(exc.message, details=details) from exc
        except Exception as exc:  # the objects of other people may do anything when they are looked at
            text = f"the output cannot be read: {type(exc).__name__}: {exc}"[:500]
            raise InvalidAction(text) from exc


def as_reading(actions: str | None, coordinates: Coordinates | None) -> Reading | None:
    """Return how outputs are read; None: they are actions that the host knows.

    Args:
        actions: ``auto``, a grammar, or a grammar and its version (``uitars/1.5``).
        coordinates: see :class:`osgym_sdk.grammars.Context`.

    Raises:
        ConfigError: there is no such grammar, version or space.
    """
    if actions is None:
        if coordinates is not None:
            raise ConfigError("coordinates= needs actions=, the grammar whose coordinates they are")
        return None
    from osgym_protocol.grammars import GRAMMARS, Space

    name, _, version = str(actions).partition("/")
    if name != "auto" and name not in GRAMMARS:
        raise ConfigError(
            f"actions: unknown grammar {name[:60]!r}; valid grammars: auto, {', '.join(GRAMMARS)}"
        )
    if version and (name == "auto" or version not in GRAMMARS[name].versions):
        known = ", ".join(GRAMMARS[name].versions) if name != "auto" else ""
        raise ConfigError(
            f"actions: {name} has no version {version[:60]!r}; valid versions: {known or 'none'}"
        )
    if coordinates is not None:
        try:
            Space.named(coordinates, (1, 1))
        except ValueError as exc:
            raise ConfigError(str(exc)) from exc
        if not isinstance(coordinates, str):
            coordinates = (coordinates[0], coordinates[1])
    return Reading(name, version or None, coordinates)
