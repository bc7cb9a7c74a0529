"""Verifiers of other task sets in the confined evaluator: what they reach, what their failures mean."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from osgym_cli.task.imports.foreign_verifier import NO_VISION as STAND_INS
from osgym_host.tasks.evaluator.registry import MetricEnd
from osgym_host.tasks.sandbox import MetricFailed, MetricJob, MetricVerdict, Sandbox
from osgym_host.tasks.values import NamedFile, Value

REPORT = """
import json, os, tempfile, logging
logging.basicConfig(level=logging.INFO)

def verify(traj, env_info, task_info):
    copy = env_info.get("copy_from_env")
    temp = tempfile.NamedTemporaryFile(delete=False, suffix=".json")
    try:
        copy("/tmp/task_result.json", temp.name)
        with open(temp.name) as f:
            found = json.load(f)
    except Exception as e:
        return {"passed": False, "score": 0, "feedback": f"no result: {e}"}
    finally:
        os.unlink(temp.name)
    score = 50 * (found["title"] == task_info["metadata"]["title"]) + 50 * (found["count"] == 3)
    return {"passed": score >= 60, "score": score, "feedback": f"{score} points"}
"""


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A confined evaluator that can hold programs."""
    async with Sandbox() as value:
        if not {"namespaces", "seccomp"} <= set(await value.confinement()):
            pytest.skip("missing: user namespaces or seccomp, for verifiers")
        yield value


def job(folder: Path, source: str, files: dict[str, bytes], **rules: Any) -> MetricJob:
    """The job of a verifier over files of the desktop, by path."""
    given = []
    for number, (path, data) in enumerate(files.items()):
        (folder / str(number)).write_bytes(data)
        given.append(NamedFile(folder / str(number), path))
    result = Value(files=tuple(given), many=True) if given else Value(data={})
    options = rules.pop("options", {})
    expected = Value(data={"verifier": source, "function": "verify", **rules})
    return MetricJob("check_by_verifier", result, expected, options, cpu_s=3)


async def verdict(sandbox: Sandbox, folder: Path, source: str, **rules: Any) -> MetricVerdict:
    """The verdict of a verifier that is given no files."""
    return await sandbox.run(job(folder, source, cast("dict[str, bytes]", rules.pop("files", {})), **rules))


async def test_a_verifier_scores_copies(sandbox: Sandbox, tmp_path: Path) -> None:
    """By the usual interface, with partial credit; an error over the result is a wrong result."""
    passed_only = {"passed_only": True}
    cases: list[tuple[bytes | None, dict[str, Any], float, str]] = [
        (b'{"title": "Q3", "count": 3}', {}, 1.0, "100 points"),
        (b'{"title": "Q3", "count": 4}', {}, 0.5, "50 points"),
        (b'{"title": "Q3", "count": 4}', passed_only, 0.0, "50 points"),
        (b'{"title": "Q4", "count": 4}', {}, 0.0, "0 points"),
        (b"{", {}, 0.0, "no result"),
        (None, {}, 0.0, "no result"),
        (b"{}", {}, 0.0, "the verifier failed: KeyError"),
    ]
    task = {"metadata": {"title": "Q3"}}
    for result, options, score, note in cases:
        files = {} if result is None else {"/tmp/task_result.json": result}
        found = await verdict(sandbox, tmp_path, REPORT, files=files, options=options, task=task)
        assert found.score == score and note in found.note, (result, found)


async def test_the_shapes_of_a_function(sandbox: Sandbox, tmp_path: Path) -> None:
    """One to three parameters, by name or place; a helper module beside it."""
    helper = {"helper": "def right(data):\n    return data == b'x'\n"}
    for source in (
        "def verify(files, task):\n    return files['/a'] == b'x' and task['t'] == 1\n",
        "def verify(env_info, task):\n    return open(env_info['files']['/a']).read() == 'x'\n",
        "def verify(env):\n    env['copy_from_env']('/a', '/b/c')\n    return open('/b/c').read() == 'x'\n",
        "from helper import right\ndef verify(files):\n    return float(right(files['/a']))\n",
        "import sys; sys.path.insert(0, '/x')\ndef verify(traj, e, t, deep=True):\n    return t['t'] == 1\n",
    ):
        found = await verdict(sandbox, tmp_path, source, files={"/a": b"x"}, task={"t": 1}, modules=helper)
        assert (found.score, found.note) == (1.0, ""), source


async def test_a_verifier_reaches_nothing(sandbox: Sandbox, tmp_path: Path) -> None:
    """No file, network or process of the host; the attempt is an error of the verifier."""
    for attempt in (
        "open('/etc/hostname').read()",
        "__import__('socket').create_connection(('127.0.0.1', 80))",
        "os.fork()",
        "os.open('/', os.O_RDONLY)",
        "os.kill(os.getppid(), 9)",
        "os.execv('/bin/true', ['true'])",
        "__import__('subprocess').run(['true'])",
    ):
        source = f"import os\ndef verify(files, task):\n    {attempt}\n    return 1\n"
        found = await verdict(sandbox, tmp_path, source)
        assert found.score == 0 and found.note.startswith("the verifier failed"), (attempt, found)


async def test_a_broken_verifier_gives_no_reward(sandbox: Sandbox, tmp_path: Path) -> None:
    """Time and memory are bounded; what fails before a result is seen is the task's fault."""
    for source, end in (
        ("def verify(files):\n    while True: pass\n", MetricEnd.CPU_TIME),
        ("def verify(files):\n    return len(bytearray(1 << 33))\n", MetricEnd.OUT_OF_MEMORY),
        ("import os\ndef verify(files):\n    os._exit(0)\n", MetricEnd.CRASHED),
        ("def verify(files)", MetricEnd.EXPECTED),
        ("def other(files): return 1\n", MetricEnd.EXPECTED),
        ("import no_such_package\ndef verify(files): return 1\n", MetricEnd.EXPECTED),
        ("1 / 0\ndef verify(files): return 1\n", MetricEnd.EXPECTED),
        ("raise SystemExit\ndef verify(files): return 1\n", MetricEnd.EXPECTED),
    ):
        with pytest.raises(MetricFailed) as raised:
            await verdict(sandbox, tmp_path, source)
        assert raised.value.end is end, (source, raised.value)


async def test_a_verifier_may_ask_a_vision_model_in_vain(sandbox: Sandbox, tmp_path: Path) -> None:
    """The stand-ins of an import see nothing, so the other points of the verifier count."""
    source = (
        "from gym_anything.vlm import query_vlm, sample_trajectory_frames, get_final_screenshot\n"
        "def verify(traj, env_info, task_info):\n"
        "    seen = query_vlm(images=sample_trajectory_frames(traj, n=4), prompt='?')\n"
        "    assert get_final_screenshot(traj) is None and not seen.get('success')\n"
        "    return {'passed': True, 'score': 60}\n"
    )
    found = await verdict(sandbox, tmp_path, source, modules=dict(STAND_INS))
    assert found.score == 0.6, found
