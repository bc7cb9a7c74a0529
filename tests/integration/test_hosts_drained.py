"""A host is held drained for an update, and let go whatever happens: a real host agent over fake replicas."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from tests.support import ROOT
from tests.support.host_process import HostProcess, start_host, wait_until

from osgym_infra.hosts import hold_drained
from osgym_infra.links.local import LocalLink
from osgym_sdk import AsyncClient, EpisodeLost

HOST = (sys.executable, "-m", "tests.support.fake_runtime_host")
DRAINED = f"osgym: {hold_drained.DRAINED}"
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[HostProcess]:
    """A host agent that serves."""
    data_dir = Path(tempfile.mkdtemp(prefix="osgym-"))
    settings = ("ram_reserve_mib=0", "replica_ram_mib=64", "disk_reserve_mib=0")
    started = start_host(
        f"drained-{os.getpid()}", warm=2, log_dir=tmp_path, settings=settings, data_dir=data_dir,
        command=HOST, cwd=ROOT,
    )  # fmt: skip
    try:
        yield started
    finally:
        started.stop()
        shutil.rmtree(data_dir)


@pytest.fixture
async def client(host: HostProcess) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(host.url) as opened:
        yield opened


class Hold:
    """What holds the host, as a worker runs it."""

    def __init__(self, host: HostProcess, folder: Path, deadline_s: float, most_s: float = 60.0) -> None:
        (folder / "agent.yaml").write_text(f"host: 127.0.0.1\nports: [{host.port}]\n")
        (folder / "secret.env").write_text("OSGYM_TOKEN=of-no-meaning-here\n")
        self.lines: list[str] = []
        argv = ["python3", hold_drained.__file__, "--etc", str(folder)]
        argv += ["--deadline-s", str(deadline_s), "--most-s", str(most_s)]
        run = LocalLink(root=False).run(argv, timeout_s=100, on_output=self.lines.append)
        self.task = asyncio.create_task(run)

    async def says(self, line: str) -> None:
        """Waits for a line."""
        await asyncio.to_thread(wait_until, lambda: any(line in one for one in self.lines), 30, line)

    async def end(self) -> None:
        """As the worker does when the update is over, or was interrupted."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def drains(host: HostProcess) -> bool:
    """What strangers are told."""
    return bool(httpx.get(f"{host.url}/v1/health").json()["draining"])


async def test_it_waits_for_episodes_and_lets_go(
    host: HostProcess, client: AsyncClient, tmp_path: Path
) -> None:
    """An episode goes on and hears of it; when it is over the host is empty; let go, it serves again."""
    episode = client.episode()
    await episode.start()
    hold = Hold(host, tmp_path, deadline_s=60)
    await hold.says("draining: 1 episodes, for at most")
    await episode.step([{"op": "wait", "duration_ms": 1}])
    assert episode.notice is not None
    assert episode.notice.kind == "operator"
    assert DRAINED not in hold.lines
    await episode.aclose()
    await hold.says(DRAINED)
    assert drains(host)
    await hold.end()
    assert not drains(host)
    async with client.episode() as another:
        assert another.episode_id


async def test_at_the_deadline_what_is_open_ends_by_name(
    host: HostProcess, client: AsyncClient, tmp_path: Path
) -> None:
    """Lost with the cause, never a reward of 0."""
    episode = client.episode()
    await episode.start()
    hold = Hold(host, tmp_path, deadline_s=1)
    await hold.says(DRAINED)
    with pytest.raises(EpisodeLost) as lost:
        await episode.step([{"op": "wait", "duration_ms": 1}])
    assert lost.value.cause == "host_going"
    assert (await episode.evaluate()).reward is None
    await hold.end()
    assert not drains(host)


@pytest.mark.parametrize("when", ["while it drains", "when it is drained"])
async def test_a_host_is_let_go_when_we_are_killed(
    host: HostProcess, client: AsyncClient, tmp_path: Path, when: str
) -> None:
    """Nobody is left to take it back but the process on the host."""
    episode = client.episode()
    await episode.start()
    (tmp_path / "agent.yaml").write_text(f"ports: [{host.port}]\n")
    (tmp_path / "secret.env").write_text("OSGYM_TOKEN=of-no-meaning-here\n")
    script = (
        "import asyncio, sys\nfrom osgym_infra.links.local import LocalLink\n"
        "say = lambda line: print(line, flush=True)\n"
        "asyncio.run(LocalLink(root=False).run(sys.argv[1:], timeout_s=100, on_output=say))"
    )
    argv = [sys.executable, "-c", script, "python3", hold_drained.__file__, "--etc", str(tmp_path)]
    argv += ["--deadline-s", "60", "--most-s", "60"]
    worker = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220 (returns at once)
    assert worker.stdout is not None
    with worker.stdout:
        assert "draining: 1" in worker.stdout.readline()
        if when == "when it is drained":
            await episode.aclose()
            assert (await asyncio.to_thread(worker.stdout.readline)).strip() == DRAINED
        assert drains(host)
        worker.send_signal(signal.SIGKILL)
        worker.wait(10)
    await asyncio.to_thread(wait_until, lambda: not drains(host), 20, "the host serves again")
    if when == "while it drains":
        await episode.step([{"op": "wait", "duration_ms": 1}])
        await episode.aclose()


async def test_it_lets_go_by_itself_in_the_end(host: HostProcess, tmp_path: Path) -> None:
    """A connection that nobody closes holds no host for ever."""
    hold = Hold(host, tmp_path, deadline_s=60, most_s=1)
    await hold.says(DRAINED)
    await asyncio.wait_for(hold.task, 20)
    assert not drains(host)


async def test_what_somebody_drained_by_hand_stays_so(host: HostProcess, tmp_path: Path) -> None:
    """It is not ours to take back."""
    async with httpx.AsyncClient(base_url=host.url) as http:
        (await http.post("/v1/drain", json={"deadline_s": None})).raise_for_status()
    hold = Hold(host, tmp_path, deadline_s=60)
    await hold.says(DRAINED)
    await hold.end()
    assert drains(host)


async def test_an_agent_that_does_not_answer_is_not_waited_for(host: HostProcess, tmp_path: Path) -> None:
    """The update shall put it right; what it could not be asked is said."""
    host.stop()
    hold = Hold(host, tmp_path, deadline_s=60)
    await hold.says(DRAINED)
    assert "warning: the host cannot be drained, so its episodes end now" in hold.lines[0]
    await hold.end()
