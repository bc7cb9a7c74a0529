"""A metric that counts the words of a text or a text file."""

from __future__ import annotations

from osgym_host.tasks.metric_plugin import Argument, Score, as_text, differ, metric, rules_of


@metric()
def check_word_count(result: Argument, expected: Argument, distinct: bool = False) -> Score:
    """The result has ``rules.words`` words; with ``distinct``, each different word counts once."""
    words = as_text(result).split()
    count = len(set(words) if distinct else words)
    wanted = rules_of(expected)["words"]
    return Score(1.0) if count == wanted else differ("the number of words", count, wanted)
