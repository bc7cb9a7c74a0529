"""Imported tasks on real desktops: the right end earns 1, half of it half, nothing 0; answers are hidden."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support import foreign_sets
from tests.support.foreign_sets import LINE, REPORT

from osgym_cli.main import main
from osgym_sdk import AsyncClient, AsyncEpisode, Evaluation

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(300)]

SECRETS = r"{ find / -xdev \( -name check.sh -o -name gt -o -name '.uda_hidden' -o -name 'export_result.sh' "
SECRETS += r"-o -name 'verifier*' -path '*/tasks/*' -o -path '*/verifiers/*' \) 2>/dev/null; "
SECRETS += rf"grep -rls '{LINE}' /home /tmp /tmp_workspace /workspace; }} 2>/dev/null; true"
"""Lists what must not be in the desktop before the check: programs of checks, and files with the answer."""


def imported(make: Callable[[Path], Path], tmp_path: Path, count: int = 1) -> list[dict[str, Any]]:
    """Return the tasks that the command makes of a set."""
    (tmp_path / "set").mkdir()
    given = str(make(tmp_path / "set"))
    out = tmp_path / "out"
    result = CliRunner().invoke(
        main, ["task", "import", "auto", given, "--out", str(out), "--flavor", "small"]
    )
    files = sorted(out.rglob("*.json"))
    assert len(files) == count, result.output
    return [json.loads(path.read_bytes()) for path in files]


async def play(client: AsyncClient, task: dict[str, Any], text: str | None, path: str = REPORT) -> Evaluation:
    """Set a task up, look for secrets, write the text as an agent would, and score."""
    async with client.episode(task, strict_setup=True) as episode:
        await see_no_secret(episode)
        if text is not None:
            await episode.write_file(path, text)
        await episode.step({"op": "done"})
        return await episode.evaluate()


async def see_no_secret(episode: AsyncEpisode) -> None:
    """Assert that the desktop has neither the check nor the answer."""
    found = await episode.execute(["bash", "-c", SECRETS])
    assert found.stdout == ""


async def test_a_bundle_of_cua_gym(client: AsyncClient, tmp_path: Path) -> None:
    """Its set-up has run with its hidden files; its check brings the truth and gives partial credit."""
    (task,) = imported(foreign_sets.cua_gym, tmp_path)
    report = "/tmp_workspace/results/report.txt"
    async with client.episode(task, strict_setup=True) as episode:
        await see_no_secret(episode)
        seen = await episode.execute(
            ["bash", "-c", "cd /tmp_workspace && find . -type f | sort && cat seeded.txt"]
        )
        assert seen.stdout == "./context/apples.csv\n./seeded.txt\n./tool.sh\nseed\n"
        await episode.write_file(report, f"{LINE}\n")
        assert (await episode.execute(["bash", "-c", SECRETS])).stdout == f"{report}\n"
        await episode.step({"op": "done"})
        assert (await episode.evaluate()).reward == 1.0
    assert (await play(client, task, "42 pears\n", report)).reward == 0.5
    assert (await play(client, task, None)).reward == 0.0


async def test_a_task_of_gym_anything(client: AsyncClient, tmp_path: Path) -> None:
    """Its hooks run under its own user's name; its verifier scores on the host what its last hook exports."""
    (task,) = imported(foreign_sets.gym_anything, tmp_path)
    async with client.episode(task, strict_setup=True) as episode:
        await see_no_secret(episode)
        seen = await episode.execute(
            ["bash", "-c", "cat ~/input.txt; stat -c %U ~/input.txt ~/by-ga; ls /home/ga/"]
        )
        assert "40 + 2" in seen.stdout and "root" not in seen.stdout and "by-ga" in seen.stdout
        await episode.write_file(REPORT, f"{LINE}\n")
        await episode.step({"op": "done"})
        verdict = await episode.evaluate()
        assert verdict.reward == 1.0, verdict
    assert (await play(client, task, "42 pears\n")).reward == 0.5
    assert (await play(client, task, None)).reward == 0.0


async def test_a_task_of_opencomputer(client: AsyncClient, tmp_path: Path) -> None:
    """The share of its criteria that hold, by keys and by expressions."""
    (task,) = imported(foreign_sets.opencomputer, tmp_path)
    assert (await play(client, task, f"{LINE}\n")).reward == 1.0
    assert (await play(client, task, "42 pears\n")).reward == 0.75
    assert (await play(client, task, None)).reward == 0.0


@pytest.mark.parametrize("make", [foreign_sets.osworld, foreign_sets.rows])
async def test_task_files_of_our_format(
    make: Callable[[Path], Path], client: AsyncClient, tmp_path: Path
) -> None:
    """OSWorld's task, and rows of a trainer, work as before."""
    for task in imported(make, tmp_path, 1 if make is foreign_sets.osworld else 2):
        assert (await play(client, task, f"{LINE}\n")).reward == 1.0
        assert (await play(client, task, None)).reward == 0.0
