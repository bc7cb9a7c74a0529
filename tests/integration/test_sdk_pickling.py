"""Clients and environments go to worker processes, which step real desktops with them."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet_files import write_fleet
from tests.support.host_process import HostProcess

from osgym_sdk import AsyncClient, Client, Timeouts

QUICK = Timeouts(step_s=45.0)


@pytest.fixture(scope="module")
def worker() -> Iterator[ProcessPoolExecutor]:
    """A process that shares nothing with this one."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield pool


def step_with_client(client: Client) -> tuple[tuple[str, ...], float, int]:
    """Take one step with a client that came here."""
    with client, client.episode(max_steps=5) as episode:
        step = episode.step("click(100,200)").step
        return client.hosts, client._inner._config.timeouts.step_s, step


def step_with_async_client(client: AsyncClient) -> tuple[tuple[str, ...], float, int]:
    """Take one step with an asynchronous client that came here."""

    async def step() -> int:
        async with client, client.episode(max_steps=5) as episode:
            return (await episode.step("click(100,200)")).step

    return client.hosts, client._config.timeouts.step_s, asyncio.run(step())


def step_with_env(env: Any) -> tuple[tuple[int, ...], int]:
    """Take one step in an environment of Gymnasium that came here."""
    try:
        env.reset(seed=1)
        obs, _, _, _, info = env.step("click(100,200)")
        return obs.shape, int(info["step"])
    finally:
        env.close()


@pytest.mark.parametrize(
    ("kind", "step"), [(Client, step_with_client), (AsyncClient, step_with_async_client)]
)
def test_a_client_steps_in_another_process(
    host: HostProcess, worker: ProcessPoolExecutor, kind: type[Any], step: Callable[..., Any]
) -> None:
    """Its arguments go with it; what it has open stays here."""
    client = kind(host.url, timeouts=QUICK)
    try:
        assert worker.submit(step, client).result(120) == ((host.url,), QUICK.step_s, 1)
    finally:
        if kind is Client:
            client.close()


def test_an_environment_steps_in_another_process(host: HostProcess, worker: ProcessPoolExecutor) -> None:
    """As Gymnasium's own vector environments and Ray send them."""
    pytest.importorskip("gymnasium")
    from osgym_sdk.gym import DesktopEnv, DesktopVectorEnv

    env = DesktopEnv(hosts=host.url, action_form="text", size=(320, 180))
    try:
        assert worker.submit(step_with_env, env).result(120) == ((180, 320, 3), 1)
    finally:
        env.close()
    envs = DesktopVectorEnv(1, hosts=host.url, size=(320, 180), autoreset_mode="Disabled")
    try:
        copy = pickle.loads(pickle.dumps(envs))
        assert (copy.num_envs, copy.single_observation_space) == (1, envs.single_observation_space)
        copy.close()
    finally:
        envs.close()


def test_a_client_of_a_fleet_reads_its_file_again(tmp_path: Path) -> None:
    """The copy follows the fleet's file as the original does."""
    path = write_fleet(tmp_path / "fleet.json", [{"name": "one", "url": "http://10.0.0.5:20000"}])
    with Client.from_fleet(path, token="secret") as client:
        copy = pickle.loads(pickle.dumps(client))
        assert (copy.hosts, copy._inner._config.token) == (client.hosts, "secret")
        copy.close()
