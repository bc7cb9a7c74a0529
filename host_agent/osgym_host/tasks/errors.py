"""Errors of tasks.

Every error carries a stable ``code`` for the wire, a sentence for people, and ``details`` for
programs. ``error_class`` says whose fault it is: ``task`` (the task file) or ``infra`` (this host, its
guest, its evaluator). Neither is ever turned into a reward of 0. `ResultUnusable` is, and only that: what
the policy left in its replica is the policy's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from osgym_host.errors import OsgymHostError
from osgym_protocol.codes import ErrorClass, ErrorCode
from osgym_protocol.host_api import SetupWarning


class TaskError(OsgymHostError):
    """Base of all errors of tasks.

    Attributes:
        code: what a client is told.
        error_class: whose fault it is: the task's or ours.
        details: plain JSON values.
    """

    code = ErrorCode.INTERNAL
    error_class = ErrorClass.TASK

    def __init__(self, message: str, details: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, object] = dict(details or {})


class InvalidTask(TaskError):
    """The task is not in OSWorld's format; ``details["problems"]`` names each field."""

    code = ErrorCode.TASK_INVALID


class UnsupportedTask(TaskError):
    """The task needs setup steps, getters or metrics that this host does not have.

    Attributes:
        features: what is missing, e.g. ``"metric compare_pdfs"``.
    """

    code = ErrorCode.TASK_UNSUPPORTED

    def __init__(self, features: Sequence[str]) -> None:
        names = ", ".join(features)
        super().__init__(f"this host does not support: {names}", {"features": list(features)})
        self.features = tuple(features)


class RefusedByPolicy(TaskError):
    """The task needs an address, a path or a size that this host does not allow."""

    code = ErrorCode.TASK_UNSUPPORTED


class SetupFailed(TaskError):
    """A setup step could not be carried out.

    Attributes:
        step: index in ``config`` (or ``postconfig``).
        kind: its ``type``.
        by_replica: what is in the replica did not let it, which a policy has in its hands once it acts.
    """

    code = ErrorCode.SETUP_FAILED

    def __init__(
        self, message: str, *, step: int, kind: str, phase: str = "config", by_replica: bool = False
    ) -> None:
        super().__init__(f"{phase}[{step}] ({kind}): {message}", {"step": step, "type": kind, "phase": phase})
        self.step = step
        self.kind = kind
        self.by_replica = by_replica


class StrictSetupFailed(TaskError):
    """A command of the setup failed, and the client asked for ``strict_setup``."""

    code = ErrorCode.SETUP_FAILED

    def __init__(self, warning: SetupWarning) -> None:
        super().__init__(
            f"config[{warning.step}] ({warning.type}): the command ended with status {warning.exit_status}",
            {"step": warning.step, "type": warning.type, "setup_warnings": [warning.to_dict()]},
        )


class DownloadFailed(TaskError):
    """A file of the task could not be fetched; ``details["url"]`` says which."""

    code = ErrorCode.SETUP_FAILED
    error_class = ErrorClass.INFRA


class DeadlineExceeded(TaskError):
    """Setup or evaluation did not finish in its time."""

    code = ErrorCode.TIMEOUT
    error_class = ErrorClass.INFRA


class ResultUnusable(OsgymHostError):
    """The content of the replica cannot be scored: a wrong result, so a 0 with this reason.

    Not a `TaskError`: nothing is wrong with the task or with the host.
    """


class EvaluatorError(TaskError):
    """The check itself failed, so that there is no reward, not even 0."""

    code = ErrorCode.EVALUATOR_ERROR
    error_class = ErrorClass.INFRA
