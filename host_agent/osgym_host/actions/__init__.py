"""Action grammars → internal actions. Pure: text and JSON in, internal actions or an error out."""

from osgym_host.actions.errors import BadAction
from osgym_host.actions.parse import Ending, ParsedActions, parse_actions

__all__ = ["BadAction", "Ending", "ParsedActions", "parse_actions"]
