"""Inspect evaluates on real desktops: its computer tool, its shell and files, our score."""

from __future__ import annotations

import base64
import io
import json
import math
import runpy
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.support.host_process import HostProcess
from tests.support.trainer_rig import NOTE, TASK, kill_leased

pytest.importorskip("inspect_ai", reason="missing: inspect_ai")

from inspect_ai import Task, eval
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.solver import solver
from inspect_ai.util import sandbox

from osgym_sdk import ConfigError
from osgym_sdk.integrations.inspect import (
    COMPUTER_TOOL,
    SIZE,
    DesktopSandbox,
    desktop_score,
    read_call,
    samples,
)

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(300)]

SCREEN = (1920, 1080)
ICON_SHOWN = (0, 143, 170, 228)
"""Where the desktop has an icon, as left, top, right, bottom of the image that the model sees."""
ICON = (0, 201, 239, 120)
"""The same as x, y, width, height in pixels of the screen."""
EXAMPLE = Path(__file__).parents[2] / "examples/trainers/inspect_eval.py"


def says(*calls: tuple[str, dict[str, Any]]) -> Any:
    """A model that makes these calls, one a turn."""
    outputs = [ModelOutput.for_tool_call("mockllm/model", name, arguments) for name, arguments in calls]
    outputs.append(ModelOutput.from_content("mockllm/model", "It is done."))
    for output in outputs:
        output.usage = ModelUsage()  # else it is counted with a vocabulary from the internet
    return get_model("mockllm/model", custom_outputs=outputs)


def test_an_agent_types_and_saves_and_is_scored(desks: HostProcess, tasks: str, tmp_path: Path) -> None:
    """The example, by a scripted model: through Inspect's own computer tool and shell."""
    desktops = runpy.run_path(str(EXAMPLE))["desktops"]
    model = says(
        ("computer", {"action": "screenshot"}),
        ("computer", {"action": "type", "text": f"{NOTE}\n"}),
        ("computer", {"action": "key", "text": "ctrl+s"}),
        ("computer", {"action": "cursor_position"}),
        ("computer", {"action": "left_click", "coordinate": [5000, 5000]}),
        ("bash", {"command": "cat ~/note.txt"}),
    )
    [log] = eval(desktops(tasks, desks.url), model=model, log_dir=str(tmp_path), display="none")
    assert log.status == "success", log.error
    [sample] = log.samples
    assert sample.error is None
    assert sample.scores["desktop_score"].value == 1.0
    answers = [message for message in sample.messages if message.role == "tool"]
    assert "image" in str(answers[0].content)[:200].lower()
    assert answers[4].error is not None and "Refused" in answers[4].error.message
    assert NOTE in answers[5].text


def test_a_zoom_shows_the_screens_own_pixels(desks: HostProcess, tasks: str, tmp_path: Path) -> None:
    """A zoom is cut from the screen itself, not from the smaller picture of the whole screen."""
    seen: dict[str, Any] = {}

    @solver
    def zoom() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            box = sandbox().as_type(DesktopSandbox)
            asked = ["zoom", "--region", *map(str, ICON_SHOWN)]
            done = await box.exec(["python3", COMPUTER_TOOL, *asked])
            seen["zoomed"] = _image(base64.b64decode(json.loads(done.stdout)["base64_image"]))
            whole = await box.desktop.wait(box.desktop.episode.zoom((0, 0, *SCREEN)))
            shown = box.desktop.observation
            assert shown is not None and shown.size == SIZE
            seen["whole"], seen["shown"] = whole.image, shown.image
            return state

        return solve

    [log] = eval(
        Task(dataset=samples(tasks), solver=zoom(), scorer=desktop_score()),
        model="mockllm/model", log_dir=str(tmp_path), display="none",
    )  # fmt: skip
    assert log.status == "success", log.error
    x, y, width, height = ICON
    size = (4 * width, 4 * height)
    assert seen["zoomed"].size == size
    assert seen["zoomed"].tobytes() == _scaled(seen["whole"], (x, y, x + width, y + height), size)
    assert seen["zoomed"].tobytes() != _scaled(seen["shown"], ICON_SHOWN, size)


def _image(png: bytes) -> Image.Image:
    return Image.open(io.BytesIO(png)).convert("RGB")


def _scaled(image: Image.Image, box: tuple[int, int, int, int], size: tuple[int, int]) -> bytes:
    return image.crop(box).resize(size, Image.Resampling.LANCZOS).tobytes()


def test_files_and_commands_of_the_sandbox(desks: HostProcess, tasks: str, tmp_path: Path) -> None:
    """What solvers and scorers of others use."""
    seen: dict[str, Any] = {}

    @solver
    def look() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            box = sandbox()
            await box.write_file("notes/a.txt", "ä\r\n")
            seen["text"] = await box.read_file("notes/a.txt")
            seen["ran"] = await box.exec(["sh", "-c", "cat; echo $X; exit 3"], input="in", env={"X": "y"})
            seen["none"] = await box.exec(["no-such-program"])
            for name, work in {
                "absent": box.read_file("nothing"),
                "folder": box.read_file("/etc"),
                "slow": box.exec(["sleep", "9"], timeout=1, timeout_retry=False),
                "user": box.exec(["true"], user="root"),
            }.items():
                try:
                    await work
                except Exception as exc:  # noqa: BLE001 - which one is what is looked at
                    seen[name] = type(exc).__name__
            return state

        return solve

    [log] = eval(
        Task(dataset=samples(tasks), solver=look(), scorer=desktop_score()),
        model="mockllm/model", log_dir=str(tmp_path), display="none",
    )  # fmt: skip
    assert log.status == "success", log.error
    assert seen["text"] == "ä\r\n"
    assert (seen["ran"].returncode, seen["ran"].stdout) == (3, "iny\n")
    assert not seen["none"].success
    expected = ["FileNotFoundError", "PermissionError", "SandboxTimeoutError", "SandboxUserUnsupportedError"]
    assert [seen[name] for name in ("absent", "folder", "slow", "user")] == expected
    assert log.samples[0].scores["desktop_score"].value == 0.0


def test_a_lost_desktop_is_unscored(desks: HostProcess, tasks: str, tmp_path: Path) -> None:
    """It is in no mean, and never 0."""

    @solver
    def lose() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            kill_leased(desks)
            return state

        return solve

    [log] = eval(
        Task(dataset=samples(tasks), solver=lose(), scorer=desktop_score()),
        model="mockllm/model", log_dir=str(tmp_path), display="none",
    )  # fmt: skip
    score = log.samples[0].scores["desktop_score"]
    assert math.isnan(score.value) and score.explanation


def test_a_model_may_say_that_it_cannot_be_done(desks: HostProcess, tmp_path: Path) -> None:
    """In its last words; for most tasks that is wrong, for this one it is right."""
    impossible = {**TASK, "config": [], "evaluator": {"func": "infeasible"}}
    for words, reward in (("There is no such program: [INFEASIBLE].", 1.0), ("It is done.", 0.0)):
        output = ModelOutput.from_content("mockllm/model", words)
        output.usage = ModelUsage()
        [log] = eval(
            Task(dataset=samples([impossible]), scorer=desktop_score()),
            model=get_model("mockllm/model", custom_outputs=[output]), log_dir=str(tmp_path), display="none",
        )  # fmt: skip
        assert log.samples[0].scores["desktop_score"].value == reward


def test_command_lines_of_the_computer_tool() -> None:
    """As Inspect makes them, and some that it does not."""
    assert read_call(["left_click", "--coordinate", "3", "4"]) == {
        "action": "left_click",
        "coordinate": [3, 4],
    }
    assert read_call(["type", "--text=--a b"]) == {"action": "type", "text": "--a b"}
    assert read_call(["wait", "--duration", "2"]) == {"action": "wait", "duration": 2}
    for wrong in ([], ["type", "text"], ["left_click", "--coordinate", "1"], ["wait", "--duration", "long"]):
        with pytest.raises(ConfigError):
            read_call(wrong)
