"""A client written for OSGym works unchanged: `requests`, its calls in its order, its assertions."""

from __future__ import annotations

import base64
import io
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from PIL import Image
from tests.support.fake_runtime import TASK, Served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A host agent with two worker ports and one warm replica."""
    with Served(tmp_path, ports=[0, 0], warm=1, max_replicas=4) as running:
        yield running


def post(url: str, path: str, body: Any) -> requests.Response:
    """One call as their client makes it."""
    return requests.post(url + path, headers={"Content-Type": "application/json"}, json=body, timeout=20)


def scaled(text: str) -> str:
    """What their client sends for a model's click in thousandths of the screen."""
    found = re.match(r"click\((\d+),(\d+)\)", text)
    assert found
    return f"click({int(int(found[1]) / 1000.0 * 1920)},{int(int(found[2]) / 1000.0 * 1080)})"


def size_of(shot: str) -> tuple[int, int]:
    """The size of a screenshot as their client decodes it."""
    return Image.open(io.BytesIO(base64.b64decode(shot))).size


def test_a_whole_episode(served: Served) -> None:
    """Reset, steps, finish: a 1920x1080 picture each time, a number as reward, the VM released."""
    url = served.urls[0]
    reset = post(url, "/reset", {"task_config": TASK, "timeout": 1000})
    reset.raise_for_status()
    data = reset.json()
    assert set(data) == {"screenshot", "problem", "vm_id"}
    assert data["problem"] == "Say yes."
    assert size_of(data["screenshot"]) == (1920, 1080)
    vm_id = data["vm_id"]
    assert isinstance(vm_id, int)
    for action in (scaled("click(500,500)"), "type(hello (you) & me)", "scroll(10,10,-50)", "wait()"):
        answer = post(url, "/step", {"action": action, "vm_id": vm_id})
        answer.raise_for_status()
        step = answer.json()
        assert set(step) == {"screenshot", "is_finish", "reward"}
        assert step["is_finish"] is False
        assert step["reward"] == 0
        assert size_of(step["screenshot"]) == (1920, 1080)
    look = requests.get(f"{url}/screenshot", params={"vmId": vm_id}, timeout=20)
    assert look.json()["vm_id"] == vm_id
    last = post(url, "/step", {"action": "finish()", "vm_id": vm_id}).json()
    assert last["is_finish"] is True
    assert isinstance(last["reward"], int | float)
    assert last["reward"] == 1.0
    gone = post(url, "/step", {"action": "wait()", "vm_id": vm_id})
    assert gone.status_code == 400
    assert set(gone.json()) == {"message", "code"}


def test_the_wrapped_form_of_their_readme(served: Served) -> None:
    """The action between think and action marks is carried out."""
    url = served.urls[0]
    vm_id = post(url, "/reset", {"task_config": TASK, "timeout": 60}).json()["vm_id"]
    action = "<|think_start|><|think_end|><|action_start|>click(100,100)<|action_end|>"
    assert post(url, "/step", {"action": action, "vm_id": vm_id}).status_code == 200
    assert served.runtime.by_generation(vm_id).agent.acted[-1] == {"op": "click", "x": 100, "y": 100}


def test_call_user_is_a_fail(served: Served) -> None:
    """It ends the episode, and earns nothing where the task can be done."""
    url = served.urls[0]
    vm_id = post(url, "/reset", {"task_config": TASK, "timeout": 60}).json()["vm_id"]
    last = post(url, "/step", {"action": "call_user()", "vm_id": vm_id}).json()
    assert (last["is_finish"], last["reward"]) == (True, 0.0)
    infeasible = {**TASK, "evaluator": {"func": "infeasible"}}
    vm_id = post(url, "/reset", {"task_config": infeasible, "timeout": 60}).json()["vm_id"]
    assert post(url, "/step", {"action": "call_user()", "vm_id": vm_id}).json()["reward"] == 1.0


def test_one_clients_reset_leaves_the_others_alone(served: Served) -> None:
    """Theirs released every VM of the worker."""
    url = served.urls[0]
    first = post(url, "/reset", {"task_config": TASK, "timeout": 60}).json()["vm_id"]
    second = post(url, "/reset", {"task_config": TASK, "timeout": 60}).json()["vm_id"]
    assert first != second
    assert post(url, "/step", {"action": "wait()", "vm_id": first}).status_code == 200
    assert post(url, "/step", {"action": "wait()", "vm_id": second}).status_code == 200


def test_shutdown_of_one_and_of_all_of_a_worker(served: Served) -> None:
    """`"all"` means those of the port that is called."""
    one, other = served.urls
    mine = post(one, "/reset", {"task_config": TASK, "timeout": 60}).json()["vm_id"]
    too = post(one, "/reset", {"task_config": TASK, "timeout": 60}).json()["vm_id"]
    theirs = post(other, "/reset", {"task_config": TASK, "timeout": 60}).json()["vm_id"]
    assert post(one, "/shutdown", {"vm_id": mine}).json() == {"vm_id": mine}
    assert post(one, "/shutdown", {"vm_id": mine}).status_code == 400
    assert post(one, "/shutdown", {"vm_id": "all"}).json() == {"vm_id": "all"}
    assert post(one, "/step", {"action": "wait()", "vm_id": too}).status_code == 400
    assert post(other, "/step", {"action": "wait()", "vm_id": theirs}).status_code == 200


def test_an_idle_vm_is_really_stopped_and_its_number_never_used_again(served: Served) -> None:
    """Its replica is destroyed; the next client gets another number."""
    url = served.urls[0]
    vm_id = post(url, "/reset", {"task_config": TASK, "timeout": 1}).json()["vm_id"]
    until = time.monotonic() + 10
    while any(r.generation == vm_id for r in list(served.runtime.alive.values())):
        assert time.monotonic() < until
        time.sleep(0.05)
    late = post(url, "/step", {"action": "wait()", "vm_id": vm_id})
    assert (late.status_code, late.json()["code"]) == (400, "lease_expired")
    assert post(url, "/reset", {"task_config": TASK, "timeout": 60}).json()["vm_id"] > vm_id


def test_any_call_refreshes_the_time_to_live(served: Served) -> None:
    """Looks and steps count."""
    url = served.urls[0]
    vm_id = post(url, "/reset", {"task_config": TASK, "timeout": 1}).json()["vm_id"]
    for _ in range(4):
        time.sleep(0.5)
        assert requests.get(f"{url}/screenshot", params={"vmId": vm_id}, timeout=20).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/reset", {"task_config": TASK}),
        ("/reset", {"timeout": 5}),
        ("/step", {"action": "wait()"}),
        ("/step", {"action": 5, "vm_id": 1}),
        ("/step", {"action": "wait()", "vm_id": "1"}),
        ("/shutdown", {"vm_id": "0"}),
        ("/shutdown", {}),
    ],
)
def test_validation_errors_have_their_shape(served: Served, path: str, body: Any) -> None:
    """422 with `detail`, as their server answers; "0" is no no-op."""
    answer = post(served.urls[0], path, body)
    assert answer.status_code == 422
    assert set(answer.json()) == {"detail"}
    assert answer.json()["detail"][0]["loc"][0] == "body"


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/step", {"action": "wait()", "vm_id": 10**9}, "unknown_episode"),
        ("/reset", {"task_config": {"id": "x"}, "timeout": 5}, "task_invalid"),
        (
            "/reset",
            {"task_config": {**TASK, "evaluator": {"func": "no_such"}}, "timeout": 5},
            "task_unsupported",
        ),
    ],
)
def test_handler_errors_have_their_shape(served: Served, path: str, body: Any, code: str) -> None:
    """400 with `message`, and our `code` beside it."""
    answer = post(served.urls[0], path, body)
    assert (answer.status_code, set(answer.json()), answer.json()["code"]) == (400, {"message", "code"}, code)


def test_an_action_that_cannot_be_parsed_does_nothing(served: Served) -> None:
    """400 that says why; the VM lives on and did nothing."""
    url = served.urls[0]
    vm_id = post(url, "/reset", {"task_config": TASK, "timeout": 60}).json()["vm_id"]
    answer = post(url, "/step", {"action": "click(1,2) & dance()", "vm_id": vm_id})
    assert answer.status_code == 400
    assert "dance" in answer.json()["message"]
    assert served.runtime.by_generation(vm_id).agent.acted == []
    assert post(url, "/step", {"action": "wait()", "vm_id": vm_id}).status_code == 200


def test_after_a_hundred_steps_it_is_over(tmp_path: Path) -> None:
    """The last allowed step finishes and is scored."""
    with Served(tmp_path, osgym_max_steps=3) as served:
        url = served.urls[0]
        vm_id = post(url, "/reset", {"task_config": TASK, "timeout": 60}).json()["vm_id"]
        steps = [post(url, "/step", {"action": "wait()", "vm_id": vm_id}).json() for _ in range(3)]
        assert [s["is_finish"] for s in steps] == [False, False, True]
        assert steps[-1]["reward"] == 1.0


def test_clients_do_not_block_each_other(served: Served) -> None:
    """A step that waits holds up neither another client's step nor its reset."""
    url = served.urls[0]
    slow = post(url, "/reset", {"task_config": TASK, "timeout": 60}).json()["vm_id"]
    gate = served.runtime.by_generation(slow).agent.step_gate
    gate.clear()
    answers: list[int] = []
    thread = threading.Thread(
        target=lambda: answers.append(post(url, "/step", {"action": "wait()", "vm_id": slow}).status_code)
    )
    thread.start()
    quick = post(url, "/reset", {"task_config": TASK, "timeout": 60}).json()["vm_id"]
    assert post(url, "/step", {"action": "wait()", "vm_id": quick}).status_code == 200
    assert answers == []
    served.loop.call_soon_threadsafe(gate.set)
    thread.join(20)
    assert answers == [200]


def test_only_allowed_addresses_may_call(tmp_path: Path) -> None:
    """403 with their message shape for the others."""
    with Served(tmp_path, allowed_ips=["10.0.0.0/8"]) as served:
        answer = post(served.urls[0], "/reset", {"task_config": TASK, "timeout": 60})
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    with Served(tmp_path / "b", allowed_ips=["127.0.0.0/8"]) as served:
        assert post(served.urls[0], "/reset", {"task_config": TASK, "timeout": 60}).status_code == 200


def test_a_worker_that_crashed_is_not_locked_out_by_its_own_vms(tmp_path: Path) -> None:
    """Nothing is free, and the timeout is long: the VM that was idle longest makes way for the new /reset."""
    with Served(tmp_path, warm=0, max_replicas=2, osgym_make_way_s=0.5) as served:
        url = served.urls[0]
        old, newer = (
            post(url, "/reset", {"task_config": TASK, "timeout": 1000}).json()["vm_id"] for _ in range(2)
        )
        began = time.monotonic()
        again = post(url, "/reset", {"task_config": TASK, "timeout": 1000})
        assert again.status_code == 200, again.text
        assert time.monotonic() - began < 5
        assert post(url, "/step", {"action": "wait()", "vm_id": again.json()["vm_id"]}).status_code == 200
        assert post(url, "/step", {"action": "wait()", "vm_id": newer}).status_code == 200
        late = post(url, "/step", {"action": "wait()", "vm_id": old})
        assert (late.status_code, late.json()["code"]) == (400, "lease_expired")
        assert "was ended, because a /reset" in late.json()["message"]


def test_no_vm_in_use_and_none_of_another_worker_makes_way(tmp_path: Path) -> None:
    """One that is called, one of another port: the /reset waits, and is told why."""
    options = {"ports": [0, 0], "warm": 0, "max_replicas": 2, "osgym_make_way_s": 0.5, "osgym_wait_s": 1.5}
    with Served(tmp_path, **options) as served:
        one, other = served.urls
        mine = post(one, "/reset", {"task_config": TASK, "timeout": 1000}).json()["vm_id"]
        theirs = post(other, "/reset", {"task_config": TASK, "timeout": 1000}).json()["vm_id"]
        stop = threading.Event()

        def keep_calling() -> None:
            while not stop.wait(0.1):
                requests.get(f"{one}/screenshot", params={"vmId": mine}, timeout=20)

        caller = threading.Thread(target=keep_calling)
        caller.start()
        try:
            refused = post(one, "/reset", {"task_config": TASK, "timeout": 1000})
        finally:
            stop.set()
            caller.join()
        assert (refused.status_code, refused.json()["code"]) == (400, "no_capacity")
        assert "max_replicas" in refused.json()["message"]
        for url, vm_id in ((one, mine), (other, theirs)):
            assert post(url, "/step", {"action": "wait()", "vm_id": vm_id}).status_code == 200


def test_health_needs_no_token_and_no_address(tmp_path: Path) -> None:
    """What load balancers and start scripts ask; the same as on v1."""
    with Served(tmp_path, token="secret", allowed_ips=["10.0.0.0/8"]) as served:
        answer = requests.get(f"{served.urls[0]}/health", timeout=20)
        assert answer.status_code == 200
        assert answer.json()["status"] == "ok"
        assert answer.json() == requests.get(f"{served.urls[0]}/v1/health", timeout=20).json()


def test_a_setup_step_whose_command_fails(served: Served) -> None:
    """A warning beside the three fields, and a refusal where the client asks for that."""
    config = [{"type": "execute", "parameters": {"command": ["status", "3", "oops"]}}]
    body = {"task_config": {**TASK, "config": config}, "timeout": 1000}
    data = post(served.urls[0], "/reset", body).json()
    assert set(data) == {"screenshot", "problem", "vm_id", "setup_warnings"}
    assert [(w["step"], w["exit_status"], w["stderr"]) for w in data["setup_warnings"]] == [(0, 3, "oops")]
    strict = post(served.urls[0], "/reset", {**body, "strict_setup": True})
    assert strict.status_code == 400
    assert "config[0] (execute): the command ended with status 3" in strict.text


def test_many_resets_of_a_crashed_worker_all_get_through(tmp_path: Path) -> None:
    """As many VMs make way as resets wait, without a pause for each."""
    with Served(tmp_path, warm=0, max_replicas=6, osgym_make_way_s=0.3) as served:
        url = served.urls[0]
        body = {"task_config": TASK, "timeout": 1000}
        old = {post(url, "/reset", body).json()["vm_id"] for _ in range(6)}
        answers: list[requests.Response] = []
        threads = [threading.Thread(target=lambda: answers.append(post(url, "/reset", body))) for _ in old]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert time.monotonic() - began < 8
        assert [answer.status_code for answer in answers] == [200] * 6
        assert not old & {answer.json()["vm_id"] for answer in answers}
