"""Names of the tasks package that the rest of the host imports."""

from osgym_host.tasks.check_question import Answer, Question, ask
from osgym_host.tasks.context import TaskContext
from osgym_host.tasks.downloads import DownloadCache
from osgym_host.tasks.errors import (
    EvaluatorError,
    InvalidTask,
    TaskError,
    UnsupportedTask,
)
from osgym_host.tasks.evaluate import LastAction, evaluate, evidence_of
from osgym_host.tasks.parse import parse_task, validate_task
from osgym_host.tasks.policy import CheckDeadline, TaskPolicy
from osgym_host.tasks.replica_side import AGENT_FAULTS, BREAKABLE
from osgym_host.tasks.sandbox import Sandbox
from osgym_host.tasks.schema import Task
from osgym_host.tasks.setup import run_setup
from osgym_host.tasks.templating import host_files, template_key, why_no_template
from osgym_host.tasks.warm_use import used_apps

__all__ = [
    "AGENT_FAULTS",
    "BREAKABLE",
    "Answer",
    "CheckDeadline",
    "DownloadCache",
    "EvaluatorError",
    "InvalidTask",
    "LastAction",
    "Question",
    "Sandbox",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskPolicy",
    "UnsupportedTask",
    "ask",
    "evaluate",
    "evidence_of",
    "host_files",
    "parse_task",
    "run_setup",
    "template_key",
    "used_apps",
    "validate_task",
    "why_no_template",
]
