"""Checks of task files against sense: each kind of finding for a broken task, none for a sound one."""

from __future__ import annotations

import base64
import copy
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from osgym_certify.sense import Code, Finding, Severity, duplicates, findings
from osgym_certify.sense.sets import normal
from osgym_certify.sense.texts import numbers_of, text_of
from osgym_protocol.task_files import inline_files

NOTE = "/home/user/Documents/note.txt"
W, D = Severity.WRONG, Severity.DOUBTFUL


def step(kind: str, **parameters: Any) -> dict[str, Any]:
    """A step of the set-up."""
    return {"type": kind, "parameters": parameters}


def run(command: str | list[str], **others: Any) -> dict[str, Any]:
    """A step that runs a command."""
    return step("execute", command=command, **others)


def upload(path: str, text: str) -> dict[str, Any]:
    """A step that uploads a text."""
    return step("upload_file", files=[{"path": path, "text": text}])


def check(func: str, result: dict[str, Any], rules: Any, **others: Any) -> dict[str, Any]:
    """An evaluator of one metric that compares with values in the file."""
    return {"func": func, "result": result, "expected": {"type": "rule", "rules": rules}, **others}


def both(*checks: dict[str, Any], conj: str = "and") -> dict[str, Any]:
    """An evaluator of several metrics."""
    columns: dict[str, Any] = {
        key: [one.get(key) for one in checks] for key in ("func", "result", "expected")
    }
    return {**columns, "conj": conj}


FILE = {"type": "vm_file", "path": NOTE, "dest": "note.txt"}
PEARS = check("check_text_lines", FILE, {"lines": ["3 apples", "2 pears"]})
HOME = {"func": "check_folder_kept", "result": {"type": "folder_record"},
        "expected": {"type": "cache_file", "path": "home"}}  # fmt: skip
SOUND: dict[str, Any] = {
    "id": "sound",
    "instruction": "Replace pears by figs in ~/Documents/note.txt, which is open, and save it.",
    "config": [
        upload(NOTE, "3 apples\n2 pears\n"),
        step("launch", command=["mousepad", NOTE]),
        step("execute_with_verification", command=["true"], verification={"window_exists": "note.txt"}),
    ],
    "evaluator": check("check_text_lines", FILE, {"lines": ["3 apples", "2 figs"]}),
}
COMMAND = {"type": "vm_command_line", "command": ["cat", NOTE]}
TEXT = {"lines": ["3 apples", "2 figs"]}


def task(**changes: Any) -> dict[str, Any]:
    """The sound task with other fields."""
    return {**copy.deepcopy(SOUND), **changes}


def ask(instruction: str, **changes: Any) -> dict[str, Any]:
    return task(instruction=instruction, **changes)


def evaluated(evaluator: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return task(evaluator=evaluator, **changes)


def command(text: str | list[str], **others: Any) -> dict[str, Any]:
    """The sound task whose result is the output of a command."""
    result = {"type": "vm_command_line", "command": text, **others}
    return evaluated(check("exact_match", result, {"expected": "3 apples\n2 figs\n"}))


def more(*steps: dict[str, Any]) -> dict[str, Any]:
    """The sound task with further steps of the set-up."""
    return task(config=[*SOUND["config"], *steps])


def after(*steps: dict[str, Any]) -> dict[str, Any]:
    """The sound task with steps before its check."""
    return evaluated({**SOUND["evaluator"], "postconfig": list(steps)})


def of(one: dict[str, Any], **known: Any) -> set[Code]:
    return {finding.code for finding in findings(one, **known)}


def test_a_sound_task_has_no_findings() -> None:
    """Nor have the tasks of this repository a wrong one."""
    assert findings(SOUND) == []
    for path in sorted(Path("tasks").glob("*/*.json")):
        shipped = json.loads(path.read_text())
        if "evaluator" in shipped:
            inline_files(shipped, path)
            assert [one for one in findings(shipped) if one.severity is Severity.WRONG] == [], path


CONVERTED = {"type": "vm_file", "path": "/home/user/Documents/note-pears.csv", "dest": "n"}
CONVERT = {"postconfig": [run(["soffice", "--convert-to", "csv", NOTE])]}
OTHER_FILE = {"type": "vm_file", "path": "/home/user/Documents/summary.txt", "dest": "s"}
MADE_FILE = evaluated(check("check_text_lines", OTHER_FILE, TEXT))
NO_APPLES = [upload("/home/user/x.txt", "nothing")]
MINUTES = check("check_auto_saving_time", {**FILE, "path": "/home/user/.config/x"}, {"minutes": 7})
SAVE = {"config": [], "evaluator": MINUTES}
GEOMETRY = {"type": "vm_window_size", "app_class_name": "mousepad"}
LIST = {"type": "list_directory", "path": "/home/user/Documents"}
TABS = {"type": "open_tabs_info"}


@pytest.mark.parametrize(
    ("code", "severity", "broken", "field"),
    [
        (Code.INVALID, W, {"id": "x"}, "evaluator"),
        (Code.UNNAMED_FILE, W, MADE_FILE, "evaluator.result reads"),
        (Code.UNNAMED_FILE, D, {**MADE_FILE, "instruction": "Have figs for pears in a summary."}, "summary"),
        (Code.UNNAMED_FILE, D, command(["cat", "/home/user/summary.txt"]), "evaluator.result reads"),
        (Code.UNNAMED_VALUE, D,
         evaluated(check("exact_match", COMMAND, {"expected": "./note-apples.txt\n"})), "“note-apples.txt”"),
        (Code.UNNAMED_VALUE, W,
         evaluated(check("check_json", FILE, {"expect": [{"key": ["a"], "method": "eq", "ref": "Orchard"}]})),
         "rules.expect[0].ref compares “Orchard”"),
        (Code.UNNAMED_VALUE, W, ask("Replace pears by something else in ~/Documents/note.txt."),
         "evaluator.expected.rules.lines[1]"),
        (Code.UNNAMED_VALUE, D, ask("Have Impress save every few minutes.", **SAVE),
         "evaluator.expected.rules.minutes"),
        (Code.CLOCK, D, ask(SOUND["instruction"] + " Do it for tomorrow."), "instruction"),
        (Code.CLOCK, D, command("date +%Y; cat x", shell=True), "evaluator.result.command"),
        (Code.CLOCK, D,
         evaluated({"func": "check_direct_json_object", "result": TABS, "expected":
                    {"type": "rule_relativeTime", "rules": {"relativeTime": {"from": "tomorrow"}}}}),
         "evaluator.expected counts days"),
        (Code.NETWORK, D, more(step("chrome_open_tabs", urls_to_open=["https://a.com/b"])),
         "config[3] needs the internet (“a.com”)"),
        (Code.NETWORK, D, more(step("download", files=[{"url": "https://a/b", "path": "/x"}])),
         "config[3] downloads files of which the task has no digest"),
        (Code.NETWORK, D, more(run(["pip3", "install", "x"])), "config[3]"),
        (Code.NETWORK, D,
         evaluated({"func": "compare_text_file", "result": FILE,
                    "expected": {"type": "cloud_file", "path": "https://a.com/gold.txt", "dest": "g"}}),
         "evaluator.expected needs the internet"),
        (Code.SCREEN, D, after(run(["xdotool", "mousemove", "10", "20"])),
         "evaluator.postconfig[0] points at pixels"),
        (Code.SCREEN, D, evaluated(check("exact_match", GEOMETRY, {"expected": {}})), "vm_window_size"),
        (Code.SCREEN, D, ask(SOUND["instruction"] + " Click at (300, 200)."), "instruction"),
        (Code.LOCALE, D, command("ls ~ | sort", shell=True), "evaluator.result.command"),
        (Code.NO_WAIT, D, task(config=SOUND["config"][:2]), "config[1] launches “mousepad”"),
        (Code.NO_WAIT, D, task(config=[*SOUND["config"][:2], step("sleep", seconds=3)]),
         "only sleeps"),
        (Code.SLEEP, D, after(step("sleep", seconds=1)), "evaluator.postconfig[0]"),
        (Code.SLEEP, D, after(run("x; sleep 3", shell=True)), "postconfig[0]"),
        (Code.PASSWORD, D,
         more(run("echo {CLIENT_PASSWORD} | sudo -S ls", shell=True)), "config[3].parameters"),
        (Code.NO_SHELL, W, command(["cat", NOTE, "|", "grep", "figs"]), "gives “|” to the program"),
        (Code.NO_SHELL, W, command(f"cat {NOTE} > /tmp/x"), "gives “>” to the program"),
        (Code.GUEST_EVIDENCE, D, command(["cat", NOTE]), "evaluator.result asks"),
        (Code.CANNOT_FAIL, W, evaluated(check("check_include_exclude", COMMAND, {"include": []})),
         "evaluator.expected.rules demands nothing"),
        (Code.CANNOT_FAIL, W, evaluated(check("check_json", FILE, {})), "evaluator.expected.rules"),
        (Code.CANNOT_FAIL, W,
         evaluated({"func": "compare_text_file", "result": FILE, "expected": {**FILE, "dest": "gold.txt"}}),
         "evaluator.expected reads what evaluator.result reads"),
        (Code.CANNOT_FAIL, W, command(["echo", "3 apples 2 figs"]), "prints the same"),
        (Code.UNTOUCHED, W, evaluated(PEARS), "evaluator.func: every check holds"),
        (Code.UNTOUCHED, W, evaluated(HOME), "evaluator.func: every check holds"),
        (Code.UNTOUCHED, W, evaluated(both(SOUND["evaluator"], HOME, conj="or")), "evaluator.func[1]"),
        (Code.UNTOUCHED, D,
         evaluated(check("exact_match", {**COMMAND, "command": ["pgrep", "vlc"]}, {"expected": ""})),
         "evaluator.expected.rules.expected is empty"),
        (Code.INFEASIBLE_MIXED, W,
         evaluated(both({"func": "infeasible"}, SOUND["evaluator"], conj="or")), "evaluator.conj"),
        (Code.INFEASIBLE_MIXED, W, evaluated(both({"func": "infeasible"}, SOUND["evaluator"])),
         "evaluator.func[1] demands a change"),
        (Code.UNKNOWN_END, D, task(osgym={"allows": [{"end": "text: x*", "why": "a"}]}),
         "osgym.allows[0].end"),
    ],
)  # fmt: skip
def test_a_broken_task_is_found(code: Code, severity: Severity, broken: dict[str, Any], field: str) -> None:
    """With its severity, the field and the remedy."""
    found = [one for one in findings(broken, ["text: emptied"]) if one.code is code]
    assert [one.severity for one in found] == [severity], findings(broken)
    assert field in found[0].message
    assert len(found[0].message) > len(field) + 20


CLOCK = {"clock": {"start": "2026-01-01T09:00", "frozen": True}}
EMPTY = check("exact_match", COMMAND, {"expected": ""})
SORTED = "ls ~ | LC_ALL=C sort"
POLLED = "for i in $(seq 40); do grep -q figs x && break; sleep 0.1; done"


@pytest.mark.parametrize(
    ("code", "sound"),
    [
        (Code.UNNAMED_FILE, {**MADE_FILE, "instruction": "Have figs for pears in Summary.txt."}),
        (Code.UNNAMED_FILE, {**MADE_FILE, "config": more(run("touch summary.txt"))["config"]}),
        (Code.UNNAMED_FILE, evaluated({**check("check_text_lines", CONVERTED, TEXT), **CONVERT})),
        (Code.UNNAMED_FILE, ask("Have it save each 7 minutes.", **SAVE)),
        (Code.UNNAMED_VALUE, ask("Have it save every seven minutes.", **SAVE)),
        (Code.UNNAMED_VALUE, evaluated(check("check_text_lines", FILE, {"lines": ["5"]}))),
        (Code.UNNAMED_VALUE, evaluated(check("match_in_list", FILE, {"expected": ["figs", "Big figs"]}))),
        (Code.UNNAMED_VALUE, command(["sha256sum", NOTE])),
        (Code.CLOCK, ask("Replace pears by figs in ~/Documents/note.txt tomorrow.", osgym=CLOCK)),
        (Code.CLOCK, ask('Replace "tomorrow" by figs in the cell of the last month.')),
        (Code.NETWORK, more(step("chrome_open_tabs", urls_to_open=["http://localhost:8000/", "file:///x"]))),
        (Code.NETWORK, more(upload("/home/user/links.txt", "https://a.com"))),
        (Code.SCREEN, after(run(["xdotool", "key", "ctrl+s"]))),
        (Code.SCREEN, ask('Replace pears by figs and write "(300, 200)".')),
        (Code.LOCALE, command(SORTED, shell=True)),
        (Code.NO_WAIT, more(step("launch", command=["socat", "tcp-listen:1", "tcp:localhost:2"]))),
        (Code.SLEEP, after(run(POLLED, shell=True))),
        (Code.PASSWORD, more(run(["touch", "/home/user/sudoku"]))),
        (Code.NO_SHELL, command(f"cat {NOTE} | grep figs", shell=True)),
        (Code.NO_SHELL, command(["bash", "-c", f"cat {NOTE} | grep figs"])),
        (Code.GUEST_EVIDENCE, evaluated(both(SOUND["evaluator"], command(["cat", NOTE])["evaluator"]))),
        (Code.CANNOT_FAIL, evaluated(check("check_include_exclude", COMMAND, {"include": ["figs"]}))),
        (Code.CANNOT_FAIL, evaluated(check("check_text_lines", FILE, {"lines": []}))),
        (Code.CANNOT_FAIL, evaluated(check("check_image_properties", FILE, {"grey": True}))),
        (Code.CANNOT_FAIL, command("echo $(cat x)", shell=True)),
        (Code.UNTOUCHED, evaluated(both(SOUND["evaluator"], HOME))),
        (Code.UNTOUCHED, evaluated(both(EMPTY, SOUND["evaluator"]))),
        (Code.UNTOUCHED,
         evaluated(check("check_text_lines", FILE, {"lines": ["3 apples", "2 pears"], "line_end": "\r"}))),
        (Code.UNTOUCHED, evaluated(PEARS, config=[*SOUND["config"], run(["rm", NOTE])])),
        (Code.INFEASIBLE_MIXED, evaluated(both({"func": "infeasible"}, HOME))),
        (Code.INFEASIBLE_MIXED, evaluated({"func": "infeasible"})),
        (Code.UNKNOWN_END, task(osgym={"allows": [{"end": "text: *", "why": "a"}]})),
    ],
)  # fmt: skip
def test_a_sound_task_is_not_blamed(code: Code, sound: dict[str, Any]) -> None:
    """Although it is much like a broken one."""
    assert code not in of(sound, known_ends=["text: emptied"]), findings(sound)


def test_allowed_ends_are_compared_with_known_ones_only() -> None:
    """A caller without the names of ends gets no finding about them."""
    assert of(task(osgym={"allows": [{"end": "no such", "why": "a"}]})) == set()


def workbook(cells: dict[str, Any]) -> dict[str, Any]:
    """An uploaded workbook."""
    book, file = openpyxl.Workbook(), io.BytesIO()
    for name, value in cells.items():
        book["Sheet"][name] = value
    book.save(file)
    return {"path": "/home/user/a.xlsx", "data_base64": base64.b64encode(file.getvalue()).decode()}


def test_documents_that_the_set_up_brings_are_read() -> None:
    """Their words are known, and a check that they pass untouched is found."""
    config = [step("upload_file", files=[workbook({"A1": "Grapefruit", "B1": 12})])]
    book = {"type": "vm_file", "path": "/home/user/a.xlsx", "dest": "a"}

    def wanted(**cells: Any) -> set[Code]:
        return of(
            ask("Fill A1 and C1.", config=config, evaluator=check("check_xlsx_cells", book, {"cells": cells}))
        )

    assert wanted(A1="Grapefruit", C1=13) == set()
    assert wanted(A1="Pomegranate") == {Code.UNNAMED_VALUE}
    assert wanted(A1="Grapefruit", B1=12) == {Code.UNTOUCHED}


def test_changed_lines_are_named() -> None:
    """By the words that the line before did not have, unless another file has them."""
    said = "Replace pears by {} in ~/Documents/note.txt, which is open, and save it."
    lines = ["3 apples", "2 pears", "5 figs"]
    config = [upload(NOTE, "".join(f"{line}\n" for line in lines)), *SOUND["config"][1:]]
    changed = check("check_text_lines", FILE, {"lines": ["3 apples", "2 figs", "5 figs"]})

    def found(what: str, *others: dict[str, Any]) -> list[str]:
        one = ask(said.format(what), config=[*config, *others], evaluator=changed)
        return [f"{finding.code} {finding.severity} {finding.message[:37]}" for finding in findings(one)]

    (only,) = found("the other fruit")
    assert only == "unnamed-value doubtful evaluator.expected.rules.lines[1] has"
    assert found("figs") == found("the word of fruit.txt", upload("/home/user/fruit.txt", "figs")) == []


def test_changed_cells_are_named() -> None:
    """Themselves, in a range, by column or by heading; a table that is rearranged need not be."""
    cells = {"A1": "Fruit", "B1": "Number", "C1": "Price", "A2": "figs", "B2": 2, "C2": 5}
    config = [step("upload_file", files=[workbook(cells)])]
    book = {"type": "vm_file", "path": "/home/user/a.xlsx", "dest": "a"}

    def found(instruction: str, **wanted: Any) -> list[Code]:
        rules = {"cells": {**cells, **wanted}}
        return codes(
            findings(ask(instruction, config=config, evaluator=check("check_xlsx_cells", book, rules)))
        )

    for named_place in ("in D3", "in D2:E9", "in column D", "below the price"):
        assert found(f"Put the sum of the price {named_place}.", D3=7) == []
    assert found("Put the sum into the table.", D3=7) == [Code.UNNAMED_CELL]
    assert found("Double the number.", B2=4) == []
    assert found("Turn the table.", A2=1, B2=7, C2=2, D2=4) == []


def test_contents_that_cannot_be_read_make_a_doubt() -> None:
    """A value may stand in a picture, or in a file that is downloaded."""
    picture = step(
        "upload_file", files=[{"path": "/x.png", "data_base64": base64.b64encode(b"\x89PNG\xff").decode()}]
    )
    (found,) = findings(more(picture) | {"instruction": "Replace pears by it in ~/Documents/note.txt."})
    assert (found.code, found.severity) == (Code.UNNAMED_VALUE, Severity.DOUBTFUL)
    broken = io.BytesIO()
    with zipfile.ZipFile(broken, "w") as archive:
        archive.writestr("a.txt", "words")
    whole = base64.b64encode(broken.getvalue()).decode()
    assert "words" in (text_of({"data_base64": whole}) or "")
    assert text_of({"data_base64": whole[:40]}) is None
    assert text_of({"local_path": "a"}) is text_of({"data_base64": "?"}) is None


def test_numbers_are_compared_by_value() -> None:
    """Whatever they are written like."""
    assert {"1234", "7", "2.5", "12"} <= numbers_of("1,234 seven 2.50 a dozen")
    assert numbers_of("no such") == set()


def named(*tasks: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return dict(zip("abcdef", tasks, strict=False))


def codes(found: list[Finding]) -> list[Code]:
    return [one.code for one in found]


def test_duplicates_are_found() -> None:
    """Up to quotes, case and the random keys of local applications."""
    shout = SOUND["instruction"].upper().replace("PEARS BY FIGS", '"PEARS" by “figs”')
    other = check("check_text_lines", FILE, {"lines": ["figs"]})
    keyed = [command(["curl", "-H", f"X-Key: {key * 16}", "http://localhost/"]) for key in ("1a", "2b")]
    assert normal(shout) == normal(SOUND["instruction"])
    assert codes(duplicates(named(SOUND, ask(shout)))) == [Code.DUPLICATE]
    assert codes(duplicates(named(*keyed))) == [Code.DUPLICATE]
    assert codes(duplicates(named(SOUND, ask(shout, evaluator=other)))) == [Code.TWO_CHECKS]
    assert codes(duplicates(named(SOUND, ask("Put figs in place of pears.")))) == [Code.SAME_CHECK]
    assert duplicates(named(SOUND, ask(shout, evaluator=other, config=NO_APPLES))) == []
    never = [ask(text, evaluator={"func": "infeasible"}) for text in ("Fly.", "Swim.")]
    assert duplicates(named(*never)) == []


def test_instructions_in_two_splits_are_found() -> None:
    """Whatever the set-up is; a task without a split is in none."""
    two = named(SOUND, task(config=NO_APPLES))
    (found,) = duplicates(two, {"a": "train", "b": "test"})
    assert (found.code, found.severity) == (Code.SPLIT_LEAK, Severity.WRONG)
    assert "test and train (a, b)" in found.message
    assert duplicates(two, {"a": "train", "b": "train"}) == duplicates(two, {"a": "train"}) == []


def test_what_the_oracle_types_and_nobody_can_know_is_certainly_missing() -> None:
    """A command may print words of its own, so a word that only the check has is doubtful."""
    asked = evaluated(check("exact_match", COMMAND, {"expected": "3 apples\n2 quinces\n"}))
    for typed, severity in (("", D), ("apples", D), ("sed s/pears/quinces/", W)):
        (found,) = [one for one in findings(asked, None, typed) if one.code is Code.UNNAMED_VALUE]
        assert (found.severity, "quinces" in found.message) == (severity, True)
