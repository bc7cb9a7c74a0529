"""Small task sets in the layouts of other projects, made for tests: each asks for one line in one file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from osgym_cli.main import main

REPORT = "/home/user/report.txt"
LINE = "42 apples"


def write(root: Path, files: Mapping[str, str | bytes | dict[str, Any]]) -> Path:
    """Write files below a folder; objects as JSON. Scripts may be executed."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = json.dumps(content).encode() if isinstance(content, dict) else content
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        if name.endswith(".sh"):
            path.chmod(0o755)
    return root


CHECK_SH = f"""#!/usr/bin/env bash
set -euo pipefail
got=$(cat /tmp_workspace/results/report.txt 2>/dev/null || true)
want=$(cat /tmp_workspace/gt/answer.txt)
first=0; whole=0
[ "${{got%% *}}" = "${{want%% *}}" ] && first=1
[ "$got" = "$want" ] && whole=1
echo "comparing with {LINE.split()[1]}"
score=$(awk "BEGIN {{print ($first + $whole) / 2}}")
echo "{{\\"overall_score\\": $score, \\"subscores\\": {{}}, \\"errors\\": []}}"
"""
SETUP_SH = """#!/usr/bin/env bash
set -euo pipefail
mkdir -p /tmp_workspace/results
cp /tmp_workspace/.uda_hidden/seed.txt /tmp_workspace/seeded.txt
test -x /tmp_workspace/tool.sh
"""


def cua_gym(root: Path) -> Path:
    """A set of CUA-Gym with one bundle."""
    return write(
        root,
        {
            "count_apples/meta.json": {"id": "count_apples", "driver": "uda-gym", "timeout_seconds": 1800},
            "count_apples/instruction.md": "Write how many apples there are into results/report.txt.\n",
            "count_apples/exec/context/apples.csv": "apples\n40\n2\n",
            "count_apples/exec/tool.sh": "#!/bin/sh\n",
            "count_apples/hidden/seed.txt": "seed\n",
            "count_apples/setup.sh": SETUP_SH,
            "count_apples/gt/answer.txt": f"{LINE}\n",
            "count_apples/gt/picture.bin": b"\xff\0\xfe",
            "count_apples/check.sh": CHECK_SH,
        },
    )


VERIFIER = """
import json
import tempfile
from helpers import points

def verify_report(traj, env_info, task_info):
    copy_from_env = env_info.get("copy_from_env")
    temp = tempfile.NamedTemporaryFile(delete=False, suffix=".json")
    try:
        copy_from_env("/tmp/task_result.json", temp.name)
        with open(temp.name) as file:
            result = json.load(file)
    except Exception as error:
        return {"passed": False, "score": 0, "feedback": f"no result: {error}"}
    score = points(result["line"], task_info["metadata"]["expected"])
    return {"passed": score == 100, "score": score, "feedback": f"{score} of 100"}
"""
HELPERS = """
def points(got, want):
    return 50 * (got.split(" ")[0] == want.split(" ")[0]) + 50 * (got == want)
"""
EXPORT_SH = f"""#!/bin/bash
line=$(cat {REPORT} 2>/dev/null)
printf '{{"line": "%s"}}' "$line" > /tmp/task_result.json
"""


def gym_anything(root: Path, reward_type: str = "dense") -> Path:
    """A set of Gym-Anything with one environment and one task."""
    return write(
        root,
        {
            "fruit_env/env.json": {
                "id": "fruit_env@0.1",
                "mounts": [
                    {"source": "x/fruit_env/scripts", "target": "/workspace/scripts", "mode": "ro"},
                    {"source": "x/fruit_env/tasks", "target": "/workspace/tasks", "mode": "ro"},
                ],
                "user_accounts": [{"name": "ga"}],
            },
            "fruit_env/scripts/utils.sh": "prepare() { echo 'apples: 40 + 2' > /home/ga/input.txt; }\n",
            "fruit_env/tasks/helpers.py": HELPERS,
            "fruit_env/tasks/count/task.json": {
                "id": "count@1",
                "description": f"Write how many apples there are into {REPORT}.",
                "init": {"reward_type": reward_type},
                "hooks": {
                    "pre_task": "/workspace/tasks/count/setup_task.sh",
                    "post_task": "/workspace/tasks/count/export_result.sh",
                },
                "metadata": {"expected": LINE, "output": REPORT},
                "success": {"mode": "program", "spec": {"program": "verifier.py::verify_report"}},
            },
            "fruit_env/tasks/count/setup_task.sh": "#!/bin/bash\n. /workspace/scripts/utils.sh\nprepare\n"
            "chown ga:ga /home/ga/input.txt\nsu - ga -c 'touch ~/by-ga'\n",
            "fruit_env/tasks/count/export_result.sh": EXPORT_SH,
            "fruit_env/tasks/count/verifier.py": VERIFIER,
        },
    )


PROGRAM = """
import json, pathlib, sys
command, path = sys.argv[1:3]
file = pathlib.Path(path)
if command == "exists":
    print(json.dumps({"exists": file.exists()}))
else:
    lines = file.read_text().splitlines() if file.exists() else []
    print(json.dumps({"lines": lines, "count": len(lines)}))
"""


def opencomputer(root: Path, **changes: Any) -> Path:
    """A set of OpenComputer with one task of three criteria."""
    task: dict[str, Any] = {
        "id": "mousepad_count",
        "app": "mousepad",
        "task": f"Write how many apples there are into {REPORT}.",
        "env": {"files": [{"filename": "apples.txt", "sandbox_path": "/home/user/apples.txt"}]},
        "verification": [
            {
                "command": f"exists {REPORT}",
                "key": "exists",
                "expected": True,
                "description": "There is a report",
            },
            {
                "command": f"read {REPORT}",
                "eval": "result['count'] == 1 and result['lines'][0].startswith('42 ')",
            },
            {"command": f"read '{REPORT}'", "key": "lines", "expected": [LINE]},
            {"command": f"exists {REPORT}", "eval": "not result.get('error') and result['exists']"},
        ],
    }
    return write(
        root,
        {
            "tasks/mousepad_count/task.json": {**task, **changes},
            "tasks/mousepad_count/env/apples.txt": "40\n2\n",
            "verifiers/mousepad/mousepad.py": PROGRAM,
        },
    )


def own_task(name: str = "own-report") -> dict[str, Any]:
    """A task of ours, as rows of data sets carry it."""
    return {
        "id": name,
        "instruction": f"Write how many apples there are into {REPORT}.",
        "config": [
            {
                "type": "upload_file",
                "parameters": {"files": [{"path": "/home/user/a.txt", "text": "40 + 2\n"}]},
            }
        ],
        "evaluator": {
            "func": "check_text_lines",
            "result": {"type": "vm_file", "path": REPORT, "dest": "report.txt"},
            "expected": {"type": "rule", "rules": {"lines": [LINE]}},
        },
        "osgym": {"flavor": "small", "apps": []},
    }


def osworld(root: Path) -> Path:
    """A folder of OSWorld's form with one task, whose file lies beside it, and what is no task."""
    task = own_task("7f3a-osworld")
    task["config"] = [
        {
            "type": "upload_file",
            "parameters": {"files": [{"path": "/home/user/a.txt", "local_path": "a.txt"}]},
        }
    ]
    del task["osgym"]
    return write(
        root,
        {
            "examples/mousepad/7f3a-osworld.json": {**task, "source": "https://example.org/question"},
            "examples/mousepad/7f3a-osworld.oracle.json": {"oracle": []},
            "examples/mousepad/a.txt": "40 + 2\n",
            "test_all.json": {"mousepad": ["7f3a-osworld"]},
        },
    )


def rows(root: Path) -> Path:
    """A file of rows as `osgym_sdk.integrations` makes them."""
    prompt = [{"role": "user", "content": "Count the apples."}]
    bare = {key: value for key, value in own_task("bare").items() if key != "instruction"}
    lines = [
        {"prompt": prompt, "task": json.dumps(own_task())},
        {"prompt": prompt, "info": {"task": bare}},
        {"prompt": "What is 40 + 2?", "answer": "42"},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return write(root, {"train.jsonl": text}) / "train.jsonl"


SETS: dict[str, Callable[[Path], Path]] = {
    "osworld": osworld,
    "cua-gym": cua_gym,
    "gym-anything": gym_anything,
    "opencomputer": opencomputer,
    "rows": lambda root: rows(root).parent,
}


def run(layout: str, source: Path, out: Path, *more: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(main, ["task", "import", layout, str(source), "--out", str(out), *more])


def report(layout: str, source: Path, out: Path, *more: str) -> dict[str, Any]:
    """Run the command and return its report."""
    result = run(layout, source, out, "--json", *more)
    assert result.exit_code in {0, 1}, result.output
    found: dict[str, Any] = json.loads(result.output)
    return found


def tasks(out: Path) -> list[dict[str, Any]]:
    """Return the task files that were written."""
    return [json.loads(path.read_bytes()) for path in sorted(out.rglob("*.json"))]
