"""Runs that clients name: what the host says of each, and what keeps the name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_runtime import Served

from osgym_host.episodes.episode_state import SavedEpisode
from osgym_host.episodes.runs import summary
from osgym_protocol.codec import WireFormatError
from osgym_sdk import AsyncClient, ConfigError


def task(name: str) -> dict[str, Any]:
    """A task whose right end is to say that it cannot be done."""
    return {"id": name, "instruction": "Look.", "config": [], "evaluator": {"func": "infeasible"}}


async def asked(client: AsyncClient, path: str) -> Any:
    """The answer of the only host."""
    reply = await client.ask_host(client.hosts[0], path)
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


async def test_a_run_is_counted_as_it_goes(tmp_path: Path) -> None:
    """Episodes, rewards and failures by the name; others are not of it, and the name is in the trajectory."""

    async def policy(obs: Any, task: dict[str, Any], step: int) -> dict[str, Any]:
        return {"op": "fail"} if task["id"] == "right" else {"op": "done"}

    with Served(tmp_path, warm=2, max_replicas=4) as served:
        async with AsyncClient(served.urls[0]) as client:
            async for _ in client.run([task("right"), task("wrong"), task("right")], policy, run="grpo-7"):
                pass
            async with client.episode(task("other")), client.episode(task("last"), run="a/b c") as last:
                first, second = await asked(client, "/v1/runs")
                assert (first["run"], first["active"], first["scored"]) == ("a/b c", 1, 0)
                (living,) = await asked(client, "/v1/runs/episodes?run=a%2Fb%20c")
                assert (living["episode_id"], living["ended_at"]) == (last.episode_id, None)
            assert second["run"] == "grpo-7"
            names = ("episodes", "tasks", "scored", "solved", "lost", "active")
            counted = {name: second[name] for name in names}
            assert counted == {"episodes": 3, "tasks": 2, "scored": 3, "solved": 2, "lost": 0, "active": 0}
            assert second["mean_reward"] == pytest.approx(2 / 3, abs=1e-3)
            rows = await asked(client, "/v1/runs/episodes?run=grpo-7&limit=2")
            assert len(rows) == 2
            assert all(row["ended_at"] and row["steps"] == 1 for row in rows)
            assert await asked(client, "/v1/runs/episodes?run=none") == []
            lines = await asked(client, f"/v1/episodes/{rows[0]['episode_id']}/lines")
            assert lines["lines"][0]["run"] == "grpo-7"
            listed = await asked(client, "/v1/episodes")
            assert {row["run"] for row in listed} == {"grpo-7", "a/b c", None}


async def test_a_branch_keeps_the_run_and_a_start_is_no_attempt(tmp_path: Path) -> None:
    """What is only set up, so that members of a group begin there, is not counted."""

    async def policy(obs: Any, task: dict[str, Any], step: int) -> dict[str, Any]:
        return {"op": "fail"}

    with Served(tmp_path, warm=2, max_replicas=8) as served:
        async with AsyncClient(served.urls[0]) as client:
            async for group in client.rollouts([task("t")], policy, group=3, run="g", progress=False):
                assert group.branched
            (run,) = await asked(client, "/v1/runs")
            assert (run["episodes"], run["solved"]) == (3, 3)


async def test_a_name_is_a_short_text(tmp_path: Path) -> None:
    """Refused here, and by the host."""
    with Served(tmp_path, warm=1, max_replicas=1) as served:
        async with AsyncClient(served.urls[0]) as client:
            for wrong in ("", "x" * 129, 7):
                with pytest.raises(ConfigError, match="run"):
                    client.episode(run=wrong)  # type: ignore[arg-type]
            body = b'{"request_id": "r", "run": ""}'
            reply = await client.ask_host(client.hosts[0], "/v1/episodes", method="POST", content=body)
            assert reply.status == 422
            assert b"run" in reply.body
            with pytest.raises(ConfigError, match="not a host of this client"):
                await client.ask_host("http://127.0.0.1:1", "/v1/host")


def test_a_saved_episode_keeps_its_run() -> None:
    """Through a restart of the host agent and in checkpoints; a name of another form is refused."""
    saved = SavedEpisode(None, (10, 10), 5.0, None, None, None, run="grpo-7")
    assert SavedEpisode.from_dict(saved.to_dict()).run == "grpo-7"
    before = {name: value for name, value in saved.to_dict().items() if name != "run"}
    assert SavedEpisode.from_dict(before).run is None
    with pytest.raises(WireFormatError, match="run"):
        SavedEpisode.from_dict({**saved.to_dict(), "run": 7})


def test_a_summary_of_nothing_scored() -> None:
    """No reward is None, never 0."""
    row = {
        "task_id": "t",
        "ended_at": 5.0,
        "began_at": 1.0,
        "steps": 2,
        "reward": None,
        "error": "evaluator_error",
    }
    found = summary("r", [row, {**row, "ended_at": None, "error": None}])
    assert (found["mean_reward"], found["scored"], found["lost"], found["active"]) == (None, 0, 1, 1)
    assert (found["began_at"], found["last_at"], found["steps"]) == (1.0, 5.0, 4)
