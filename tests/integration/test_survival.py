"""A host agent is really killed under its clients: episodes go on where their replicas live, act once,
and are a typed loss where they do not. The replicas are fakes, each a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support import ROOT
from tests.support.fake_runtime import TASK
from tests.support.host_process import HostProcess, start_host, wait_until

from osgym_protocol.host_api import LEASE_HEADER
from osgym_protocol.records import Record, RecordDecoder, decode_record
from osgym_sdk import AsyncClient, AsyncEpisode, EpisodeEnded, EpisodeLost, ParentInfo, Timeouts

HOST = (sys.executable, "-m", "tests.support.fake_runtime_host")
PATIENT = Timeouts(retry_s=20.0)


class Life:
    """Host agents one after the other on one data directory and one port."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        self.data_dir = Path(tempfile.mkdtemp(prefix="osgym-"))  # short: unix sockets are in it
        self.instance = f"survive-{os.getpid()}"
        self.host: HostProcess | None = None
        self.port = 0

    def start(self, warm: int = 0) -> str:
        settings = ("ram_reserve_mib=0", "replica_ram_mib=64", "disk_reserve_mib=0", "trajectory=steps")
        self.host = start_host(
            self.instance,
            warm=warm,
            port=self.port,
            log_dir=self.tmp_path,
            settings=settings,
            data_dir=self.data_dir,
            command=HOST,
            cwd=ROOT,
            wait=False,
        )
        self.port = self.host.port
        return self.host.url

    def kill(self) -> None:
        assert self.host is not None
        self.host.process.kill()
        self.host.process.wait(10)

    def stop(self) -> None:
        assert self.host is not None
        assert self.host.stop() == 0, self.host.tail()

    @property
    def replicas(self) -> Path:
        return self.data_dir / "run" / self.instance / "replicas"

    @property
    def episodes(self) -> Path:
        return self.data_dir / "state" / self.instance / "episodes"

    async def guest(self, replica_id: str, path: str) -> dict[str, Any]:
        """Asks the guest of a replica past its host."""
        transport = httpx.AsyncHTTPTransport(uds=str(self.replicas / replica_id / "agent.sock"))
        async with httpx.AsyncClient(transport=transport, base_url="http://guest") as http:
            told: dict[str, Any] = (await http.get(path)).json()
            return told

    def forget_lines(self, episode_id: str, kept: int) -> None:
        """Leaves the first lines of a trajectory, as a kill does before the others were written."""
        path = self.data_dir / "trajectories" / episode_id / "steps.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        if kept and lines:
            path.write_text("".join(lines[:kept]))
        else:
            shutil.rmtree(path.parent, ignore_errors=True)

    @staticmethod
    async def trajectory(episode: AsyncEpisode) -> list[Record]:
        """The lines of an episode, after what was queued is written."""
        async with httpx.AsyncClient(base_url=episode.host) as http:
            answer = await http.get(f"/v1/episodes/{episode.episode_id}/trajectory")
            return RecordDecoder().feed(answer.content)

    def close(self) -> None:
        """Ends what is left, guests first."""
        if self.host is not None and self.host.process.poll() is None:
            self.host.stop()
        for noted in self.replicas.glob("*/vm.json"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(json.loads(noted.read_text())["pid"], signal.SIGKILL)
        shutil.rmtree(self.data_dir)


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    """Nothing runs yet; whatever runs in the end is ended."""
    made = Life(tmp_path)
    yield made
    made.close()


@pytest.fixture
async def client(life: Life) -> AsyncIterator[AsyncClient]:
    """A client of a host that runs, patient enough for a restart."""
    async with AsyncClient(life.start(), timeouts=PATIENT) as opened:
        yield opened
    life.stop()
    assert not list(life.replicas.glob("*"))
    assert [path.name for path in life.episodes.iterdir() if path.is_dir()] == []


@pytest.mark.parametrize("kept_lines", [0, 1])
async def test_an_episode_goes_on_under_the_next_host_agent(
    life: Life, client: AsyncClient, kept_lines: int
) -> None:
    """The same replica, lease and numbers; the task is scored once; the trajectory has no hole.

    Its lines are written behind the answers, so a kill may leave any of them out: each agent is killed with
    the last ones missing, and the next one adds them.
    """
    async with client.episode(TASK, max_steps=9, lease_ttl_s=30) as episode:
        await episode.step("click(1,1)")
        generation = episode.generation
        life.kill()
        life.forget_lines(episode.episode_id, kept_lines)
        life.start()
        obs = await episode.step("click(2,2)")
        assert (obs.step, obs.seq) == (2, 2)
        state = await life.guest(episode.replica_id, "/test/state")
        assert [a["x"] for a in state["acted"]] == [1, 2]
        assert state["commands"] == [["prepare"]]
        assert (await episode.evaluate()).reward == 1.0
        await life.trajectory(episode)  # what was queued is written now
        life.kill()
        life.forget_lines(episode.episode_id, kept_lines + 1)
        life.start()
        assert (await episode.evaluate()).reward == 1.0  # the same, not another check
        state = await life.guest(episode.replica_id, "/test/state")
        assert state["commands"] == [["prepare"], ["answer"]]
        async with httpx.AsyncClient(base_url=episode.host) as http:
            (row,) = (await http.get("/v1/replicas")).json()
            assert (row["generation"], row["episode_id"]) == (generation, episode.episode_id)
        kinds = [(line.meta["kind"], line.meta.get("seq")) for line in await life.trajectory(episode)]
        before = [("start", None), ("step", 1)][: kept_lines + 1]
        assert kinds == [*before, ("step", 2), ("evaluation", None)]


@pytest.mark.parametrize("finished", [True, False])
async def test_no_step_follows_a_check_under_the_next_host_agent(
    life: Life, client: AsyncClient, finished: bool
) -> None:
    """Killed after the check, or in its middle: the score is that of the end, and asking again gives it."""
    async with client.episode(TASK, lease_ttl_s=30) as episode:
        await episode.step("click(1,1)")
        if finished:
            assert (await episode.evaluate()).reward == 1.0
            with pytest.raises(EpisodeEnded):
                await episode.step("click(2,2)")
        else:
            await life.guest(episode.replica_id, "/test/hold-commands")
            check = asyncio.create_task(episode.evaluate())
            marker = life.episodes / episode.episode_id / "scoring"
            await asyncio.to_thread(wait_until, marker.exists, 5, "the check began")
        life.kill()
        if not finished:
            await life.guest(episode.replica_id, "/test/free-commands")
        life.start()
        async with httpx.AsyncClient(base_url=episode.host) as http:
            path = f"/v1/episodes/{episode.episode_id}"
            body = {"lease": episode.lease, "seq": 2, "actions": ["click(2,2)"]}
            refused = await http.post(f"{path}/step", json=body)
            assert (refused.status_code, refused.json()["code"]) == (409, "episode_ended")
            assert (await http.get(path)).json()["evaluated"] is True
        evaluation = await episode.evaluate() if finished else await check
        assert (evaluation.reward, evaluation.failure) == (1.0, None)
        with pytest.raises(EpisodeEnded):
            await episode.step("click(2,2)")
        state = await life.guest(episode.replica_id, "/test/state")
        assert [action["x"] for action in state["acted"]] == [1]


async def test_a_step_in_flight_acts_once(life: Life, client: AsyncClient) -> None:
    """The agent dies while the guest acts: the step is sent again by its number, and acts no second time."""
    async with client.episode(lease_ttl_s=30) as episode:
        await episode.step("click(1,1)")
        await life.guest(episode.replica_id, "/test/close-gate")
        step = asyncio.create_task(episode.step("click(2,2)"))
        progress = life.episodes / episode.episode_id / "progress.jsonl"
        await asyncio.to_thread(wait_until, lambda: b'"x":2' in progress.read_bytes(), 5, "accepted")
        await asyncio.sleep(0.2)
        life.kill()
        await life.guest(episode.replica_id, "/test/open-gate")
        life.start()
        obs = await step
        assert (obs.seq, obs.step, obs.meta.replayed) == (2, 2, True)
        assert (await episode.step("click(3,3)")).step == 3
        state = await life.guest(episode.replica_id, "/test/state")
        assert [a["x"] for a in state["acted"]] == [1, 2, 3]
        async with httpx.AsyncClient(base_url=episode.host) as http:
            answer = await http.get(f"/v1/episodes/{episode.episode_id}/trajectory")
            seqs = [line.meta.get("seq") for line in RecordDecoder().feed(answer.content)]
            assert seqs == [None, 1, 2, 3]


async def test_a_step_that_never_reached_the_guest_is_done_before_the_next(
    life: Life, client: AsyncClient
) -> None:
    """Killed between noting a step and sending it: whoever goes on gets it done first, once."""
    async with client.episode(lease_ttl_s=30) as episode:
        await episode.step("click(1,1)")
        life.kill()
        progress = life.episodes / episode.episode_id / "progress.jsonl"
        last = json.loads(progress.read_text().splitlines()[-1])
        noted = {**last, "seq": 2, "step": 2, "actions": [{"op": "click", "x": 2, "y": 2}]}
        with progress.open("a") as file:
            file.write(json.dumps(noted) + "\n" + '{"seq": 3, "st')
        url = life.start()
        async with httpx.AsyncClient(base_url=url) as http:
            path = f"/v1/episodes/{episode.episode_id}"
            assert (await http.get(path)).json()["last_seq"] == 2
            body = {"lease": episode.lease, "seq": 3, "actions": ["click(3,3)"]}
            answer = await http.post(f"{path}/step", json=body)
            assert decode_record(answer.content).meta["step"] == 3
        state = await life.guest(episode.replica_id, "/test/state")
        assert [a["x"] for a in state["acted"]] == [1, 2, 3]


async def test_a_repeated_create_finds_its_episode_after_a_restart(life: Life, client: AsyncClient) -> None:
    """Creates and forks whose answers were lost with the agent are not done twice."""
    url = client.hosts[0]
    async with httpx.AsyncClient(base_url=url, timeout=20) as http:
        create = {"request_id": "q", "task": TASK, "lease_ttl_s": 60}
        first = decode_record((await http.post("/v1/episodes", json=create)).content).meta
        fork = {"request_id": "f", "lease": first["lease"], "count": 2}
        path = f"/v1/episodes/{first['episode_id']}/fork"
        children = (await http.post(path, json=fork)).json()
    life.kill()
    life.start()
    async with httpx.AsyncClient(base_url=url, timeout=20) as http:
        again = decode_record((await http.post("/v1/episodes", json=create)).content).meta
        assert (again["episode_id"], again["lease"]) == (first["episode_id"], first["lease"])
        assert (await http.post(path, json=fork)).json() == children
        assert len((await http.get("/v1/replicas")).json()) == 3
        refused = await http.post("/v1/episodes", json={**create, "max_steps": 3})
        assert refused.status_code == 409
        for episode in (first, *children["children"]):
            headers = {LEASE_HEADER: episode["lease"]}
            await http.delete(f"/v1/episodes/{episode['episode_id']}", headers=headers)


async def test_a_lease_that_ran_out_meanwhile_is_lost_by_that_name(life: Life, client: AsyncClient) -> None:
    """So is an episode whose replica died; both replicas are cleared, clean ones are not lost by anybody."""
    async with client.episode(lease_ttl_s=600) as slept, client.episode(lease_ttl_s=600) as died:
        life.kill()
        long_ago = time.time() - 3600
        for path in (life.episodes / slept.episode_id).iterdir():
            os.utime(path, (long_ago, long_ago))
        noted = json.loads((life.replicas / died.replica_id / "vm.json").read_text())
        os.kill(noted["pid"], signal.SIGKILL)
        life.start()
        for episode in (slept, died):
            with pytest.raises(EpisodeLost) as caught:
                await episode.step("wait()")
            assert (caught.value.code, caught.value.cause) == ("episode_lost", "host_restarted")
            assert (await episode.evaluate()).termination_reason == "host_lost"
        assert not list(life.replicas.iterdir())


async def test_a_kept_checkpoint_and_a_childs_parent_survive(life: Life, client: AsyncClient) -> None:
    """kill -9 of the agent and of every replica: the checkpoint is restored; a child remembers."""
    async with client.episode(TASK, lease_ttl_s=60) as parent:
        await parent.step("click(1,1)")
        (child,) = await parent.fork()
        checkpoint = await parent.checkpoint(keep=True)
        life.kill()
        noted = json.loads((life.replicas / parent.replica_id / "vm.json").read_text())
        os.kill(noted["pid"], signal.SIGKILL)
        life.start()
        async with await client.restore(checkpoint) as restored:
            assert (await restored.step("click(5,5)")).step == 2
            assert (await restored.evaluate()).reward == 1.0
        async with httpx.AsyncClient(base_url=child.host) as http:
            state = (await http.get(f"/v1/episodes/{child.episode_id}")).json()
        assert ParentInfo.from_dict(state["parent"]) == ParentInfo(parent.episode_id, 1)
        assert (await child.step("click(6,6)")).step == 2
        await checkpoint.delete()
        await child.aclose()


async def test_after_an_orderly_stop_everything_is_over(life: Life) -> None:
    """SIGTERM ends the replicas; who comes back is told so, by id and by lease, and not `unknown`."""
    async with AsyncClient(life.start(), timeouts=PATIENT) as client:
        episode = client.episode(lease_ttl_s=60)
        await episode.start()
        life.stop()
        assert not list(life.replicas.glob("*"))
        url = life.start()
        async with httpx.AsyncClient(base_url=url) as http:
            body = {"leases": [episode.lease]}
            (lost,) = (await http.post("/v1/leases/renew", json=body)).json()["lost"]
            assert (lost["error"]["code"], lost["error"]["details"]["cause"]) == ("episode_lost", "shutdown")
        with pytest.raises(EpisodeLost) as caught:
            await episode.step("wait()")
        assert caught.value.cause == "shutdown"
    life.stop()


async def test_a_journal_that_is_broken_costs_its_episode_only(life: Life, client: AsyncClient) -> None:
    """Its replica is reaped, the other episode goes on."""
    async with client.episode(lease_ttl_s=60) as broken, client.episode(lease_ttl_s=60) as whole:
        life.kill()
        (life.episodes / broken.episode_id / "episode.json").write_text("{")
        shutil.copytree(life.episodes / whole.episode_id, life.episodes / "e-copy")
        life.start()
        assert (await whole.step("wait()")).step == 1
        with pytest.raises(EpisodeLost) as caught:
            await broken.step("wait()")
        assert caught.value.code == "unknown_episode"
        assert [path.name for path in life.replicas.iterdir()] == [whole.replica_id]
