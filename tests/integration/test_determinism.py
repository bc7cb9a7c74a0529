"""The benchmark of same actions, same frames, on two real desktops."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.determinism.__main__ import Frames, arguments, run_flow
from benchmarks.determinism.flows import all_flows

from osgym_sdk import AsyncClient

pytestmark = pytest.mark.desktop


async def test_two_desktops_show_the_same_and_differences_are_named(
    client: AsyncClient, tmp_path: Path
) -> None:
    """A terminal is the same to the pixel; one that is asked for its random names is not, in one place."""
    args = arguments(
        ["--replicas", "2", "--clock", "2026-01-01T09:00", "--frozen", "--pictures", str(tmp_path)]
    )
    flows = {flow.name: flow for flow in all_flows("small", ("flow/terminal",))}
    frames = Frames(tmp_path)
    same = await run_flow(client, flows["flow/terminal"], "local", args, frames)
    assert same["failures"] == []
    assert same["identical"] == 1.0, same["differences"]
    assert len(same["by_step"]) == 1 + len(flows["flow/terminal"].steps)

    own = await run_flow(client, flows["flow/terminal-of-its-own"], "local", args, frames)
    assert own["identical"] < 1.0
    assert {found["cause"].split(":")[0] for found in own["differences"]} == {"what the replica is"}
    assert (tmp_path / own["differences"][0]["picture"]).is_file()
