"""Action grammars → internal actions. Pure: text and JSON in, checked actions or an error out."""

from osgym_host.actions.errors import BadAction, NoAction
from osgym_host.actions.parse import ENDINGS, ParsedActions, parse_actions

__all__ = ["ENDINGS", "BadAction", "NoAction", "ParsedActions", "parse_actions"]
