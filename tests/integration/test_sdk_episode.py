"""Episodes over a real HTTP server that speaks host API v1, and misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.responses import JSONResponse
from tests.support import fake_v1_host
from tests.support.fake_v1_host import FakeV1Host, Running, serving
from tests.support.waiting import until

from osgym_sdk import (
    AsyncClient,
    AuthError,
    ConfigError,
    Done,
    EpisodeEnded,
    EpisodeLost,
    HostState,
    HostUnreachable,
    InvalidAction,
    Limits,
    NoCapacity,
    OSGymError,
    ProtocolError,
    SetupFailed,
    StaleObservation,
    Timeout,
    Timeouts,
)
from osgym_sdk.wire import StepAnswer

QUICK = Timeouts(connect_s=2.0, control_s=3.0, step_s=5.0, setup_s=5.0, evaluate_s=5.0, retry_s=1.0)


@pytest.fixture
def running() -> Iterator[Running]:
    """A host with four replicas."""
    with serving(FakeV1Host()) as started:
        yield started


async def test_an_episode_from_lease_to_score(running: Running) -> None:
    """The whole way: first frame, steps, evaluation, trajectory, and the replica given back."""
    host = running.host
    async with AsyncClient(running.url) as client:
        async with client.episode({"id": "t1"}, keep_frames=True, max_steps=9) as episode:
            assert episode.observation.image.size == fake_v1_host.SCREEN
            obs = await episode.step("click(1,2)")
            obs = await episode.step([{"op": "key", "keys": ["a"]}, "type(é)"])
            assert obs.image.getpixel((0, 0)) == (2, 10, 20)
            assert obs.step == obs.seq == 2
            assert obs.settle is not None and obs.settle.reason.value == "quiet"
            assert obs.timing is not None and obs.timing.settle_ms == 3.0
            assert obs.previous is not None and obs.previous.seq == 1
            evaluation = await episode.evaluate()
            assert (evaluation.reward, evaluation.valid_for_training) == (1.0, True)
            [seen] = host.live()
            assert seen.acted == ["click(1,2)", {"op": "key", "keys": ["a"]}, "type(é)"]
            assert seen.request.max_steps == 9
        assert host.live() == []
    trajectory = episode.trajectory
    assert trajectory.task_id == "t1"
    assert [s.step for s in trajectory.steps] == [1, 2]
    assert trajectory.steps[0].final is False and trajectory.steps[0].changed_after_ms == 40.0
    assert trajectory.steps[1].final is None, "nobody looked after it"
    assert trajectory.frames_not_final == 1
    assert trajectory.steps[1].data == fake_v1_host.frame(2) and trajectory.first_data == fake_v1_host.frame(
        0
    )
    assert trajectory.evaluation is evaluation
    assert trajectory.reset_ms["client"] >= 0


@pytest.mark.parametrize(
    "fault", [fake_v1_host.drop_after, fake_v1_host.drop_before, fake_v1_host.truncated, fake_v1_host.garbage]
)
async def test_a_broken_answer_is_asked_for_again_and_acts_once(
    running: Running, fault: fake_v1_host.Fault
) -> None:
    """Whatever breaks on the way, the step is done exactly once and its answer arrives."""
    async with AsyncClient(running.url, timeouts=QUICK) as client, client.episode() as episode:
        await episode.step("first")
        running.host.faults.append(("/step", fault))
        obs = await episode.step("second")
        assert obs.step == 2
        assert running.host.live()[0].acted == ["first", "second"]
        assert running.host.faults == type(running.host.faults)()


async def test_an_answer_that_stays_broken_is_a_protocol_error(running: Running) -> None:
    """Retries end; the error says that the host does not speak v1."""
    async with AsyncClient(running.url, timeouts=QUICK) as client, client.episode() as episode:
        running.host.faults.extend([("/step", fake_v1_host.garbage)] * 50)
        with pytest.raises(ProtocolError):
            await episode.step("x")
        running.host.faults.clear()
        obs = await episode.step("y")
        assert (obs.step, running.host.live()[0].acted) == (1, ["y"])


async def test_a_step_past_its_deadline_is_cleared_up_by_the_next(running: Running) -> None:
    """After a timeout the late step is kept in the trajectory and not done again."""
    async with AsyncClient(running.url, timeouts=QUICK) as client, client.episode() as episode:
        running.host.step_delay_s = 0.4
        with pytest.raises(Timeout) as caught:
            await episode.step("slow", timeout_s=0.1)
        assert isinstance(caught.value, TimeoutError)
        running.host.step_delay_s = 0.0
        await until(lambda: running.host.live()[0].answers)
        obs = await episode.step("next")
        assert obs.step == 2
        assert running.host.live()[0].acted == ["slow", "next"]
        assert [s.requested for s in episode.trajectory.steps] == [("slow",), ("next",)]


async def test_a_cancelled_step_that_never_arrived_is_forgotten(running: Running) -> None:
    """Cancelling before the host acted leaves the episode usable and the action undone."""
    async with AsyncClient(running.url, timeouts=QUICK) as client, client.episode() as episode:
        running.host.faults.append(("/step", fake_v1_host.never))
        task = asyncio.create_task(episode.step("lost"))
        await until(lambda: not running.host.faults)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await episode.step("kept")
        assert running.host.live()[0].acted == ["kept"]


async def test_cancelled_steps_use_up_no_connection(running: Running) -> None:
    """With one connection allowed, cancelling in the middle of steps again and again blocks nobody."""
    client = AsyncClient(running.url, timeouts=QUICK, limits=Limits(long=1))
    async with client, client.episode() as episode:
        for number in range(5):
            running.host.step_delay_s = 0.3
            task = asyncio.create_task(episode.step(f"cut {number}"))
            await until(lambda: running.host.busy)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            running.host.step_delay_s = 0.0
            await until(lambda: not running.host.busy)
            await episode.step("whole")
        assert [a for a in running.host.live()[0].acted if a == "whole"] == ["whole"] * 5
        assert len(running.host.live()[0].acted) == 10


async def test_an_invalid_action_does_nothing_and_the_episode_goes_on(running: Running) -> None:
    """A refused step uses up no sequence number."""
    async with AsyncClient(running.url) as client, client.episode() as episode:
        with pytest.raises(InvalidAction, match="cannot parse"):
            await episode.step("nonsense")
        obs = await episode.step("click(1,1)")
        assert obs.step == 1


@pytest.mark.parametrize("cut", [-1, 1])
async def test_steps_of_many_episodes_in_one_request(running: Running, cut: int) -> None:
    """One request steps them all; an error is one episode's own; a cut stream loses and repeats nothing."""
    running.host.cut_batch_after = cut
    async with AsyncClient(running.url, timeouts=QUICK) as client:
        episodes = [client.episode() for _ in range(3)]
        await asyncio.gather(*(episode.start() for episode in episodes))
        actions = ["one", "nonsense", ["three", "four"]]
        got = dict([x async for x in client.step_many(list(zip(episodes, actions, strict=True)))])
        assert isinstance(got[episodes[1]], InvalidAction)
        assert [got[e].step for e in (episodes[0], episodes[2])] == [1, 1]  # type: ignore[union-attr]  # no errors
        await asyncio.gather(*(episode.step("next") for episode in episodes))
        acted = [running.host.episodes[episode.episode_id].acted for episode in episodes]
        assert acted == [["one", "next"], ["next"], ["three", "four", "next"]]
        assert ("POST", "/v1/steps") in running.host.calls
        await asyncio.gather(*(episode.aclose() for episode in episodes))


async def test_an_episode_goes_on_in_another_client(running: Running) -> None:
    """The ticket is enough: no action is repeated, and closing there gives the replica back."""
    async with AsyncClient(running.url) as client:
        episode = client.episode()
        await episode.start()
        await episode.step("one")
        ticket = episode.detach()
        assert ticket.lease not in repr(ticket)
        with pytest.raises(EpisodeEnded):
            await episode.step("not mine any more")
    assert len(running.host.live()) == 1
    async with AsyncClient(running.url) as client, client.attach(ticket) as episode:
        assert episode.observation.size == fake_v1_host.SCREEN
        assert (await episode.step("two")).seq == 2
        assert running.host.live()[0].acted == ["one", "two"]
    assert running.host.live() == []
    async with AsyncClient("http://elsewhere:1") as client:
        with pytest.raises(ConfigError, match="not a host of this client"):
            await client.attach(ticket).start()


async def test_the_end_of_an_episode(running: Running) -> None:
    """done says why, later steps are refused, scoring is still possible."""
    async with AsyncClient(running.url) as client, client.episode(max_steps=2) as episode:
        await episode.step("a")
        obs = await episode.step("b")
        assert obs.done is episode.done is Done.MAX_STEPS
        with pytest.raises(EpisodeEnded):
            await episode.step("c")
        assert (await episode.evaluate()).reward == 1.0
    with pytest.raises(EpisodeEnded):
        await episode.step("d")
    with pytest.raises(EpisodeEnded):
        await episode.evaluate()


async def test_unchanged_frames_are_not_sent_again(running: Running) -> None:
    """With an unchanged screen the last image is used; with reuse off it is sent."""
    async with AsyncClient(running.url) as client:
        async with client.episode() as episode:
            first = await episode.step("a")
            obs = await episode.step("wait()")
            assert obs.unchanged and obs.data is first.data
        async with client.episode(reuse_frames=False) as episode:
            await episode.step("a")
            obs = await episode.step("wait()")
            assert not obs.unchanged and obs.data


async def test_the_final_frame_and_a_stale_one(running: Running) -> None:
    """final() gives the later frame of the newest step only."""
    async with AsyncClient(running.url) as client, client.episode() as episode:
        first = await episode.step("a")
        later = await first.final()
        assert later.is_final and later.image.getpixel((0, 0))[0] == 201  # type: ignore[index] # RGB
        (judged,) = episode.trajectory.steps
        assert (judged.final, judged.changed_after_ms) == (False, 80.0)
        assert episode.trajectory.frames_not_final == 1
        assert (await episode.observe()).image.getpixel((0, 0))[0] == 101  # type: ignore[index] # RGB
        await episode.step("b")
        with pytest.raises(StaleObservation):
            await first.final()


async def test_a_lost_replica_is_typed_and_never_a_reward(running: Running) -> None:
    """A step says what took the replica; the score is absent, not 0."""
    async with AsyncClient(running.url) as client, client.episode({"id": "t"}) as episode:
        await episode.step("a")
        running.host.lose(running.host.live()[0], "out_of_memory")
        with pytest.raises(EpisodeLost) as caught:
            await episode.step("b")
        assert caught.value.cause == "out_of_memory"
        evaluation = await episode.evaluate()
        assert evaluation.reward is None
        assert evaluation.error_class is not None and evaluation.error_class.value == "infra"
        assert (evaluation.termination_reason, evaluation.valid_for_training) == ("replica_lost", False)


async def test_renewal_keeps_leases_and_a_lost_one_interrupts_the_step(running: Running) -> None:
    """One request renews all; a running step learns at once that its replica is gone."""
    host = running.host
    async with (
        AsyncClient(running.url) as client,
        client.episode(lease_ttl_s=0.6) as one,
        client.episode(lease_ttl_s=0.6) as two,
    ):
        await until(lambda: all(e.renewals >= 2 for e in host.live()))
        requests = [path for _, path in host.calls if path == "/v1/leases/renew"]
        assert len(requests) <= 2 * max(e.renewals for e in host.live())
        host.step_delay_s = 30.0
        step = asyncio.create_task(one.step("long"))
        await until(lambda: host.busy)
        host.lose(host.episodes[one.episode_id], "hung")
        with pytest.raises(EpisodeLost) as caught:
            await asyncio.wait_for(step, 5)
        assert caught.value.cause == "hung"
        assert one.lost is caught.value and two.lost is None
        host.step_delay_s = 0.0
        assert (await two.step("x")).step == 1


async def test_a_host_that_falls_silent_loses_its_episodes(running: Running) -> None:
    """When renewals fail for a lease's whole life the episode is lost, with the cause."""
    client = AsyncClient(running.url, timeouts=QUICK)
    async with client, client.episode(lease_ttl_s=0.6) as episode:
        running.stop()
        await until(lambda: episode.lost)
        assert episode.lost is not None and episode.lost.cause == "host_unreachable"


async def test_cancelling_a_create_leaks_no_lease(running: Running) -> None:
    """The host hears that the create is off, even when it had given the replica already."""
    running.host.create_delay_s = 0.3
    async with AsyncClient(running.url, timeouts=QUICK) as client:
        task = asyncio.create_task(client.episode().start())
        await until(lambda: running.host.episodes)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: running.host.live() == [])
    assert len(running.host.free) == 4


async def test_a_create_whose_answer_was_lost_is_not_made_twice(running: Running) -> None:
    """The request id makes the repetition give the same episode."""
    running.host.faults.append(("/v1/episodes", fake_v1_host.drop_after))
    async with AsyncClient(running.url, timeouts=QUICK) as client, client.episode():
        assert len(running.host.episodes) == 1


async def test_cancelling_an_episode_still_closes_it(running: Running) -> None:
    """A cancelled user of an episode gives the replica back."""

    async def use(client: AsyncClient) -> None:
        async with client.episode() as episode:
            running.host.step_delay_s = 30.0
            await episode.step("long")

    async with AsyncClient(running.url) as client:
        task = asyncio.create_task(use(client))
        await until(lambda: running.host.busy)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: running.host.live() == [])


async def test_no_capacity_and_broken_setup_are_typed(running: Running) -> None:
    """A full host and a task whose setup fails are told apart."""
    running.host.free.clear()
    async with AsyncClient(running.url) as client:
        with pytest.raises(NoCapacity):
            await client.episode(wait_s=0.1).start()
        with pytest.raises(SetupFailed):
            await client.episode({"id": "broken-setup"}).start()


async def test_an_evaluator_error_is_no_reward(running: Running) -> None:
    """A check that raised gives None and says so."""
    async with AsyncClient(running.url) as client, client.episode({"id": "broken-check"}) as episode:
        evaluation = await episode.evaluate()
        assert evaluation.reward is None and evaluation.failure is not None
        assert evaluation.failure.code == "evaluator_error"


async def test_the_token_is_needed() -> None:
    """Without the token every call is an AuthError, with it all is well."""
    with serving(FakeV1Host(token="s3cret")) as running:
        async with AsyncClient(running.url, token="wrong") as client:
            with pytest.raises(AuthError):
                await client.episode().start()
        async with AsyncClient(running.url, token="s3cret") as client, client.episode() as episode:
            assert (await episode.step("x")).step == 1


async def test_nobody_there_fails_soon_and_says_so() -> None:
    """A wrong address does not wait for wait_s."""
    async with AsyncClient("http://127.0.0.1:9", timeouts=QUICK) as client:
        with pytest.raises(HostUnreachable, match=r"127\.0\.0\.1:9"):
            await asyncio.wait_for(client.episode(wait_s=60).start(), 10)


async def test_the_hosts_own_timeout_keeps_its_code(running: Running) -> None:
    """A step whose guest did not answer in time is not taken for a deadline of the client."""

    async def too_slow(scope: Any, receive: Any, send: Any, serve: Any) -> None:
        body = {"code": "timeout", "message": "the guest did not answer", "details": {}}
        await JSONResponse(body, 504)(scope, receive, send)

    async with AsyncClient(running.url) as client, client.episode() as episode:
        running.host.faults.append(("/step", too_slow))
        with pytest.raises(Timeout) as caught:
            await episode.step("a")
        assert (caught.value.code, caught.value.message) == ("timeout", "the guest did not answer")


async def test_the_whole_answer_reaches_the_user(running: Running) -> None:
    """Observation and trajectory keep the host's message, so that a new field of it needs no code here."""
    async with AsyncClient(running.url) as client, client.episode() as episode:
        obs = await episode.step("a")
        assert isinstance(obs.answer, StepAnswer) and obs.meta is obs.answer.observation
        (step,) = episode.trajectory.steps
        assert step.answer is obs.answer
        assert (step.step, step.executed, step.frame) == (1, ({"op": "click"},), obs.meta.frame)
        assert (step.results, step.settle, step.done) == (obs.results, obs.settle, None)
        assert (step.failed_index, step.replayed) == (None, False)


async def test_a_proxys_error_page_is_retried(running: Running) -> None:
    """What a gateway in between says is not taken for the host's word."""
    async with AsyncClient(running.url, timeouts=QUICK) as client, client.episode() as episode:
        running.host.faults.append(("/step", fake_v1_host.bad_gateway))
        assert (await episode.step("x")).step == 1


async def test_placement_goes_to_the_least_loaded_and_around_the_dead() -> None:
    """Episodes spread by capacity; a host that is down is left out, and named in host_states."""
    with serving(FakeV1Host(replicas=6)) as big, serving(FakeV1Host(replicas=2)) as small:
        hosts = [big.url, small.url, "http://127.0.0.1:9"]
        async with AsyncClient(hosts, timeouts=QUICK) as client:
            states = await client.host_states()
            assert isinstance(states[big.url], HostState)
            assert isinstance(states["http://127.0.0.1:9"], OSGymError)
            episodes = [client.episode(wait_s=5) for _ in range(8)]
            await asyncio.gather(*(episode.start() for episode in episodes))
            assert (len(big.host.live()), len(small.host.live())) == (6, 2)
            big.stop()
            for episode in episodes:
                if episode.host == big.url:
                    with pytest.raises(EpisodeLost) as caught:
                        await episode.step("x")
                    assert caught.value.cause == "host_unreachable"
                    break
            await asyncio.gather(*(episode.aclose() for episode in episodes))
            async with client.episode(wait_s=5) as again:
                assert again.host == small.url


async def test_a_host_that_asks_to_wait_is_not_down(caplog: pytest.LogCaptureFixture) -> None:
    """A host that answers 429 stays up: an episode is placed there by its last known state."""

    async def limited(scope: Any, receive: Any, send: Any, serve: Any) -> None:
        details = {"retry_after_s": 60.0}
        await JSONResponse({"code": "rate_limited", "message": "wait", "details": details}, 429)(
            scope, receive, send
        )

    with serving(FakeV1Host()) as one:
        async with AsyncClient([one.url, "http://127.0.0.1:9"], timeouts=QUICK) as client:
            one.host.faults += [("/v1/host", limited)] * 10
            async with client.episode(wait_s=5) as episode:
                assert episode.host == one.url
        assert f"host {one.url} is unusable" not in caplog.text


async def test_a_host_that_comes_back_is_used_again() -> None:
    """Down is not for ever."""
    with serving(FakeV1Host()) as first:
        port = int(first.url.rsplit(":", 1)[1])
        async with AsyncClient(first.url, timeouts=QUICK) as client:
            async with client.episode():
                pass
            first.stop()
            with pytest.raises(HostUnreachable):
                await client.episode(wait_s=0.2).start()
            with serving(FakeV1Host(), port=port):
                async with client.episode(wait_s=20) as episode:
                    assert (await episode.step("x")).step == 1


async def test_hundreds_of_long_steps_block_nobody() -> None:
    """200 steps run at once; meanwhile a control call and renewals are answered."""
    with serving(FakeV1Host(replicas=200), backlog=1024) as running:
        async with AsyncClient(running.url) as client:
            episodes = [client.episode(lease_ttl_s=6) for _ in range(200)]
            await asyncio.gather(*(episode.start() for episode in episodes))
            running.host.step_delay_s = 6.0
            steps = [asyncio.create_task(episode.step("x")) for episode in episodes]
            await until(lambda: running.host.busy == 200, 20)
            await asyncio.wait_for(client.host_states(), 5)
            assert not any(step.done() for step in steps)
            await asyncio.gather(*steps)
            assert running.host.most_busy == 200
            assert all(e.renewals for e in running.host.live())
            await asyncio.gather(*(episode.aclose() for episode in episodes))
        assert running.host.live() == []
