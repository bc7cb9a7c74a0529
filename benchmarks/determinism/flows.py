"""Flows of the benchmark: shipped tasks by their oracles, and flows that look for differences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from osgym_host.tasks.shipped import ShippedTask, load_shipped

Actions = list[dict[str, Any]]
_SCORED_BY_NOBODY = {"func": "infeasible"}


@dataclass(frozen=True)
class Flow:
    """A task and the steps that are played on it."""

    name: str
    task: dict[str, Any] = field(repr=False)
    steps: tuple[Actions, ...] = field(repr=False)


def of_task(task: ShippedTask) -> Flow:
    """Return a shipped task by its oracle, without the claim to be done at its end."""
    steps = ([action for action in step if action["op"] not in ("done", "fail")] for step in task.oracle)
    return Flow(task.name, task.task, tuple(step for step in steps if step))


def all_flows(flavor: str, only: tuple[str, ...], *, moving: bool = False) -> list[Flow]:
    """Return all flows, or those that have one of `only` in their name.

    Args:
        moving: Also those whose desktops move by themselves.

    Raises:
        SystemExit: No flow has such a name.
    """
    flows = [*SCRIPTED, *(MOVING if moving else ()), *map(of_task, load_shipped(flavor=flavor))]
    found = [flow for flow in flows if not only or any(part in flow.name for part in only)]
    if not found:
        raise SystemExit("--only: no task or flow has that name")
    return found


def _launch(command: list[str], window: str) -> list[dict[str, Any]]:
    verification = {"window_exists": window}
    wait = {"command": ["true"], "verification": verification, "max_wait_time": 30, "check_interval": 0.1}
    return [
        {"type": "launch", "parameters": {"command": command}},
        {"type": "execute_with_verification", "parameters": wait},
    ]


def _flow(name: str, config: list[dict[str, Any]], *steps: Actions) -> Flow:
    task = {
        "id": f"determinism-{name}",
        "instruction": "",
        "config": config,
        "evaluator": _SCORED_BY_NOBODY,
        "osgym": {"flavor": "small"},
    }
    return Flow(f"flow/{name}", task, steps)


def _line(text: str) -> Actions:
    return [{"op": "type", "text": f"{text}\n"}]


def _keys(*keys: str) -> Actions:
    return [{"op": "key", "keys": list(keys)}]


_TERMINAL = _launch(["xfce4-terminal", "--geometry=100x30+200+120"], "Terminal")
_WRITE = {
    "type": "execute",
    "parameters": {"command": "cd ~/Documents && touch b a c && mkdir z y && cp /etc/hosts x", "shell": True},
}

SCRIPTED = (
    _flow("desktop", [], [{"op": "move", "x": 900, "y": 500}], [{"op": "click", "x": 900, "y": 500}]),
    _flow(
        "terminal",
        _TERMINAL,
        _line("hostname; whoami; pwd"),
        _line("ls -a ~ /etc/X11 /usr/share/applications | head -20"),
        _line("clear; ls -U /usr/lib/python3 /home/user"),
        _line("cd /etc; sudo id"),
    ),
    _flow(
        "terminal-of-its-own",  # what a replica knows of itself; some of it differs for good reasons
        _TERMINAL,
        _line("echo $$; tty; ps -o pid,comm"),
        _line("clear; cat /etc/machine-id; id"),
        _line("clear; mktemp -u /tmp/x.XXXX"),
        _line("clear; date"),
        _line("clear; touch f; ls -l"),
        _line("clear; python3 -c 'print({chr(97 + n) for n in range(9)})'"),
    ),
    _flow(
        "files",
        [_WRITE, *_launch(["pcmanfm", "/home/user/Documents"], "Documents")],
        _keys("ctrl", "2"),  # the list with its column of dates
        _keys("ctrl", "1"),
        _keys("alt", "up"),
        _keys("ctrl", "a"),
    ),
    _flow(
        "dialogs",
        [_WRITE, *_launch(["mousepad"], "Mousepad")],
        [{"op": "type", "text": "The quick brown fox"}],
        _keys("ctrl", "s"),
        _keys("escape"),
        _keys("ctrl", "o"),
        [{"op": "type", "text": "/home/user/Documents/"}],
        _keys("escape"),
        _keys("escape"),
        _keys("ctrl", "h"),
        _keys("escape"),
    ),
    _flow(
        "two-windows",
        [*_launch(["galculator"], "galculator"), *_launch(["mousepad"], "Mousepad")],
        _keys("alt", "tab"),
        [{"op": "type", "text": "12*3"}],
        _keys("alt", "F4"),
    ),
)

_COUNT = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.1; done"
_POINT: Actions = [{"op": "move", "x": 1200, "y": 200}]

MOVING = (
    _flow(
        "counter",  # ten numbers a second, for good: what a step costs in time, the next frames show
        _launch(["xfce4-terminal", "--geometry=100x30+200+120", "-x", "sh", "-c", _COUNT], "Terminal"),
        *[_POINT] * 4,
    ),
    _flow(
        "late-window",  # due within the first thoughts
        [
            *_launch(["galculator"], "galculator"),
            {"type": "launch", "parameters": {"command": ["sh", "-c", "sleep 6; exec mousepad"]}},
        ],
        *[_POINT] * 4,
    ),
)
"""Flows whose desktops change without input."""
