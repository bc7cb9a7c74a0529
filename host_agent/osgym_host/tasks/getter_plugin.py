"""The names that a distribution with getters or setup steps may import.

A getter is registered as an entry point of the group ``osgym.getters``, a setup step of
``osgym.setup_steps``. They run in the host, so they move bytes and parse nothing that comes from a guest: a
file that has to be parsed is handed to a reader or a metric in the confined process. `docs/plugins.md` has
examples.
"""

from osgym_host.errors import OsgymHostError
from osgym_host.guest_client import GuestAnswerTooLarge, GuestClient, GuestError, GuestRefused
from osgym_host.guest_client.answers import large_json_object
from osgym_host.guest_client.http import HttpResponse
from osgym_host.guest_client.tunnel import GuestTunnel
from osgym_host.tasks.context import COMMAND_TIMEOUT_S, TaskRun
from osgym_host.tasks.errors import DeadlineExceeded, ResultUnusable
from osgym_host.tasks.getters import GUEST_TIMEOUT_S, command_output, guest_file, guest_file_value
from osgym_host.tasks.registry import (
    Command,
    FailedCommand,
    FileName,
    FilePath,
    FileUrl,
    GetterFunction,
    LenientBool,
    NoParameters,
    Parameters,
    StepProblem,
    Text,
    getter,
    setup_step,
)
from osgym_host.tasks.replica_side import PROBE_S, is_ours
from osgym_host.tasks.urls import MAX_URL_CHARS, InvalidUrl, check_text
from osgym_host.tasks.values import DiskFile, NamedFile, Value

__all__ = [
    "COMMAND_TIMEOUT_S",
    "GUEST_TIMEOUT_S",
    "MAX_URL_CHARS",
    "PROBE_S",
    "Command",
    "DeadlineExceeded",
    "DiskFile",
    "FailedCommand",
    "FileName",
    "FilePath",
    "FileUrl",
    "GetterFunction",
    "GuestAnswerTooLarge",
    "GuestClient",
    "GuestError",
    "GuestRefused",
    "GuestTunnel",
    "HttpResponse",
    "InvalidUrl",
    "LenientBool",
    "NamedFile",
    "NoParameters",
    "OsgymHostError",
    "Parameters",
    "ResultUnusable",
    "StepProblem",
    "TaskRun",
    "Text",
    "Value",
    "check_text",
    "command_output",
    "getter",
    "guest_file",
    "guest_file_value",
    "is_ours",
    "large_json_object",
    "setup_step",
]
