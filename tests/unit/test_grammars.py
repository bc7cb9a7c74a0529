"""What models say is read as their documentation means it, written back, and refused where it is unclear."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.grammar_examples import EXAMPLES, SCREEN, Example

from osgym_host.actions import parse_actions as host_actions
from osgym_protocol.grammars import GRAMMARS, Context, Ending, UnreadableAction, parse


def _id(example: Example) -> str:
    return f"{example.grammar}-{str(example.output)[:60]!r}"


@pytest.mark.parametrize("example", EXAMPLES, ids=_id)
def test_documented_examples(example: Example) -> None:
    """Each output of the documentation means these actions, and ends so."""
    parsed = parse(example.output, example.context, example.grammar)
    assert list(parsed.actions) == list(example.actions)
    assert parsed.ending == example.ending
    if example.text is not None:
        assert parsed.text == example.text


@pytest.mark.parametrize("example", EXAMPLES, ids=_id)
def test_a_host_takes_what_was_read(example: Example) -> None:
    """As a step's actions, unchanged, an ending included."""
    step = parse(example.output, example.context, example.grammar).for_step()
    assert list(host_actions(step, SCREEN).actions) == step


@pytest.mark.parametrize("example", EXAMPLES, ids=_id)
def test_the_grammar_is_told_by_the_shape(example: Example) -> None:
    """`auto` says the same as the grammar's name, or refuses; it never reads as another grammar."""
    if example.auto:
        assert parse(example.output, example.context).grammar == example.grammar
        return
    try:
        parsed = parse(example.output, example.context)
    except (UnreadableAction, ValueError):
        return
    named = parse(example.output, example.context, example.grammar)
    assert (parsed.actions, parsed.ending) == (named.actions, named.ending)


@pytest.mark.parametrize("example", [e for e in EXAMPLES if not isinstance(e.output, str)], ids=_id)
def test_json_text_is_the_same_as_objects(example: Example) -> None:
    """Objects may come as text; only OSGym's internal actions, which are our own, are objects alone."""
    if example.grammar == "osgym":
        return
    parsed = parse(json.dumps(example.output), example.context, example.grammar)
    assert list(parsed.actions) == list(example.actions)


def test_every_grammar_has_examples() -> None:
    """And every registered grammar has the name of its entry."""
    assert {example.grammar for example in EXAMPLES} == set(GRAMMARS)
    for name, grammar in GRAMMARS.items():
        assert name == grammar.name


CTX = Context(SCREEN)
REFUSED: list[tuple[str, Any, str]] = [
    ("openai", {"type": "click", "x": 1920, "y": 1, "button": "left"}, "x from 0 to 1919"),
    ("openai", {"type": "click", "x": 1, "y": 1, "button": "left", "force": 1}, "unknown field 'force'"),
    ("openai", {"type": "click", "x": 10**5000, "y": 1}, "a number of"),
    ("openai", {"type": "click", "x": True, "y": 1}, "must be in the image"),
    ("openai", {"type": "click", "x": float("nan"), "y": 1}, "must be in the image"),
    ("openai", {"type": "keypress", "keys": ["NOSUCHKEY"]}, "unknown key"),
    ("openai", {"type": "computer_call", "action": {"type": "wait"}, "actions": []}, "not both"),
    ("openai", {"type": "function_call", "name": "f"}, "not a computer call"),
    ("openai", '{"type": "wait", "type": "click"}', "given twice"),
    ("openai", "[" * 100_000, "nested too deep"),
    ("openai", "9" * 5000, "must be JSON"),
    ("anthropic", {"type": "tool_use", "id": "t", "name": "bash", "input": {}}, "unknown tool"),
    ("anthropic", {"action": "wait", "duration": 61}, "from 0 to 60"),
    ("anthropic", {"action": "zoom", "region": [5, 5, 5, 9]}, "left, top, right, bottom"),
    ("anthropic", {"action": "key", "text": "  "}, "name a key"),
    ("gemini", {"name": "navigate", "args": {"url": "u"}}, "exclude it"),
    ("gemini", {"name": "click", "args": {"x": 1001, "y": 0}}, "0 to 1000"),
    ("qwen", "I will click.", "no <tool_call>"),
    ("qwen", "<tool_call>{<tool_call>", "not closed"),
    ("qwen", '<tool_call>{"name": "bash", "arguments": {}}</tool_call>', "unknown tool"),
    ("uitars", "Action: open('x')", "must be name"),
    ("uitars", "Action: click(start_box='(1,2)', start_box='(3,4)')", "twice"),
    ("uitars", "Action: click(start_box='(1;2)')", "must be a point"),
    ("uitars", "Action: click(start_box='(1,2)') and then", "not closed"),
    ("uitars", "Action: scroll(direction='north')", "directions"),
    ("uitars", "Action: finished()\n\nclick(start_box='(1,2)')", "nothing can follow"),
    ("computer13", {"action_type": "CLICK", "x": 1}, "must be in the image"),
    ("osgym", "click(5000,1)", "outside the screen"),
    ("osgym", {"op": "nosuch"}, "unknown action 'nosuch'"),
]


@pytest.mark.parametrize(("grammar", "output", "why"), REFUSED)
def test_refused(grammar: str, output: Any, why: str) -> None:
    """With a sentence that says what is wrong."""
    with pytest.raises(UnreadableAction, match=why) as caught:
        parse(output, CTX, grammar)
    assert caught.value.grammar == grammar
    assert len(caught.value.message) < 1000


CODE_REFUSED = [
    ("__import__('os').system('id')", "not supported"),
    ("import os", "cannot be imported"),
    ("from os import system", "ImportFrom is not supported"),
    ("pyautogui.click(9**9**9, 1)", "Pow is not a supported operator"),
    ("pyautogui.write('a' * 10**9)", "Pow is not a supported operator"),
    ("pyautogui.write('a' * 1000000000)", "at most 100000"),
    ("x = 'a' * 100000\ny = x + x", "at most 100000"),
    ("a = ['a' * 100000, 'a' * 100000, 'a' * 100000, 'a' * 100000, 'a' * 100000, 'a' * 100000]", "at most"),
    ("pyautogui.click(10**10, 1)", "Pow"),
    ("pyautogui.click(99999999999, 1)", "a number is from"),
    ("pyautogui.click(1 << 5, 1)", "LShift is not a supported operator"),
    ("pyautogui.click(1 / 0, 1)", "divides by zero"),
    ("pyautogui.click('button.png')", "must be in the image"),
    ("pyautogui.alert('x')", "not supported"),
    ("pyautogui.click(*[1, 2])", "not \\*unpacked"),
    ("pyautogui.click(**{'x': 1})", "no argument"),
    ("pyautogui.click(x=1, y=2, z=3)", "no argument 'z'"),
    ("pyautogui.click(1, 2, x=3)", "x twice"),
    ("pyautogui.write(f'{1}')", "JoinedStr is not a supported value"),
    ("pyautogui.write(open('/etc/passwd').read())", "Call is not a supported value"),
    ("pyautogui.write([c for c in 'ab'])", "ListComp is not a supported value"),
    ("for i in range(3):\n    pyautogui.press('a')", "For is not supported"),
    ("while True: pass", "While is not supported"),
    ("def f(): pass", "FunctionDef is not supported"),
    ("pyautogui.click = 3", "cannot be set"),
    ("pyautogui = 3\npyautogui.click(1, 2)", "not supported"),
    ("lambda: 0", "Lambda is not supported"),
    ("(pyautogui.click)(1, 2) if 1 else 2", "IfExp is not supported"),
    ("getattr(pyautogui, 'click')(1, 2)", "not supported"),
    ("pyautogui.moveRel(1, 2)", "a point to start from"),
    ("time.sleep(61)", "from 0 to 60"),
    ("time.sleep(-1)", "from 0 to 60"),
    ("pyautogui.press('a', presses=100000)", "from 0 to 200"),
    ("pyautogui.click(clicks=0)", "from 1 to 10"),
    ("pyautogui.click(1, 2", "not Python"),
    ("-" * 100_000 + "1", "nested too deep"),
    ("1+" * 100_000 + "1", "nested too deep"),
    ("a\0b", "not Python"),
    ("```python\npyautogui.click(1, 2)\n", "fence"),
    ("DONE\npyautogui.click(1, 2)", "nothing can follow"),
    ("pyautogui.press('a')\n" * 257, "at most 256"),
    ("x = 1", "no action"),
    ("computer.terminate(status='success')", "not supported"),
]


@pytest.mark.parametrize(("source", "why"), CODE_REFUSED, ids=range(len(CODE_REFUSED)))
def test_code_is_refused_with_its_line(source: str, why: str) -> None:
    """Whatever is not on the list is not read; nothing is run, and nothing large is made."""
    with pytest.raises(UnreadableAction, match=why):
        parse(source, CTX, "pyautogui")


def test_the_line_is_that_of_the_answer() -> None:
    """Also where the source stands in a fence."""
    answer = "I do it.\n\n```python\npyautogui.press('a')\nimport os\n```"
    with pytest.raises(UnreadableAction) as caught:
        parse(answer, CTX, "pyautogui")
    assert (caught.value.position, caught.value.index) == ("line 5", 1)


@pytest.mark.parametrize(
    "output",
    [
        {"action": "left_click", "coordinate": [1, 2]},
        "type(content='hello')",
        "type(pyautogui.click(1, 2))",
        "hello",
        "",
        [],
        [{"op": "wait", "duration_ms": 1}, {"type": "wait"}],
        {"name": "left_click", "input": {}},
        "<tool_call>{}</tool_call>\npyautogui.click(1, 2)",
        7,
        None,
    ],
)
def test_auto_refuses_what_is_ambiguous(output: Any) -> None:
    """The same words mean different pixels in two grammars; then one must be named."""
    with pytest.raises(UnreadableAction) as caught:
        parse(output, CTX)
    assert caught.value.grammar == "auto"


def test_an_error_keeps_its_fields_in_a_pickle() -> None:
    """Batch frameworks send exceptions between processes."""
    with pytest.raises(UnreadableAction) as caught:
        parse([{"type": "wait"}, {"type": "click", "x": -1, "y": 0}], CTX, "openai")
    error, copy = caught.value, pickle.loads(pickle.dumps(caught.value))
    assert (copy.grammar, copy.position, copy.read, copy.allowed, copy.index) == (
        "openai", "[1].x", "(-1, 0)", "x from 0 to 1919, y from 0 to 1079", 1,
    )  # fmt: skip
    assert str(copy) == str(error)


def test_unknown_grammars_versions_and_coordinates() -> None:
    """They are the caller's mistakes, not the model's."""
    with pytest.raises(ValueError, match="unknown action grammar 'claude'"):
        parse("", CTX, "claude")
    with pytest.raises(ValueError, match="no version '3'"):
        parse("", Context(SCREEN, version="3"), "openai")
    for wrong in ("percent", (0, 5), (1.5, 2), 1000):
        with pytest.raises(ValueError, match="coordinates must be"):
            Context(SCREEN, wrong)
    with pytest.raises(ValueError, match="screen must be"):
        Context((0, 5))


def test_versions_have_their_own_actions() -> None:
    """What a version does not document, it refuses."""
    scroll = {"action": "scroll", "scroll_direction": "up", "scroll_amount": 1}
    with pytest.raises(UnreadableAction):
        parse(scroll, Context(SCREEN, version="computer_20241022"), "anthropic")
    assert parse(scroll, Context(SCREEN, version="computer_20250124"), "anthropic").actions
    held = {"type": "click", "x": 1, "y": 1, "button": "left", "keys": ["SHIFT"]}
    with pytest.raises(UnreadableAction):
        parse(held, Context(SCREEN, version="computer_use_preview"), "openai")
    with pytest.raises(UnreadableAction):
        parse({"name": "click_at", "args": {"x": 1, "y": 1}}, Context(SCREEN, version="3.5"), "gemini")


def test_calls_say_what_is_to_be_answered() -> None:
    """Each with its id, its actions, what it asks for and the checks that want an answer."""
    output = [
        {"type": "tool_use", "id": "a", "name": "computer", "input": {"action": "key", "text": "a b"}},
        {"type": "tool_use", "id": "b", "name": "computer", "input": {"action": "cursor_position"}},
        {"type": "tool_use", "id": "c", "name": "zoom", "toolset_name": "computer",
         "input": {"region": [0, 0, 960, 540]}},
    ]  # fmt: skip
    calls = parse(output, Context(SCREEN, (960, 540)), "anthropic").calls
    assert [(c.call_id, c.first, c.count, c.look) for c in calls] == [
        ("a", 0, 2, ""), ("b", 2, 0, "cursor_position"), ("c", 2, 0, "zoom"),
    ]  # fmt: skip
    assert calls[2].region == (0, 0, 1920, 1080)
    check = {"id": "cu_sc_1", "code": "malicious_instructions", "message": "m"}
    call = {"type": "computer_call", "call_id": "x", "pending_safety_checks": [check], "actions": []}
    assert parse(call, CTX, "openai").calls[0].safety == (check,)


def test_a_step_ends_as_the_model_says() -> None:
    """An answer counts as done, a call for a human as given up; no action at all is a look."""
    assert parse("DONE", CTX).for_step() == [{"op": "done"}]
    assert parse("Action: call_user()", CTX).for_step() == [{"op": "fail"}]
    answer = parse({"parts": [{"text": "42"}]}, CTX)
    assert (answer.ending, answer.for_step()) == (Ending.ANSWER, [{"op": "done"}])
    looked = {"type": "tool_use", "id": "b", "name": "computer", "input": {"action": "cursor_position"}}
    assert parse(looked, CTX).for_step() == [{"op": "screenshot"}]


def test_objects_of_a_providers_sdk_are_read() -> None:
    """They are taken by their `model_dump`, without the fields that are None."""

    class Item:
        def model_dump(self, *, exclude_none: bool, mode: str) -> dict[str, Any]:
            assert exclude_none and mode == "json"
            return {"type": "computer_call", "call_id": "c", "action": {"type": "wait"}}

    assert parse([Item()], CTX, "openai").actions == ({"op": "wait", "duration_ms": 2000},)


def test_grammars_are_imported_when_they_are_used() -> None:
    """The package costs its table; `ast` is loaded by the one grammar that reads source."""
    code = (
        "import sys, osgym_protocol.host_api, osgym_protocol.actions; "
        "assert not [m for m in sys.modules if 'grammars' in m]; "
        "import osgym_protocol.grammars as g; before = set(sys.modules); "
        "assert not [m for m in before if m.startswith('osgym_protocol.grammars.') "
        "and m.rpartition('.')[2] in g.GRAMMARS], before; "
        "g.parse('click(1,2)', g.Context((9, 9)), 'osgym'); print('ok')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "ok", done.stderr


def test_a_strangers_grammar_is_read_and_detected(tmp_path: Path) -> None:
    """Its distribution registers one entry; nothing of OSGym changes."""
    (tmp_path / "shouts.py").write_text(
        "from osgym_protocol.grammars.base import Parsed\n"
        "from osgym_protocol.grammars.registry import Evidence, Grammar\n"
        "def parse(output, context):\n"
        "    return Parsed('shouts', ({'op': 'type', 'text': output.removeprefix('SHOUT ')},))\n"
        "def in_text(text):\n"
        "    return Evidence.MARK if text.startswith('SHOUT ') else Evidence.NONE\n"
        "GRAMMAR = Grammar('shouts', (), 'pixel', parse, lambda *_: '', in_text)\n"
    )
    metadata = tmp_path / "shouts-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: shouts\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[osgym.grammars]\nshouts = shouts:GRAMMAR\n")
    code = (
        "from osgym_protocol.grammars import Context, parse; "
        "print(parse('SHOUT hi', Context((9, 9))), parse('click(1,2)', Context((9, 9))).grammar)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert "'op': 'type', 'text': 'hi'" in done.stdout and done.stdout.endswith("osgym\n"), done.stderr
