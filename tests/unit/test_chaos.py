"""The pure parts of the chaos run: faults from a seed, marks in pictures, and what counts as a violation."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
from benchmarks.chaos.checks import Limits, figures, judge, table
from benchmarks.chaos.flights import Attempt, Flights
from benchmarks.chaos.marks import (
    AT_PX,
    BLOCK_PX,
    COLUMNS,
    DARK_BLUE,
    TILE_PX,
    YELLOW,
    Mark,
    bits_of,
    mark_in,
    mark_of,
    set_up,
)
from benchmarks.chaos.orders import Order, command_of, scripts_set_up
from benchmarks.chaos.schedule import BY_POLICIES, Kind, Scope, plan, scope_of
from benchmarks.chaos.service import Service
from benchmarks.chaos.stage import Impact
from benchmarks.chaos.watch import Sample, Watch, _ended, slopes
from benchmarks.fault_rates import lost_groups
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from osgym_host.tasks.shipped import load_shipped
from osgym_sdk import Evaluation, Failure, Result, Trajectory
from osgym_sdk.wire import ErrorClass

numbers = st.integers(1, 2**32 - 1)


def test_a_seed_gives_the_same_faults_and_all_kinds_come() -> None:
    """Every kind once in a round, at its time; another seed gives another order."""
    faults = plan(7, 600, 5, set(Kind))
    assert faults == plan(7, 600, 5, set(Kind)) != plan(8, 600, 5, set(Kind))
    assert [fault.at_s for fault in faults] == [5.0 * n for n in range(1, 121)]
    counts = Counter(fault.kind for fault in faults)
    assert set(counts) == set(Kind) and max(counts.values()) - min(counts.values()) <= 1
    assert {scope_of(kind) for kind in Kind} == set(Scope)


def picture(mark: Mark, size: tuple[int, int] = (640, 400)) -> Image.Image:
    """A screen with a mark all over its background."""
    tile = Image.new("RGB", TILE_PX, DARK_BLUE)
    for place, bit in enumerate(bits_of(mark)):
        left, top = AT_PX[0] + place % COLUMNS * BLOCK_PX, AT_PX[1] + place // COLUMNS * BLOCK_PX
        tile.paste(YELLOW if bit else DARK_BLUE, (left, top, left + BLOCK_PX, top + BLOCK_PX))
    screen = Image.new("RGB", size)
    for x in range(0, size[0], TILE_PX[0]):
        for y in range(0, size[1], TILE_PX[1]):
            screen.paste(tile, (x, y))
    return screen


@given(numbers, numbers)
def test_a_mark_is_read_as_it_was_drawn(task: int, desktop: int) -> None:
    """Also when windows cover most of it."""
    mark = Mark(task, desktop)
    screen = picture(mark)
    assert mark_in(screen) == mark
    screen.paste((255, 255, 255), (0, 0, 640, 300))
    assert mark_in(screen) == mark
    screen.paste((200, 30, 90), (0, 0, 640, 400))
    assert mark_in(screen) is None


@given(numbers, numbers, st.integers(0, 79))
def test_a_mark_that_is_covered_in_part_is_none(task: int, desktop: int, place: int) -> None:
    """One wrong block, and the checksum says so."""
    bits = bits_of(Mark(task, desktop))
    bits[place] ^= 1
    assert mark_of(bits) is None


def test_what_draws_a_mark_is_a_program() -> None:
    """It compiles; on real desktops the end-to-end test runs it."""
    import base64

    upload, execute = set_up(5)
    source = base64.b64decode(upload["parameters"]["files"][0]["data_base64"])
    compile(source, "draw-mark.py", "exec")
    assert execute["parameters"]["command"][-1] == "5"


def flown(way: str = "oracle", **fields: Any) -> Flights:
    """The flights of one trajectory with this result."""
    flights = Flights(load_shipped(flavor="small"), 1, time.monotonic())
    flights.tried[1] = [Attempt(1, 1, 0.0)]
    told = {"reward": 1.0 if way == "oracle" else 0.0, "failure": None, "attempts": 1, **fields}
    told.setdefault("valid_for_training", True)
    task = {"id": "t", "chaos": {"number": 1, "way": way}}
    flights.results.append(
        Result(
            index=0,
            task=task,
            task_id="t",
            termination_reason="done",
            trajectory=Trajectory("t"),
            duration_s=1.0,
            **told,
        )
    )
    return flights


LOST = Failure("episode_lost", "lost", ErrorClass.INFRA)


def test_a_run_in_which_all_is_well_has_no_violation() -> None:
    """Oracles earn 1, doing nothing earns 0, slots are clean in time."""
    impact = Impact(Kind.REPLICA_KILLED, 5.0, noticed_s=0.2, clean_s=0.3, touched=1)
    for way in ("oracle", "idle"):
        flights = flown(way)
        assert judge(flights, [impact], Limits()) == []
    assert figures(flights, [impact])["clean_p95_s"] == 0.3
    assert "| replica killed | 1 | 0.20 / 0.20 | 0.30 / 0.30 | 1 |" in table([impact])


@pytest.mark.parametrize(
    ("flights", "why"),
    [
        (flown(reward=0.0), "reward 0.0, not 1.0"),
        (flown("idle", reward=1.0), "reward 1.0, not 0.0"),
        (flown(reward=None), "reward None and failure None"),
        (flown(failure=LOST), "reward 1.0 and failure"),
        (flown(reward=None, failure=Failure("", "?", None)), "without a type"),
        (flown(reward=None, failure=LOST), "lost: episode_lost"),
    ],
)
def test_a_wrong_end_of_a_trajectory_is_a_violation(flights: Flights, why: str) -> None:
    """Each way to be wrong is named."""
    assert any(why in line for line in judge(flights, [], Limits()))


def test_what_ends_twice_or_never_and_crossed_frames_are_violations() -> None:
    """Once, and its own picture."""
    flights = flown()
    flights.results *= 2
    flights.tried[2] = []
    flights.crossed.append("shows the desktop of another")
    assert judge(flights, [], Limits()) == [
        "trajectory 1 ended 2 times",
        "trajectory 2 never ended",
        "frame: shows the desktop of another",
    ]


def hit_by(flights: Flights, *kinds: Kind) -> Flights:
    """The same, with faults that hit its first attempt."""
    flights.tried[1][0].harmed_by += kinds
    return flights


def test_two_faults_may_lose_a_trajectory_and_a_policy_its_own_reward() -> None:
    """One retry is for one fault; what a policy does to its own result is its own loss."""
    flights = flown(reward=None, failure=LOST)
    flights.tried[1][0].harmed_by.append(Kind.REPLICA_KILLED)
    assert len(judge(flights, [], Limits())) == 1
    flights.early[1] = [Kind.DISK_FULL]
    assert judge(flights, [], Limits()) == []
    assert judge(hit_by(flown(reward=0.0), Kind.POLICY_PROCESS_BOMB), [], Limits()) == []
    [line] = judge(hit_by(flown(reward=0.0), Kind.POLICY_KILLS_HARNESS), [], Limits())
    assert "reward 0.0, not 1.0" in line


def lost_by_policy(**fields: Any) -> Flights:
    """The flights of one trajectory that its policy is said to have ended."""
    loss = Failure("episode_lost", "lost", ErrorClass.POLICY, {"cause": "guest_dead"})
    flights = flown(**{"reward": 0.0, **fields})
    flights.results[0].trajectory.evaluation = Evaluation(
        0.0, "replica_lost", ErrorClass.POLICY, True, loss=loss
    )
    return flights


POLICYS, HOSTS = Kind.POLICY_KILLS_ALL, Kind.REPLICA_KILLED
TASKS = Failure("setup_failed", "no", ErrorClass.TASK)


@pytest.mark.parametrize(
    ("flights", "why"),
    [
        (hit_by(flown(), POLICYS), None),
        (hit_by(flown("idle"), POLICYS), None),
        (hit_by(lost_by_policy(), POLICYS), None),
        (hit_by(lost_by_policy(), Kind.AGENT_FROZEN), None),
        (hit_by(flown(attempts=2), HOSTS), None),
        (hit_by(flown(attempts=2), Kind.AGENT_KILLED), None),
        (hit_by(flown(reward=None, failure=LOST), POLICYS, HOSTS), None),
        (hit_by(flown(attempts=2), POLICYS, HOSTS), None),
        (hit_by(flown(reward=None, failure=LOST), POLICYS), "a failure of the host's"),
        (hit_by(flown(attempts=2), POLICYS), "2 attempts though only its policy"),
        (hit_by(flown("idle", reward=1.0), POLICYS), "reward 1.0, not 0.0"),
        (hit_by(flown(reward=0.5), POLICYS), "reward 0.5, not 1.0"),
        (hit_by(lost_by_policy(valid_for_training=False), POLICYS), "valid False"),
        (hit_by(lost_by_policy(), HOSTS), "without a fault from inside"),
        (lost_by_policy(), "without a fault from inside"),
        (hit_by(flown(reward=None, failure=TASKS), POLICYS), "the class task"),
        (flown(attempts=2), "2 attempts though nothing harmed it"),
    ],
)
def test_whose_loss_a_trajectory_is_follows_from_what_hit_it(flights: Flights, why: str | None) -> None:
    """In both directions: no policy gets another try for its own doing, and none pays for the host's."""
    found = judge(flights, [], Limits())
    assert found == [] if why is None else any(why in line for line in found), found


@pytest.mark.parametrize("kind", sorted(BY_POLICIES, key=lambda kind: kind.name))
def test_a_policy_types_one_line_for_each_of_its_faults(kind: Kind) -> None:
    """The line says first that it was carried out; files that it replaces are those that the check reads."""
    tasks = {task.name: task.task for task in load_shipped(flavor="small")}
    command = command_of(kind, tasks["mousepad/write-note"])
    assert command and "\n" not in command
    assert ("/home/user/Documents/shopping.txt" in command) is kind.name.startswith("POLICY_RESULT_IS")
    assert scope_of(kind) is Scope.POLICY


async def test_an_order_counts_when_the_desktop_got_the_line() -> None:
    """An attempt that ends after its line was sent had it; before, it had not."""
    for sent_at in (None, 5.0):
        order = Order(Kind.POLICY_KILLS_ALL, "true", sent_at=sent_at)
        assert not order.over
        order.end()
        order.settle(typed=sent_at is None)
        assert order.typed.result() is (sent_at is not None)
    assert order.line == "touch /tmp/chaos/typed; true\n"


def test_the_scripts_of_policies_are_programs() -> None:
    """They compile; on real desktops the end-to-end test runs them."""
    for file in scripts_set_up()["parameters"]["files"]:
        compile(file["text"], file["path"], "exec")


def test_a_loss_of_the_policys_has_a_fault_from_inside() -> None:
    """A policy's loss without a fault from inside is reported as a broken promise."""
    loss = Failure("episode_lost", "lost", ErrorClass.POLICY, {"cause": "guest_dead"})
    for kind, right in ((Kind.AGENT_KILLED, True), (Kind.REPLICA_KILLED, False)):
        flights = flown(reward=0.0)
        flights.results[0].trajectory.evaluation = Evaluation(
            0.0, "replica_lost", ErrorClass.POLICY, True, loss=loss
        )
        flights.tried[1][0].harmed_by.append(kind)
        assert (judge(flights, [], Limits()) == []) is right
        assert figures(flights, [])["policys_losses"] == {"episode_lost (guest_dead)": 1}


def test_slow_slots_and_unseen_frozen_agents_are_violations() -> None:
    """Both bounds, and what a fault found out by itself."""
    impact = Impact(
        Kind.AGENT_FROZEN, 5.0, noticed_s=20.0, clean_s=21.0, wrong=["a stolen call was answered 200"]
    )
    found = judge(flown(), [impact], Limits())
    assert [word in line for word, line in zip(("stolen", "noticed", "p95"), found, strict=True)] == [
        True
    ] * 3


def test_a_traceback_in_the_host_agents_log_is_told_with_its_error(tmp_path: Path) -> None:
    """Each of its lines has a margin there; without one, it is of a process that died of it."""
    lines = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "    f()", "OSError: no"]
    service = Service(tmp_path / "data", "test", {})
    for margin in ("  | ", ""):
        service.log.write_text(
            "\n".join(["WARNING before", *(margin + line for line in lines), "INFO after"])
        )
        [told] = service.said("Traceback")
        assert told == f'WARNING before | {margin}{lines[0]} | File "a.py", line 1, in f | OSError: no'


def test_slopes_are_of_one_host_agent_and_without_its_first_minutes() -> None:
    """Samples before a restart, and the first tenth, do not count; what has no figures has no slope."""
    before = [Sample(60.0 * n, 1, 500, 90, 30, 50, 900.0) for n in range(10)]
    after = [Sample(600 + 60.0 * n, 2, 100 + n, 20, 8, 50, 10.0) for n in range(30)]
    found = slopes([*before, *after])
    assert found["rss_mib"]["per_hour"] == pytest.approx(60.0)
    assert found["descriptors"] == {"per_hour": 0.0, "half_interval": 0.0, "median": 20}
    assert "heap_mib" not in found
    assert slopes(before[:2]) == {}


def test_a_group_is_lost_with_any_of_its_members() -> None:
    """Every run of so many in a row counts once; too few are no group."""
    assert lost_groups([False] * 7 + [True], 8) == 1.0
    assert lost_groups([True] + [False] * 8, 8) == 0.5
    assert lost_groups([True] * 7, 8) is None


async def test_a_watch_that_fails_is_a_violation() -> None:
    """A page that answers no more ends the looking; that is said, and what was seen is kept."""

    class Page:
        def __init__(self) -> None:
            self.problems = ["a script failed"]

        async def call(self, method: str) -> None:
            raise TimeoutError(method)

    watch = Watch(cast(Any, None), 0.0, cast(Any, Page()))
    following = asyncio.create_task(watch.follow())
    await asyncio.wait([following], timeout=5)
    await _ended(following, watch)
    assert watch.problems[0].startswith("the watch ended after 0 looks: TimeoutError")
    assert watch.problems[1:] == ["the dashboard's page: a script failed"]
