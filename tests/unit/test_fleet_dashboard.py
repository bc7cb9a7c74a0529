"""What the fleet's dashboard sums up, finds and passes on."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from osgym_cli.fleet_dashboard.app import host_path, make_app, may_pass, request_headers
from osgym_cli.fleet_dashboard.views import (
    KEPT_SAMPLES,
    HostView,
    find_replicas,
    fleet_history,
    key_of,
    merge_episodes,
    merge_run_episodes,
    merge_runs,
    name_hosts,
)


def sample(number: int, steps: int, p50: float | None, p95: float | None, **fields: float) -> dict[str, Any]:
    """A sample of ten seconds."""
    names = (
        "ready",
        "starting",
        "leased",
        "waiting",
        "scored",
        "opened",
        "not_final",
        "load1",
        "ram_used_mib",
    )
    return {
        "time": 10.0 * number, "steps": steps, "steps_per_s": steps / 10, "blocked": "nothing",
        **dict.fromkeys(names, 0), "step_ms": {"p50": p50, "p95": p95}, "open_ms": {"p50": None, "p95": None},
        **fields,
    }  # fmt: skip


def view(key: str, *samples: dict[str, Any], rows: list[dict[str, Any]] | None = None) -> HostView:
    """A host that said so."""
    made = HostView(key, f"http://{key}", replicas=rows or ())
    made.take_history({"every_s": 10.0, "samples": list(samples), "usd_per_hour": 1.0, "retired": {}})
    return made


def row(replica_id: str, state: str, task_id: str | None = None) -> dict[str, Any]:
    """A replica."""
    return {"replica_id": replica_id, "state": state, "reason": None, "task_id": task_id, "episode_id": None}


def test_history_is_summed_by_time_and_times_are_weighed_by_steps() -> None:
    """A host that was not there yet adds nothing; one without steps has no say in their times."""
    first = view("a", sample(1, 10, 20.0, 50.0, leased=1), sample(2, 10, 20.0, 50.0, leased=2))
    second = view("b", sample(2, 30, 60.0, 90.0, leased=4))
    idle = view("c", sample(2, 0, None, None, leased=1))
    one, two = fleet_history([first, second, idle])
    assert (one["leased"], one["steps"], one["step_ms"]) == (1, 10, {"p50": 20.0, "p95": 50.0})
    assert (two["leased"], two["steps"], two["steps_per_s"]) == (7, 40, 4.0)
    assert two["step_ms"] == {"p50": 50.0, "p95": 90.0}
    assert two["open_ms"] == {"p50": None, "p95": None}


def test_history_is_bounded() -> None:
    """The oldest samples go, also where a host says more than we keep."""
    found = view("a", *(sample(n, n, None, None) for n in range(KEPT_SAMPLES + 5)))
    found.take_history({"every_s": 10.0, "samples": [sample(KEPT_SAMPLES + 5, 1, None, None)],
                        "usd_per_hour": None, "retired": {"crashed": 2}})  # fmt: skip
    assert len(found.samples) == KEPT_SAMPLES
    assert min(found.samples) == 6
    assert found.to_dict()["retired"] == {"crashed": 2}


def test_replicas_of_all_hosts_are_found_by_words_and_state() -> None:
    """Leased ones first, then by host and number; counts are of all, also of those that are not like that."""
    hosts = [
        view("b:1", rows=[row("r10", "leased", "calc"), row("r9", "leased", "calc"), row("r1", "ready")]),
        view("a:1", rows=[row("r2", "leased", "gimp"), row("r3", "ready")]),
    ]
    found = find_replicas(hosts, "", "", 10)
    assert [(one["at"], one["replica_id"]) for one in found["rows"]] == [
        ("hosts/a:1/", "r2"),
        ("hosts/b:1/", "r9"),
        ("hosts/b:1/", "r10"),
        ("hosts/a:1/", "r3"),
        ("hosts/b:1/", "r1"),
    ]  # fmt: skip
    assert found["counts"] == {"leased": 3, "ready": 2}
    some = find_replicas(hosts, "calc b:1", "leased", 1)
    assert (some["found"], [one["replica_id"] for one in some["rows"]]) == (2, ["r9"])
    assert find_replicas(hosts, "", "gone", 9)["found"] == 0


def test_episodes_that_live_come_first_then_the_newest() -> None:
    """Of all hosts, bounded."""

    def episode(name: str, began: float, ended: float | None) -> dict[str, Any]:
        return {"episode_id": name, "began_at": began, "ended_at": ended}

    a, b = view("a"), view("b")
    said = [
        (a, [episode("a1", 5, None), episode("a2", 1, 9)]),
        (b, [episode("b1", 6, None), episode("b2", 2, 10)]),
    ]
    assert [one["episode_id"] for one in merge_episodes(said, 3)] == ["b1", "a1", "b2"]


def test_no_two_hosts_have_one_name() -> None:
    """What may not stand in an address is left out; who comes later gets a number."""
    assert key_of("https://10.0.0.5:20000") == "10.0.0.5:20000"
    assert key_of("http://[::1]:20000") == "::1-:20000"
    assert key_of("http://10.0.0.5:20000", {"10.0.0.5:20000"}) == "10.0.0.5:20000-1"
    assert key_of("http://front/a/../b", {"front-a-..-b"}) == "front-a-..-b-1"


@pytest.mark.parametrize(
    ("method", "path", "looking", "using"),
    [
        ("GET", "host", True, True),
        ("GET", "replicas/r1/screenshot", True, True),
        ("GET", "episodes/e/frames/3", True, True),
        ("GET", "episodes/e/frames/x", False, False),
        ("GET", "episodes/../checkpoints", False, False),
        ("GET", "replicas/../screenshot", False, False),
        ("POST", "episodes", False, True),
        ("POST", "episodes/e/step", False, True),
        ("POST", "episodes/e/exec", False, False),
        ("DELETE", "episodes/e", False, True),
        ("DELETE", "checkpoints/c", False, False),
        ("PUT", "host", False, False),
        ("POST", "drain", False, False),
    ],
)
def test_only_what_the_page_needs_is_passed_on(method: str, path: str, looking: bool, using: bool) -> None:
    """To look, and to use a desktop where that is allowed."""
    assert may_pass(method, path, read_only=True) is looking
    assert may_pass(method, path, read_only=False) is using


def test_our_own_token_stays_here() -> None:
    """A host gets neither the page's token nor its cookies; what is odd in a path is quoted again."""
    sent = {"authorization": "Bearer mine", "cookie": "x", "osgym-lease": "L", "if-none-match": '"e"'}
    assert request_headers(sent) == {"osgym-lease": "L", "if-none-match": '"e"'}
    assert host_path("episodes/a b?c", "x=1") == "/v1/episodes/a%20b%3Fc?x=1"


def test_agents_of_one_machine_are_told_apart() -> None:
    """By their address, where their own name is not theirs alone."""
    hosts = [view("a:1"), view("a:2"), view("b:1"), view("c:1")]
    for one, name in zip(hosts, ("vm-a", "vm-a", "vm-b", None), strict=True):
        one.state = {"host_id": name} if name else {}
    name_hosts(hosts)
    assert [one.name for one in hosts] == ["a:1", "a:2", "vm-b", "c:1"]


def run(name: str, scored: int, mean: float | None, **fields: float) -> dict[str, Any]:
    """A run as a host says it."""
    zero = dict.fromkeys(("episodes", "active", "tasks", "steps", "solved", "lost"), 0)
    return {
        "run": name,
        "scored": scored,
        "mean_reward": mean,
        "began_at": 5.0,
        "last_at": 6.0,
        **zero,
        **fields,
    }


def test_a_run_on_two_hosts_is_one() -> None:
    """Rewards are weighed by what was scored; runs that go on come first, then the latest."""
    found = merge_runs(
        [
            [run("a", 1, 1.0, tasks=3, began_at=2.0), run("old", 0, None, last_at=1.0)],
            [run("a", 3, 0.0, tasks=2, last_at=9.0, active=1), run("new", 0, None, last_at=99.0)],
            [],
        ]
    )
    assert [one["run"] for one in found] == ["a", "new", "old"]
    assert (found[0]["scored"], found[0]["mean_reward"], found[0]["tasks"]) == (4, 0.25, 3)
    assert (found[0]["began_at"], found[0]["last_at"], found[1]["mean_reward"]) == (2.0, 9.0, None)


def test_episodes_of_a_run_come_in_the_order_of_their_ends() -> None:
    """Of all hosts; those that live come last, and each says where it is."""

    def episode(name: str, began: float, ended: float | None) -> dict[str, Any]:
        return {"episode_id": name, "began_at": began, "ended_at": ended}

    said = [(view("a"), [episode("a1", 1, 9), episode("a2", 3, None)]), (view("b"), [episode("b1", 2, 4)])]
    found = merge_run_episodes(said)
    assert [(one["episode_id"], one["at"]) for one in found] == [
        ("b1", "hosts/b/"),
        ("a1", "hosts/a/"),
        ("a2", "hosts/a/"),
    ]


async def test_wrong_tokens_are_bounded_here_too() -> None:
    """As at a host; nothing of a fleet is asked for them."""
    nobody: Any = None
    app = make_app(nobody, nobody, token="s", read_only=False)
    transport = httpx.ASGITransport(app, client=("192.0.2.7", 1234))
    async with httpx.AsyncClient(transport=transport, base_url="http://fleet") as http:
        answers = [
            await http.get("/fleet/hosts", headers={"Authorization": f"Bearer guess-{number}"})
            for number in range(40)
        ]
    assert [answer.status_code for answer in answers] == [401] * 30 + [429] * 10
    assert answers[-1].json()["code"] == "rate_limited"
    assert int(answers[-1].headers["retry-after"]) >= 1
