"""What tests of trainers share: a task whose reward an action decides, and how its desktop is lost."""

from __future__ import annotations

import os
import signal
from typing import Any

from tests.support.host_process import HostProcess

NOTE = "hello"
TASK: dict[str, Any] = {
    "id": "say-hello",
    "instruction": f"Type {NOTE} into the text editor that is open, and save it.",
    "config": [
        {"type": "execute", "parameters": {"command": ["sh", "-c", "printf '' > ~/note.txt"]}},
        {"type": "launch", "parameters": {"command": ["sh", "-c", "exec mousepad ~/note.txt"]}},
        {
            "type": "execute_with_verification",
            "parameters": {
                "command": ["true"],
                "verification": {"window_exists": "Mousepad"},
                "max_wait_time": 60,
                "check_interval": 0.1,
            },
        },
    ],
    "evaluator": {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": ["sh", "-c", "cat ~/note.txt"]},
        "expected": {"type": "rule", "rules": {"expected": f"{NOTE}\n"}},
    },
}


def kill_leased(host: HostProcess) -> None:
    """Ends the replicas that are played on, as crashes would."""
    for one in host.replicas("leased"):
        os.kill(one["pid"], signal.SIGKILL)
