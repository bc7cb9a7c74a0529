"""What the rest of the host uses of the tasks package; it may import nothing else of it."""

from osgym_host.tasks.context import TaskContext, TaskPolicy
from osgym_host.tasks.downloads import DownloadCache
from osgym_host.tasks.errors import (
    DeadlineExceeded,
    DownloadFailed,
    EvaluatorError,
    InvalidTask,
    RefusedByPolicy,
    SetupFailed,
    TaskError,
    UnsupportedTask,
)
from osgym_host.tasks.evaluate import CheckResult, Evaluation, LastAction, evaluate
from osgym_host.tasks.sandbox import Sandbox
from osgym_host.tasks.schema import Task, parse_task, validate_task
from osgym_host.tasks.setup import run_setup

__all__ = [
    "CheckResult",
    "DeadlineExceeded",
    "DownloadCache",
    "DownloadFailed",
    "Evaluation",
    "EvaluatorError",
    "InvalidTask",
    "LastAction",
    "RefusedByPolicy",
    "Sandbox",
    "SetupFailed",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskPolicy",
    "UnsupportedTask",
    "evaluate",
    "parse_task",
    "run_setup",
    "validate_task",
]
