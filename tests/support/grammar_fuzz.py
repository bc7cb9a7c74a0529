"""Hostile outputs of models, from a seed: nothing may come of them but actions or a refusal.

`make fuzz-grammars` is the long series, a million for each grammar; a short one is part of the unit tests.
While it runs, an audit hook watches that reading an output opens, imports and runs nothing.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import resource
import sys
import time
import unicodedata  # noqa: F401 - what the parser of Python imports late
from collections import Counter
from typing import Any

from osgym_protocol.actions import parse_actions
from osgym_protocol.grammars import GRAMMARS, Context, Parsed, UnreadableAction, parse
from osgym_protocol.limits import MAX_ACTIONS
from tests.support.grammar_examples import EXAMPLES

SCREEN = (1920, 1080)
_MEMORY_BYTES = 2**30
"""Nothing that is read may take more, whatever it says."""
_MOST_PARTS = 100_000
FORBIDDEN = ("exec", "open", "os.", "socket.", "subprocess.", "shutil.", "ctypes.", "pty.", "import")
_SPACES = (None, "pixel", "norm1000", "norm1", (1260, 700), (1, 1), (16384, 16384))
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 0.5, -0.0, 1e308, -1e300, float("nan"), float("inf"), 2**63, 10**400,
    10**5000, "", " ", "\x00", "\ud800", "\u202e", "+", "++", "ctrl+", "ctrl++", "a" * 300, "é🎉", "u+d800",
    "u+ffffffff",
    [], {}, [[]], [1], [1, 2], [1, 2, 3], ["1", "2"], [None, None], {"x": 1}, {"x": 1, "y": 2},
    {"x": {"x": {}}},
    b"bytes", 1j, object, "wait", "click", "key", "screenshot", "left_click", "done", "terminate",
    "computer_use",
)  # fmt: skip
_TOKENS = (
    "(", ")", "[", "]", "{", "}", "'", '"', "\\", "\\'", "\n", "\r\n", "\t", " ", ",", ":", ";", "&",
    "=", "*", "**",
    "//", "%", "@", "#", "```", "```python\n", "\n```", "Action: ", "Thought: ", "<tool_call>",
    "</tool_call>",
    "</think>", "<think>", "<|box_start|>", "<point>", "</point>", "pyautogui.", "time.sleep(",
    "computer.", "click(",
    "type(", "type(content='", "hotkey(key='", "finished(", "import os\n",
    "__import__('os').system('true')", "eval(",
    "exec(", "open('/etc/passwd')", "lambda: 0", "[x for x in ()]", "'a'*10**9", "9**9**9", "1e999",
    "-1", "0x10",
    "1_000", "0b1", "99999999999999999999", "NaN", "Infinity", "null", "true", "\x00", "\ud800",
    "\u202e", "é", "🎉",
    "with pyautogui.hold('a'):\n ", "DONE", "FAIL", "WAIT", "DONE\n", " & ", "up", "(1,2)", "'(1,2)'",
    "f'{1}'",
    "<|action_start|>", "<|action_end|>", "*args", "x=", "=1", "\\u0000", '"type": "wait"',
    '"action": "wait"', "\\",
)  # fmt: skip
_RUNS = (
    "(",
    "[",
    "{",
    "-",
    "not ",
    "1+",
    "a.",
    "'",
    "\\",
    "\n",
    " ",
    ")",
    "&",
    "type(",
    "a(",
    '{"a":',
    "[[",
    "ü",
)


class Fuzzer:
    """Makes outputs of one grammar from the documented ones."""

    def __init__(self, grammar: str, seed: int) -> None:
        self.grammar = grammar
        self._random = random.Random(f"{grammar}-{seed}")
        self._outputs = [example.output for example in EXAMPLES if example.grammar == grammar]
        self._texts = [output for output in self._outputs if isinstance(output, str)]
        self._objects = [output for output in self._outputs if not isinstance(output, str)]

    def output(self) -> Any:
        """Return the next output."""
        choose = self._random.random()
        if choose < 0.03:
            return self._random.choice(_RUNS) * self._random.choice((3, 100, 5000, 20_000))
        if choose < 0.08:
            return "".join(self._random.choice(_TOKENS) for _ in range(self._random.randint(1, 30)))
        if self._objects and (choose < 0.6 or not self._texts):
            made = copy.deepcopy(self._random.choice(self._objects))
            for _ in range(self._random.randint(1, 4)):
                made = self._mutated(made)
                if _weight(made, 0) > _MOST_PARTS:  # doubled too often: it would be all memory
                    return made
            if choose < 0.2:
                try:
                    return self._cut(json.dumps(made))
                except (TypeError, ValueError):
                    return made
            return made
        return self._cut(self._random.choice(self._texts or ["x"]))

    def context(self) -> Context:
        """Return a context: any coordinates, any version of the grammar."""
        version = self._random.choice((None, *GRAMMARS[self.grammar].versions))
        image = self._random.choice((None, (1260, 700)))
        return Context(SCREEN, self._random.choice(_SPACES), version, image)

    def _value(self) -> Any:
        """Return an odd value of its own: what is mutated later must not come back with it."""
        return copy.deepcopy(self._random.choice(_VALUES))

    def _cut(self, text: str) -> str:
        """Return a text with parts taken away, put in, doubled, or of another one."""
        for _ in range(self._random.randint(0, 4)):
            at, end = sorted(self._random.randint(0, len(text)) for _ in range(2))
            match self._random.randint(0, 5):
                case 0:
                    text = text[:at] + text[end:]
                case 1 | 2:
                    text = text[:at] + self._random.choice(_TOKENS) + text[at:]
                case 3:
                    text = text[:end] + text[at:]
                case 4:
                    other = self._random.choice(self._texts or [text])
                    text = text[:at] + other[self._random.randint(0, len(other)) :]
                case _:
                    text = (
                        text[:at]
                        + chr(self._random.choice((0, 9, 10, 39, 92, 0x2028, 0xD800, 0x1F389)))
                        + text[end:]
                    )
        return text[:60_000]

    def _mutated(self, tree: Any) -> Any:
        """Return the tree with one place of it changed."""
        if isinstance(tree, dict) and tree and self._random.random() < 0.85:
            name = self._random.choice(list(tree))
            match self._random.randint(0, 8):
                case 0:
                    del tree[name]
                case 1:
                    tree[self._random.choice(_TOKENS)] = self._value()
                case 2:
                    tree[name] = self._value()
                case 3:
                    tree[name] = [tree[name]] * self._random.choice((1, 2, 2, 20))
                case _:
                    tree[name] = self._mutated(tree[name])
            return tree
        if isinstance(tree, list) and tree and self._random.random() < 0.85:
            place = self._random.randrange(len(tree))
            tree[place] = self._mutated(tree[place])
            return tree * (self._random.choice((1, 1, 1, 2, 20)) if len(tree) < 100 else 1)
        if isinstance(tree, str) and self._random.random() < 0.5:
            return self._cut(tree)
        return self._value()


def _weight(tree: Any, seen: int) -> int:
    """Return how many characters and values there are, and stop to count where there are many."""
    seen += len(tree) if isinstance(tree, str) else 1
    for inner in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        if seen > _MOST_PARTS:
            break
        seen = _weight(inner, seen)
    return seen


def check(output: Any, context: Context, grammar: str) -> Parsed | None:
    """Return what was read; None when it was refused.

    Raises:
        AssertionError: what was read is more than it may be.
    """
    try:
        parsed = parse(output, context, grammar)
    except UnreadableAction as error:
        assert len(error.message) < 2000, "a refusal is short"
        str(error).encode("utf-8", "backslashreplace")
        return None
    assert len(parsed.actions) <= MAX_ACTIONS
    assert parsed.actions or parsed.ending is not None or parsed.calls
    parse_actions([dict(action) for action in parsed.actions], SCREEN)
    for call in parsed.calls:
        assert 0 <= call.first <= call.first + call.count <= len(parsed.actions)
    return parsed


def series(grammar: str, cases: int, seed: int) -> Counter[str]:
    """Run one series; return how many were read and refused, and the longest time in microseconds."""
    fuzzer, counts = Fuzzer(grammar, seed), Counter[str]()
    for _ in range(cases):
        output, context = fuzzer.output(), fuzzer.context()
        began = time.process_time()
        try:
            read = check(output, context, grammar)
            check(output, context, "auto")
        except BaseException:
            sys.set_int_max_str_digits(0)
            print(f"{grammar}: {output!r:.2000}\n{context!r}", file=sys.stderr)
            raise
        counts["longest_us"] = max(counts["longest_us"], int((time.process_time() - began) * 1e6))
        counts["refused" if read is None else "read"] += 1
    return counts


def watch() -> list[str]:
    """Note from now on whatever is opened, imported or run; call it when all is imported."""
    list(GRAMMARS.values())  # imports them
    seen: list[str] = []

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if event.startswith(FORBIDDEN) and given[0] != os.devnull:
            seen.append(event)

    sys.addaudithook(hook)
    return seen


def main() -> None:
    """Run the series of all grammars, or of one."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cases", type=int, default=1_000_000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--grammar", choices=list(GRAMMARS))
    given = options.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    names = [given.grammar] if given.grammar else list(GRAMMARS)
    for name in names:
        series(name, 300, given.seed + 1)  # what is imported late is imported now
    seen = watch()
    for name in names:
        counts = series(name, given.cases, given.seed)
        assert not seen, seen[:5]
        print(name, given.cases, *(f"{what}={count}" for what, count in sorted(counts.items())), flush=True)


if __name__ == "__main__":
    main()
