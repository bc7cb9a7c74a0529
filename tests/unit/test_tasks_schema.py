"""The task file: what is accepted, what is refused, and in which words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_host.tasks.errors import InvalidTask, UnsupportedTask
from osgym_host.tasks.evaluate import combine
from osgym_host.tasks.evaluator.registry import METRICS
from osgym_host.tasks.parse import parse_task, validate_task
from osgym_host.tasks.schema import Conjunction
from osgym_protocol import plugins


def task(**changes: Any) -> dict[str, Any]:
    """A small valid task."""
    base: dict[str, Any] = {
        "id": "a",
        "instruction": "do it",
        "config": [],
        "evaluator": {
            "func": "exact_match",
            "result": {"type": "vm_command_line", "command": ["true"]},
            "expected": {"type": "rule", "rules": {"expected": ""}},
        },
    }
    return {**base, **changes}


def step(kind: str, **parameters: Any) -> dict[str, Any]:
    """A setup step."""
    return {"type": kind, "parameters": parameters}


def partial(**changes: Any) -> dict[str, Any]:
    """A task of two checkpoints and a condition."""
    one = task()["evaluator"]
    columns = {"func": ["exact_match"] * 3, "result": [one["result"]] * 3, "expected": [one["expected"]] * 3}
    return task(evaluator={**columns, "conj": "partial", "weights": [3, 1, 0], **changes})


def test_weights_belong_to_checks() -> None:
    """By position, whole numbers and fractions, of a single metric too."""
    assert parse_task(partial()).evaluator.weights == [3.0, 1.0, 0.0]
    assert parse_task(partial(weights=[0.5, 0.25, 0])).evaluator.conj is Conjunction.PARTIAL
    alone = {**task()["evaluator"], "conj": "partial", "weights": [2]}
    assert parse_task(task(evaluator=alone)).evaluator.weights == [2.0]


@pytest.mark.parametrize(
    ("scores", "reward"),
    [
        ([1, 1, 1], 1.0),
        ([0, 0, 1], 0.0),
        ([1, 0, 1], 0.75),
        ([0, 1, 1], 0.25),
        ([0.5, 0, 1], 0.375),
        ([1, 1, 0], 0.0),
        ([1, 0, 0.5], 0.375),
    ],
)
def test_checkpoints_earn_their_weights_under_conditions(scores: list[float], reward: float) -> None:
    """A checkpoint adds its weight; a condition, of weight 0, multiplies the sum."""
    assert combine(scores, Conjunction.PARTIAL, [3, 1, 0]) == reward


def test_other_conjunctions_are_those_of_osworld() -> None:
    """The mean unless one is 0; the largest."""
    assert [combine(scores, Conjunction.AND) for scores in ([1, 0.5], [1, 0])] == [0.75, 0.0]
    assert [combine(scores, Conjunction.OR) for scores in ([1, 0.5], [0.25, 0])] == [1.0, 0.25]


def test_config_may_be_absent() -> None:
    """OSWorld's files may leave out config."""
    value = task()
    del value["config"]
    assert parse_task(value).config == []


def test_lists_are_unrolled_into_checks() -> None:
    """With several metrics, results, expected values and options go together by position."""
    evaluator = {
        "func": ["exact_match", "check_include_exclude"],
        "conj": "or",
        "result": [{"type": "vm_command_line", "command": "a"}, {"type": "cache_file", "path": "x"}],
        "expected": [{"type": "rule", "rules": {"expected": 1}}, {"type": "rule", "rules": {}}],
    }
    parsed = parse_task(task(evaluator=evaluator)).evaluator
    assert parsed.conj is Conjunction.OR
    assert [c.func for c in parsed.checks] == ["exact_match", "check_include_exclude"]
    assert parsed.checks[1].result is not None
    assert parsed.checks[1].result.type == "cache_file"


def test_text_true_means_true() -> None:
    """Published files write "true" where they mean true."""
    parsed = parse_task(task(config=[step("execute", command="ls", shell="true")]))
    assert parsed.config[0].type == "execute"
    assert parsed.config[0].parameters.shell is True


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ([], "JSON object"),
        ({"evaluator": {"func": "infeasible"}}, "id: Field required"),
        ({"id": "a"}, "evaluator: Field required"),
        (task(id=""), "id: "),
        (task(config=[step("execute")]), "config[0].parameters.command: Field required"),
        (task(config=[step("launch", command=[])]), "config[0].parameters.command: a command is"),
        (task(config=[step("sleep", seconds=-1)]), "config[0].parameters.seconds: "),
        (task(config=[step("sleep", seconds=1e9)]), "config[0].parameters.seconds: "),
        (task(config=[{"parameters": {}}]), "config[0].type: Field required"),
        (task(config=[step("upload_file", files=[{"path": "x"}])]), "give exactly one of local_path"),
        (task(config=[step("execute", command="a", stdout="../x")]), "give a plain file name"),
        (task(config=[step("execute", command="a", stderr="/etc/x")]), "give a plain file name"),
        (task(evaluator={"func": []}), "evaluator: evaluator.func must be"),
        (task(evaluator={"func": ["exact_match"], "result": [{}, {}]}), "must be a list of 1 entries"),
        (partial(weights=None), 'partial" needs weights, one for each of 3 metrics, not 0'),
        (partial(weights=[1, 2]), "one for each of 3 metrics, not 2"),
        (partial(weights=[0, 0, 0]), "weights must have one above 0"),
        (partial(weights=[1, -1, 0]), "evaluator.weights[1]: Input should be greater than or equal to 0"),
        (partial(weights=[1, "nan", 0]), "evaluator.weights[1]: "),
        (partial(weights=[1, 1e9, 0]), "evaluator.weights[1]: "),
        (partial(conj="and", weights=[1, 1, 0]), "weights are used only with"),
        (partial(func=["exact_match", "exact_match", "infeasible"]), "infeasible cannot be combined"),
        (task(osgym={"allows": "all"}), "osgym.allows: "),
        (task(osgym={"allows": ["one row removed"]}), "osgym.allows[0]: "),
        (task(osgym={"allows": [{"end": "a"}]}), "osgym.allows[0].why: Field required"),
        (task(osgym={"allows": [{"end": "", "why": "b"}]}), "osgym.allows[0].end: "),
        (task(osgym={"allows": [{"end": "a", "why": "b", "must": 1}]}), "osgym.allows[0].must: Extra"),
        (task(evaluator={"func": "exact_match"}), "evaluator.result: exact_match needs a result"),
        (
            task(evaluator={"func": "is_utc_0", "result": {"type": "vm_command_line"}}),
            "evaluator.result: command: Field required",
        ),
    ],
)
def test_malformed_tasks_are_refused_by_field(value: object, field: str) -> None:
    """A wrong field is named with its path and what would be right."""
    with pytest.raises(InvalidTask) as caught:
        parse_task(value)
    assert field in str(caught.value)
    assert caught.value.code == "task_invalid"


def test_allowed_ends_are_read_with_their_reasons() -> None:
    """A task without the list allows no end."""
    allowed = {"end": "text: *", "why": "the file is a script"}
    (read,) = parse_task(task(osgym={"allows": [allowed]})).osgym.allows
    assert read.model_dump() == allowed
    assert parse_task(task()).osgym.allows == []


def test_unsupported_features_are_named_together() -> None:
    """All that is missing is named at once, before anything runs."""
    value = task(
        config=[step("googledrive", settings_file="x")],
        evaluator={
            "func": ["compare_souls", "compare_table", "exact_match"],
            "result": [{"type": "vm_file", "path": "a", "dest": "a"}] * 2 + [{"type": "lost_tab_info"}],
            "expected": [{"type": "rule", "rules": {}}] * 3,
            "options": [
                {},
                {"rules": [{"type": "chart", "chart_props": ["a"]}, {"type": "odd"}]},
                {"odd": 1},
            ],
        },
    )
    with pytest.raises(UnsupportedTask) as caught:
        parse_task(value)
    assert caught.value.features == (
        "setup step googledrive (needs a Google account)",
        "metric compare_souls",
        "rule chart of a of compare_table",
        "rule odd of compare_table",
        "getter lost_tab_info",
        "option odd of exact_match",
    )
    assert caught.value.code == "task_unsupported"


@given(st.text(min_size=1, max_size=200))
def test_safe_ids_are_plain_names(name: str) -> None:
    """Whatever an id is, its folder name is short, plain and its own."""
    parsed = validate_task(task(id=name))
    safe = parsed.safe_id
    assert 1 <= len(safe) <= 64
    assert all(c.isascii() and (c.isalnum() or c in "_-") for c in safe)
    other = validate_task(task(id=name + "/" if len(name) < 200 else "x"))
    assert other.safe_id != safe or other.id == parsed.id


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    ["id", "config", "evaluator", "func", "result", "type", "parameters", "rules"]
                ),
                inner,
                max_size=6,
            )
        ),
        max_leaves=20,
    )
)
def test_any_json_gives_a_task_or_a_typed_error(value: object) -> None:
    """No JSON value whatever makes the reader fail in another way."""
    try:
        parse_task(value)
    except (InvalidTask, UnsupportedTask) as error:
        json.dumps(error.details)


def published() -> list[Path]:
    """OSWorld's task files, if this machine has them."""
    folder = os.environ.get("OSGYM_OSWORLD_TASKS", "")
    return sorted(Path(folder).rglob("*.json")) if folder else []


@pytest.mark.skipif(
    not published(), reason="missing: OSGYM_OSWORLD_TASKS, a folder with OSWorld's task files"
)
def test_published_tasks_are_read() -> None:
    """Every published task is well formed to us; what we lack is said by name."""
    supported = 0
    for path in published():
        value = json.loads(path.read_text())
        if "evaluator" not in value:
            continue
        try:
            supported += bool(parse_task(value))
        except UnsupportedTask as error:
            assert error.features, path
    assert supported * 2 > len(published())


def test_the_host_reads_what_metrics_declare_without_their_parsers() -> None:
    """Reading a task file imports no parser of what guests make; the evaluator's process does."""
    code = (
        "import sys; from osgym_host.tasks import downloads, evaluate, parse, setup, templating, warm_use;"
        "from osgym_host.tasks.evaluator.registry import METRICS;"
        "assert len(METRICS) > 30; print([m for m in ('openpyxl', 'PIL') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_options_of_a_metric_are_the_parameters_of_its_function() -> None:
    """Whoever adds a metric writes its function: the options follow from it."""
    assert METRICS["compare_table"].options == {"rules"}
    assert METRICS["literal_match"].options == {"type", "ignore_case"}
    assert not METRICS["is_utc_0"].needs_expected


COLOURS = """
from osgym_host.tasks.getter_plugin import Parameters, TaskRun, Value, getter
from osgym_host.tasks.metric_plugin import metric

class Colour(Parameters):
    name: str

@getter(Colour)
async def wallpaper_colour(run: TaskRun, parameters: Colour) -> Value:
    return Value(data=parameters.name)

@metric()
def is_colour(result, expected, close=False):
    return result == expected

def undeclared(result, expected):
    return True
"""
RULE = {"type": "rule", "rules": "red"}


@pytest.fixture
def colours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution with a getter, a metric and two broken entries is installed."""
    info = tmp_path / "colours-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: colours\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[osgym.getters]\nwallpaper_colour = colours_of_osgym:wallpaper_colour\n"
        "[osgym.metrics]\nis_colour = colours_of_osgym:is_colour\n"
        "undeclared = colours_of_osgym:undeclared\nmissing = colours_of_osgym:missing\n"
    )
    (tmp_path / "colours_of_osgym.py").write_text(COLOURS)
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins._entries.cache_clear()
    yield
    plugins._entries.cache_clear()
    sys.modules.pop("colours_of_osgym", None)


def test_a_getter_and_a_metric_are_a_function_and_an_entry_each(colours: None) -> None:
    """What a distribution registers is there for task files, with its parameters checked."""
    evaluator = {
        "func": "is_colour",
        "result": {"type": "wallpaper_colour", "name": "red"},
        "expected": RULE,
        "options": {"close": True},
    }
    assert parse_task(task(evaluator=evaluator)).evaluator.checks[0].func == "is_colour"
    with pytest.raises(InvalidTask, match="name: Field required"):
        parse_task(task(evaluator={**evaluator, "result": {"type": "wallpaper_colour"}}))


@pytest.mark.parametrize(
    ("func", "why"), [("undeclared", "lacks the decorator"), ("missing", "the distribution 'colours'")]
)
def test_a_broken_extension_is_refused_by_name(colours: None, func: str, why: str) -> None:
    """An entry that names no declared function makes the task unsupported; the message says why."""
    evaluator = {"func": func, "result": RULE, "expected": RULE}
    with pytest.raises(UnsupportedTask, match=f"metric {func} .*{why}"):
        parse_task(task(evaluator=evaluator))


def test_a_host_without_osworlds_extensions_names_what_brings_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the distribution and the command; what needs an account has no such hint."""
    monkeypatch.setattr("osgym_host.tasks.parse.OSWORLD_EXTENSIONS", "no_such_package_of_osgym")
    evaluator = {"func": "compare_all", "result": {"type": "googledrive_file"}, "expected": RULE}
    with pytest.raises(UnsupportedTask) as caught:
        parse_task(task(evaluator=evaluator))
    assert caught.value.features == (
        "metric compare_all (OSWorld's are in osgym-osworld: pip install 'osgym-host[osworld]')",
        "getter googledrive_file (needs a Google account)",
    )
