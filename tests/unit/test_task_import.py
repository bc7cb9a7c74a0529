"""`osgym task import` over small sets of each layout: what is made, named as missing, refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support import foreign_sets
from tests.support.foreign_sets import LINE, REPORT, SETS, own_task, report, run, tasks, write

from osgym_cli.task.imports.layouts import LAYOUTS, detected
from osgym_cli.task.imports.source import SourceFolder
from osgym_host.tasks.parse import parse_task


@pytest.mark.parametrize("layout", SETS)
def test_each_layout_is_detected_and_converted(layout: str, tmp_path: Path) -> None:
    """Tasks that a host accepts, each with its origin; a second import changes nothing."""
    source, out = SETS[layout](tmp_path / "set"), tmp_path / "out"
    assert list(detected(SourceFolder(source))) == [layout]
    found = report("auto", source, out, "--flavor", "small")
    written = tasks(out)
    assert found["layout"] == layout and written
    for task in written:
        parse_task(task)
        assert task["imported"]["layout"] == layout and task["imported"]["digest"].startswith("sha256:")
        assert task["source"] and task["osgym"]["flavor"] == "small"
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.json")}
    again = report(layout, source, out, "--flavor", "small")
    assert {row["change"] for row in again["tasks"] if row["file"]} == {"unchanged"}
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.json")} == before


def test_a_bundle_of_cua_gym(tmp_path: Path) -> None:
    """Hidden files are removed before the policy acts; the truth and the check come with the check."""
    report("cua-gym", foreign_sets.cua_gym(tmp_path / "set"), tmp_path / "out")
    (task,) = tasks(tmp_path / "out")
    config, check = json.dumps(task["config"]), json.dumps(task["evaluator"])
    assert LINE not in config and "check.sh" not in config and LINE in check and "check.sh" in check
    assert task["config"][-1]["parameters"]["command"][-1] == "rm -rf -- /tmp_workspace/.uda_hidden"
    assert "rm -rf" in task["evaluator"]["result"]["command"][-1]
    assert ["chmod", "+x", "/tmp_workspace/tool.sh"] in [
        s["parameters"].get("command") for s in task["config"]
    ]
    assert task["source"] == "cua-gym:count_apples"


def test_what_a_bundle_needs_of_its_own_harness_is_named(tmp_path: Path) -> None:
    """Variables, addresses, and the image's programs."""
    source = foreign_sets.cua_gym(tmp_path / "set")
    write(
        source / "count_apples",
        {
            "meta.json": {"id": "count_apples", "runtime": {"profile": "datascience"}},
            "harness_env.tsv": "CUA_GYM_ADMIN_TOKEN\tharness\n",
            "check.sh": "curl https://x.example.org/go http://127.0.0.1:1\nls $UDA_GYM_HARNESS_STATE_DIR",
        },
    )
    found = report("cua-gym", source, tmp_path / "out")
    assert found["summary"] == {"converted": 0, "something missing": 1, "refused": 0}
    assert found["tasks"][0]["missing"] == [
        "environment variable CUA_GYM_ADMIN_TOKEN of the set's own harness",
        "environment variable UDA_GYM_HARNESS_STATE_DIR of the set's own harness",
        "programs of the image profile datascience",
        "a script names https://x.example.org/go",
    ]


def test_a_task_of_gym_anything(tmp_path: Path) -> None:
    """The verifier and the last hook are for the check only; the verifier's files are those that it names."""
    report("gym-anything", foreign_sets.gym_anything(tmp_path / "set", "sparse"), tmp_path / "out")
    (task,) = tasks(tmp_path / "out")
    config, evaluator = json.dumps(task["config"]), task["evaluator"]
    assert LINE not in config and "verifier" not in config and "export_result" not in config
    assert evaluator["result"] == {"type": "vm_files", "paths": ["/tmp/task_result.json", REPORT]}
    assert evaluator["options"] == {"passed_only": True}
    first, *_, last = [step["parameters"] for step in evaluator["postconfig"]]
    assert first["command"][-1].endswith("/export_result.sh /tmp/task_result.json")
    assert last["command"][-1] == "rm -rf -- /workspace/tasks/count/export_result.sh"
    assert task["config"][-1]["parameters"]["command"][-1] == "rm -rf -- /workspace/tasks/count/setup_task.sh"
    rules = evaluator["expected"]["rules"]
    assert rules["function"] == "verify_report" and list(rules["modules"]) == ["helpers"]
    assert rules["task"]["metadata"]["expected"] == LINE


def test_what_a_verifier_asks_for_and_does_not_get_is_named(tmp_path: Path) -> None:
    """A vision model, the trajectory, modules, programs that are installed before the start."""
    source = foreign_sets.gym_anything(tmp_path / "set")
    verifier = "from gym_anything.vlm import query_vlm\ntry:\n    import requests\nexcept ImportError: pass\n"
    verifier += "def verify_report(traj, env_info, task_info):\n    ask = env_info.get('query_vlm')\n"
    verifier += "    env_info['exec_in_env']('x')\n    return len(traj['steps'])\n"
    write(source, {"fruit_env/tasks/count/verifier.py": verifier})
    env = json.loads((source / "fruit_env/env.json").read_text())
    env["hooks"] = {"pre_start": "/workspace/scripts/install.sh", "post_start": "/workspace/scripts/gone.sh"}
    env["mounts"].append({"source": "x/fruit_env/data", "target": "/workspace/data"})
    write(source, {"fruit_env/env.json": env, "fruit_env/scripts/utils.sh": "#!/bin/sh\nDISPLAY=:1 xclock\n"})
    (row,) = report("gym-anything", source, tmp_path / "out")["tasks"]
    assert row["missing"] == [
        "folder data",
        "hook pre_start (/workspace/scripts/install.sh), which installs programs",
        "hook /workspace/scripts/gone.sh, which is not at hand",
        "display :1; desktops have :0",
        "a vision model, which the verifier asks",
        "env_info.exec_in_env of the verifier",
        "the trajectory, which the verifier reads",
    ]


def test_a_placeholder_of_a_verifier_is_refused(tmp_path: Path) -> None:
    """It would pay for nothing, since a model elsewhere was to judge."""
    source = foreign_sets.gym_anything(tmp_path / "set")
    stub = 'def verify_report(traj, env_info, task_info):\n    """traj"""\n    return {"passed": True}\n'
    write(source, {"fruit_env/tasks/count/verifier.py": stub})
    (row,) = report("gym-anything", source, tmp_path / "out")["tasks"]
    assert row["reason"] == "its verifier looks at nothing of the desktop: it is a placeholder"


def test_a_verifier_that_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    """Its module is neither in the set nor in the evaluator, so it could never score."""
    source = foreign_sets.gym_anything(tmp_path / "set")
    write(source, {"fruit_env/tasks/helpers.py": "import cv2\ndef points(got, want): return 0\n"})
    (row,) = report("gym-anything", source, tmp_path / "out")["tasks"]
    assert row["reason"] == "its verifier needs the module cv2, which the evaluator does not have"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"success": {"mode": "vlm_checklist"}}, "it is scored by 'vlm_checklist', not by a program"),
        ({"success": {"spec": {"program": "verifier.py"}}}, "must be FILE.py::FUNCTION"),
        ({"success": {"spec": {"program": "../../../x.py::f"}}}, "is not a plain name"),
        ({"success": {"spec": {"program": "verifier.py::gone"}}}, "has no function gone"),
        ({"success": None}, "success.spec.program is missing"),
        ({"description": " "}, "description is missing"),
        ({"hooks": {"pre_task": "../x.sh"}}, "must be an absolute path"),
        ({"hooks": {"post_task": 7}}, "must be a path"),
    ],
)
def test_a_task_of_gym_anything_is_refused(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    """With the reason, and without a task file."""
    source = foreign_sets.gym_anything(tmp_path / "set")
    path = "fruit_env/tasks/count/task.json"
    write(source, {path: {**json.loads((source / path).read_text()), **changes}})
    (row,) = report("gym-anything", source, tmp_path / "out")["tasks"]
    assert row["outcome"] == "refused" and reason in row["reason"]
    assert tasks(tmp_path / "out") == []


def test_a_task_of_opencomputer(tmp_path: Path) -> None:
    """Criteria with equal weights; the verifier program comes with the check and leaves with it."""
    report("opencomputer", foreign_sets.opencomputer(tmp_path / "set"), tmp_path / "out")
    (task,) = tasks(tmp_path / "out")
    evaluator = task["evaluator"]
    assert "import json" not in json.dumps(task["config"])
    assert (evaluator["conj"], evaluator["weights"]) == ("partial", [1] * 4)
    assert task["config"][-1]["parameters"]["command"] == ["mousepad", "/home/user/apples.txt"]
    commands = [result["command"][-1] for result in evaluator["result"]]
    assert [command.endswith("rm -rf -- /home/user/verifiers") for command in commands] == [False] * 3 + [
        True
    ]


CRITERION = {"command": "exists /a", "key": "exists", "expected": True}


@pytest.mark.parametrize(
    ("changes", "outcome", "words"),
    [
        (
            {"verification": [CRITERION, {"judge": "llm", "prompt": "?"}]},
            "something missing",
            "a language model judges",
        ),
        (
            {"verification": [CRITERION, {"command": "a", "eval": "result.__class__"}]},
            "something missing",
            "criterion 2, whose expression uses the attribute __class__",
        ),
        ({"verification": [{"command": "a", "eval": "open('x')"}]}, "refused", "no criterion can be checked"),
        ({"verification": [{"judge": "llm", "prompt": "?"}]}, "refused", "no criterion can be checked"),
        ({"verification": []}, "refused", "no criterion can be checked"),
        ({"verification": [CRITERION] * 33}, "refused", "at most 32"),
        ({"verification": [{"command": "a"}]}, "refused", "neither eval nor key"),
        (
            {"verification": [{"command": "'", "key": "a", "expected": 1}]},
            "refused",
            "command of criterion 1",
        ),
        ({"verification": [7]}, "refused", "criterion 1 is no object"),
        ({"app": "blender"}, "refused", "the verifier program of blender is not at hand"),
        ({"app": "../x"}, "refused", "is no name of an application"),
        ({"env": {"files": [{"filename": "gone", "sandbox_path": "/a"}]}}, "something missing", "file gone"),
        ({"env": {"files": [{"filename": "../x", "sandbox_path": "/a"}]}}, "refused", "not a plain name"),
        ({"env": {"files": [{"filename": "x", "sandbox_path": "/a/../b"}]}}, "refused", "without '..'"),
        ({"env": {"files": 7}}, "refused", "env.files must be a list"),
        ({"task": None}, "refused", "task is missing"),
    ],
)
def test_what_opencomputer_needs_is_named(
    changes: dict[str, Any], outcome: str, words: str, tmp_path: Path
) -> None:
    """Criteria that are left out, and reasons of refusals."""
    (row,) = report("opencomputer", foreign_sets.opencomputer(tmp_path / "set", **changes), tmp_path / "out")[
        "tasks"
    ]
    assert row["outcome"] == outcome
    assert words in (row["reason"] or "; ".join(row["missing"]))


def test_verifiers_may_lie_elsewhere_and_files_may_be_made(tmp_path: Path) -> None:
    """`--verifiers`; an env/create_env.py makes what is not at hand, in the desktop."""
    files = [
        {"filename": "gone.txt", "sandbox_path": "/a"},
        {"filename": "setup_it.sh", "sandbox_path": "/b.sh"},
    ]
    source = foreign_sets.opencomputer(tmp_path / "set", env={"files": files})
    write(source / "tasks/mousepad_count/env", {"create_env.py": "print(1)\n", "setup_it.sh": "true\n"})
    found = report(
        "opencomputer", source / "tasks", tmp_path / "out", "--verifiers", str(source / "verifiers")
    )
    assert found["tasks"][0]["outcome"] == "converted"
    (task,) = tasks(tmp_path / "out")
    commands = [step["parameters"]["command"][-1] for step in task["config"] if step["type"] == "execute"]
    assert commands[1:3] == ["python3 /tmp/create_env.py", "rm -rf -- /tmp/create_env.py"]
    assert commands[3:] == ["bash /b.sh", "rm -rf -- /b.sh"]


def test_osworld_is_copied_and_what_is_missing_is_named(tmp_path: Path) -> None:
    """Files beside a task are put into it; a getter, a metric, a file, and addresses are named."""
    source = foreign_sets.osworld(tmp_path / "set")
    odd = own_task("odd")
    odd["config"] = [
        {"type": "upload_file", "parameters": {"files": [{"path": "/a", "local_path": "gone.bin"}]}},
        {
            "type": "download",
            "parameters": {"files": [{"url": "https://example.org/f.zip", "path": "/f.zip"}]},
        },
        {"type": "login", "parameters": {}},
    ]
    odd["evaluator"] = {**odd["evaluator"], "func": "no_such_metric", "result": {"type": "no_such_getter"}}
    write(source, {"examples/os/odd.json": odd, "examples/os/bad.json": {"id": "bad", "evaluator": {}}})
    found = report("osworld", source, tmp_path / "out")
    rows = {row["original"].rpartition("/")[2]: row for row in found["tasks"]}
    assert rows["7f3a-osworld.json"]["outcome"] == "converted"
    assert rows["odd.json"]["missing"] == [
        "file gone.bin",
        "setup step login (needs an account at the site)",
        "metric no_such_metric",
        "getter no_such_getter",
    ]
    assert rows["odd.json"]["to_fetch"] == ["https://example.org/f.zip"]
    assert rows["bad.json"]["outcome"] == "refused" and "not valid" in rows["bad.json"]["reason"]
    (copied,) = [task for task in tasks(tmp_path / "out") if task["id"] == "7f3a-osworld"]
    assert copied["source"] == "https://example.org/question"
    assert "data_base64" in json.dumps(copied["config"])


def test_rows_of_parquet(tmp_path: Path) -> None:
    """Rows as the trainers' integrations write them; damaged files are refused."""
    table = pa.table({"prompt": ["a", "b"], "task": [json.dumps(own_task("p1")), json.dumps(own_task("p2"))]})
    pq.write_table(table, tmp_path / "train.parquet")
    found = report("auto", tmp_path / "train.parquet", tmp_path / "out")
    assert [row["id"] for row in found["tasks"]] == ["p1", "p2"] and found["layout"] == "rows"
    assert [task["instruction"] for task in tasks(tmp_path / "out")] == [own_task()["instruction"]] * 2
    (tmp_path / "bad.parquet").write_bytes(b"PAR1" + b"x" * 50)
    (row,) = report("rows", tmp_path / "bad.parquet", tmp_path / "out")["tasks"]
    assert "not a readable Parquet file" in row["reason"]


def test_rows_of_each_trainer(tmp_path: Path) -> None:
    """The columns that the integrations of TRL, verifiers, verl and SkyRL have."""
    columns: list[dict[str, Any]] = [
        {"task": json.dumps(own_task("a"))},
        {"desktop_task": json.dumps(own_task("b"))},
        {"extra_info": {"index": 0, "task": json.dumps(own_task("c"))}},
        {"answer": json.dumps(own_task("d"))},
        {"info": json.dumps({"task": own_task("e")})},
    ]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps({"prompt": "x", **row}) + "\n" for row in columns))
    report("rows", tmp_path / "r.jsonl", tmp_path / "out")
    assert [task["id"] for task in tasks(tmp_path / "out")] == ["a", "b", "c", "d", "e"]


def test_rows_that_hold_no_task(tmp_path: Path) -> None:
    """Each is refused with its reason; the others are converted."""
    lines = [
        "{",
        "[]",
        '{"a": 1}',
        '{"answer": "42"}',
        json.dumps({"task": own_task()}),
        '{"task": {"evaluator": {}}}',
    ]
    (tmp_path / "r.jsonl").write_text("\n".join(lines))
    found = report("rows", tmp_path / "r.jsonl", tmp_path / "out")["tasks"]
    assert [row["outcome"] for row in found] == ["refused"] * 4 + ["converted", "refused"]
    words = [row["reason"] or "" for row in found]
    assert (
        "not JSON" in words[0]
        and "none of the columns" in words[2]
        and "has an answer and no task" in words[3]
    )


def test_a_file_that_the_task_asks_for_is_not_removed(tmp_path: Path) -> None:
    """What the description names is the policy's, also where the hook after the task reads it."""
    source = foreign_sets.gym_anything(tmp_path / "set")
    path = "fruit_env/tasks/count/task.json"
    original = json.loads((source / path).read_text())
    write(source, {path: {**original, "description": "Write /tmp/task_result.json."}})
    report("gym-anything", source, tmp_path / "out")
    (task,) = tasks(tmp_path / "out")
    assert "/tmp/task_result.json" not in str(task["evaluator"]["postconfig"][0])


def test_wrong_usage(tmp_path: Path) -> None:
    """Exit code 2, and what to do."""
    source = foreign_sets.cua_gym(tmp_path / "set")
    foreign_sets.rows(source)
    (tmp_path / "empty").mkdir()
    for layout, given_source, words in (
        ("auto", source, "cua-gym (1), rows (1); name one of"),
        ("auto", tmp_path / "empty", "found: none"),
        ("opencomputer", tmp_path / "empty", "no task of the layout opencomputer"),
        ("cua-gym", source / "train.jsonl", "is a folder"),
        ("auto", tmp_path / "gone", "does not exist"),
        ("other", source, "Invalid value"),
    ):
        result = run(layout, given_source, tmp_path / "out")
        assert result.exit_code == 2 and words in " ".join(result.output.split()), result.output
    (tmp_path / "file").write_text("")
    result = run("cua-gym", source, tmp_path / "file" / "out")
    assert result.exit_code == 2 and "Not a directory" in result.output


def test_the_table_counts_what_is_missing(tmp_path: Path) -> None:
    """Exit code 1; each original has a row, and the commonest lacks are summed up."""
    files = [{"filename": "gone", "sandbox_path": "/a"}]
    result = run("auto", foreign_sets.opencomputer(tmp_path / "set", env={"files": files}), tmp_path / "out")
    assert result.exit_code == 1
    assert "something missing" in result.output and "Missing most often: file gone (1)" in result.output
    assert set(LAYOUTS) < set(run("auto", tmp_path, tmp_path, "--help").output.split())
