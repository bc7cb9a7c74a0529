"""Inspect evaluates: ``inspect eval examples/trainers/inspect_eval.py --model MODEL -T tasks=tasks/``."""

from __future__ import annotations

from inspect_ai import Task, task
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash, computer

from osgym_sdk.integrations.inspect import desktop_score, samples


@task
def desktops(tasks: str = "tasks/mousepad", hosts: str | None = None) -> Task:
    """Let a model with a computer and a shell do tasks, and score them by their own checks."""
    solver = [use_tools(computer(), bash(timeout=60)), generate()]
    return Task(dataset=samples(tasks, hosts=hosts), solver=solver, scorer=desktop_score())
