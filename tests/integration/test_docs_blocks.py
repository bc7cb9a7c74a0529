"""README.md, docs/agents.md, docs/reach.md: every block of Python and `osgym eval run` runs as it stands.

What a block leaves to its reader (an open client, a task, a policy) is put around it; addresses are ours.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.agent_runs import openai_click, openai_message
from tests.support.doc_examples import ROOT, blocks, run_block
from tests.support.fake_runtime import TASK, Served
from tests.support.fleet_files import write_fleet
from tests.support.host_process import HostProcess, osgym, running_host
from tests.support.model_api import KEY, Asked, ModelApi, serving_models

from osgym_host.images.errors import ImageError
from osgym_host.images.store import ImageStore, default_data_dir

README, AGENTS, REACH = (blocks(name) for name in ("README.md", "docs/agents.md", "docs/reach.md"))
MODELS = "http://127.0.0.1:8000/v1"
"""Where docs/agents.md has a server of models."""
CLICK = {"coordinate": [10, 20]}


def said(asked: Asked) -> Any:
    """Each provider's model clicks once, then it is done."""
    first, given = asked.number == 0, asked.body
    if "input" in given:
        return openai_click("c1") if first else openai_message("done")
    if "contents" in given:
        call = {"name": "click", "args": {"x": 500, "y": 500, "intent": "press it"}}
        return [{"functionCall": call, "thoughtSignature": "c2ln"}] if first else [{"text": "done"}]
    if "tools" in given:
        use = {
            "type": "tool_use",
            "id": "u1",
            "name": "left_click",
            "toolset_name": "computer",
            "input": CLICK,
        }
        return [use] if first else [{"type": "text", "text": "done"}]
    return "Thought: t\nAction: " + ("click(start_box='(9,9)')" if first else "finished(content='')")


@dataclass(frozen=True)
class Models:
    """All APIs of models, and where they are."""

    api: ModelApi
    url: str


@pytest.fixture
def models() -> Iterator[Models]:
    """They are served; `environment` leads to them."""
    api = ModelApi(said)
    with serving_models(api) as url:
        yield Models(api, url)


def environment(url: str, served: Served) -> dict[str, Any]:
    """What a user of the models sets."""
    return {
        "OSGYM_HOSTS": served.urls[0],
        "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{url}/v1",
        "ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": url,
        "GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": url,
    }  # fmt: skip


def tasks_in(folder: Path) -> None:
    """A folder `tasks` with a task below `mousepad`."""
    (folder / "tasks/mousepad").mkdir(parents=True)
    (folder / "tasks/mousepad/say-yes.json").write_text(json.dumps(TASK))


# README.md


@pytest.mark.desktop
def test_the_first_block_of_the_readme_runs_on_a_desktop(host: HostProcess, tmp_path: Path) -> None:
    """It saves a picture, types into the task's program, and prints a reward."""
    (tmp_path / "tasks").symlink_to(ROOT / "tasks")
    address = "http://127.0.0.1:20000"
    assert address in README[0]
    printed = run_block(README[0].replace(address, host.url), tmp_path, cwd=tmp_path)
    assert re.fullmatch(r"\w+ [\d.]+\n0\.0\n", printed), printed
    assert (tmp_path / "first.png").read_bytes().startswith(b"\x89PNG")


def test_the_readmes_branches_run(tmp_path: Path) -> None:
    """Children, a checkpoint, an episode from it; nothing stays leased."""
    code = f"""
import asyncio
from osgym_sdk import AsyncClient

async def main():
    async with AsyncClient() as client, client.episode() as episode:
{textwrap.indent(README[1], " " * 8)}
        print(len(children), again.episode_id != episode.episode_id)
        for one in (*children, again):
            await one.aclose()

asyncio.run(main())
"""
    with Served(tmp_path, warm=1, max_replicas=8) as served:
        assert run_block(code, tmp_path, OSGYM_HOSTS=served.urls[0]) == "4 True\n"
        assert served.agent is not None and served.agent.pool.view().leased == 0


def test_the_readmes_fleet_is_opened(tmp_path: Path) -> None:
    """By a fleet.json in the folder."""
    with Served(tmp_path, warm=1) as served:
        write_fleet(tmp_path / "fleet.json", [{"id": "a", "url": served.urls[0]}])
        code = README[2].replace(
            "    ...", "    with client.episode() as e:\n        print(e.step('wait()').step)"
        )
        assert code != README[2]
        run_block(f"from osgym_sdk import Client\n{README[2]}", tmp_path, cwd=tmp_path)
        assert run_block(f"from osgym_sdk import Client\n{code}", tmp_path, cwd=tmp_path) == "1\n"
    assert len(README) == 3


# docs/agents.md


@pytest.mark.parametrize("index", range(len(AGENTS)))
def test_each_agent_solves_a_task(index: int, models: Models, tmp_path: Path) -> None:
    """As the page makes it; the stand-in of its model's API refuses what the original does."""
    tasks_in(tmp_path)
    code = AGENTS[index].replace(MODELS, f"{models.url}/v1")
    if index > 0:  # only the first one runs its agent
        code += f"""
from osgym_sdk import Client
with Client() as client:
    for result in client.run([{TASK!r}], agent, max_steps=5):
        print(result.task_id, result.reward, result.failure)
"""
    with Served(tmp_path, warm=1) as served:
        printed = run_block(code, tmp_path, cwd=tmp_path, **environment(models.url, served))
    assert printed.startswith("say-yes 1.0"), printed
    assert len(models.api.requests) == 2


def test_every_line_of_osgym_eval_runs(models: Models, tmp_path: Path) -> None:
    """In the order of the page; the policy of one's own is a file beside the tasks."""
    (text,) = re.findall(
        r"## osgym eval run\n```\n(.*?)```", (ROOT / "docs/agents.md").read_text("utf-8"), re.DOTALL
    )
    lines = [shlex.split(line) for line in text.splitlines()]
    assert lines[0] == ["osgym", "host", "serve"] and len(lines) == 7
    tasks_in(tmp_path)
    (tmp_path / "my_policies.py").write_text(
        "def make(temperature):\n    assert temperature == 0.2\n    return lambda obs, task, step: None\n"
    )
    with Served(tmp_path, warm=2, max_replicas=10) as served:
        for number, words in enumerate(lines[1:]):
            given = [word.replace(MODELS, f"{models.url}/v1") for word in words[1:]]
            resumed = "--resume" in given
            out = tmp_path / "0" if resumed else tmp_path / str(number)
            done = osgym(*given, "--out", str(out), cwd=str(tmp_path), **environment(models.url, served))
            assert done.returncode == 0, (words, done.stdout + done.stderr)
            assert (out / "report.html").is_file()
            assert ("1.0" in done.stdout or "100" in done.stdout) or resumed, done.stdout


# docs/reach.md


@pytest.mark.desktop
@pytest.mark.parametrize("index", [0, 2])
def test_reaches_run_on_a_desktop(index: int, host: HostProcess, tmp_path: Path) -> None:
    """What is printed is what the page says a call gives; the verifier finds what a set-up wrote."""
    code = REACH[index]
    if index == 2:
        wrote = {"type": "execute", "parameters": {"command": ["sh", "-c", "echo milk > ~/note.txt"]}}
        tasks = [{**TASK, "config": [wrote]}, {**TASK, "id": "nothing", "config": []}]
        code += f"""
import asyncio

async def main():
    async with AsyncClient() as client:
        await train(client, {tasks!r}, lambda obs, task, step: None)

asyncio.run(main())
"""
    printed = run_block(code, tmp_path, OSGYM_HOSTS=host.url)
    if index == 0:
        lines = printed.splitlines()
        assert lines[0] == "0 42" and "False" in lines[1]
        assert "b'remember the milk'" in lines
    else:
        assert sorted(printed.splitlines()) == ["nothing 0.0 None", "say-yes 1.0 None"]
    assert len(REACH) == 3


@pytest.mark.desktop
@pytest.mark.full_image
def test_a_video_and_a_port_of_a_full_desktop(tmp_path: Path) -> None:
    """The browser that the page starts answers at the exposed port."""
    try:
        ImageStore(default_data_dir()).resolve("full")
    except ImageError:
        pytest.skip("missing: golden image 'full'")
    ask = "        print(await version(host, port))\n"
    code = f"""
import asyncio, json, urllib.request
{REACH[1]}{ask}

async def version(host, port):
    for _ in range(100):
        try:
            url = f"http://{{host}}:{{port}}/json/version"
            page = await asyncio.to_thread(urllib.request.urlopen, url, None, 5)
            return json.load(page)["Browser"]
        except OSError:
            await asyncio.sleep(0.2)

async def main():
    async with AsyncClient() as client:
        await look(client)

asyncio.run(main())
"""
    with running_host(
        f"docs-{os.getpid()}", image="full", warm=1, max_replicas=2, log_dir=tmp_path
    ) as running:
        printed = run_block(code, tmp_path, cwd=tmp_path, OSGYM_HOSTS=running.url)
    assert printed.startswith("Chrome/"), printed
    assert (tmp_path / "episode.mp4").read_bytes()[4:8] == b"ftyp"
