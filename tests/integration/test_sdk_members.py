"""Hosts come and go while batches and single episodes run, by hand and by a file; over real HTTP servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_v1_host import FakeV1Host, Running, serving
from tests.support.waiting import stays, until

from osgym_infra.hosts import tls
from osgym_sdk import (
    AsyncClient,
    Client,
    ConfigError,
    EpisodeLost,
    HostPhase,
    HostUnreachable,
    OSGymError,
    Result,
    Timeouts,
)

pytestmark = pytest.mark.usefixtures("no_client_settings")

QUICK = Timeouts(connect_s=2.0, control_s=3.0, step_s=5.0, setup_s=5.0, evaluate_s=5.0, retry_s=1.0)
POLL_S = 0.1


@pytest.fixture
def two() -> Iterator[tuple[Running, Running]]:
    """Two hosts with two replicas each."""
    with serving(FakeV1Host(2)) as first, serving(FakeV1Host(2)) as second:
        yield first, second


async def slow_policy(obs: Any, task: Any, step: int) -> str:
    """Four steps with some thought before each."""
    await asyncio.sleep(0.05)
    return "click(1,1)" if step < 3 else "finish()"


def write_fleet(path: Path, *urls: str, **other: Any) -> None:
    """Replaces the file in one step, as `osgym fleet export --out` does."""
    hosts = [{"id": f"h{i}", "url": url} for i, url in enumerate(urls)]
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"schema_version": 1, "hosts": hosts, "ca": "", "token_secret": ""} | other))
    os.replace(new, path)


async def phases(client: AsyncClient) -> dict[str, HostPhase | None]:
    """Where each host stands, also those that left."""
    return {url: state.phase for url, state in (await client.host_states(gone=True)).items()}


async def run_through(
    client: AsyncClient, count: int, on_result: dict[int, Callable[[], Any]]
) -> list[Result]:
    """Runs a batch; after the n-th result it does what is to be done then."""
    done = []
    tasks = [{"id": f"t{i}"} for i in range(count)]
    async for result in client.run(tasks, slow_policy, concurrency=4, wait_s=20):
        done.append(result)
        if (act := on_result.get(len(done))) is not None:
            await act()
    return done


async def test_a_batch_uses_a_host_that_is_added_and_leaves_one_that_is_drained(
    two: tuple[Running, Running],
) -> None:
    """No task is lost or run twice, and the drained host is gone once its last episode is over."""
    first, second = two
    async with AsyncClient(first.url, timeouts=QUICK) as client:

        async def swap() -> None:
            assert await client.add_host(second.url, wait_s=5) is HostPhase.SERVING
            assert await client.add_host(second.url) is HostPhase.SERVING
            assert await client.remove_host(first.url) is HostPhase.DRAINING

        results = await run_through(client, 20, {4: swap})
        assert all(r.ok and r.attempts == 1 for r in results) and len(results) == 20
        assert await client.remove_host(first.url, wait_s=5) is HostPhase.GONE
        assert await phases(client) == {first.url: HostPhase.GONE, second.url: HostPhase.SERVING}
        assert client.hosts == (second.url,)
        assert (len(first.host.episodes) < 12, len(second.host.episodes) > 8) == (True, True)
        assert len(first.host.episodes) + len(second.host.episodes) == 20
    assert first.host.live() == second.host.live() == []


async def test_a_drained_host_keeps_its_episode_until_that_ends(two: tuple[Running, Running]) -> None:
    """Steps and leases go on there, new episodes begin elsewhere; taken back, it serves as before."""
    first, second = two
    async with AsyncClient(first.url, timeouts=QUICK) as client, client.episode(lease_ttl_s=1.5) as episode:
        assert await client.remove_host(first.url) is HostPhase.DRAINING
        with pytest.raises(HostUnreachable, match="no host is known"):
            await client.episode(wait_s=0).start()
        await client.add_host(second.url)
        async with client.episode(wait_s=5) as other:
            assert other.host == second.url
        await asyncio.sleep(2)  # more than the life of a lease that nobody renews
        assert (await episode.step("click(1,1)")).step == 1
        assert await phases(client) == {first.url: HostPhase.DRAINING, second.url: HostPhase.SERVING}
        assert await client.add_host(first.url) is HostPhase.SERVING
        await episode.aclose()
        await asyncio.sleep(0.5)  # it would be gone by now
        assert (await phases(client))[first.url] is HostPhase.SERVING


async def test_without_a_drain_episodes_end_and_their_tasks_run_elsewhere(
    two: tuple[Running, Running],
) -> None:
    """The single episode hears why, the batch tries again, and the host gets its replicas back."""
    first, second = two
    async with AsyncClient([first.url, second.url], timeouts=QUICK) as client:
        single = client.episode()
        await single.start()
        gone, stays = (first, second) if single.host == first.url else (second, first)
        waiting = asyncio.create_task(run_through(client, 8, {}))
        await until(lambda: len(gone.host.live()) == 2)
        assert await client.remove_host(gone.url, drain=False, wait_s=5) is HostPhase.GONE
        with pytest.raises(EpisodeLost) as caught:
            await single.step("click(1,1)")
        assert caught.value.cause == "host_removed"
        assert all(result.ok for result in await waiting)
        await until(lambda: not gone.host.live())
        assert {e.ended for e in gone.host.episodes.values()} <= {"closed", "undone", "done", None}
        with pytest.raises(ConfigError, match="not a host of this client"):
            await client.remove_host("http://127.0.0.1:1")
        await single.aclose()
    assert stays.host.live() == []


async def test_a_lease_that_arrives_after_its_host_was_dropped_is_given_back(
    two: tuple[Running, Running],
) -> None:
    """A create that was on its way does not bring the host back."""
    first, second = two
    first.host.create_delay_s = 0.7
    async with AsyncClient(first.url, timeouts=QUICK) as client:
        starting = asyncio.create_task(client.episode(wait_s=10).start())
        await until(lambda: first.host.episodes)
        await client.add_host(second.url, wait_s=5)
        await client.remove_host(first.url, drain=False)
        await starting
        assert len(second.host.live()) == 1
        await until(lambda: not first.host.live())
        await until(lambda: first.url not in client.hosts)


async def test_a_host_that_does_not_answer_holds_up_nobody(
    two: tuple[Running, Running], caplog: pytest.LogCaptureFixture
) -> None:
    """Also one that swallows what is sent: placement does not ask it, and it is named once."""
    first, _ = two

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    silent = await asyncio.start_server(swallow, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    patient = replace(QUICK, control_s=8)  # who waits for it waits as long
    async with silent, AsyncClient(first.url, timeouts=patient) as client:
        with caplog.at_level(logging.INFO, "osgym.sdk"):
            assert await client.add_host(url) is HostPhase.JOINING
            assert await client.add_host("http://127.0.0.1:9") is HostPhase.JOINING
            loop = asyncio.get_running_loop()
            started_s = loop.time()
            results = await run_through(client, 6, {})
            assert all(r.ok for r in results) and loop.time() - started_s < 7
            await until(lambda: caplog.text.count("not used until it accepts episodes") == 2, 20)
            await asyncio.sleep(3)  # several further attempts at the one that refuses
        assert caplog.text.count("http://127.0.0.1:9 was discovered, but is not used") == 1
        assert await client.remove_host("http://127.0.0.1:9", wait_s=5) is HostPhase.GONE


async def test_a_waiting_episode_gets_the_first_host_that_comes() -> None:
    """An empty fleet that may grow is waited for, within `wait_s`, and then said to be empty."""
    with serving(FakeV1Host(1)) as late:
        async with AsyncClient("http://127.0.0.1:9", timeouts=QUICK) as client:
            await client.add_host("http://127.0.0.1:11")
            await client.remove_host("http://127.0.0.1:9", wait_s=5)
            starting = asyncio.create_task(client.episode(wait_s=20).start())
            await stays(lambda: not starting.done(), 0.3)
            await client.add_host(late.url)
            await asyncio.wait_for(starting, 2)
            assert len(late.host.live()) == 1
            with pytest.raises(OSGymError, match=r"no replica|none of|127\.0\.0\.1:11"):
                await client.episode(wait_s=0.5).start()


def test_the_synchronous_client_adds_and_removes_too(two: tuple[Running, Running]) -> None:
    """From the caller's thread, while a batch of another thread runs or none does."""
    first, second = two
    with Client(first.url, timeouts=QUICK) as client:
        assert client.add_host(second.url, wait_s=5) is HostPhase.SERVING
        with client.episode() as episode:
            other = second.url if episode.host == first.url else first.url
            assert client.remove_host(other, wait_s=5) is HostPhase.GONE
            assert client.hosts == (episode.host,)
            states = client.host_states(gone=True)
            assert states[other].phase is HostPhase.GONE
            assert client.remove_host(episode.host, drain=False, wait_s=5) is HostPhase.GONE
            with pytest.raises(EpisodeLost):
                episode.step("click(1,1)")


async def test_a_file_that_is_rewritten_is_followed_and_a_broken_one_is_not(
    tmp_path: Path, two: tuple[Running, Running], caplog: pytest.LogCaptureFixture
) -> None:
    """Half a file, an empty one and one without hosts change nothing and are reported once."""
    first, second = two
    path = tmp_path / "fleet.json"
    write_fleet(path, first.url)
    async with AsyncClient.from_fleet(path, poll_s=POLL_S, timeouts=QUICK) as client:
        assert client.hosts == (first.url,)

        async def break_it() -> None:
            whole = path.read_text()
            path.write_text(whole[: len(whole) // 2])
            await until(lambda: "is ignored until" in caplog.text)
            path.unlink()
            await stays(lambda: client.hosts == (first.url,), 3 * POLL_S)
            path.write_text(json.dumps({"schema_version": 1, "hosts": []}))
            await stays(lambda: client.hosts == (first.url,), 3 * POLL_S)

        async def second_only() -> None:
            write_fleet(path, second.url)
            await until(lambda: second.url in client.hosts)

        results = await run_through(client, 24, {3: break_it, 6: second_only})
        assert len(results) == 24 and all(r.ok and r.attempts == 1 for r in results)
        assert caplog.text.count("the known hosts stay") == 1
        await until(lambda: client.hosts == (second.url,))
        assert second.host.episodes and (await phases(client))[first.url] is HostPhase.GONE
        await client.add_host(first.url, wait_s=5)  # by hand: the file does not take it away
        await client.remove_host(second.url, wait_s=5)  # by hand: the file does not bring it back
        write_fleet(path, second.url, note="written again")
        await stays(lambda: client.hosts == (first.url,), 5 * POLL_S)


@contextlib.contextmanager
def secure(
    ca: tls.Credential, folder: Path, name: str, token: str, port: int = 0, **options: Any
) -> Iterator[Running]:
    """A host whose certificate is of a name, not of its address."""
    pair = tls.issue(ca, [name], datetime.now(UTC))
    file = folder / f"{name}-{port}-{len(list(folder.iterdir()))}.pem"
    file.write_text(pair.certificate + pair.key)
    with serving(FakeV1Host(2, token), port, ssl_certfile=str(file), **options) as running:
        yield running
        end(running)


def end(running: Running) -> None:
    """Ends a server in order: connections with TLS are closed, not cut."""
    running.server.should_exit = True
    running.thread.join(10)


async def test_hosts_of_other_fleets_are_left_out_and_a_rotation_is_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another authority or another token: reported once, no token sent to a stranger, no episode there.

    When authority and token of the whole fleet change, the running client takes both from the file.
    """
    now = datetime.now(UTC)
    old, new = tls.make_ca("lab", now), tls.make_ca("lab", now)
    path, token = tmp_path / "fleet.json", tmp_path / "token"
    token.write_text("one")
    with (
        contextlib.ExitStack() as servers,  # ended after the client, so that its connections are closed
        secure(old, tmp_path, "lab", "one") as ours,
        secure(new, tmp_path, "lab", "one") as stranger,
        secure(old, tmp_path, "lab", "two") as closed,
    ):
        port = int(ours.url.rsplit(":", 1)[1])
        hosts = [{"id": u, "url": u, "server_name": "lab"} for u in (ours.url, stranger.url, closed.url)]
        given = {"ca": old.certificate, "token_secret": "file:token"}
        write_fleet(path, **given, hosts=hosts[:1])
        async with AsyncClient.from_fleet(path, poll_s=POLL_S, timeouts=QUICK) as client:
            async with client.episode(wait_s=5):
                write_fleet(path, **given, hosts=hosts)
                await until(lambda: len(client.hosts) == 3)
            results = await run_through(client, 8, {})
            assert len(results) == 8 and all(r.ok for r in results)
            assert stranger.host.calls == [] and not closed.host.episodes
            await until(lambda: caplog.text.count("not used until it accepts episodes") == 2)
            assert "certificate" in caplog.text.lower() and "token" in caplog.text
            for host in client._fleet.hosts:  # a server of this process leaves TLS connections unclosed
                await host.link.release()
            await asyncio.to_thread(end, ours)
            again = servers.enter_context(secure(new, tmp_path, "lab", "two", port=port))
            token.write_text("two")
            write_fleet(path, ca=new.certificate, token_secret="file:token", hosts=hosts[:1])
            async with client.episode(wait_s=20) as episode:
                assert (episode.host, len(again.host.live())) == (again.url, 1)
