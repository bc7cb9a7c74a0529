"""What policies return and raise, in batches over a host agent: each spoils its own episode and no other."""

from __future__ import annotations

import asyncio
import pickle
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.fake_runtime import TASK, Served
from tests.support.fake_v1_host import FakeV1Host, serving
from tests.unit.test_sdk_actions import garbage

from osgym_sdk import AsyncClient, Client, ConfigError, Decision, ErrorClass, InvalidAction, Result


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A host agent with three warm replicas; a fake one earns 1."""
    with Served(tmp_path_factory.mktemp("host"), warm=3, max_replicas=6) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_is_left(served: Served) -> Iterator[None]:
    """Every lease of a test was given back."""
    yield
    until = time.monotonic() + 10
    assert served.agent is not None
    while served.agent.episodes.active():
        assert time.monotonic() < until
        time.sleep(0.02)


async def results_of(url: str, policy: Any, names: list[str], **options: Any) -> dict[str, Result]:
    """Runs one task per name."""
    tasks = [{**TASK, "id": name} for name in names]
    async with AsyncClient(url) as client:
        batch = client.run(tasks, policy, concurrency=4, **options)
        return {str(result.task_id): result async for result in batch}


OTHER_GRAMMARS = [
    "pyautogui.click(100, 200)",
    "click(x=100, y=200)",
    "type(content='hello\\n')",
    "type(hello); press(enter)",
    "CLICK <point>100 200</point>",
    '{"action_type": "CLICK"}',
    "I would click the button.",
    {"type": "click", "x": 1, "y": 2},
    {"action": "left_click", "coordinate": [1, 2]},
    5,
    b"click(1,2)",
    "",
    [None],
    {"op": "click", "x": float("nan"), "y": 2},
    {"op": "key", "keys": ["ctl", "c"]},
    ["wait()"] * 300,
]


async def test_a_policy_of_another_grammar_earns_no_zero(served: Served) -> None:
    """Each is a failure of the model, with what was wrong, and no reward; nothing was done."""

    def policy(obs: Any, task: Any, step: int) -> Any:
        return OTHER_GRAMMARS[int(task["id"])]

    names = [str(index) for index in range(len(OTHER_GRAMMARS))]
    for name, result in (await results_of(served.urls[0], policy, names)).items():
        assert result.failure is not None, OTHER_GRAMMARS[int(name)]
        assert (result.failure.code, result.failure.error_class) == ("invalid_action", ErrorClass.MODEL)
        assert (result.reward, result.valid_for_training, result.ok) == (None, False, False)
        assert (result.attempts, result.invalid_actions, len(result.steps)) == (1, 1, 0)
        assert result.termination_reason == "invalid_action" and result.note


async def test_on_invalid_end_scores_the_desktop_as_it_stands(served: Served) -> None:
    """As it was before there was a choice, for those who ask for it."""
    results = await results_of(served.urls[0], lambda obs, task, step: 5, ["a"], on_invalid="end")
    result = results["a"]
    assert (result.reward, result.failure, result.termination_reason) == (1.0, None, "invalid_action")
    assert result.invalid_actions == 1 and "not int" in str(result.note)


async def test_on_invalid_noop_asks_again_up_to_a_bound(served: Served) -> None:
    """A refused action is a step in which nothing happens, and the policy is told why."""
    told: list[str | None] = []

    def policy(obs: Any, task: Any, step: int) -> Any:
        told.append(obs.refused)
        if task["id"] == "never" or step < 2:
            return "gibberish"
        return "click(1,2)" if step == 2 else "finish()"

    results = await results_of(served.urls[0], policy, ["learns"], on_invalid="noop", max_invalid=2)
    good = results["learns"]
    assert (good.reward, good.invalid_actions, good.termination_reason) == (1.0, 2, "done")
    assert [step.refused is not None for step in good.steps] == [True, True, False, False]
    assert [step.executed[0]["op"] for step in good.steps] == ["screenshot", "screenshot", "click", "done"]
    assert told[0] is None and told[3] is None
    assert all("gibberish" in str(text) for text in told[1:3])
    for bound, steps in ((2, 2), (0, 0)):
        found = await results_of(
            served.urls[0], policy, ["never"], on_invalid="noop", max_invalid=bound, max_steps=50
        )
        never = found["never"]
        assert never.failure is not None and never.failure.error_class is ErrorClass.MODEL
        assert (never.reward, never.invalid_actions, len(never.steps)) == (None, bound + 1, steps)


async def test_a_policy_may_say_itself_that_its_model_said_no_action(served: Served) -> None:
    """InvalidAction that it raises counts as one that it returned."""

    def policy(obs: Any, task: Any, step: int) -> Any:
        raise InvalidAction("the model apologised")

    result = (await results_of(served.urls[0], policy, ["a"]))["a"]
    assert result.failure is not None
    assert (result.failure.code, result.failure.error_class) == ("invalid_action", ErrorClass.MODEL)


def test_the_options_are_checked_before_anything_runs() -> None:
    """Also by the client without asyncio; what is wrong names what there is."""
    with Client("http://127.0.0.1:1") as client:
        with pytest.raises(ConfigError, match="error, noop, end; did you mean 'noop'"):
            client.run([None], lambda obs, task, step: None, on_invalid="nop")
        with pytest.raises(ConfigError, match='needs on_invalid="noop"'):
            client.run([None], lambda obs, task, step: None, max_invalid=3)
        with pytest.raises(ConfigError, match="a policy must be a callable"):
            client.run([None], "click(1,2)")  # type: ignore[arg-type] # wrong on purpose


class Awkward(Exception):
    """Has no text, and cannot be unpickled."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__()

    def __str__(self) -> str:
        raise ValueError("no message")


def exits(obs: Any, task: Any, step: int) -> Any:
    """What argparse does, deep in somebody's policy."""
    sys.exit(3)


def raises_of(error: BaseException) -> Any:
    """A policy that raises just that."""

    def policy(obs: Any, task: Any, step: int) -> Any:
        raise error

    return policy


async def cancels_itself(obs: Any, task: Any, step: int) -> Any:
    """As a model's client whose connection was cancelled."""
    current = asyncio.current_task()
    assert current is not None
    current.cancel()
    await asyncio.sleep(5)


async def exits_async(obs: Any, task: Any, step: int) -> Any:
    sys.exit(3)


async def cancelled(obs: Any, task: Any, step: int) -> Any:
    raise asyncio.CancelledError


def wrong_arguments(obs: Any) -> Any:
    """Cannot be called as a policy."""


async def wrong_arguments_async(obs: Any) -> Any:
    """The same."""


BAD_POLICIES = {
    "raises": (raises_of(ZeroDivisionError("oops")), "ZeroDivisionError: oops"),
    "stop": (raises_of(StopIteration()), "StopIteration"),
    "stop async": (raises_of(StopAsyncIteration()), "StopAsyncIteration"),
    "interrupt": (raises_of(KeyboardInterrupt()), "KeyboardInterrupt"),
    "cancelled in a thread": (raises_of(asyncio.CancelledError()), "CancelledError"),
    "awkward": (raises_of(Awkward(1, 2)), "Awkward: (no message)"),
    "exit": (exits, "SystemExit: 3"),
    "exit async": (exits_async, "SystemExit: 3"),
    "cancels itself": (cancels_itself, "CancelledError"),
    "cancelled": (cancelled, "CancelledError"),
    "wrong arguments": (wrong_arguments, "TypeError"),
    "wrong arguments async": (wrong_arguments_async, "TypeError"),
}


async def test_a_policy_that_raises_ends_its_own_episode_only(served: Served) -> None:
    """Whatever it raises, in a thread or on the loop: class model, with its traceback; others score."""

    async def policy(obs: Any, task: Any, step: int) -> Any:
        return "wait()" if step < 2 else "finish()"

    class ByTask:
        """Gives each episode the policy that its task names."""

        def __init__(self, name: str = "") -> None:
            self.name = name

        def reset(self, task: Any) -> Any:
            if task["id"] == "reset":
                raise LookupError("in reset")
            return _Acts(BAD_POLICIES[task["id"]][0] if task["id"] in BAD_POLICIES else policy)

        def act(self, obs: Any, task: Any, step: int) -> Any:
            raise AssertionError("reset gave another")

    names = [name for bad in [*BAD_POLICIES, "reset"] for name in (bad, f"good beside {bad}")]
    async with asyncio.timeout(60):
        results = await results_of(served.urls[0], ByTask(), names)
    assert set(results) == set(names)
    for name, result in results.items():
        if name.startswith("good"):
            assert (result.reward, result.ok) == (1.0, True), name
            continue
        assert result.failure is not None, name
        assert (result.failure.code, result.failure.error_class) == ("policy_error", ErrorClass.MODEL)
        assert result.failure.message.startswith(BAD_POLICIES.get(name, (None, "LookupError"))[1]), name
        assert "Traceback" in result.failure.details["traceback"] or "Cancelled" in result.failure.message
        assert (result.reward, result.attempts) == (None, 1)
        copy = pickle.loads(pickle.dumps(result))
        assert copy.failure.details == result.failure.details and copy.failure.message


class _Acts:
    """An object with `act`, which may be a coroutine function."""

    def __init__(self, act: Any) -> None:
        self.act = act


async def test_a_policy_that_never_returns_holds_up_no_other(served: Served) -> None:
    """Neither its thread nor a swallowed cancellation: the deadline is its own episode's."""
    gate = threading.Event()

    async def stubborn(obs: Any, task: Any, step: int) -> Any:
        while not gate.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue

    def stuck(obs: Any, task: Any, step: int) -> Any:
        if task["id"].startswith("stuck"):
            gate.wait(60)
        return "finish()"

    class Stubborn:
        def reset(self, task: Any) -> Any:
            return _Acts(stubborn if task["id"].startswith("stuck") else stuck)

        def act(self, obs: Any, task: Any, step: int) -> Any:
            raise AssertionError("reset gave another")

    names = [f"stuck {n}" for n in range(4)] + [f"good {n}" for n in range(4)]
    try:
        for policy in (stuck, Stubborn()):
            began = time.monotonic()
            results = await results_of(served.urls[0], policy, names, episode_timeout_s=1.0)
            assert time.monotonic() - began < 10
            told = {name: (r.reward, r.termination_reason, r.attempts) for name, r in results.items()}
            assert told == {
                name: (None, "deadline", 1) if name.startswith("stuck") else (1.0, "done", 1)
                for name in names
            }
    finally:
        gate.set()


async def test_tasks_that_are_none_fail_alone(served: Served) -> None:
    """A number, bytes, an object without JSON, a folder: each its own failure of the class task."""
    tasks: list[Any] = [
        5,
        b"x",
        {**TASK, "id": object()},
        {**TASK, "x": float("nan")},
        {**TASK, "id": "good"},
    ]
    async with AsyncClient(served.urls[0]) as client:
        batch = client.run(iter(tasks), lambda obs, task, step: None, concurrency=2)
        results = sorted([r async for r in batch], key=lambda r: r.index)
    assert [r.reward for r in results] == [None] * 4 + [1.0]
    for result in results[:4]:
        assert result.failure is not None and result.failure.error_class is ErrorClass.TASK


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(garbage, min_size=3, max_size=6))
def test_garbage_never_reaches_another_episode(served: Served, returned: list[Any]) -> None:
    """Generated: every task gives one result; those beside it score; garbage has no reward."""

    def policy(obs: Any, task: Any, step: int) -> Any:
        if task["id"] == "good":
            return "finish()"
        return returned[int(task["id"])] if step == 0 else "finish()"

    names = [str(index) for index in range(len(returned))] + ["good"]
    results = asyncio.run(results_of(served.urls[0], policy, names, retries=0))
    assert set(results) == set(names)
    assert results["good"].reward == 1.0
    for result in results.values():
        assert (result.reward is None) == (result.failure is not None)
        if result.failure is not None:
            assert (result.failure.code, result.failure.error_class) == ("invalid_action", ErrorClass.MODEL)


async def test_garbage_in_steps_of_many_episodes(served: Served) -> None:
    """Each step that is none is its own episode's error; the others are done."""
    async with AsyncClient(served.urls[0]) as client:
        episodes = [client.episode() for _ in range(3)]
        await asyncio.gather(*(episode.start() for episode in episodes))
        steps: list[Any] = list(zip(episodes, ["wait()", object(), "type(content='x')"], strict=True))
        got = dict([answer async for answer in client.step_many(steps)])
        assert [type(got[episode]).__name__ for episode in episodes] == [
            "AsyncObservation",
            "InvalidAction",
            "InvalidAction",
        ]
        again = await asyncio.gather(*(episode.step("wait()") for episode in episodes))
        assert [obs.step for obs in again] == [2, 1, 1]
        await asyncio.gather(*(episode.aclose() for episode in episodes))


def test_the_client_without_asyncio_does_the_same(served: Served) -> None:
    """Options, results that can be pickled with their steps and frames, and policies of both kinds."""

    class Resets:
        async def reset(self, task: Any) -> Any:
            if task["id"] == "no policy":
                return 5
            return _Acts(lambda obs, task, step: "gibberish" if step == 0 else "finish()")

        def act(self, obs: Any, task: Any, step: int) -> Any:
            raise AssertionError("reset gave another")

    tasks = [{**TASK, "id": name} for name in ("learns", "no policy")]
    with Client(served.urls[0]) as client:
        batch = client.run(tasks, Resets(), on_invalid="noop", keep_frames=True)
        results = {result.task_id: pickle.loads(pickle.dumps(result)) for result in batch}
    learned = results["learns"]
    assert (learned.reward, learned.invalid_actions, len(learned.steps)) == (1.0, 1, 2)
    assert learned.steps[0].refused and learned.steps[0].data and learned.trajectory.evaluation.reward == 1.0
    assert results["no policy"].failure.code == "policy_error"
    assert "a policy must be a callable" in results["no policy"].failure.message


@pytest.mark.parametrize("on_invalid", ["noop", "error", "end"])
async def test_a_decision_is_kept_with_its_step(served: Served, on_invalid: str) -> None:
    """With the step that came of it, also a refused one; where none did, as the trajectory's last."""
    logprobs = object()
    seen: set[tuple[str, str]] = set()

    async def policy(obs: Any, task: Any, step: int) -> Any:
        seen.add((obs.episode_id, obs.task_id))
        return [
            Decision(["wait()", "click(5,5)"], {"text": "first", "logprobs": logprobs}),
            "wait()",
            Decision(5, {"text": "no action"}),  # type: ignore[arg-type]  # what is refused
            Decision(None, {"text": "that is all"}),
        ][step]

    result = (await results_of(served.urls[0], policy, ["a"], on_invalid=on_invalid))["a"]
    infos = [step.info for step in result.steps]
    assert infos[:2] == [{"text": "first", "logprobs": logprobs}, None]
    assert len(result.steps[0].executed) == 2
    if on_invalid == "noop":
        assert infos[2:] == [{"text": "no action"}] and result.steps[2].refused
        assert (result.trajectory.last_info, result.reward) == ({"text": "that is all"}, 1.0)
    else:
        assert infos[2:] == [] and result.trajectory.last_info == {"text": "no action"}
    assert seen == {(result.trajectory.episode_id, "a")}


async def test_steps_take_decisions_too(served: Served) -> None:
    """One by one, in many at once, and where the host refuses them; what had an answer leaves no last one."""
    async with AsyncClient(served.urls[0]) as client, client.episode(TASK) as episode:
        obs = await episode.step(Decision("wait()", 1))
        assert (obs.episode_id, obs.task_id) == (episode.episode_id, TASK["id"])
        assert pickle.loads(pickle.dumps(obs)).episode_id == episode.episode_id
        async for _, outcome in client.step_many([(episode, Decision("wait()", 2))]):
            assert not isinstance(outcome, Exception)
        with pytest.raises(InvalidAction):
            await episode.step(Decision("gibberish", 3))
        assert [step.info for step in episode.trajectory.steps] == [1, 2]
        assert episode.trajectory.last_info == 3
        await episode.step("wait()")
        assert episode.trajectory.last_info is None


async def test_infrastructure_failures_are_repeated_once_by_default() -> None:
    """On a fresh replica; a second one, a fault of the policy, or one after a reward are not."""
    attempts: dict[str, int] = {}
    with serving(FakeV1Host()) as running:
        host = running.host

        async def policy(obs: Any, task: Any, step: int) -> Any:
            name = task["id"]
            if step == 0:
                attempts[name] = attempts.get(name, 0) + 1
                if name == "always" or (name == "once" and attempts[name] == 1):
                    host.lose(next(e for e in host.live() if e.request.task == task), "guest_dead")
            if name == "model":
                raise ValueError
            return "finish()"

        async with AsyncClient(running.url) as client:
            tasks = [{"id": name} for name in ("once", "always", "model", "good")]
            results = {r.task_id: r async for r in client.run(tasks, policy)}
    assert {name: (r.reward, r.attempts) for name, r in results.items()} == {
        "once": (1.0, 2),
        "always": (None, 2),
        "model": (None, 1),
        "good": (1.0, 1),
    }
    assert attempts == {"once": 2, "always": 2, "model": 1, "good": 1}


async def test_a_reward_is_never_taken_back() -> None:
    """What fails while the replica is given back is after the score: no retry, no failure."""
    with serving(FakeV1Host()) as running:

        async def hangs(scope: Any, receive: Any, send: Any, serve: Any) -> None:
            if scope["method"] == "DELETE":
                await asyncio.sleep(2)
            await serve()

        async def policy(obs: Any, task: Any, step: int) -> Any:
            [episode] = running.host.live()
            running.host.faults.append((f"/{episode.episode_id}", hangs))
            return "finish()"

        async with AsyncClient(running.url) as client:
            batch = client.run([{"id": "t"}], policy, episode_timeout_s=1.0)
            [result] = [r async for r in batch]
    assert (result.reward, result.failure, result.attempts) == (1.0, None, 1)
