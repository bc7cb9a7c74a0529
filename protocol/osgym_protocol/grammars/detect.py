"""Detection of the grammar of an output by its shape: every installed grammar says what it recognizes.

An output that can be in two grammars is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from osgym_protocol.grammars.base import MAX_OUTPUT_CHARS, UnreadableAction, shown
from osgym_protocol.grammars.objects import from_json, plain
from osgym_protocol.grammars.registry import GRAMMARS, Evidence, Grammar

_REMEDY = "name the grammar"


def detect(output: Any) -> str:
    """Return the name of the one grammar that the output can be in.

    Raises:
        UnreadableAction: The output can be in no grammar, or in several.
    """
    given = plain(output, "auto")
    if isinstance(given, str):
        return _in_text(given)
    if isinstance(given, Mapping):
        return _in_object(given)
    if isinstance(given, list):
        return _in_list(given)
    raise UnreadableAction("auto", "an output must be text, an object or a list", read=shown(given))


def _unknown(what: object) -> UnreadableAction:
    return UnreadableAction(
        "auto", f"the grammar of this output cannot be detected; {_REMEDY}", read=shown(what)
    )


def _ambiguous(names: str, what: object) -> UnreadableAction:
    return UnreadableAction(
        "auto", f"the output fits several grammars ({names}); {_REMEDY}", read=shown(what)
    )


def _candidates(evidence_of: Callable[[Grammar], Evidence]) -> list[str]:
    """Return the grammars with the strongest evidence, and those whose free text allows everything."""
    evidence = {name: evidence_of(grammar) for name, grammar in GRAMMARS.items()}
    decisive = [each for each in evidence.values() if each is not Evidence.FREE_TEXT]
    strongest = max(decisive, default=Evidence.NONE)
    accepted = {strongest, Evidence.FREE_TEXT} - {Evidence.NONE}
    return [name for name, each in evidence.items() if each in accepted]


def _in_list(items: list[Any]) -> str:
    found = {_in_text(item) if isinstance(item, str) else _in_item(item) for item in items} - {""}
    if len(found) > 1:
        raise _ambiguous(" and ".join(sorted(found)), items)
    if not found:
        raise _unknown(items)
    return found.pop()


def _in_item(item: Any) -> str:
    """Return the grammar of one item of a list; empty for a text block, which several grammars have."""
    if not isinstance(item, Mapping):
        raise _unknown(item)
    if item.get("type") == "text" or ("text" in item and "type" not in item and "op" not in item):
        return ""
    return _in_object(item)


def _in_object(item: Mapping[str, Any]) -> str:
    found = _candidates(lambda grammar: grammar.in_object(item))
    if len(found) == 1:
        return found[0]
    if found:
        raise _ambiguous(f"{' or '.join(found)}, whose coordinates differ", item)
    content = item.get("content")
    if isinstance(content, str) and ("role" in item or item.get("type") == "message"):
        return _in_text(content)
    raise _unknown(item)


def _in_text(text: str) -> str:
    if len(text) > MAX_OUTPUT_CHARS:
        why = f"the output has {len(text)} characters; at most {MAX_OUTPUT_CHARS} are allowed"
        raise UnreadableAction("auto", why)
    stripped = text.strip()
    if stripped.startswith(("{", "[")):
        return _in_json(stripped)
    found = _candidates(lambda grammar: grammar.in_text(text))
    if len(found) == 1:
        return found[0]
    raise _ambiguous(" or ".join(found), text) if found else _unknown(text)


def _in_json(text: str) -> str:
    given = from_json(text, "auto")
    if isinstance(given, Mapping):
        return _in_object(given)
    if isinstance(given, list):
        return _in_list([item for item in given if not isinstance(item, str)] or [None])
    raise _unknown(text)
